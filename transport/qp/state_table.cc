#include "transport/qp/state_table.h"

#include <cerrno>
#include <cstddef>

#include "transport/qp/qp_type.h"

namespace transport {
namespace {

using Row = TransitionRow;
using enum QpState;

// Required for RTR by every connected type.
constexpr uint32_t kToPeer = kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
// Alternate path and migration: stored, but never used.
constexpr uint32_t kMigration = kQpAltPath | kQpPathMigState;

constexpr Row kRcTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kToPeer | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts,
     kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kSqd, kSqd, 0,
     kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
         kQpMaxQpRdAtomic | kQpMaxDestRdAtomic | kQpAccessFlags | kQpPkeyIndex |
         kQpMinRnrTimer | kMigration},
};

constexpr Row kUcTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kToPeer, kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts, kQpSqPsn, kQpCurState | kQpAccessFlags | kMigration},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kMigration},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kMigration},
    {kSqd, kSqd, 0, kQpAv | kQpAccessFlags | kQpPkeyIndex | kMigration},
    {kSqe, kRts, 0, kQpCurState | kQpAccessFlags},
};

constexpr Row kUdTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpQkey, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpQkey},
    {kInit, kRtr, 0, kQpPkeyIndex | kQpQkey},
    {kRtr, kRts, kQpSqPsn, kQpCurState | kQpQkey},
    {kRts, kRts, 0, kQpCurState | kQpQkey},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpQkey},
    {kSqd, kSqd, 0, kQpPkeyIndex | kQpQkey},
    {kSqe, kRts, 0, kQpCurState | kQpQkey},
};

// No attributes for addressing.
constexpr Row kRawPacketTable[] = {
    {kReset, kInit, kQpPort, 0},  {kInit, kInit, 0, kQpPort},
    {kInit, kRtr, 0, 0},          {kRtr, kRts, 0, kQpCurState},
    {kRts, kRts, 0, kQpCurState}, {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState}, {kSqd, kSqd, 0, 0},
    {kSqe, kRts, 0, kQpCurState},
};

// The initiator has no responder: no attributes for RNR or incoming READs.
constexpr Row kXrcInitiatorTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kToPeer, kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts,
     kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic,
     kQpCurState | kQpAccessFlags | kMigration},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kMigration},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kMigration},
    {kSqd, kSqd, 0,
     kQpPort | kQpAv | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
         kQpMaxQpRdAtomic | kQpAccessFlags | kQpPkeyIndex | kMigration},
};

// The target has no requester: no attributes for retries or outgoing READs.
constexpr Row kXrcTargetTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kInit, 0, kQpPkeyIndex | kQpPort | kQpAccessFlags},
    {kInit, kRtr, kToPeer | kQpMaxDestRdAtomic | kQpMinRnrTimer,
     kQpAltPath | kQpAccessFlags | kQpPkeyIndex},
    {kRtr, kRts, kQpTimeout | kQpSqPsn,
     kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kRts, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kRts, kSqd, 0, kQpEnSqdAsyncNotify},
    {kSqd, kRts, 0, kQpCurState | kQpAccessFlags | kQpMinRnrTimer | kMigration},
    {kSqd, kSqd, 0,
     kQpPort | kQpAv | kQpTimeout | kQpMaxDestRdAtomic | kQpAccessFlags |
         kQpPkeyIndex | kQpMinRnrTimer | kMigration},
};

// DC: as the kernel's mlx5 driver has them. The address vector names no peer.
constexpr Row kDciTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort, 0},
    {kInit, kRtr, kQpPathMtu, kQpPkeyIndex | kQpAv},
    {kRtr, kRts,
     kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic | kQpSqPsn,
     kQpMinRnrTimer},
};

constexpr Row kDctTable[] = {
    {kReset, kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags, 0},
    {kInit, kRtr, kQpMinRnrTimer | kQpAv | kQpPathMtu, 0},
};

bool Exists(QpState state) {
  return static_cast<uint8_t>(state) <= static_cast<uint8_t>(kErr);
}

}  // namespace

constinit const TransitionTable kRcTransitions = kRcTable;
constinit const TransitionTable kUcTransitions = kUcTable;
constinit const TransitionTable kUdTransitions = kUdTable;
constinit const TransitionTable kRawPacketTransitions = kRawPacketTable;
constinit const TransitionTable kXrcInitiatorTransitions = kXrcInitiatorTable;
constinit const TransitionTable kXrcTargetTransitions = kXrcTargetTable;
constinit const TransitionTable kDciTransitions = kDciTable;
constinit const TransitionTable kDctTransitions = kDctTable;

Transition FindTransition(QpType type, QpState from, QpState to) {
  const QpTypeTraits* const traits = FindTraits(type);
  if (traits == nullptr || !Exists(from)) return {};
  if (to == kReset || to == kErr) return {.allowed = true};
  for (const Row& row : *traits->transitions) {
    if (row.from == from && row.to == to) {
      return {true, row.required, row.optional};
    }
  }
  return {};
}

const char* NameOf(QpState state) {
  constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS",
                                    "SQD",   "SQE",  "ERR"};
  return Exists(state) ? kNames[static_cast<size_t>(state)] : "UNKNOWN";
}

int CheckTransition(QpType type, QpState from, QpState to, uint32_t mask) {
  const Transition transition = FindTransition(type, from, to);
  const uint32_t given = mask & ~uint32_t{kQpState};
  if (!transition.allowed) return EINVAL;
  if ((given & transition.required) != transition.required) return EINVAL;
  if ((given & ~(transition.required | transition.optional)) != 0) {
    return EINVAL;
  }
  return 0;
}

Posting PostingSend(QpType type, QpState state) {
  return TraitsOf(type).requests ? PostingSend(state) : Posting::kRefused;
}

}  // namespace transport
