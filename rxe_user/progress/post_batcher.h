// Which posts are left for a moment to share a send with others, and for how
// long at most.
#ifndef RXE_USER_PROGRESS_POST_BATCHER_H_
#define RXE_USER_PROGRESS_POST_BATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rxe_user/progress/app_activity.h"
#include "transport/base/types.h"

namespace rxe_user {

// Send requests that were posted together.
struct PostedWork {
  int requests = 0;
  uint64_t bytes = 0;  // their payload
  int signaled = 0;    // those that ask for a completion
};

// A batch ends with the next poll, when it is full, when the request comes that
// the application will wait for, or at its deadline, for which the helper
// comes. ib_send_bw 64 B goes 11 times as fast as with a send for each post.
//
// Lane locked; deadline() and batches() may be read without.
class PostBatcher {
 public:
  // Posts that come sooner than this after the last send, or after the end of
  // the call that posted before (a send takes longer by itself), or while
  // others are under way, may be left. Nothing of a datagram's is under way
  // once it is sent: ib_send_bw -c UD 64 B goes with a send for each without.
  // (scaled)
  static constexpr transport::Time kGap = 3 * transport::kMicrosecond;
  // Payload that is worth a send of its own.
  static constexpr uint64_t kBytes = 60 << 10;
  // Requests that are, for each queue pair that has something to send: each has
  // bursts of its own.
  static constexpr int kRequests = 48;
  // But no more than for so many queue pairs: the others wait. ib_write_bw -q 8
  // 64 B loses 9 % with one.
  static constexpr size_t kQueuePairs = 4;
  // A request that asks for a completion after so many that did not is the one
  // that the application will wait for, while it posts more as long as there is
  // room: the peer is to be at it meanwhile. ib_send_bw 64 B loses 8 % without.
  static constexpr int kManyUnsignaled = 16;
  // Batches are for an application that has posted so often in a row, without a
  // poll between: one that polls after each post gains nothing, and for each
  // batch the helper has to be near.
  static constexpr int kRow = 4;
  // One that has polled since so long ago, and posts one soon after the other,
  // will poll again. It may have lost its core among its posts, for some turns
  // of the scheduler.
  static constexpr transport::Time kPollsSometimes =
      20 * transport::kMillisecond;
  // One that posts so often in a row does not wait for its memory to change
  // after each post.
  static constexpr int kLongRow = 16;
  // How long a post is left at most: 50 us from the post to the wire, of which
  // the helper may take 10 to wake.
  static constexpr transport::Time kDeadline = 40 * transport::kMicrosecond;
  // A processor sets a timer in less than this. Where it takes longer, as in a
  // virtual machine whose host sets it, timers may take one part in so many of
  // the time, and the deadline is longer. In one in which it takes 8 us,
  // ib_send_bw 64 B goes at half its speed if a timer goes off each 40 us, and
  // at 0.93 of it with one each 320.
  static constexpr transport::Time kCheapTimer = 2 * transport::kMicrosecond;
  static constexpr transport::Time kTimerShare = 100;
  static constexpr transport::Time kMostDeadline = transport::kMillisecond;

  struct Situation {
    bool may_batch = false;     // the mode allows it
    bool lane_is_busy = false;  // something is under way
    size_t senders = 1;         // queue pairs that have something to send
  };

  // `timer` is what it takes to set a timer.
  void SetTimerCost(transport::Time timer);

  // `work` has been posted. True: it is left, and if the helper comes later
  // than deadline(), it has to be woken. False: everything is to be sent now.
  bool OnPost(transport::Time now, const PostedWork& work,
              const AppActivity& app, const Situation& situation);
  // Everything that could be sent has been; `bytes` of it.
  void OnTransmit(transport::Time now, size_t bytes);

  // When the batch has to be sent; kNever if nothing is left.
  transport::Time deadline() const { return deadline_.load(); }
  bool pending() const { return deadline() != transport::kNever; }
  // The last post was at least the kLongRow-th in a row.
  bool in_long_row() const { return row_ == kLongRow; }
  // How long a batch may take.
  transport::Time limit() const { return limit_; }
  // How many there have been.
  uint32_t batches() const { return batches_.load(std::memory_order_relaxed); }

 private:
  bool IsFull(size_t senders) const;

  std::atomic<transport::Time> deadline_ = transport::kNever;
  std::atomic<uint32_t> batches_ = 0;
  transport::Time limit_ = kDeadline;
  transport::Time last_transmit_ = kLongAgo;
  // Posts without a poll between them, up to kLongRow, and those before the
  // poll.
  int row_ = 0;
  int last_row_ = 0;
  uint32_t polls_ = 0;  // the application's, at the last post
  int requests_ = 0;    // since the last transmit
  uint64_t bytes_ = 0;  // their payload
  int unsignaled_ = 0;  // in a row, up to kManyUnsignaled
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_POST_BATCHER_H_
