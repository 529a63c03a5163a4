// Packets that a responder sends: NAKs, MSNs, and requested acknowledgements.
#include <algorithm>
#include <map>
#include <string>

#include "tools/trace/check_rules.h"
#include "wire/psn.h"

namespace trace {
namespace {

class AnswerRule final : public Rule {
 public:
  using Rule::Rule;

  void OnEvent(const Event& event) override { ForgetReset(event, &sent_); }

  // Requests that go back, because of the NAK or a timeout, end the state of
  // the NAK. It is not always known which responses are for them, so this
  // applies to all responses between the two addresses.
  void OnRequest(const FlowPacket& in) override {
    if (in.flow.at_requester || !in.flow.reliable) return;
    if (in.ahead >= 0) return;
    for (auto each = sent_.lower_bound({in.packet.dst, in.packet.src, 0});
         each != sent_.end() && std::get<0>(each->first) == in.packet.dst &&
         std::get<1>(each->first) == in.packet.src;
         ++each) {
      each->second.nak_stands = false;
    }
  }

  void OnAnySentResponse(const Packet& p) override {
    if (!p.is_acknowledge()) return;
    Sent& sent = sent_[KeyOf(p)];
    // The answer to a repeated request may have the MSN of the first time.
    const int32_t ahead = sent.has_msn ? wire::PsnDiff(p.psn, sent.psn) : 0;
    const int32_t msns = sent.has_msn ? wire::PsnDiff(p.msn, sent.msn) : 0;
    if (ahead >= 0 && ahead < kOtherConnection && msns < 0 &&
        msns > -kOtherConnection) {
      Report(p, "msn-back", "9.7.7.2",
             "MSN " + std::to_string(p.msn) + " after " +
                 std::to_string(sent.msn));
    }
    if (!sent.has_msn || ahead >= 0 || ahead < -kOtherConnection) {
      sent.has_msn = true;
      sent.psn = p.psn;
      sent.msn = p.msn;
    }
    if (!IsSequenceNak(p)) return;
    if (sent.nak_stands && sent.nak_psn == p.psn) {
      Report(p, "nak-once", "9.7.5.2.8",
             "a second sequence NAK for the same gap, without a repeat of the "
             "requester between them");
    }
    sent.nak_stands = true;
    sent.nak_psn = p.psn;
  }

 private:
  // ACKs and responses to one queue pair.
  struct Sent {
    bool has_msn = false;
    uint32_t msn = 0;  // that of the acknowledgement with the highest PSN
    uint32_t psn = 0;  // the PSN of that acknowledgement
    // The last sequence NAK, as long as no request has gone back since.
    bool nak_stands = false;
    uint32_t nak_psn = 0;
  };

  std::map<FlowKey, Sent> sent_;
};

// A request that asks for an acknowledgement must get one, or a later request
// must. If the queue pair sends nothing more, it may be gone.
class AcknowledgementRule final : public Rule {
 public:
  using Rule::Rule;

  void OnRequest(const FlowPacket& in) override {
    const Packet& p = in.packet;
    if (in.flow.at_requester) {
      // This packet was sent by the queue pair from which the responses come.
      NoteTraffic(p);
      return;
    }
    if (!in.flow.reliable || p.dropped) return;
    State& state = states_[&in.flow];
    if (in.unsure && in.index != 0) state.in_order = in.index;
    // After a gap, a request waits for the missing ones.
    if (in.index == state.in_order) {
      state.in_order = in.last() + 1;
      if (p.ack_req && state.asked == nullptr) {
        state.asked = &p;
        state.index = in.index;
      }
    }
  }

  void OnResponse(const FlowPacket& in) override {
    if (in.flow.at_requester) return;
    NoteTraffic(in.packet);
    State& state = states_[&in.flow];
    if (AnswerOf(in.packet) != wire::AethKind::kAck ||
        in.index >= state.index) {
      state.asked = nullptr;
    }
  }

  void OnEnd(int64_t) override {
    for (const auto& [flow, state] : states_) {
      if (state.asked == nullptr || !flow->responses) continue;
      const auto last = last_sent_.find(*flow->responses);
      if (last == last_sent_.end() ||
          last->second - state.asked->time < kPatience) {
        continue;
      }
      Report(*state.asked, "ack-req", "9.7.5.1",
             "a request with AckReq that was never answered, though its queue "
             "pair sent other packets " +
                 std::to_string((last->second - state.asked->time) / 1000000) +
                 "ms later");
    }
  }

 private:
  static constexpr int64_t kPatience = 100'000'000;  // ns

  struct State {
    int64_t in_order = 0;  // the next PSN
    // The first unanswered request, if it asks for an acknowledgement.
    const Packet* asked = nullptr;
    int64_t index = 0;
  };

  void NoteTraffic(const Packet& p) { last_sent_[KeyOf(p)] = p.time; }

  std::map<const Flow*, State> states_;
  std::map<FlowKey, int64_t> last_sent_;  // time of the last packet
};

}  // namespace

void AddAnswerRules(std::vector<Finding>* findings, Rules* rules) {
  rules->push_back(std::make_unique<AnswerRule>(findings));
  rules->push_back(std::make_unique<AcknowledgementRule>(findings));
}

}  // namespace trace
