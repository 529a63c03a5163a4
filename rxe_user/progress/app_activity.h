// How the application polls and posts. One for each lane: while a thread polls
// for queue pairs of one lane, other lanes may have only their helper threads.
#ifndef RXE_USER_PROGRESS_APP_ACTIVITY_H_
#define RXE_USER_PROGRESS_APP_ACTIVITY_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>

#include "rxe_user/progress/time_scale.h"
#include "transport/base/types.h"

namespace rxe_user {

inline constexpr transport::Time kLongAgo =
    std::numeric_limits<transport::Time>::min() / 2;

// Any thread, no lock. Several threads may poll at once; lost counts do no
// harm.
class AppActivity {
 public:
  // An application that has polled within this time counts as polling. It makes
  // about ten polls in this time, and the helper may take its core for about as
  // long. (scaled)
  static constexpr transport::Time kLease = 20 * transport::kMicrosecond;
  // A check of the helper, which may happen at any time, uses this shorter
  // limit for the last call. With kLease, an application that waits for its
  // memory to change in turns of 10 us would always count as polling. (scaled)
  static constexpr transport::Time kCheckedLease = 8 * transport::kMicrosecond;
  // After it has dropped its lease to wait for an event, an application counts
  // as polling again from this many polls on: programs poll once more before
  // they block.
  static constexpr uint32_t kManyPolls = 4;
  // An application that has polled within this time polls between its posts.
  static constexpr transport::Time kPollsAtAll = transport::kMillisecond;
  // A poll yields its core when polls have found nothing for this long: what
  // the application waits for may need this core. With more pollers than cores,
  // 1,000 round trips of ibv_rc_pingpong take 0.16 s instead of 2.0. (scaled)
  static constexpr transport::Time kYieldAfter = 30 * transport::kMicrosecond;

  // Call this first.
  void SetScale(TimeScale scale) { scale_.store(scale, kRelaxed); }
  TimeScale scale() const { return scale_.load(kRelaxed); }

  void OnPoll(transport::Time now) {
    last_poll_.store(now, kRelaxed);
    Add(&polls_);
  }
  // A poll ends now that started earlier and has found something. Call it, or a
  // long poll counts as a pause.
  void OnUsefulPoll(transport::Time now) {
    last_poll_.store(now, kRelaxed);
    last_useful_poll_.store(now, kRelaxed);
  }
  // The application takes completions that are there already.
  void RenewLease(transport::Time now) { OnPoll(now); }
  // The application requests an event, or blocks.
  void DropLease() {
    last_poll_.store(kLongAgo, kRelaxed);
    polls_at_drop_.store(polls(), kRelaxed);
  }
  void OnPost(transport::Time now) {
    last_post_.store(now, kRelaxed);
    Add(&posts_);
  }
  // A post that transmitted ends now.
  void OnPostEnd(transport::Time now) { last_post_.store(now, kRelaxed); }

  uint32_t polls() const { return polls_.load(kRelaxed); }
  // kManyPolls or more if the application has never dropped its lease.
  uint32_t PollsSinceDrop() const {
    return polls() - polls_at_drop_.load(kRelaxed);
  }
  uint32_t calls() const { return polls() + posts_.load(kRelaxed); }

  transport::Time PollAge(transport::Time now) const {
    return now - last_poll_.load(kRelaxed);
  }
  transport::Time PostAge(transport::Time now) const {
    return now - last_post_.load(kRelaxed);
  }
  // Time since the last poll, or the last post if it polls between posts.
  transport::Time CallAge(transport::Time now) const {
    const transport::Time poll_age = PollAge(now);
    return poll_age < kPollsAtAll ? std::min(poll_age, PostAge(now)) : poll_age;
  }
  transport::Time lease() const { return scale()(kLease); }
  transport::Time yield_after() const { return scale()(kYieldAfter); }
  transport::Time checked_lease() const { return scale()(kCheckedLease); }

  // Whether a poll that found nothing yields. An application that posts is at
  // work, even if posting keeps it, or another thread of it, from polling.
  bool ShouldYield(transport::Time now) const {
    const transport::Time limit = yield_after();
    return now - last_useful_poll_.load(kRelaxed) > limit &&
           PostAge(now) > limit;
  }

 private:
  static constexpr std::memory_order kRelaxed = std::memory_order_relaxed;
  static void Add(std::atomic<uint32_t>* count) {
    count->store(count->load(kRelaxed) + 1, kRelaxed);
  }

  // On its own cache line: polls write it without the lane's lock.
  alignas(64) std::atomic<transport::Time> last_poll_ = kLongAgo;
  std::atomic<transport::Time> last_useful_poll_ = kLongAgo;
  std::atomic<transport::Time> last_post_ = kLongAgo;
  std::atomic<TimeScale> scale_;
  std::atomic<uint32_t> polls_ = 0;
  std::atomic<uint32_t> posts_ = 0;
  std::atomic<uint32_t> polls_at_drop_ = -kManyPolls;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_APP_ACTIVITY_H_
