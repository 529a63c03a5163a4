#include "rxe_user/observe/peer_finding.h"

#include <ifaddrs.h>
#include <netinet/in.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rxe_user/base/qpn.h"
#include "wire/address.h"
#include "wire/aeth.h"
#include "wire/psn.h"

namespace rxe_user {
namespace {

using transport::Reason;
using transport::Side;

// Whether an interface of this network namespace has the address.
bool IsLocal(const std::string& text) {
  const auto wanted = wire::IpAddress::Parse(text);
  if (!wanted.has_value()) return false;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(
      list, &::freeifaddrs);
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    if (i->ifa_addr->sa_family == AF_INET && wanted->is_v4()) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      const auto* mask = reinterpret_cast<const sockaddr_in*>(i->ifa_netmask);
      const auto* bytes = reinterpret_cast<const uint8_t*>(&in->sin_addr);
      if (std::equal(bytes, bytes + 4, wanted->bytes.begin() + 12)) return true;
      // All addresses in 127.0.0.0/8 are local.
      if (bytes[0] == 127 && wanted->bytes[12] == 127 && mask != nullptr) {
        return true;
      }
    } else if (i->ifa_addr->sa_family == AF_INET6) {
      const auto* in6 = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      if (std::equal(wanted->bytes.begin(), wanted->bytes.end(),
                     in6->sin6_addr.s6_addr)) {
        return true;
      }
    }
  }
  return false;
}

std::string Name(const Witness& process) {
  return absl::StrCat(
      "process ", process.pid,
      process.command.empty() ? "" : " (" + process.command + ")");
}

absl::string_view View(std::string_view text) {
  return {text.data(), text.size()};
}

uint64_t OverflowOf(const ReportRecord& device) {
  for (const auto& [name, value] : device.counters) {
    if (name == "rx_socket_overflow") return value;
  }
  return 0;
}

// What all processes know about the peer's number.
struct Search {
  const Witness* owner = nullptr;  // of the queue pair
  const ReportRecord* qp = nullptr;
  uint64_t overflow = 0;  // packets dropped by its device's full buffers
  const Witness* destroyer = nullptr;  // its recorder has seen it destroyed
  const ReportRecord* destroyed = nullptr;
  uint64_t destroyed_ago = 0;            // ns
  const ReportRecord* failed = nullptr;  // the event: it went to ERR
  const Witness* slot = nullptr;         // has the numbers around it
  const Witness* stopped = nullptr;
  const Witness* silent = nullptr;
};

Search SearchFor(uint32_t qpn, const std::vector<Witness>& processes) {
  Search found;
  for (const Witness& process : processes) {
    if (process.silent) {
      (process.stopped ? found.stopped : found.silent) = &process;
      continue;
    }
    uint64_t now = 0;
    uint64_t overflow = 0;
    for (const ReportRecord& record : process.records) {
      if (record.kind == "device") {
        now = record.Number("now_ns");
        overflow = OverflowOf(record);
      }
      if (record.kind == "lane" && record.Number("slot") == SlotOf(qpn)) {
        found.slot = &process;
      }
      if (record.Number("qpn") != qpn) continue;
      if (record.kind == "queue_pair") {
        found.owner = &process;
        found.qp = &record;
        found.overflow = overflow;
      } else if (record.kind == "event" && record.Word("kind") == "destroyed") {
        found.destroyer = &process;
        found.destroyed = &record;
        const uint64_t then = record.Number("time_ns");
        found.destroyed_ago = now > then ? now - then : 0;
      } else if (record.kind == "event" && record.Word("kind") == "state" &&
                 record.Number("reason") != 0) {
        found.failed = &record;
      }
    }
  }
  return found;
}

// The finding if the peer's queue pair failed for `reason`. `what`: it.
PeerFinding OfReason(const std::string& what,
                     const transport::ReasonText& reason) {
  // The peer's own side is the peer's side here.
  const Side side = reason.side == Side::kOwn    ? Side::kPeer
                    : reason.side == Side::kPeer ? Side::kOwn
                                                 : reason.side;
  return {
      absl::StrCat(what, ", for its reason ", static_cast<int>(reason.reason),
                   " (", View(reason.name), "). It says: ", View(reason.what)),
      side, absl::StrCat("at the peer: ", View(reason.advice))};
}

// The finding if the peer's queue pair exists.
PeerFinding OfExisting(const ReportRecord& own, std::optional<uint32_t> unacked,
                       const Search& found) {
  const ReportRecord& peer = *found.qp;
  const std::string name = absl::StrFormat(
      "queue pair 0x%06x of %s", peer.Number("qpn"), Name(*found.owner));
  const std::string state = peer.Word("state");
  if (const uint64_t error = peer.Number("first_error"); error != 0) {
    const transport::ReasonText* const reason =
        transport::FindReason(static_cast<uint32_t>(error));
    if (reason != nullptr) {
      return OfReason(absl::StrCat(name, " is in ", state), *reason);
    }
  }
  if (state != "RTR" && state != "RTS" && state != "SQD") {
    return {absl::StrCat(name, " is in ", state, ", and takes no packets"),
            Side::kPeer,
            "Move the peer's queue pair to RTR before this side sends."};
  }
  if (found.owner->ended_ago != 0) {
    return {absl::StrFormat(
                "%s was in %s, but its recording ends %.3f s before: the "
                "process had ended or was stopped, or nothing reached it",
                name, state, static_cast<double>(found.owner->ended_ago) / 1e9),
            Side::kPeer,
            "Look how the peer's process ended. If it did not, look for a "
            "firewall or a wrong route."};
  }
  if (peer.Number("peer_qpn") != own.Number("qpn")) {
    return {absl::StrFormat(
                "%s is connected to queue pair 0x%06x, not to this one: the "
                "number is wrong",
                name, peer.Number("peer_qpn")),
            Side::kEither,
            "Compare dest_qp_num at both ends with the number that the other "
            "end has."};
  }
  if (peer.Number("recv_queued") == 0 && peer.Number("uses_srq") == 0 &&
      own.Word("waits_for") == "rnr_timer") {
    return {name + " has no receive posted", Side::kPeer, ""};
  }
  const auto expected = static_cast<uint32_t>(peer.Number("expected_psn"));
  const bool has_executed = unacked && wire::PsnDiff(expected, *unacked) > 0;
  // 0 also if the queue pair is in ERR: it no longer knows what it sent.
  const uint64_t sent =
      (own.Number("send_psn") - own.Number("unacked_psn")) & wire::kPsnMask;
  const std::string progress = absl::StrCat(
      sent == 0 ? "; it"
                : absl::StrCat("; this side has sent ", sent,
                               " packets that it does not acknowledge, and it"),
      " expects PSN ", expected);
  const auto patience = static_cast<uint64_t>(
      wire::AckTimeoutNanos(static_cast<uint8_t>(own.Number("timeout"))));
  if (patience != 0 && found.owner->unread_for >= patience) {
    return {absl::StrFormat(
                "%s was ready (%s), but its process read too late: packets "
                "for it waited in its socket for %.3f s. It was stopped, or "
                "had no core%s",
                name, state, static_cast<double>(found.owner->unread_for) / 1e9,
                progress),
            Side::kPeer,
            "See that the peer's process has a core (other processes, limits "
            "of its cgroup) and is not stopped by a signal or a debugger; "
            "raise timeout and retry_cnt."};
  }
  if (!has_executed && found.overflow != 0) {
    return {absl::StrCat(name, " is alive and ready (", state,
                         "), but the kernel has dropped ", found.overflow,
                         " packets to its process, whose receive buffer was "
                         "full: more arrived than it could read",
                         progress),
            Side::kPeer,
            "Let fewer peers send to it at once, or less each; raise timeout "
            "and retry_cnt, so that senders slow down instead of giving up. "
            "At the peer: see that the process has a core; without "
            "CAP_NET_ADMIN, raise net.core.rmem_max to 8 MiB."};
  }
  return {
      absl::StrCat(name, " is alive and ready (", state,
                   has_executed
                       ? "). It has executed what this side waits for, so its "
                         "answers are lost on the way"
                       : "), so packets are lost on the way, of either "
                         "direction",
                   progress),
      Side::kEither,
      "Look for a firewall, a wrong route, or an MTU below path_mtu: the "
      "rx_drop counters of rxe-user stat, at both ends, and a capture of "
      "both."};
}

}  // namespace

bool DependsOnPeer(Reason reason) {
  switch (reason) {
    case Reason::kNeverAnswered:
    case Reason::kPeerSilent:
    case Reason::kNoProgress:
    case Reason::kGapRepeated:
    case Reason::kRnrRetriesExceeded:
    case Reason::kNakAccess:
    case Reason::kNakInvalidRequest:
    case Reason::kNakOperational:
      return true;
    default:
      return false;
  }
}

PeerFinding FindPeer(const ReportRecord& qp, std::optional<uint32_t> unacked,
                     const std::vector<Witness>& others, Reason reason,
                     WitnessOrigin origin) {
  const auto qpn = static_cast<uint32_t>(qp.Number("peer_qpn"));
  const std::string address = qp.Word("peer_address");
  const transport::ReasonText& text = transport::TextOf(reason);
  const Search found = SearchFor(qpn, others);
  // Other hosts assign the same numbers. A queue pair that is connected to this
  // one is its peer, even behind an address that no interface has
  // (docs/nat.md).
  const bool is_asked =
      origin == WitnessOrigin::kRecordings || IsLocal(address);
  if (found.qp != nullptr &&
      (is_asked || found.qp->Number("peer_qpn") == qp.Number("qpn"))) {
    return OfExisting(qp, unacked, found);
  }
  const std::string number = absl::StrFormat("queue pair 0x%06x", qpn);
  if (!is_asked) {
    return {absl::StrCat("it is another host (", address,
                         "), whose processes cannot be asked from here"),
            text.side,
            absl::StrCat(View(text.advice),
                         " On that host, rxe-user explain PID says more.")};
  }
  if (found.failed != nullptr) {
    const transport::ReasonText* const why = transport::FindReason(
        static_cast<uint32_t>(found.failed->Number("reason")));
    if (why != nullptr && why->reason != Reason::kModifiedToError) {
      return OfReason(number + " has failed before it was destroyed", *why);
    }
  }
  if (found.destroyed != nullptr) {
    return {absl::StrFormat("%s was destroyed by %s, %.3f s ago", number,
                            Name(*found.destroyer),
                            static_cast<double>(found.destroyed_ago) / 1e9),
            Side::kPeer,
            "Destroy a queue pair only when its peer needs no answer any "
            "more: agree on the end of the connection first."};
  }
  if (found.slot != nullptr) {
    return {absl::StrCat("there is no ", number, ": ", Name(*found.slot),
                         " has the numbers around it, but not this one, so the "
                         "number is wrong"),
            Side::kOwn,
            "Compare dest_qp_num with qp_num of the peer's queue pair."};
  }
  if (found.stopped != nullptr) {
    return {absl::StrCat(Name(*found.stopped),
                         " is stopped (by a signal or a debugger), and no "
                         "other process of this host has ",
                         number),
            Side::kPeer, "Continue the process (kill -CONT)."};
  }
  if (found.silent != nullptr) {
    return {absl::StrCat(Name(*found.silent),
                         " does not answer (it may have no core), and no other "
                         "process of this host has ",
                         number),
            Side::kPeer, ""};
  }
  if (origin == WitnessOrigin::kRecordings) {
    return {absl::StrCat("no recording of its end (", address, ") is given"),
            text.side,
            absl::StrCat(View(text.advice),
                         " A recording of that end, beside this one, says "
                         "more.")};
  }
  return {absl::StrCat("no process of this host has ", number,
                       ": the peer has ended, or the number is wrong"),
          Side::kEither, ""};
}

}  // namespace rxe_user
