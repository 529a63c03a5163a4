// Events of a queue pair other than good packets: states, errors, NAKs, timers,
// retransmissions. QpCore::Note counts an event, and passes it to
// EventSink::OnRareEvent. Each is a decision, not a packet: a run of
// retransmissions is one.
#ifndef TRANSPORT_BASE_RARE_EVENT_H_
#define TRANSPORT_BASE_RARE_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "transport/base/counters.h"
#include "transport/base/reason.h"
#include "transport/base/types.h"

namespace transport {

enum class RareEventKind : uint8_t {
  kState,
  kAckTimeout,
  kProbe,
  kRetransmission,
  kRetriesExceeded,
  kRnrRetriesExceeded,
  kSequenceNakSent,
  kSequenceNakReceived,
  kFatalNakSent,
  kFatalNakReceived,
  kRnrNakSent,
  kRnrNakReceived,
  kDestroyed,
  kFault,
};

struct RareEvent {
  Time time = 0;
  uint32_t qpn = 0;
  RareEventKind kind = RareEventKind::kState;
  Reason reason = Reason::kNone;
  uint16_t value = 0;  // see kRareEvents
  uint32_t psn = 0;
};

struct RareEventText {
  RareEventKind kind;
  std::string_view name;
  std::string_view help;
  std::string_view value;         // what RareEvent::value is; empty: nothing
  uint32_t QpCounters::*counter;  // incremented by each event; null: none
};

inline constexpr RareEventText kRareEvents[] = {
    {RareEventKind::kState, "state", "the queue pair changed its state",
     "the old state * 256 + the new one", nullptr},
    {RareEventKind::kAckTimeout, "ack_timeout",
     "nothing was acknowledged within the local ACK timeout", "retry_cnt",
     &QpCounters::timeouts},
    {RareEventKind::kProbe, "probe",
     "a packet was sent again to have an answer", "", &QpCounters::probes},
    {RareEventKind::kRetransmission, "retransmission",
     "the peer misses something, which is sent again", "", nullptr},
    {RareEventKind::kRetriesExceeded, "retries_exceeded",
     "retry_cnt was used up", "retry_cnt", &QpCounters::retries_exceeded},
    {RareEventKind::kRnrRetriesExceeded, "rnr_retries_exceeded",
     "rnr_retry was used up", "rnr_retry", &QpCounters::rnr_retries_exceeded},
    {RareEventKind::kSequenceNakSent, "sequence_nak_sent",
     "a request packet was missing, and the peer was told", "",
     &QpCounters::sequence_naks_sent},
    {RareEventKind::kSequenceNakReceived, "sequence_nak_received",
     "the peer misses a request packet", "",
     &QpCounters::sequence_naks_received},
    {RareEventKind::kFatalNakSent, "fatal_nak_sent",
     "a request of the peer was refused", "the NAK code",
     &QpCounters::fatal_naks_sent},
    {RareEventKind::kFatalNakReceived, "fatal_nak_received",
     "the peer refused a request", "the NAK code",
     &QpCounters::fatal_naks_received},
    {RareEventKind::kRnrNakSent, "rnr_nak_sent", "no receive was posted",
     "the code of min_rnr_timer", &QpCounters::rnr_naks_sent},
    {RareEventKind::kRnrNakReceived, "rnr_nak_received",
     "the peer had no receive posted", "the code of its min_rnr_timer",
     &QpCounters::rnr_naks_received},
    {RareEventKind::kDestroyed, "destroyed", "the queue pair was destroyed",
     "its state", nullptr},
    {RareEventKind::kFault, "fault", "a fault on command",
     "the number of the rule", nullptr},
};
constexpr bool InOrder() {
  for (size_t i = 0; i < std::size(kRareEvents); ++i) {
    if (static_cast<size_t>(kRareEvents[i].kind) != i) return false;
  }
  return true;
}
static_assert(InOrder() && std::size(kRareEvents) ==
                               static_cast<size_t>(RareEventKind::kFault) + 1);

constexpr const RareEventText& TextOf(RareEventKind kind) {
  return kRareEvents[static_cast<size_t>(kind)];
}

}  // namespace transport

#endif  // TRANSPORT_BASE_RARE_EVENT_H_
