#include "tools/trace/latencies.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "tools/trace/check_rules.h"
#include "tools/trace/flows.h"

namespace trace {
namespace {

using wire::Operation;
using wire::pcapng::Direction;

enum Kind : uint8_t {
  kAck,
  kRead,
  kNakMade,
  kRepeat,
  kRnrRepeat,
  kKinds,
};
constexpr std::string_view kNames[kKinds] = {
    "request to ACK", "READ request to first response", "gap to NAK",
    "NAK to repeat", "RNR NAK to repeat"};

enum Where : uint8_t { kRequester, kResponder, kCapture, kWheres };
constexpr std::string_view kWhereNames[kWheres] = {"requester", "responder",
                                                   "capture"};

class Meter final : public Rule {
 public:
  Meter() : Rule(nullptr) {}

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.reliable) return;
    const Packet& p = in.packet;
    State& state = states_[&in.flow];
    const int64_t time = TimeOf(p);
    if (in.ahead > 0 && !in.unsure && state.gap_time == 0) {
      state.gap_time = time;
    }
    const auto [at, is_new] = state.sent.try_emplace(
        in.index, Sent{.time = time,
                       .ack_req = p.ack_req,
                       .is_read = wire::OperationOf(p.opcode) ==
                                  Operation::kReadRequest});
    if (is_new && in.ahead >= 0) return;
    at->second.repeated = true;
    if (state.nak_psn == in.index) {
      Add(state.nak_kind, in, time - state.nak_time);
      state.nak_psn = INT64_MIN;
    }
  }

  void OnResponse(const FlowPacket& in) override {
    const Packet& p = in.packet;
    State& state = states_[&in.flow];
    const int64_t time = TimeOf(p);
    const wire::AethKind kind = AnswerOf(p);
    if (kind != wire::AethKind::kAck) {
      const bool is_rnr = kind == wire::AethKind::kRnrNak;
      if (!is_rnr && !IsSequenceNak(p)) return;
      if (!is_rnr && state.gap_time != 0) {
        Add(kNakMade, in, time - state.gap_time);
        state.gap_time = 0;
      }
      // A second NAK for the same gap changes nothing.
      if (state.nak_psn == in.index) return;
      state.nak_psn = in.index;
      state.nak_kind = is_rnr ? kRnrRepeat : kRepeat;
      state.nak_time = time;
      return;
    }
    const auto at = state.sent.find(in.index);
    if (at != state.sent.end() && !at->second.repeated) {
      const Sent& sent = at->second;
      if (sent.is_read) {
        if (!p.is_acknowledge()) Add(kRead, in, time - sent.time);
      } else if (sent.ack_req) {
        Add(kAck, in, time - sent.time);
      }
    }
    // Requests up to this one are no longer needed, since they have been
    // answered.
    state.sent.erase(state.sent.begin(), state.sent.upper_bound(in.index));
    if (in.index + 1 >= in.flow.next) state.gap_time = 0;
  }

  std::vector<Latency> Result() {
    std::vector<Latency> all;
    for (int kind = 0; kind < kKinds; ++kind) {
      for (int where = 0; where < kWheres; ++where) {
        std::vector<int64_t>& times = times_[kind][where];
        if (times.empty()) continue;
        std::sort(times.begin(), times.end());
        const size_t n = times.size();
        all.push_back({.name = kNames[kind],
                       .where = kWhereNames[where],
                       .count = n,
                       .median = times[(n - 1) / 2],
                       .p99 = times[(n * 99 + 99) / 100 - 1],
                       .most = times.back()});
      }
    }
    return all;
  }

 private:
  static constexpr int64_t kLongest = 3600'000'000'000;  // ns

  struct Sent {
    int64_t time = 0;
    bool ack_req = false;
    bool is_read = false;
    bool repeated = false;
  };
  struct State {
    std::map<int64_t, Sent> sent;  // requests without an answer
    int64_t gap_time = 0;          // when a request arrived beyond a gap
    int64_t nak_psn = INT64_MIN;   // until it is sent again
    Kind nak_kind = kRepeat;
    int64_t nak_time = 0;
  };

  static int64_t TimeOf(const Packet& p) {
    return p.direction == Direction::kSent ? p.time : p.arrival();
  }

  void Add(Kind kind, const FlowPacket& in, int64_t time) {
    Where where = in.flow.at_requester ? kRequester : kResponder;
    if (in.packet.direction == Direction::kUnknown) {
      // Without directions, each packet counts at both ends.
      if (!in.flow.at_requester) return;
      where = kCapture;
    }
    // The packets may be in another order in the file, or their times from two
    // clocks.
    if (time >= 0 && time < kLongest) times_[kind][where].push_back(time);
  }

  std::map<const Flow*, State> states_;
  std::array<std::array<std::vector<int64_t>, kWheres>, kKinds> times_;
};

}  // namespace

std::vector<Latency> MeasureLatencies(const Recording& recording) {
  // Without directions, each packet counts as sent and as received.
  std::set<wire::IpAddress> addresses;
  for (const Packet& p : recording.packets) addresses.insert(p.src);
  Flows flows(recording, std::vector(addresses.begin(), addresses.end()));
  Rules rules;
  rules.push_back(std::make_unique<Meter>());
  Apply(rules, recording, &flows);
  return static_cast<Meter&>(*rules[0]).Result();
}

}  // namespace trace
