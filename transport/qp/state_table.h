// The queue pair state machine as a table: for each queue pair type and each
// transition, which attributes must and which may be given; and what posting
// does in each state. Sources: manual page ibv_modify_qp(3); IBA vol. 1, 10.3.1
// and 11.2.5.3.
#ifndef TRANSPORT_QP_STATE_TABLE_H_
#define TRANSPORT_QP_STATE_TABLE_H_

#include <cstdint>
#include <span>

#include "transport/base/types.h"
#include "transport/qp/attributes.h"

namespace transport {

// One entry. Masks are of QpAttrMask bits, without kQpState, which is welcome
// everywhere (and absent for a change of attributes within a state).
struct Transition {
  bool allowed = false;
  uint32_t required = 0;
  uint32_t optional = 0;
};

// A transition of one type. Those to RESET and ERR are not in its table: they
// are open from every state and take no attributes.
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

// Of a type that does not exist nothing is allowed.
Transition FindTransition(QpType type, QpState from, QpState to);

// 0, or EINVAL: no such transition, an attribute that it requires is missing
// from `mask`, or one is there that it does not take.
int CheckTransition(QpType type, QpState from, QpState to, uint32_t mask);

// What a work request meets that is posted in a state (IBA vol. 1, 10.3.1).
enum class Posting : uint8_t {
  kRefused,   // EINVAL
  kAccepted,  // queued and processed
  kHeld,      // queued, processed after the next transition to RTS
  kFlushed,   // queued and completed at once with kFlushed
};

Posting PostingSend(QpType type, QpState state);
Posting PostingReceive(QpType type, QpState state);

}  // namespace transport

#endif  // TRANSPORT_QP_STATE_TABLE_H_
