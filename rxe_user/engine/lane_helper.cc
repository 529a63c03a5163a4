// The helper thread's work for a lane.
#include <sched.h>

#include <algorithm>
#include <new>

#include "rxe_user/engine/lane_impl.h"

namespace rxe_user {

using transport::kNever;
using transport::Time;

Time LaneImpl::RunHelper(bool by_socket) {
  if (const std::optional<Time> wake = CheckPolling()) return *wake;
  Time wake = kNever;
  bool yield = false;
  lock_.Lock();
  try {
    if (port() != nullptr) wake = RunHelperLocked(by_socket, &yield);
  } catch (const std::bad_alloc&) {
    // Nothing signals that memory is available again.
    transmitted_ = false;
    helper_wake_ = wake = Now() + kMemoryRetry;
  }
  lock_.Unlock();
  // The thread that busy polling waits for may need this core.
  if (yield) ::sched_yield();
  return wake;
}

Time LaneImpl::RunHelperLocked(bool by_socket, bool* yield) {
  const Time now = Now();
  bool polls = ApplicationPolls(now);
  HelperRound round;
  // If an armed socket has woken us, we process it. We also send what was
  // posted last, since the application may now wait for its memory to change.
  if (!polls || (arming_.active() && (armed_ || HasLeftovers()))) {
    round = RunInPlace(now);
    if (by_socket) NoteWake(now);
    if (mode_.is(Mode::kPolling)) polls = UpdatePollingMode(now, &round);
  } else if (batcher_.deadline() <= now) {
    TransmitSome(now);
  }
  const Time wake = ChangeMode(now, polls, round);
  *yield = mode_.is(Mode::kBusyPolling) && round.received + round.sent == 0;
  if (*yield) ++counters_.yields;
  transmitted_ = false;
  if (armed_) port_->PrepareWait();
  return wake;
}

// The helper's next wake-up, if the application polls and there is nothing else
// to do. Takes no lock: its holder is at work, and waiting for it would take a
// core from that thread or its peer.
std::optional<Time> LaneImpl::CheckPolling() {
  if (!mode_.is(Mode::kPolling) || arming_.active()) return std::nullopt;
  const Time now = Now();
  const bool polls =
      app_.CallAge(now) < app_.checked_lease() ||
      (lock_.held() && app_.PollAge(now) < AppActivity::kPollsAtAll);
  if (!polls || batcher_.deadline() <= now) return std::nullopt;
  LengthenInterval();
  const Time wake = std::min(now + interval_.value(), batcher_.deadline());
  helper_wake_ = wake;
  // Pairs with threads that end the mode or leave a post: either they see this
  // late wake-up and wake us, or we see their change here.
  if (!mode_.is(Mode::kPolling) || batcher_.deadline() < wake) {
    return std::nullopt;
  }
  return wake;
}

// The application was found polling. While it posts in batches, the interval
// stays within the batch limit, since waking the helper for each batch would
// cost more than the batch gains.
void LaneImpl::LengthenInterval() {
  arming_.OnFoundPolling();
  const uint32_t batches = batcher_.batches();
  interval_.Grow(batches != batches_seen_ ? batcher_.limit() : kNever);
  batches_seen_ = batches;
}

bool LaneImpl::ApplicationPolls(Time now) {
  uint32_t polls = app_.PollsSinceDrop();
  // One or two polls do not end busy polling, which the user asked for.
  if (mode_.is(Mode::kBusyPolling)) {
    polls = std::min(polls, app_.polls() - polls_seen_);
  } else {
    polls_seen_ = app_.polls();
  }
  const bool batches = batcher_.pending();
  if (mode_.is(Mode::kPolling)) {
    return app_.CallAge(now) < app_.checked_lease();
  }
  const Time age = batches ? app_.CallAge(now) : app_.PollAge(now);
  return (batches || polls >= AppActivity::kManyPolls) && age < app_.lease();
}

// Receives, runs timers and transmits for an application that does not poll.
LaneImpl::HelperRound LaneImpl::RunInPlace(Time now) {
  HelperRound round;
  round.had_leftovers = HasLeftovers();
  round.received = ReceiveSome(now, Caller::kFinisher);
  RunTimers(now, &round.received);
  if (round.received != 0 && HasLeftovers() && acks_.OnArrival(now)) {
    hold_ack_until_ = now + AckPiggyback::kAnswerGap;
  }
  // A thread that waits for the lock, mostly to post an answer to this arrival,
  // sends our ACK with it. Batched posts are not delayed for it.
  if (!batcher_.pending()) {
    round.hold_until =
        lock_.contended() ? now + AckPiggyback::kAnswerGap : hold_ack_until_;
  }
  if (now >= round.hold_until) round.sent = TransmitSome(now);
  round.more_is_near =
      busy_poll_.OnRound(round.received, round.sent, app_.PollAge(now), Now());
  return round;
}

// Whether the application still counts as polling, although CallAge says that
// it has stopped.
bool LaneImpl::UpdatePollingMode(Time now, HelperRound* round) {
  const Time age = app_.CallAge(now);
  const bool found = round->had_leftovers || round->received != 0;
  round->missed = !armed_ && found && age >= app_.checked_lease();
  if (round->missed) {
    ++counters_.missed_arrivals;
    arming_.OnMissedArrival();
  } else if (round->received != 0) {
    arming_.OnWoken(app_.calls());
  }
  return age < (arming_.active() ? AdaptiveArming::kLease : app_.lease());
}

// Returns when the helper must run again.
Time LaneImpl::ChangeMode(Time now, bool polls, const HelperRound& round) {
  if (polls && mode_.is(Mode::kPolling) && !round.missed) {
    LengthenInterval();
  } else {
    interval_.Reset(app_.scale());
  }
  if (polls && !mode_.is(Mode::kPolling)) {
    ++counters_.polling_modes;
    arming_.Disarm();
  }
  mode_.OnHelperRan(polls, round.more_is_near);
  ApplyMode();
  if (polls) {
    // Counted from now: the application must have had the time to poll. A held
    // ACK waits as long, since a timer for each makes ib_write_lat 64 KB 1.2
    // times as slow.
    helper_wake_ = std::min(Now() + interval_.value(), batcher_.deadline());
  } else if (mode_.is(Mode::kBusyPolling)) {
    helper_wake_ = now + 1;
  } else {
    // While threads wait, the helper serves a socket that could not be armed.
    if (mode_.is(Mode::kWaiter) && rearm_at_ <= now) NoteArming(false);
    // A deadline that was pushed back is kept: the next post would bring it
    // back and have to wake the helper.
    const Time need = now < round.hold_until ? round.hold_until : Need();
    helper_wake_ = last_need_ > now ? std::min(last_need_, need) : need;
  }
  return helper_wake_.load();
}

}  // namespace rxe_user
