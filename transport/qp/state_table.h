// The queue pair state machine as a table: the required and optional attributes
// of each transition, by queue pair type, and the effect of posting in each
// state. Sources: manual page ibv_modify_qp(3); IBA vol. 1, 10.3.1 and
// 11.2.5.3.
#ifndef TRANSPORT_QP_STATE_TABLE_H_
#define TRANSPORT_QP_STATE_TABLE_H_

#include <cstdint>
#include <span>

#include "transport/base/types.h"
#include "transport/qp/attributes.h"

namespace transport {

// A transition. Masks are QpAttrMask bits without kQpState, which is always
// permitted (and absent for a change within a state).
struct Transition {
  bool allowed = false;
  uint32_t required = 0;
  uint32_t optional = 0;
};

// A transition of one type. FindTransition adds those to RESET and ERR, which
// are possible from every state and take no attributes.
struct TransitionRow {
  QpState from;
  QpState to;
  uint32_t required;
  uint32_t optional;
};
using TransitionTable = std::span<const TransitionRow>;

extern const TransitionTable kRcTransitions;
extern const TransitionTable kUcTransitions;
extern const TransitionTable kUdTransitions;
extern const TransitionTable kRawPacketTransitions;
extern const TransitionTable kXrcInitiatorTransitions;
extern const TransitionTable kXrcTargetTransitions;
extern const TransitionTable kDciTransitions;
extern const TransitionTable kDctTransitions;

// "RESET", and so on; "UNKNOWN" for others.
const char* NameOf(QpState state);

// Unknown types allow no transition.
Transition FindTransition(QpType type, QpState from, QpState to);

// 0, or EINVAL: no such transition, a required attribute is missing from
// `mask`, or `mask` has an attribute that is not permitted.
int CheckTransition(QpType type, QpState from, QpState to, uint32_t mask);

// The effect of posting a work request in a state (IBA vol. 1, 10.3.1).
enum class Posting : uint8_t {
  kRefused,   // EINVAL
  kAccepted,  // queued and processed
  kHeld,      // queued, processed after the next transition to RTS
  kFlushed,   // queued and completed at once with kFlushed
};

// For a type that has a requester.
constexpr Posting PostingSend(QpState state) {
  switch (state) {
    case QpState::kReset:
    case QpState::kInit:
    case QpState::kRtr:
      return Posting::kRefused;
    case QpState::kRts:
      return Posting::kAccepted;
    case QpState::kSqd:
      return Posting::kHeld;
    case QpState::kSqe:
    case QpState::kErr:
      return Posting::kFlushed;
  }
  return Posting::kRefused;
}
// For a queue pair that has its own receive queue.
constexpr Posting PostingReceive(QpState state) {
  switch (state) {
    case QpState::kReset:
      return Posting::kRefused;
    case QpState::kInit:
    case QpState::kRtr:
    case QpState::kRts:
    case QpState::kSqd:
    case QpState::kSqe:
      return Posting::kAccepted;
    case QpState::kErr:
      return Posting::kFlushed;
  }
  return Posting::kRefused;
}
// PostingSend for any type: kRefused if it has no send queue.
Posting PostingSend(QpType type, QpState state);

}  // namespace transport

#endif  // TRANSPORT_QP_STATE_TABLE_H_
