// What is known of how the application polls and posts. One for each lane:
// while one thread polls for its own queue pairs, those in other lanes may have
// nobody but the helper.
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

// Any thread, no lock. Several may poll; that counts get lost then does no
// harm.
class AppActivity {
 public:
  // An application that has polled since so long ago is taken for one that
  // polls. It makes some ten polls in this time, and may lose its core to the
  // helper for about as long. (scaled)
  static constexpr transport::Time kLease = 20 * transport::kMicrosecond;
  // But a check, which comes by itself and at any time, finds that it has
  // stopped if its last call is older than this. One that waits for its memory
  // to change, in turns of 10 us, would else never be found out. (scaled)
  static constexpr transport::Time kCheckedLease = 8 * transport::kMicrosecond;
  // One that has dropped its lease, to wait for an event, polls so often before
  // it has one again: it polls once more before it blocks.
  static constexpr uint32_t kManyPolls = 4;
  // One that has polled since so long ago is one that polls between its posts.
  static constexpr transport::Time kPollsAtAll = transport::kMillisecond;
  // One that has polled for so long for nothing leaves its core to others: what
  // it waits for may have to be made on it. With more pollers than cores 1,000
  // round trips of ibv_rc_pingpong take 0.16 s rather than 2.0. (scaled)
  static constexpr transport::Time kYieldAfter = 30 * transport::kMicrosecond;

  // Before anything else.
  void SetScale(TimeScale scale) { scale_.store(scale, kRelaxed); }
  TimeScale scale() const { return scale_.load(kRelaxed); }

  void OnPoll(transport::Time now) {
    last_poll_.store(now, kRelaxed);
    Add(&polls_);
  }
  // A poll that began earlier has found something, and ends now. A long one
  // would else be taken for a pause.
  void OnUsefulPoll(transport::Time now) {
    last_poll_.store(now, kRelaxed);
    last_useful_poll_.store(now, kRelaxed);
  }
  // It takes completions that are there already.
  void RenewLease(transport::Time now) { OnPoll(now); }
  // It asks for an event, or blocks.
  void DropLease() {
    last_poll_.store(kLongAgo, kRelaxed);
    polls_at_drop_.store(polls(), kRelaxed);
  }
  void OnPost(transport::Time now) {
    last_post_.store(now, kRelaxed);
    Add(&posts_);
  }
  // A post has taken until now, since it transmitted.
  void OnPostEnd(transport::Time now) { last_post_.store(now, kRelaxed); }

  uint32_t polls() const { return polls_.load(kRelaxed); }
  // kManyPolls or more if it has never dropped its lease.
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
  // Since it polled, or posted if it polls between posts.
  transport::Time CallAge(transport::Time now) const {
    const transport::Time poll_age = PollAge(now);
    return poll_age < kPollsAtAll ? std::min(poll_age, PostAge(now)) : poll_age;
  }
  transport::Time lease() const { return scale()(kLease); }
  transport::Time yield_after() const { return scale()(kYieldAfter); }
  transport::Time checked_lease() const { return scale()(kCheckedLease); }

  // To be asked after a poll that found nothing. One that posts is at work,
  // however long that keeps it (or another thread of it) from polling.
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

  // A cache line of its own: polls write it without the lane's lock.
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
