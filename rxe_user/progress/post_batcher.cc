#include "rxe_user/progress/post_batcher.h"

#include <algorithm>
#include <utility>

namespace rxe_user {

using transport::kNever;
using transport::Time;

void PostBatcher::SetTimerCost(Time timer) {
  limit_ = timer < kCheapTimer ? kDeadline
                               : std::min(timer * kTimerShare, kMaxDeadline);
}

bool PostBatcher::OnPost(Time now, const PostedWork& work,
                         const AppActivity& app, const Situation& situation) {
  const Time gap = app.scale()(kGap);
  const bool busy = now - last_transmit_ < gap || situation.lane_is_busy ||
                    app.PostAge(now) < gap;
  // The application will poll soon, or post again and poll then.
  const Time poll_age = app.PollAge(now);
  const bool returns = poll_age < app.lease() ||
                       (poll_age < kPollsSometimes && app.PostAge(now) < gap);
  if (std::exchange(polls_, app.polls()) != app.polls()) {
    last_row_ = std::exchange(row_, 0);
  }
  row_ = std::min(row_ + 1, kLongRow);
  const bool rows = row_ >= kRow || last_row_ >= kRow;

  requests_ += work.requests;
  bytes_ += work.bytes;
  unsignaled_ =
      std::min(unsignaled_ + work.requests - work.signaled, kManyUnsignaled);
  const bool awaited = work.signaled != 0 && unsignaled_ >= kManyUnsignaled;
  if (work.signaled != 0) unsignaled_ = 0;

  if (!situation.may_batch || !busy || !returns || !rows || awaited ||
      IsFull(situation.senders) || now >= deadline()) {
    return false;
  }
  if (!pending()) {
    batches_.fetch_add(1, std::memory_order_relaxed);
    deadline_.store(now + limit_);
  }
  return true;
}

bool PostBatcher::IsFull(size_t senders) const {
  const auto bursts =
      static_cast<int>(std::clamp<size_t>(senders, 1, kQueuePairs));
  return requests_ >= kRequests * bursts || bytes_ >= kBytes;
}

void PostBatcher::OnTransmit(Time now, size_t bytes) {
  if (pending()) deadline_.store(kNever);
  requests_ = 0;
  bytes_ = 0;
  if (bytes != 0) last_transmit_ = now;
}

}  // namespace rxe_user
