// Packets that a requester sends: PSNs, the order within a message, the wait
// after an RNR NAK, credits.
#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "tools/trace/check_rules.h"
#include "wire/opcode.h"
#include "wire/psn.h"

namespace trace {
namespace {

using wire::Operation;

enum class MessageKind : uint8_t { kNone, kSend, kWrite };

MessageKind KindOf(Operation operation) {
  if (operation <= Operation::kSendOnlyImm ||
      operation == Operation::kSendLastInvalidate) {
    return MessageKind::kSend;
  }
  return operation <= Operation::kWriteOnlyImm ? MessageKind::kWrite
                                               : MessageKind::kNone;
}

class RequestRule final : public Rule {
 public:
  using Rule::Rule;

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.at_requester) return;
    State& state = states_[&in.flow];
    CheckOrder(in, &state);
    CheckRnrWait(in.packet, &state);
    if (in.unsure) return;
    const uint32_t next = in.flow.PsnOf(in.index - in.ahead);
    if (in.ahead > 0) {
      Report(in.packet, "psn-hole", "9.7.3.1",
             "PSN " + std::to_string(next) +
                 (in.ahead == 1 ? " was" : " and following were") +
                 " never sent");
    } else if (in.ahead < 0 && !in.flow.reliable) {
      Report(in.packet, "psn-hole", "9.8.1",
             "an unreliable connection sent a PSN again; " +
                 std::to_string(next) + " is next");
    }
  }

  void OnResponse(const FlowPacket& in) override {
    if (!in.flow.at_requester) return;
    const Packet& p = in.packet;
    const wire::AethKind kind = AnswerOf(p);
    if (!in.flow.unsure) {
      const int64_t ahead = in.index - in.flow.next;
      // A NAK contains the expected PSN, which may not have been sent yet.
      if (ahead >= (kind == wire::AethKind::kNak ? 1 : 0) &&
          ahead < kOtherConnection) {
        Report(p, "ack-unsent", "9.7.5.1",
               "answers PSN " + std::to_string(p.psn) +
                   ", which was not sent; " +
                   std::to_string(in.flow.PsnOf(in.flow.next)) + " is next");
      }
    }
    if (kind == wire::AethKind::kRnrNak) {
      State& state = states_[&in.flow];
      state.waits = true;
      state.waiting_psn = p.psn;
      state.rnr_time = p.arrival();
      state.rnr_wait = wire::RnrTimerNanos(wire::AethValueOf(p.syndrome));
    }
  }

 private:
  struct State {
    // The previous packet, in the order of the file.
    bool has_previous = false;
    int64_t previous = 0;  // its last PSN, counted as in Flow
    MessageKind open = MessageKind::kNone;
    // The last RNR NAK: requests with this PSN must wait for this time.
    bool waits = false;
    uint32_t waiting_psn = 0;
    int64_t rnr_time = 0;
    int64_t rnr_wait = 0;  // ns
  };

  // FIRST, MIDDLE and LAST of one kind must follow each other. A repeat may
  // begin anywhere.
  void CheckOrder(const FlowPacket& in, State* state) {
    const wire::OpcodeInfo& info = in.packet.info();
    const MessageKind kind = KindOf(wire::OperationOf(in.packet.opcode));
    if (state->has_previous && in.index == state->previous + 1) {
      const MessageKind expected =
          info.starts_message ? MessageKind::kNone : kind;
      if (state->open != expected) {
        Report(in.packet, "message-order", "9.7.4.1.2",
               std::string(info.name) + (state->open == MessageKind::kNone
                                             ? " outside of a message"
                                         : state->open == MessageKind::kSend
                                             ? " within a SEND"
                                             : " within an RDMA WRITE"));
      }
    }
    state->has_previous = info.known;
    state->previous = in.last();
    state->open = info.ends_message ? MessageKind::kNone : kind;
  }

  void CheckRnrWait(const Packet& p, State* state) {
    if (!state->waits || p.psn != state->waiting_psn) return;
    state->waits = false;
    const int64_t waited = p.time - state->rnr_time;
    if (waited + kClockTolerance < state->rnr_wait) {
      Report(p, "rnr-wait", "9.7.5.2.8",
             "sent again " + std::to_string(waited / 1000) +
                 "us after an RNR NAK that asked for " +
                 std::to_string(state->rnr_wait / 1000) + "us");
    }
  }

  std::map<const Flow*, State> states_;
};

// End-to-end flow control: checks messages that take a receive against the
// credits of the last acknowledgement. One more message may be sent if it asks
// for an acknowledgement.
class CreditRule final : public Rule {
 public:
  using Rule::Rule;

  void OnRequest(const FlowPacket& in) override {
    if (!in.flow.at_requester || !in.flow.reliable || in.ahead < 0) return;
    State& state = states_[&in.flow];
    if (in.unsure && in.index != 0) state = {};
    const Packet& p = in.packet;
    if (p.info().starts_message) state.asked = false;
    state.asked |= p.ack_req;
    bool is_limited = false;
    if (TakesReceive(p) && state.limit && state.offset) {
      is_limited = *state.offset + state.messages + 1 > *state.limit;
      const bool is_second =
          is_limited &&
          std::any_of(state.sent.begin(), state.sent.end(),
                      [](const Message& sent) { return sent.is_limited; });
      const bool ends_unasked = p.info().ends_message && !state.asked;
      if (is_limited && (is_second || ends_unasked)) {
        Report(p, "credits", "9.7.7.2",
               is_second
                   ? "a second message beyond the peer's credits"
                   : "a message beyond the peer's credits, without AckReq");
      }
    }
    if (p.info().ends_message) {
      ++state.messages;
      state.sent.push_back({in.last(), is_limited});
    }
  }

  void OnResponse(const FlowPacket& in) override {
    // DC does not count messages.
    if (!in.flow.at_requester || !in.packet.is_acknowledge() ||
        wire::TransportOf(in.packet.opcode) == wire::Transport::kDc ||
        AnswerOf(in.packet) != wire::AethKind::kAck || in.index < 0) {
      return;
    }
    State& state = states_[&in.flow];
    // The credits of an older ACK are out of date.
    if (in.index < state.acked) return;
    state.acked = in.index;
    while (!state.sent.empty() && state.sent.front().last <= in.index) {
      state.sent.pop_front();
    }
    const int64_t done =
        state.messages - static_cast<int64_t>(state.sent.size());
    const Packet& p = in.packet;
    // The peer's MSN, counted beyond 2^24.
    const int64_t msn = state.msn + wire::PsnDiff(p.msn, state.msn & 0xffffff);
    state.msn = msn;
    const int64_t offset = msn - done;
    state.offset = std::min(state.offset.value_or(offset), offset);
    const uint8_t code = wire::AethValueOf(p.syndrome);
    state.limit.reset();
    if (code != wire::kCreditNone) state.limit = msn + wire::CreditCount(code);
  }

 private:
  struct Message {
    int64_t last = 0;  // PSN
    bool is_limited = false;
  };
  struct State {
    int64_t messages = 0;      // that were sent completely
    std::deque<Message> sent;  // those of them without an acknowledgement
    bool asked = false;        // the message in progress has an AckReq
    int64_t acked = -1;
    int64_t msn = 0;
    std::optional<int64_t> offset;  // MSN minus `messages`, lower bound
    std::optional<int64_t> limit;   // the last MSN that may be sent
  };

  // SENDs do; of an RDMA WRITE with immediate, only the last packet.
  static bool TakesReceive(const Packet& p) {
    return wire::OperationOf(p.opcode) <= Operation::kSendOnlyImm ||
           p.info().Has(wire::kImmDt) || p.info().Has(wire::kIeth);
  }

  std::map<const Flow*, State> states_;
};

}  // namespace

void AddRequestRules(std::vector<Finding>* findings, Rules* rules) {
  rules->push_back(std::make_unique<RequestRule>(findings));
  rules->push_back(std::make_unique<CreditRule>(findings));
}

}  // namespace trace
