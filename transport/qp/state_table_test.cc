#include "transport/qp/state_table.h"

#include <cerrno>
#include <map>
#include <tuple>

#include "gtest/gtest.h"
#include "transport/qp/qp_type.h"

namespace transport {
namespace {

constexpr QpType kTypes[] = {QpType::kRc, QpType::kUc, QpType::kUd,
                             QpType::kXrcInitiator, QpType::kXrcTarget};
constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr,
                               QpState::kRts,   QpState::kSqd,  QpState::kSqe,
                               QpState::kErr};
constexpr uint32_t kAttributeBits = 21;  // kQpState to kQpDestQpn

using Key = std::tuple<QpType, QpState, QpState>;

// The same rules written independently: by attribute groups, as the manual page
// and the specification list them.
std::map<Key, Transition> Expected() {
  using enum QpState;
  std::map<Key, Transition> expected;
  for (QpType type : kTypes) {
    const auto set = [&](QpState from, QpState to, uint32_t required,
                         uint32_t optional) {
      expected[{type, from, to}] = {true, required, optional};
    };
    const bool ud = type == QpType::kUd;
    const bool reliable = type == QpType::kRc ||
                          type == QpType::kXrcInitiator ||
                          type == QpType::kXrcTarget;
    const bool requests = type == QpType::kRc || type == QpType::kXrcInitiator;
    const bool responds = type == QpType::kRc || type == QpType::kXrcTarget;
    for (QpState from : kStates) {
      set(from, kReset, 0, 0);
      set(from, kErr, 0, 0);
    }
    const uint32_t identity =
        kQpPkeyIndex | kQpPort | (ud ? kQpQkey : kQpAccessFlags);
    set(kReset, kInit, identity, 0);
    set(kInit, kInit, 0, identity);

    uint32_t to_rtr = ud ? 0 : kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn;
    if (responds) to_rtr |= kQpMaxDestRdAtomic | kQpMinRnrTimer;
    set(kInit, kRtr, to_rtr,
        ud ? kQpPkeyIndex | kQpQkey
           : kQpPkeyIndex | kQpAccessFlags | kQpAltPath);

    uint32_t to_rts = kQpSqPsn;
    if (reliable) to_rts |= kQpTimeout;
    if (requests) to_rts |= kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    uint32_t running = kQpCurState;
    if (ud) running |= kQpQkey;
    if (!ud) running |= kQpAccessFlags | kQpAltPath | kQpPathMigState;
    if (responds) running |= kQpMinRnrTimer;
    set(kRtr, kRts, to_rts, running);
    set(kRts, kRts, 0, running);
    set(kSqd, kRts, 0, running);
    set(kRts, kSqd, 0, kQpEnSqdAsyncNotify);
    if (!reliable) {
      set(kSqe, kRts, 0, kQpCurState | (ud ? kQpQkey : kQpAccessFlags));
    }

    uint32_t drained = kQpPkeyIndex;
    if (ud) drained |= kQpQkey;
    if (!ud) drained |= kQpAv | kQpAccessFlags | kQpAltPath | kQpPathMigState;
    if (reliable) drained |= kQpPort | kQpTimeout;
    if (requests) drained |= kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic;
    if (responds) drained |= kQpMaxDestRdAtomic | kQpMinRnrTimer;
    set(kSqd, kSqd, 0, drained);
  }
  return expected;
}

// All types and transitions; for each, every required bit missing and every
// foreign bit added.
TEST(StateTableTest, Exhaustive) {
  const std::map<Key, Transition> expected = Expected();
  int allowed = 0;
  for (QpType type : kTypes) {
    for (QpState from : kStates) {
      for (QpState to : kStates) {
        SCOPED_TRACE(std::to_string(static_cast<int>(type)) + ": " +
                     std::to_string(static_cast<int>(from)) + " to " +
                     std::to_string(static_cast<int>(to)));
        const auto it = expected.find({type, from, to});
        const Transition transition = FindTransition(type, from, to);
        if (it == expected.end()) {
          EXPECT_FALSE(transition.allowed);
          EXPECT_EQ(CheckTransition(type, from, to, kQpState), EINVAL);
          EXPECT_EQ(CheckTransition(type, from, to, ~0u), EINVAL);
          continue;
        }
        ++allowed;
        EXPECT_TRUE(transition.allowed);
        EXPECT_EQ(transition.required, it->second.required);
        EXPECT_EQ(transition.optional, it->second.optional);

        const uint32_t required = it->second.required;
        const uint32_t taken = required | it->second.optional | kQpState;
        EXPECT_EQ(CheckTransition(type, from, to, required | kQpState), 0);
        EXPECT_EQ(CheckTransition(type, from, to, required), 0);
        EXPECT_EQ(CheckTransition(type, from, to, taken), 0);
        for (uint32_t bit = 0; bit < 32; ++bit) {
          const uint32_t attribute = 1u << bit;
          if (required & attribute) {
            EXPECT_EQ(CheckTransition(type, from, to,
                                      (required | kQpState) & ~attribute),
                      EINVAL);
            EXPECT_EQ(CheckTransition(type, from, to, taken & ~attribute),
                      EINVAL);
          }
          EXPECT_EQ(
              CheckTransition(type, from, to, required | kQpState | attribute),
              (taken & attribute) ? 0 : EINVAL)
              << "bit " << bit;
          static_assert(kQpDestQpn == 1u << (kAttributeBits - 1));
        }
      }
    }
  }
  EXPECT_EQ(static_cast<size_t>(allowed), expected.size());
}

TEST(StateTableTest, DynamicallyConnected) {
  const auto check = [](QpType type, QpState from, QpState to, uint32_t mask) {
    return CheckTransition(type, from, to, mask | kQpState);
  };
  using enum QpState;
  for (const QpType type : {QpType::kDci, QpType::kDct}) {
    for (const QpState from : kStates) {
      EXPECT_EQ(check(type, from, kReset, 0), 0);
      EXPECT_EQ(check(type, from, kErr, 0), 0);
    }
  }
  constexpr uint32_t kHere = kQpPkeyIndex | kQpPort;
  EXPECT_EQ(check(QpType::kDci, kReset, kInit, kHere), 0);
  EXPECT_EQ(check(QpType::kDci, kReset, kInit, kHere | kQpAccessFlags), EINVAL)
      << "it receives nothing";
  EXPECT_EQ(check(QpType::kDci, kInit, kRtr, kQpPathMtu), 0);
  EXPECT_EQ(check(QpType::kDci, kInit, kRtr, kQpPathMtu | kQpAv), 0);
  EXPECT_EQ(check(QpType::kDci, kInit, kRtr, kQpPathMtu | kQpDestQpn), EINVAL);
  constexpr uint32_t kRetries =
      kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpMaxQpRdAtomic | kQpSqPsn;
  EXPECT_EQ(check(QpType::kDci, kRtr, kRts, kRetries), 0);
  EXPECT_EQ(check(QpType::kDci, kRtr, kRts, kRetries & ~kQpTimeout), EINVAL);
  EXPECT_EQ(check(QpType::kDci, kRts, kSqd, 0), EINVAL);

  EXPECT_EQ(check(QpType::kDct, kReset, kInit, kHere | kQpAccessFlags), 0);
  EXPECT_EQ(check(QpType::kDct, kReset, kInit, kHere), EINVAL);
  constexpr uint32_t kAnswers = kQpMinRnrTimer | kQpAv | kQpPathMtu;
  EXPECT_EQ(check(QpType::kDct, kInit, kRtr, kAnswers), 0);
  EXPECT_EQ(check(QpType::kDct, kInit, kRtr, kAnswers & ~kQpAv), EINVAL);
  EXPECT_EQ(check(QpType::kDct, kRtr, kRts, kRetries), EINVAL);
}

TEST(StateTableTest, TypesAndStatesThatDoNotExist) {
  EXPECT_FALSE(
      FindTransition(static_cast<QpType>(7), QpState::kReset, QpState::kInit)
          .allowed);
  EXPECT_FALSE(
      FindTransition(static_cast<QpType>(0), QpState::kReset, QpState::kReset)
          .allowed);
  EXPECT_FALSE(
      FindTransition(QpType::kRc, static_cast<QpState>(7), QpState::kErr)
          .allowed);
  EXPECT_FALSE(
      FindTransition(QpType::kRc, QpState::kRts, static_cast<QpState>(7))
          .allowed);
}

TEST(StateTableTest, Posting) {
  using enum Posting;
  // RESET, INIT, RTR, RTS, SQD, SQE, ERR.
  constexpr Posting kSend[] = {kRefused, kRefused, kRefused, kAccepted,
                               kHeld,    kFlushed, kFlushed};
  constexpr Posting kReceive[] = {kRefused,  kAccepted, kAccepted, kAccepted,
                                  kAccepted, kAccepted, kFlushed};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(PostingReceive(kStates[i]), kReceive[i]);
    for (QpType type : {QpType::kRc, QpType::kUc, QpType::kUd,
                        QpType::kXrcInitiator, QpType::kDci}) {
      EXPECT_EQ(PostingSend(type, kStates[i]), kSend[i]);
    }
    for (QpType type : {QpType::kXrcTarget, QpType::kDct}) {
      EXPECT_EQ(PostingSend(type, kStates[i]), kRefused);
    }
  }
}

// QueuePair refuses receives of the others.
TEST(StateTableTest, TypesWithAReceiveQueue) {
  for (QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    EXPECT_EQ(TraitsOf(type).receives_from, ReceivesFrom::kOwnQueue);
  }
  for (QpType type :
       {QpType::kXrcInitiator, QpType::kXrcTarget, QpType::kDci}) {
    EXPECT_NE(TraitsOf(type).receives_from, ReceivesFrom::kOwnQueue);
  }
}

}  // namespace
}  // namespace transport
