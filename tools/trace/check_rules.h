// The rules of CheckRecording: each sees the packets in the order of the file.
#ifndef TOOLS_TRACE_CHECK_RULES_H_
#define TOOLS_TRACE_CHECK_RULES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/trace/check.h"
#include "tools/trace/flows.h"
#include "tools/trace/recording.h"
#include "transport/base/types.h"
#include "wire/aeth.h"
#include "wire/dc.h"

namespace trace {

// Tolerance for time stamps: that of a received packet may be the time at which
// it was processed.
inline constexpr int64_t kClockTolerance = 100'000;  // ns

// Whether a response is an ACK, a NAK or an RNR NAK of requests. READ responses
// and the answer to a DC CONNECT count as ACKs.
inline wire::AethKind AnswerOf(const Packet& p) {
  const bool is_connected =
      wire::TransportOf(p.opcode) == wire::Transport::kDc &&
      p.syndrome == wire::kDcAnswerSyndrome;
  return p.is_acknowledge() && !is_connected ? wire::AethKindOf(p.syndrome)
                                             : wire::AethKind::kAck;
}

inline bool IsSequenceNak(const Packet& p) {
  return AnswerOf(p) == wire::AethKind::kNak &&
         wire::NakCodeOf(p.syndrome) == wire::NakCode::kPsnSequence;
}

// If the event is that a queue pair was reset, erases the flows to it, and to
// the peer that it had.
template <typename State>
void ForgetReset(const Event& event, std::map<FlowKey, State>* flows) {
  const auto state = event.As<rxe_user::trace::QpStateEvent>();
  if (!state || state->to > static_cast<uint8_t>(transport::QpState::kInit)) {
    return;
  }
  std::erase_if(*flows, [&](const auto& each) {
    return std::get<2>(each.first) == event.header().qpn ||
           std::get<2>(each.first) == state->dest_qpn;
  });
}

class Rule {
 public:
  // `findings`: null for one that reports nothing.
  explicit Rule(std::vector<Finding>* findings) : findings_(findings) {}
  virtual ~Rule() = default;

  // Called for each event of the recording except packets.
  virtual void OnEvent(const Event&) {}
  // Called for each packet with a wrong ICRC. `sent`: here.
  virtual void OnDamaged(const Packet&, bool /*sent*/) {}
  // Called for each packet with a good ICRC, before the next two.
  virtual void OnPacket(const Packet&) {}
  // Requests and responses of connections. Flow::at_requester tells where they
  // were captured.
  virtual void OnRequest(const FlowPacket&) {}
  virtual void OnResponse(const FlowPacket&) {}
  // A response that was sent here, even if its requests are not known.
  virtual void OnAnySentResponse(const Packet&) {}
  // `time`: that of the last packet.
  virtual void OnEnd(int64_t /*time*/) {}

 protected:
  void Report(const Packet& p, std::string_view rule, std::string_view section,
              std::string what) {
    findings_->push_back(
        {rule, section, p.frame, p.src, p.dst, p.qpn, p.psn, std::move(what)});
  }

 private:
  std::vector<Finding>* const findings_;
};

using Rules = std::vector<std::unique_ptr<Rule>>;

// Shows the packets and events of the recording to all rules.
void Apply(const Rules& rules, const Recording& recording, Flows* flows);

// Each adds the rules of its file.
void AddRequestRules(std::vector<Finding>* findings, Rules* rules);
void AddRetryRules(const CheckOptions& options, std::vector<Finding>* findings,
                   Rules* rules);
void AddReadRules(const Recording& recording, std::vector<Finding>* findings,
                  Rules* rules);
void AddAnswerRules(std::vector<Finding>* findings, Rules* rules);
void AddCongestionRules(const Recording& recording, const Flows& flows,
                        const CheckOptions& options,
                        std::vector<Finding>* findings, Rules* rules);
void AddDatagramRules(const Recording& recording,
                      std::vector<Finding>* findings, Rules* rules);

}  // namespace trace

#endif  // TOOLS_TRACE_CHECK_RULES_H_
