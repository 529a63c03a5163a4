// When and how often a requester retransmits, and whether it asks for the
// acknowledgements for which it waits.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "tools/trace/check_rules.h"
#include "transport/base/types.h"
#include "wire/opcode.h"

namespace trace {
namespace {

using rxe_user::trace::BegunEvent;
using rxe_user::trace::PostedEvent;
using rxe_user::trace::QpStateEvent;
using rxe_user::trace::RetransmissionEvent;
using rxe_user::trace::RetransmissionReason;
using rxe_user::trace::TimerEvent;
using rxe_user::trace::TimerKind;
using wire::Operation;

bool IsAnsweredByData(const Packet& p) {
  switch (wire::OperationOf(p.opcode)) {
    case Operation::kReadRequest:
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
    case Operation::kFlush:
    case Operation::kAtomicWrite:
      return true;
    default:
      return false;
  }
}

class RetryRule final : public Rule {
 public:
  RetryRule(const CheckOptions& options, std::vector<Finding>* findings)
      : Rule(findings), options_(options) {}

  // Recordings of our device contain the reason of each retransmission.
  void OnEvent(const Event& event) override {
    const uint64_t id = event.header().id;
    if (const auto again = event.As<RetransmissionEvent>()) {
      is_timeout_[id] =
          again->why == static_cast<uint8_t>(RetransmissionReason::kAckTimeout);
    } else if (const auto timer = event.As<TimerEvent>()) {
      is_timeout_[id] = timer->kind == static_cast<uint8_t>(TimerKind::kAck);
    } else if (event.As<rxe_user::trace::IncidentEvent>()) {
      is_timeout_[id] = false;
    }
  }

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.at_requester || !in.flow.reliable) return;
    State& state = states_[&in.flow];
    const bool goes_back = in.index != state.previous + 1;
    state.previous = in.last();
    if (IsAnsweredByData(in.packet)) {
      state.data_end = std::max(state.data_end, state.previous + 1);
    }
    const auto [at, is_new] = state.sent.try_emplace(in.index);
    Sent& sent = at->second;
    if (!is_new && in.ahead < 0 && goes_back) {
      const bool asked_to = state.hints != sent.hints;
      if (state.rnr_psn == in.index) {
        CheckRnrRetries(in, &sent);
      } else if (!asked_to && IsTimeout(in.packet)) {
        CheckRetries(in, &sent);
        if (at == state.sent.begin()) CheckTimeout(in, sent);
      }
    }
    if (state.rnr_psn == in.index) state.rnr_psn = INT64_MIN;
    sent.time = in.packet.time;
    sent.hints = state.hints;
  }

  void OnResponse(const FlowPacket& in) override {
    if (!in.flow.at_requester) return;
    State& state = states_[&in.flow];
    const wire::AethKind kind = AnswerOf(in.packet);
    int64_t done = in.index + 1;
    if (kind != wire::AethKind::kAck) {
      done = in.index;
      ++state.hints;
      if (kind == wire::AethKind::kRnrNak) state.rnr_psn = in.index;
    } else if (in.index != state.answered + 1 &&
               state.data_end > state.answered) {
      // A response may be missing: an implied NAK.
      ++state.hints;
    }
    state.answered = std::max(state.answered, done - 1);
    state.sent.erase(state.sent.begin(), state.sent.lower_bound(done));
  }

 private:
  struct Sent {
    int64_t time = 0;    // the last time that it was sent
    uint64_t hints = 0;  // State::hints at that time
    int repeats = 0;     // without a NAK
    int rnr_repeats = 0;
  };
  struct State {
    std::map<int64_t, Sent> sent;  // without an acknowledgement
    int64_t previous = -1;         // the PSN that was sent last
    int64_t answered = -1;         // the highest PSN that was answered
    int64_t data_end = 0;          // end of the last READ or atomic
    int64_t rnr_psn = INT64_MIN;   // refused by an RNR NAK, not yet repeated
    // NAKs, explicit or implied: a repeat after one of them need not wait for
    // the timeout.
    uint64_t hints = 0;
  };

  // True also if the reason is not known.
  bool IsTimeout(const Packet& p) const {
    const auto known = is_timeout_.find(p.cause);
    return p.cause == 0 || known == is_timeout_.end() || known->second;
  }

  void CheckRetries(const FlowPacket& in, Sent* sent) {
    auto allowed = options_.retry_count;
    if (!allowed) allowed = in.flow.retry_count;
    ++sent->repeats;
    if (!allowed || sent->repeats != *allowed + 1) return;
    Report(in.packet, "retry-count", "9.7.6.1.3",
           "sent again " + std::to_string(sent->repeats) +
               " times without an answer; retry_cnt is " +
               std::to_string(*allowed));
  }

  void CheckRnrRetries(const FlowPacket& in, Sent* sent) {
    constexpr int kForEver = 7;
    const auto allowed = in.flow.rnr_retry;
    ++sent->rnr_repeats;
    if (!allowed || *allowed == kForEver || sent->rnr_repeats != *allowed + 1) {
      return;
    }
    Report(in.packet, "retry-count", "9.7.6.1.3",
           "sent again after " + std::to_string(sent->rnr_repeats) +
               " RNR NAKs; rnr_retry is " + std::to_string(*allowed));
  }

  void CheckTimeout(const FlowPacket& in, const Sent& sent) {
    auto timeout = options_.timeout;
    if (!timeout) timeout = in.flow.timeout;
    if (!timeout) return;
    const int64_t waited = in.packet.time - sent.time;
    const int64_t least = wire::AckTimeoutNanos(*timeout);
    if (least != 0 && waited + kClockTolerance >= least) return;
    Report(in.packet, "early-repeat", "9.7.6.1.3",
           "sent again after " + std::to_string(waited / 1000) +
               "us without a NAK; " +
               (least == 0 ? "there is no ACK timeout"
                           : "the ACK timeout is " +
                                 std::to_string(least / 1000) + "us"));
  }

  const CheckOptions options_;
  std::map<uint64_t, bool> is_timeout_;  // by the event's id
  std::map<const Flow*, State> states_;
};

// A message that needs a completion must ask for an acknowledgement, itself or
// by a later packet. Recordings show which messages need one.
class AckRequestRule final : public Rule {
 public:
  using Rule::Rule;

  void OnEvent(const Event& event) override {
    if (const auto posted = event.As<PostedEvent>()) {
      const bool is_send =
          posted->queue ==
          static_cast<uint8_t>(rxe_user::trace::QueueKind::kSend);
      if (is_send && posted->error == 0 &&
          (posted->flags & transport::kSendSignaled) != 0) {
        signaled_.insert(event.header().id);
      }
    } else if (const auto begun = event.As<BegunEvent>()) {
      if (signaled_.erase(event.header().cause) == 0) return;
      wanted_.insert({event.header().qpn, begun->last_psn});
    } else if (const auto state = event.As<QpStateEvent>();
               state &&
               state->to == static_cast<uint8_t>(transport::QpState::kReset)) {
      const uint32_t qpn = event.header().qpn;
      wanted_.erase(wanted_.lower_bound({qpn, 0}),
                    wanted_.lower_bound({qpn + 1, 0}));
    }
  }

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.at_requester || !in.flow.reliable) return;
    State& state = states_[&in.flow];
    const int64_t last = in.last();
    if (in.packet.ack_req || IsAnsweredByData(in.packet)) {
      state.asked = std::max(state.asked, last);
    }
    if (in.packet.info().ends_message && in.flow.responses &&
        wanted_.erase({std::get<2>(*in.flow.responses), in.packet.psn}) != 0) {
      state.wanted = last;
      state.packet = &in.packet;
    }
  }

  void OnResponse(const FlowPacket& in) override {
    if (!in.flow.at_requester) return;
    State& state = states_[&in.flow];
    state.answered = std::max(state.answered, in.index);
  }

  void OnEnd(int64_t time) override {
    for (const auto& [flow, state] : states_) {
      if (state.packet == nullptr ||
          state.wanted <= std::max(state.asked, state.answered) ||
          time - state.packet->time < kPatience) {
        continue;
      }
      Report(*state.packet, "ack-req", "9.7.5.1",
             "the last packet of a message that wants a completion; neither "
             "it nor a later one has AckReq");
    }
  }

 private:
  // A later packet may follow after the end of the file.
  static constexpr int64_t kPatience = 100'000'000;  // ns

  struct State {
    int64_t asked = -1;              // the highest PSN that asks for an answer
    int64_t answered = -1;           // the highest PSN that has an answer
    int64_t wanted = -1;             // highest last PSN that wants a completion
    const Packet* packet = nullptr;  // the packet with that PSN
  };

  std::set<uint64_t> signaled_;  // ids of posted events
  // Local queue pair and last PSN of each signaled request.
  std::set<std::pair<uint32_t, uint32_t>> wanted_;
  std::map<const Flow*, State> states_;
};

}  // namespace

void AddRetryRules(const CheckOptions& options, std::vector<Finding>* findings,
                   Rules* rules) {
  rules->push_back(std::make_unique<RetryRule>(options, findings));
  rules->push_back(std::make_unique<AckRequestRule>(findings));
}

}  // namespace trace
