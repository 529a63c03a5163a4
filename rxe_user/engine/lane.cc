#include "rxe_user/engine/lane.h"

#include <time.h>

#include <algorithm>

#include "rxe_user/engine/lane_impl.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::Time;

// Polls in a row that leave the lock to waiting threads, which would hardly
// ever find it free beside a polling thread. Limited, since a waiter may have
// been preempted.
constexpr int kPollsWithoutLock = 100;

// Rounds of Receive, of one RoundBudget each: more than sockets buffer.
constexpr int kReceiveRounds = 32;

}  // namespace

Time Lane::Now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * transport::kSecond + t.tv_nsec;
}

// --- Calls by the application.

void LaneImpl::Posted(Time now, const PostedWork& work) {
  if (port() == nullptr) return;
  acks_.OnPost(now);
  const PostBatcher::Situation situation = {
      .may_batch = !arming_.active(),
      .lane_is_busy = endpoint_.NextTimeout() != kNever,
      .senders = endpoint_.Transmitters()};
  const bool left = batcher_.OnPost(now, work, app_, situation);
  if (arming_.active() && batcher_.in_long_row()) {
    arming_.End();
    ApplyMode();
  }
  app_.OnPost(now);
  ThreadActivity::OnUseful();
  if (left) {
    ++counters_.posts_batched;
    return;
  }
  // A polling application would send the remaining packets, but perhaps not at
  // once.
  while (TransmitSome(now) != 0 && HasLeftovers() && mode_.is(Mode::kPolling) &&
         !lock_.contended()) {
  }
  app_.OnPostEnd(Now());
}

void LaneImpl::Transmit(Time now) {
  if (port() != nullptr) TransmitSome(now);
}

void LaneImpl::Receive(Time now) {
  for (int i = 0; i < kReceiveRounds && port() != nullptr &&
                  ReceiveSome(now, Caller::kFinisher) != 0;
       ++i) {
  }
}

LaneImpl::PollResult LaneImpl::Progress() {
  if (port() == nullptr) return PollResult::kNothing;
  const Time now = Now();
  app_.OnPoll(now);
  if (lock_.contended() &&
      polls_without_lock_.fetch_add(1, std::memory_order_relaxed) <
          kPollsWithoutLock) {
    return EmptyPollResult(now);
  }
  if (!lock_.TryLock()) return EmptyPollResult(now);
  polls_without_lock_.store(0, std::memory_order_relaxed);
  PollResult found;
  if (port() != nullptr && Round(now, Caller::kPoller)) {
    found = PollResult::kSomething;
    app_.OnUsefulPoll(Now());
    ThreadActivity::OnUseful();
  } else {
    found = EmptyPollResult(now);
    if (found == PollResult::kNothing && app_.ShouldYield(now)) {
      found = PollResult::kNothingForLong;
    }
    if (found == PollResult::kNothingForLong) ++counters_.yields;
  }
  Unlock();
  return found;
}

LaneImpl::PollResult LaneImpl::EmptyPollResult(Time now) const {
  return ThreadActivity::IdleFor(app_.yield_after(), now)
             ? PollResult::kNothingForLong
             : PollResult::kNothing;
}

void LaneImpl::RenewLease() {
  if (port() != nullptr) app_.RenewLease(Now());
}

void LaneImpl::DropLease() {
  app_.DropLease();
  // In other modes the lane is already being served. If the helper finds at
  // this moment that the application polls, its next check follows after the
  // first interval.
  if (!mode_.is(Mode::kPolling) && !batcher_.pending()) return;
  lock_.Lock();
  if (port() != nullptr) {
    mode_.OnLeaseDropped();
    ApplyMode();
    if (HasLeftovers()) TransmitSome(Now());
  }
  Unlock();
}

// --- Threads that block.

bool LaneImpl::EnterWait() {
  lock_.Lock();
  const bool open = port() != nullptr;
  if (open) {
    mode_.OnWaiterCame();
    ApplyMode();
  }
  lock_.Unlock();
  return open;
}

bool LaneImpl::PollOnce(Time now, bool by_socket) {
  lock_.Lock();
  const bool open = port() != nullptr;
  if (open) {
    Round(now, Caller::kFinisher);
    if (by_socket) NoteWake(now);
  }
  waiter_runs_again_ = open && HasLeftovers();
  const bool more = waiter_runs_again_;
  if (open && !more) port_->PrepareWait();
  Unlock();
  return more;
}

void LaneImpl::LeaveWait() {
  lock_.Lock();
  waiter_runs_again_ = false;
  if (port() != nullptr) {
    mode_.OnWaiterLeft();
    ApplyMode();
  }
  Unlock();
}

// --- Waking the helper.

void LaneImpl::Unlock() {
  bool wake = false;
  if (port() != nullptr) {
    if (HasLeftovers() && !MayLeave() && !transmitted_) TransmitSome(Now());
    wake = MustWakeHelper();
  }
  transmitted_ = false;
  LaneHelper* const helper = helper_;
  lock_.Unlock();
  if (wake) helper->Wake();
}

bool LaneImpl::MustWakeHelper() {
  const Time need = Need();
  if (need != kNever) last_need_ = need;
  if (waiter_runs_again_ || need >= helper_wake_.load()) return false;
  helper_wake_ = need;
  ++counters_.helper_wakes;
  return true;
}

Time LaneImpl::Need() const {
  const bool left = HasLeftovers();
  if (left && !MayLeave()) return 0;
  const Time batch = left ? batcher_.deadline() : kNever;
  // In this mode the helper wakes soon in any case.
  if (mode_.is(Mode::kPolling)) return batch;
  const Time rested = disarmed_until_.load(std::memory_order_relaxed);
  return std::min({batch, endpoint_.NextTimeout(), rearm_at_,
                   rested != 0 ? rested : kNever,
                   port_->must_retry() ? retry_.at() : kNever});
}

bool LaneImpl::HasLeftovers() const {
  return !port_->blocked() && endpoint_.HasTransmit();
}

bool LaneImpl::MayLeave() const {
  if (batcher_.pending()) return true;
  return mode_.is(Mode::kPolling) && (!arming_.active() || left_);
}

void LaneImpl::ApplyMode() {
  Time rest = disarmed_until_.load(std::memory_order_relaxed);
  if (rest != 0 && rest <= Now()) disarmed_until_ = rest = 0;
  const bool arm =
      rest == 0 &&
      (mode_.is(Mode::kArmed) ||
       (mode_.is(Mode::kPolling) && arming_.armed() && mode_.waiters() == 0));
  port_->SetWaitedOn(arm || mode_.waiters() != 0);
  // While threads wait, a socket that could not be armed is left to the helper.
  const bool settled = rearm_at_ == kNever || mode_.is(Mode::kWaiter);
  if (arm == armed_ && settled) return;
  armed_ = arm;
  if (arm) port_->PrepareWait();
  NoteArming(helper_->Arm(arm));
}

void LaneImpl::NoteWake(Time now) {
  if (!futile_wakes_.OnWake()) return;
  ++counters_.socket_rests;
  disarmed_until_ = now + FutileWakes::kRest;
  ApplyMode();
}

// If the system refuses to arm a socket (no memory, or the user's limit of
// watches is reached), the helper retries at intervals.
void LaneImpl::NoteArming(bool armed) {
  rearm_at_ = armed ? kNever : Now() + SendRetry::kMax;
}

// --- Other callers.

void LaneImpl::DeliverStray(const Stray& stray) {
  const Guard guard(*this);
  if (port() == nullptr) return;
  transport::Datagram datagram;
  datagram.bytes = stray.bytes;
  datagram.source = stray.source;
  datagram.destination = stray.destination;
  datagram.source_port = stray.source_port;
  datagram.traffic_class = stray.traffic_class;
  datagram.hop_limit = stray.hop_limit;
  endpoint_.OnDatagram(datagram, Now());
}

}  // namespace rxe_user
