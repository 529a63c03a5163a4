#include "tools/trace/ends.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_format.h"
#include "rxe_user/observe/trace_events.h"
#include "tools/trace/escape.h"
#include "transport/base/rare_event.h"

namespace trace {
namespace {

using rxe_user::trace::IncidentEvent;
using rxe_user::trace::QpStateEvent;
using transport::QpState;
using transport::QpType;

constexpr int64_t kClockError = 1'000'000'000;  // ns

struct LintText {
  uint16_t number;
  std::string_view name;
};
constexpr LintText kQpn = {20, kEndLints[0]};
constexpr LintText kGid = {21, kEndLints[1]};
constexpr LintText kPsn = {22, kEndLints[2]};
constexpr LintText kMtu = {23, kEndLints[3]};

bool IsConnected(QpType type) {
  return type == QpType::kRc || type == QpType::kUc ||
         type == QpType::kXrcInitiator || type == QpType::kXrcTarget;
}
QpType PeerOf(QpType type) {
  switch (type) {
    case QpType::kXrcInitiator:
      return QpType::kXrcTarget;
    case QpType::kXrcTarget:
      return QpType::kXrcInitiator;
    default:
      return type;
  }
}

bool PointsTo(const ConnectionEnd& end, const ConnectionEnd& peer) {
  return end.dest_qpn == peer.qpn && end.destination == peer.source;
}
bool MayBePeers(const ConnectionEnd& a, const ConnectionEnd& b) {
  // These are two successive connections of one queue pair.
  if (a.file == b.file && a.qpn == b.qpn) return false;
  const int64_t error = a.file == b.file ? 0 : kClockError;
  return b.type == PeerOf(a.type) && (PointsTo(a, b) || PointsTo(b, a)) &&
         a.begin <= b.end + error && b.begin <= a.end + error;
}
// Whether `end` sends requests.
bool Sends(const ConnectionEnd& end) {
  return end.sends && end.type != QpType::kXrcTarget;
}

std::string Hex(uint32_t qpn) {
  return absl::StrFormat("0x%06x", qpn & 0xffffff);
}
std::string Name(const ConnectionEnd& end) {
  return Hex(end.qpn) + (end.program.empty() ? "" : " of " + end.program);
}

// Adds the attributes of `end` that do not match those of `peer`.
void Compare(const ConnectionEnd& end, const ConnectionEnd& peer,
             std::vector<EndFinding>* findings) {
  const auto add = [&](const LintText& lint, std::string what) {
    findings->push_back({lint.number, lint.name, &end, &peer, std::move(what)});
  };
  if (end.dest_qpn != peer.qpn) {
    add(kQpn, "queue pair " + Name(end) + " has dest_qp_num " +
                  Hex(end.dest_qpn) + ", and the one that sends to it is " +
                  Name(peer));
  }
  if (end.destination != peer.source) {
    add(kGid, "queue pair " + Name(end) + " has dgid " +
                  end.destination.ToString() + ", and its peer, " + Name(peer) +
                  ", is at " + peer.source.ToString());
  }
  if (Sends(end) && end.send_psn != peer.receive_psn) {
    add(kPsn, "queue pair " + Name(end) + " has sq_psn " +
                  std::to_string(end.send_psn) + ", and its peer, " +
                  Name(peer) + ", has rq_psn " +
                  std::to_string(peer.receive_psn));
  }
}

std::vector<EndFinding> CompareBoth(const ConnectionEnd& a,
                                    const ConnectionEnd& b) {
  std::vector<EndFinding> findings;
  Compare(a, b, &findings);
  Compare(b, a, &findings);
  if (a.path_mtu != b.path_mtu) {
    findings.push_back({kMtu.number, kMtu.name, &a, &b,
                        "queue pair " + Name(a) + " has path_mtu " +
                            std::to_string(a.path_mtu) + ", and its peer, " +
                            Name(b) + ", has " + std::to_string(b.path_mtu)});
  }
  return findings;
}

}  // namespace

std::vector<ConnectionEnd> EndsOf(const Recording& recording, size_t file) {
  std::vector<ConnectionEnd> ends;
  std::map<uint32_t, size_t> now;  // index in `ends`, by queue pair number
  std::string program;
  if (recording.about) {
    program = Printable(rxe_user::trace::TextOf(recording.about->program));
  }
  int64_t last = 0;
  for (const Event& event : recording.events) {
    last = std::max(last, event.header().time);
    const uint32_t qpn = event.header().qpn;
    const auto known = now.find(qpn);
    const auto stop = [&] {
      if (known == now.end()) return;
      ends[known->second].end = event.header().time;
      now.erase(known);
    };
    if (const auto incident = event.As<IncidentEvent>()) {
      if (incident->kind ==
          static_cast<uint8_t>(transport::RareEventKind::kDestroyed)) {
        stop();
      }
      continue;
    }
    const auto state = event.As<QpStateEvent>();
    if (!state || !IsConnected(static_cast<QpType>(state->type))) continue;
    const auto from = static_cast<QpState>(state->from);
    const auto to = static_cast<QpState>(state->to);
    // The file may lack the event of the reset, so other changes end the
    // connection, too.
    if (to == QpState::kReset || from == QpState::kReset ||
        to == QpState::kRtr) {
      stop();
    }
    if (to == QpState::kRtr) {
      ConnectionEnd end = {
          .file = file,
          .program = program,
          .type = static_cast<QpType>(state->type),
          .qpn = qpn,
          .dest_qpn = state->dest_qpn,
          .source = wire::IpAddress::FromGid(state->source),
          .destination = wire::IpAddress::FromGid(state->destination),
          .path_mtu = state->path_mtu,
          .receive_psn = state->receive_psn,
          .begin = state->header.time,
          .end = INT64_MAX - kClockError};
      now[qpn] = ends.size();
      ends.push_back(std::move(end));
    } else if (to == QpState::kRts && known != now.end() &&
               from == QpState::kRtr) {
      ends[known->second].sends = true;
      ends[known->second].send_psn = state->send_psn;
    }
  }
  for (const auto& [qpn, index] : now) ends[index].end = last;
  return ends;
}

std::vector<EndFinding> CompareEnds(std::span<const ConnectionEnd> ends) {
  struct Pair {
    size_t a;
    size_t b;
    std::vector<EndFinding> findings;
  };
  std::vector<Pair> pairs;
  std::multimap<uint32_t, size_t> by_qpn;
  std::multimap<uint32_t, size_t> by_dest;
  for (size_t i = 0; i < ends.size(); ++i) {
    const auto try_all = [&](const std::multimap<uint32_t, size_t>& all,
                             uint32_t number) {
      const auto [first, last] = all.equal_range(number);
      for (auto at = first; at != last; ++at) {
        if (!MayBePeers(ends[at->second], ends[i])) continue;
        pairs.push_back(
            {at->second, i, CompareBoth(ends[at->second], ends[i])});
      }
    };
    try_all(by_qpn, ends[i].dest_qpn);
    try_all(by_dest, ends[i].qpn);
    by_qpn.emplace(ends[i].qpn, i);
    by_dest.emplace(ends[i].dest_qpn, i);
  }
  // Later queue pairs may have the same number. The ends that differ least
  // belong together.
  std::ranges::stable_sort(
      pairs, {}, [](const Pair& pair) { return pair.findings.size(); });
  std::vector<bool> has_peer(ends.size());
  std::vector<std::pair<std::pair<size_t, size_t>, EndFinding>> found;
  for (Pair& pair : pairs) {
    if (has_peer[pair.a] || has_peer[pair.b]) continue;
    has_peer[pair.a] = has_peer[pair.b] = true;
    for (EndFinding& finding : pair.findings) {
      found.emplace_back(std::pair(pair.a, pair.b), std::move(finding));
    }
  }
  std::ranges::stable_sort(found, {},
                           [](const auto& each) { return each.first; });
  std::vector<EndFinding> findings;
  for (auto& [place, finding] : found) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace trace
