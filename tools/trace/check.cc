#include "tools/trace/check.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "transport/base/types.h"
#include "wire/aeth.h"
#include "wire/headers.h"
#include "wire/mad.h"
#include "wire/psn.h"

namespace trace {
namespace {

using wire::IpAddress;
using wire::Operation;
using wire::Transport;
using wire::pcapng::Direction;

// A jump by more PSNs than any window is another connection with the number of
// an earlier one.
constexpr int32_t kOtherConnection = 1 << 16;
// What the times of a file say too little by: the time of a received packet may
// be that of its processing.
constexpr int64_t kClockTolerance = 100'000;  // ns

enum class MessageKind : uint8_t { kNone, kSend, kWrite };

MessageKind KindOf(Operation operation) {
  switch (operation) {
    case Operation::kSendFirst:
    case Operation::kSendMiddle:
    case Operation::kSendLast:
    case Operation::kSendLastImm:
    case Operation::kSendLastInvalidate:
      return MessageKind::kSend;
    case Operation::kWriteFirst:
    case Operation::kWriteMiddle:
    case Operation::kWriteLast:
    case Operation::kWriteLastImm:
      return MessageKind::kWrite;
    default:
      return MessageKind::kNone;
  }
}

bool IsReliable(const Packet& p) {
  const Transport transport = wire::TransportOf(p.opcode);
  return transport == Transport::kRc || transport == Transport::kXrc;
}

// Packets from one address to a queue pair of another.
using FlowKey = std::tuple<IpAddress, IpAddress, uint32_t>;

FlowKey KeyOf(const Packet& p) { return {p.src, p.dst, p.qpn}; }

// Requests to a queue pair, and what it answers.
struct Requests {
  bool known = false;  // `next` is
  // A READ of unknown size, or a damaged packet, came last.
  bool unsure = false;
  uint32_t next = 0;      // PSN after the highest of the requests
  uint32_t first = 0;     // PSN of the first
  uint32_t path_mtu = 0;  // bytes; 0: not known
  // The packet before, in the order of the file.
  bool has_previous = false;
  uint32_t previous = 0;  // PSN
  MessageKind open = MessageKind::kNone;
  bool is_answered = false;  // `responses` is known
  FlowKey responses;
  // Of the last RNR NAK: requests with this PSN wait until then.
  bool waits = false;
  uint32_t waiting_psn = 0;
  int64_t rnr_time = 0;
  int64_t rnr_wait = 0;  // ns
};

// ACKs and responses to a queue pair.
struct Responses {
  std::optional<FlowKey> requests;
  bool has_msn = false;
  uint32_t msn = 0;  // of the acknowledgement with the highest PSN
  uint32_t psn = 0;  // its PSN
  // Of the last sequence NAK, while no request went back since.
  bool nak_stands = false;
  uint32_t nak_psn = 0;
};

class Checker {
 public:
  Checker(const Recording& recording, std::span<const IpAddress> senders)
      : recording_(recording), senders_(senders) {}

  std::vector<Finding> Check() {
    FindPathMtus();
    size_t event = 0;
    for (const Packet& p : recording_.packets) {
      // A queue pair that is reset begins anew.
      for (; event < recording_.events.size() &&
             recording_.events[event].header().time <= p.time;
           ++event) {
        OnEvent(recording_.events[event]);
      }
      OnPacket(p);
    }
    return std::move(findings_);
  }

 private:
  void Report(const Packet& p, std::string_view rule, std::string_view section,
              std::string what) {
    findings_.push_back(
        {rule, section, p.frame, p.src, p.dst, p.qpn, p.psn, std::move(what)});
  }

  bool WasSentHere(const Packet& p) const {
    if (p.direction != Direction::kUnknown) {
      return p.direction == Direction::kSent;
    }
    return std::find(senders_.begin(), senders_.end(), p.src) != senders_.end();
  }
  static bool WasReceivedHere(const Packet& p) {
    return p.direction != Direction::kSent;
  }

  void FindPathMtus() {
    for (const Packet& p : recording_.packets) {
      if (!p.info().full_mtu_payload || p.icrc == IcrcVerdict::kBad) continue;
      uint32_t& mtu = mtus_[std::minmax(p.src, p.dst)];
      mtu = std::max(mtu, p.payload);
    }
  }

  void OnEvent(const Event& event) {
    const auto state = event.As<rxe_user::trace::QpStateEvent>();
    if (!state || state->to > static_cast<uint8_t>(transport::QpState::kInit)) {
      return;
    }
    // Its own number is that of what it receives; its peer's that of what it
    // sends.
    const auto forget = [&](uint32_t qpn) {
      std::erase_if(sent_, [&](const auto& f) {
        return std::get<2>(f.first) == qpn ||
               std::get<2>(f.second.responses) == qpn;
      });
      std::erase_if(responses_,
                    [&](const auto& f) { return std::get<2>(f.first) == qpn; });
    };
    forget(event.header().qpn);
    if (state->dest_qpn != 0) forget(state->dest_qpn);
  }

  void OnPacket(const Packet& p) {
    if (p.icrc == IcrcVerdict::kBad) {
      Report(p, "icrc", "A17.3",
             WasSentHere(p) ? "sent with a wrong ICRC"
                            : "wrong ICRC: damaged, or its addresses or ports "
                              "were changed on the way");
      // Its fields may be wrong, also the queue pair.
      for (auto& [key, r] : sent_) {
        if (std::get<0>(key) == p.src && std::get<1>(key) == p.dst) {
          r.unsure = true;
        }
      }
      return;
    }
    if (p.is_cnp() || p.qpn <= wire::kGsiQpn) return;
    const Transport transport = wire::TransportOf(p.opcode);
    if (!IsReliable(p) && transport != Transport::kUc) return;
    if (p.info().is_request) {
      CheckSize(p);
      if (WasSentHere(p)) OnRequestSent(p);
      if (WasReceivedHere(p)) OnRequestReceived(p);
    } else if (p.info().is_response && IsReliable(p)) {
      CheckSize(p);
      if (WasSentHere(p)) OnResponseSent(p);
      if (WasReceivedHere(p)) OnResponseReceived(p);
    }
  }

  // --- Sizes.

  void CheckSize(const Packet& p) {
    const wire::OpcodeInfo& info = p.info();
    if (!info.carries_payload) return;
    constexpr std::string_view kRule = "payload-size";
    constexpr std::string_view kSection = "9.7.4.1.6";
    if (p.payload > 4096) {
      Report(p, kRule, kSection,
             std::to_string(p.payload) + " bytes: no path MTU is that large");
    } else if (info.full_mtu_payload &&
               (p.payload < 256 || !std::has_single_bit(p.payload))) {
      Report(p, kRule, kSection,
             "a FIRST or MIDDLE packet with " + std::to_string(p.payload) +
                 " bytes, which is no path MTU");
    } else if (info.full_mtu_payload) {
      uint32_t& mtu = flow_mtus_[KeyOf(p)];
      if (mtu != 0 && mtu != p.payload) {
        Report(p, kRule, kSection,
               "a FIRST or MIDDLE packet with " + std::to_string(p.payload) +
                   " bytes; others had " + std::to_string(mtu));
      }
      mtu = p.payload;
    } else if (info.ends_message && !info.starts_message && p.payload == 0) {
      Report(p, kRule, kSection, "a LAST packet without payload");
    }
  }

  // --- What a requester sends.

  // How many PSNs the request has; nothing if that is not known.
  std::optional<uint32_t> PsnsOf(const Packet& p) const {
    if (wire::OperationOf(p.opcode) != Operation::kReadRequest) return 1;
    if (p.length <= 256) return 1;
    const auto mtu = mtus_.find(std::minmax(p.src, p.dst));
    if (mtu == mtus_.end() || mtu->second == 0) return std::nullopt;
    return (p.length - 1) / mtu->second + 1;
  }

  void OnRequestSent(const Packet& p) {
    Requests& r = sent_[KeyOf(p)];
    if (r.known && std::abs(wire::PsnDiff(p.psn, r.next)) > kOtherConnection) {
      r = Requests{};
    }
    CheckOrder(p, &r);
    CheckRnrWait(p, &r);
    const std::optional<uint32_t> psns = PsnsOf(p);
    const int32_t ahead = r.known ? wire::PsnDiff(p.psn, r.next) : 0;
    if (r.known && !r.unsure) {
      if (ahead > 0) {
        Report(p, "psn-hole", "9.7.3.1",
               "PSN " + std::to_string(r.next) +
                   (ahead == 1 ? " was" : " and following were") +
                   " never sent");
      } else if (ahead < 0 && !IsReliable(p)) {
        Report(p, "psn-hole", "9.8.1",
               "an unreliable connection sent a PSN again; " +
                   std::to_string(r.next) + " is next");
      }
    }
    const uint32_t end = wire::PsnAdd(p.psn, psns.value_or(1));
    if (!r.known) r.first = p.psn;
    if (!r.known || ahead >= 0 || wire::PsnDiff(end, r.next) > 0) {
      r.next = end;
      r.unsure = !psns;
    }
    r.known = true;
  }

  // FIRST, MIDDLE, LAST of one kind, one after the other. A repeat may begin
  // anywhere.
  void CheckOrder(const Packet& p, Requests* r) {
    const wire::OpcodeInfo& info = p.info();
    const MessageKind kind = KindOf(wire::OperationOf(p.opcode));
    if (r->has_previous && p.psn == wire::PsnAdd(r->previous, 1)) {
      const MessageKind expected =
          info.starts_message ? MessageKind::kNone : kind;
      if (r->open != expected) {
        Report(p, "message-order", "9.7.4.1.2",
               std::string(info.name) +
                   (r->open == MessageKind::kNone   ? " outside of a message"
                    : r->open == MessageKind::kSend ? " within a SEND"
                                                    : " within an RDMA WRITE"));
      }
    }
    r->has_previous = info.known;
    r->previous = wire::PsnAdd(p.psn, PsnsOf(p).value_or(1) - 1);
    r->open = info.ends_message ? MessageKind::kNone : kind;
  }

  void CheckRnrWait(const Packet& p, Requests* r) {
    if (!r->waits || p.psn != r->waiting_psn) return;
    r->waits = false;
    const int64_t waited = p.time - r->rnr_time;
    if (waited + kClockTolerance < r->rnr_wait) {
      Report(p, "rnr-wait", "9.7.5.2.8",
             "sent again " + std::to_string(waited / 1000) +
                 "us after an RNR NAK that asked for " +
                 std::to_string(r->rnr_wait / 1000) + "us");
    }
  }

  // The requests that a response to a requester is for: those to its address's
  // partner that have its PSN, if no others have.
  Requests* FindRequests(const Packet& p) {
    Responses& of = responses_[KeyOf(p)];
    if (of.requests) {
      const auto known = sent_.find(*of.requests);
      if (known != sent_.end()) return &known->second;
      of.requests.reset();
    }
    std::pair<const FlowKey, Requests>* found = nullptr;
    for (auto& flow : sent_) {
      const auto& [src, dst, qpn] = flow.first;
      const Requests& r = flow.second;
      if (src != p.dst || dst != p.src || r.is_answered) continue;
      if (!r.known || r.unsure || wire::PsnDiff(p.psn, r.first) < 0 ||
          wire::PsnDiff(p.psn, r.next) >= 0) {
        continue;
      }
      if (found != nullptr) return nullptr;
      found = &flow;
    }
    if (found == nullptr) return nullptr;
    found->second.is_answered = true;
    found->second.responses = KeyOf(p);
    of.requests = found->first;
    return &found->second;
  }

  void OnResponseReceived(const Packet& p) {
    Requests* const r = FindRequests(p);
    if (r == nullptr) return;
    const wire::AethKind kind = p.is_acknowledge()
                                    ? wire::AethKindOf(p.syndrome)
                                    : wire::AethKind::kAck;
    if (!r->unsure) {
      const int32_t ahead = wire::PsnDiff(p.psn, r->next);
      // A NAK names the PSN that is expected, which may not have been sent.
      if (ahead >= (kind == wire::AethKind::kNak ? 1 : 0) &&
          ahead < kOtherConnection) {
        Report(p, "ack-unsent", "9.7.5.1",
               "answers PSN " + std::to_string(p.psn) +
                   ", which was not sent; " + std::to_string(r->next) +
                   " is next");
      }
    }
    if (kind == wire::AethKind::kRnrNak) {
      r->waits = true;
      r->waiting_psn = p.psn;
      r->rnr_time =
          p.kernel_time != 0 ? std::min(p.kernel_time, p.time) : p.time;
      r->rnr_wait = wire::RnrTimerNanos(wire::AethValueOf(p.syndrome));
    }
  }

  // --- What a responder sends.

  // Requests that go back end the state of a NAK: its repeat, or a time-out. As
  // it is not known which responses are for them, this holds for all of the two
  // addresses.
  void OnRequestReceived(const Packet& p) {
    if (!IsReliable(p)) return;
    uint32_t& highest =
        received_.try_emplace(KeyOf(p), wire::PsnAdd(p.psn, -1)).first->second;
    const int32_t ahead = wire::PsnDiff(p.psn, highest);
    if (ahead > 0 && ahead < kOtherConnection) {
      highest = p.psn;
      return;
    }
    if (std::abs(ahead) >= kOtherConnection) highest = p.psn;
    for (auto& [key, r] : responses_) {
      if (std::get<0>(key) == p.dst && std::get<1>(key) == p.src) {
        r.nak_stands = false;
      }
    }
  }

  void OnResponseSent(const Packet& p) {
    if (!p.is_acknowledge()) return;
    Responses& r = responses_[KeyOf(p)];
    // An answer to a repeated request may have the MSN of that time.
    const int32_t ahead = r.has_msn ? wire::PsnDiff(p.psn, r.psn) : 0;
    const int32_t msns = r.has_msn ? wire::PsnDiff(p.msn, r.msn) : 0;
    if (ahead >= 0 && ahead < kOtherConnection && msns < 0 &&
        msns > -kOtherConnection) {
      Report(
          p, "msn-back", "9.7.7.2",
          "MSN " + std::to_string(p.msn) + " after " + std::to_string(r.msn));
    }
    if (!r.has_msn || ahead >= 0 || ahead < -kOtherConnection) {
      r.has_msn = true;
      r.psn = p.psn;
      r.msn = p.msn;
    }
    if (wire::AethKindOf(p.syndrome) != wire::AethKind::kNak ||
        wire::NakCodeOf(p.syndrome) != wire::NakCode::kPsnSequence) {
      return;
    }
    if (r.nak_stands && r.nak_psn == p.psn) {
      Report(p, "nak-once", "9.7.5.2.8",
             "a second sequence NAK for the same gap, without a repeat of the "
             "requester between them");
    }
    r.nak_stands = true;
    r.nak_psn = p.psn;
  }

  const Recording& recording_;
  const std::span<const IpAddress> senders_;
  std::vector<Finding> findings_;
  std::map<std::pair<IpAddress, IpAddress>, uint32_t> mtus_;
  std::map<FlowKey, uint32_t> flow_mtus_;
  std::map<FlowKey, Requests> sent_;
  std::map<FlowKey, uint32_t> received_;  // highest PSN
  std::map<FlowKey, Responses> responses_;
};

}  // namespace

std::vector<Finding> CheckRecording(const Recording& recording,
                                    std::span<const IpAddress> senders) {
  return Checker(recording, senders).Check();
}

}  // namespace trace
