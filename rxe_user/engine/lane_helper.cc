// What the helper thread does for a lane.
#include <sched.h>

#include <algorithm>
#include <new>
#include <utility>

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
    // Nothing tells when there is memory again.
    transmitted_ = false;
    helper_wake_ = wake = Now() + kMemoryRetry;
  }
  lock_.Unlock();
  // What is looked for may have to be made on this very core.
  if (yield) ::sched_yield();
  return wake;
}

Time LaneImpl::RunHelperLocked(bool by_socket, bool* yield) {
  const Time now = Now();
  bool polls = ApplicationPolls(now);
  HelperRound round;
  // What has woken us while the sockets are armed is ours to see to, and so is
  // what was posted last by one that may be off to wait for its memory.
  if (!polls || (arming_.active() && (armed_ || HasLeftovers()))) {
    round = RunInPlace(now);
    if (by_socket) NoteWake(now);
    if (mode_.is(Mode::kPolling)) polls = JudgePolling(now, &round);
  } else if (batcher_.deadline() <= now) {
    TransmitSome(now);
  }
  const Time wake = ChangeMode(now, polls, round);
  *yield = mode_.is(Mode::kBusyPolling) && round.received + round.sent == 0;
  if (*yield) ++counters_.yields;
  transmitted_ = false;
  return wake;
}

// When the helper has to come again, if all that it would find is that the
// application polls. Without the lock: who holds it is at work, and to wait for
// it would take a core from that thread or its peer.
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
  // Either who ends the mode, or leaves a post, sees that we come so late, or
  // we see that the mode has ended, or that there is a post.
  if (!mode_.is(Mode::kPolling) || batcher_.deadline() < wake) {
    return std::nullopt;
  }
  return wake;
}

// The application was found polling. While it posts in batches, the helper has
// to be near: to be called for each batch would cost more than the batch gains.
void LaneImpl::LengthenInterval() {
  arming_.OnFoundPolling();
  const uint32_t batches = batcher_.batches();
  interval_.Grow(batches != batches_seen_ ? batcher_.limit() : kNever);
  batches_seen_ = batches;
}

bool LaneImpl::ApplicationPolls(Time now) {
  uint32_t polls = app_.PollsSinceDrop();
  // One or two polls do not end what the user asked for.
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

// What the application does not do.
LaneImpl::HelperRound LaneImpl::RunInPlace(Time now) {
  HelperRound round;
  round.found_left = HasLeftovers();
  round.received = ReceiveSome(now, Caller::kFinisher);
  RunTimers(now);
  if (round.received != 0 && HasLeftovers() && acks_.OnArrival(now)) {
    hold_ack_until_ = now + AckPiggyback::kAnswerGap;
  }
  // Who waits for the lock, mostly to answer what has just arrived, sends its
  // post and our acknowledgement together. Posts that are left wait for nobody.
  if (!batcher_.pending()) {
    round.hold_until =
        lock_.contended() ? now + AckPiggyback::kAnswerGap : hold_ack_until_;
  }
  if (now >= round.hold_until) round.sent = TransmitSome(now);
  round.more_is_near =
      busy_poll_.OnRound(round.received, round.sent, app_.PollAge(now), Now());
  return round;
}

// Whether the application, which was not seen to poll, still counts as polling.
bool LaneImpl::JudgePolling(Time now, HelperRound* round) {
  const Time age = app_.CallAge(now);
  const bool found = round->found_left || round->received != 0;
  round->missed = !armed_ && found && age >= app_.checked_lease();
  if (round->missed) {
    ++counters_.missed_arrivals;
    arming_.OnMissedArrival();
  } else if (round->received != 0) {
    arming_.OnWoken(app_.calls());
  }
  return age < (arming_.active() ? AdaptiveArming::kLease : app_.lease());
}

// Returns when the helper must come again.
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
    // From now on: the application has to have had the time to poll. What is
    // held for its answer is held until then: with a timer for each
    // ib_write_lat 64 KB takes 1.2 times its time.
    helper_wake_ = std::min(Now() + interval_.value(), batcher_.deadline());
  } else if (mode_.is(Mode::kBusyPolling)) {
    helper_wake_ = now + 1;
  } else {
    // Beside threads that wait, the helper sees to a socket that was refused.
    if (mode_.is(Mode::kWaiter) && rearm_at_ <= now) NoteArming(false);
    // A deadline that has gone away is kept: the next post would bring it back,
    // and have to wake the helper for it.
    const Time need = now < round.hold_until ? round.hold_until : Need();
    helper_wake_ = last_need_ > now ? std::min(last_need_, need) : need;
  }
  return helper_wake_.load();
}

}  // namespace rxe_user
