// Congestion notification (annex A17), checked where marked packets arrived.
#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "tools/trace/check_rules.h"
#include "wire/headers.h"
#include "wire/mad.h"

namespace trace {
namespace {

constexpr std::string_view kRule = "cnp";
constexpr std::string_view kSection = "A17.9";

class CongestionRule final : public Rule {
 public:
  CongestionRule(const Recording& recording, const Flows& flows,
                 const CheckOptions& options, std::vector<Finding>* findings)
      : Rule(findings),
        flows_(flows),
        interval_(options.cnp_interval),
        is_recording_(recording.about.has_value()) {}

  void OnPacket(const Packet& p) override {
    Expire(p.time);
    if (p.is_cnp()) {
      if (flows_.WasSentHere(p)) OnCnpSent(p);
    } else if (p.ce && Flows::WasReceivedHere(p) && !p.dropped &&
               p.qpn > wire::kGsiQpn && IsConnected(p)) {
      OnMarked(p);
    }
  }

 private:
  // Devices pace CNPs by queue pair, address or port, and our device answers
  // when its process is scheduled. So any CNP to the address within this time
  // counts.
  static constexpr int64_t kPatience = 10'000'000;  // ns
  // Resolution of times in a file.
  static constexpr int64_t kResolution = 1'000;  // ns

  struct Peer {
    int64_t marked = INT64_MIN / 2;  // time of the last marked packet
    int64_t sent = INT64_MIN / 2;    // that of the last CNP
    // The first marked packet without a CNP.
    const Packet* waiting = nullptr;
  };
  using Pair = std::pair<wire::IpAddress, wire::IpAddress>;  // peer, own

  void OnMarked(const Packet& p) {
    Peer& peer = peers_[{p.src, p.dst}];
    peer.marked = p.time;
    // Acknowledgements need no CNP: docs/reliability.md, "Congestion".
    const bool counts = p.info().is_request || p.payload > 0;
    if (!counts || peer.waiting != nullptr || p.time - peer.sent <= kPatience) {
      return;
    }
    peer.waiting = &p;
    waiting_.push_back(&p);
  }

  void OnCnpSent(const Packet& p) {
    Peer& peer = peers_[{p.dst, p.src}];
    peer.waiting = nullptr;
    peer.sent = p.time;
    // Our device also sends a CNP when a receive buffer overflows.
    if (!is_recording_ && p.time - peer.marked > kPatience) {
      Report(p, kRule, kSection,
             "a CNP without a marked packet from that address");
    }
    const auto [last, is_first] = last_.try_emplace(KeyOf(p), p.time);
    const int64_t since = p.time - last->second;
    if (!is_first && since >= 0 && since + kResolution < interval_) {
      Report(p, kRule, kSection,
             "a CNP " + std::to_string(since) +
                 "ns after the last one to that queue pair; the interval is " +
                 std::to_string(interval_) + "ns");
    }
    last->second = p.time;
  }

  // Packets that still wait at the end of the file are not reported: their CNP
  // may follow later.
  void Expire(int64_t now) {
    while (!waiting_.empty() && now - waiting_.front()->time > kPatience) {
      const Packet& p = *waiting_.front();
      waiting_.pop_front();
      Peer& peer = peers_[{p.src, p.dst}];
      if (peer.waiting != &p) continue;
      Report(p, kRule, kSection,
             "marked as having met congestion, but no CNP went to its sender");
      // Report each period of silence once.
      peer.sent = now;
      peer.waiting = nullptr;
    }
  }

  const Flows& flows_;
  const int64_t interval_;  // ns
  const bool is_recording_;
  std::map<Pair, Peer> peers_;
  // Packets that were Peer::waiting, in the order of the file.
  std::deque<const Packet*> waiting_;
  std::map<FlowKey, int64_t> last_;  // when a CNP was sent, by destination
};

}  // namespace

void AddCongestionRules(const Recording& recording, const Flows& flows,
                        const CheckOptions& options,
                        std::vector<Finding>* findings, Rules* rules) {
  rules->push_back(
      std::make_unique<CongestionRule>(recording, flows, options, findings));
}

}  // namespace trace
