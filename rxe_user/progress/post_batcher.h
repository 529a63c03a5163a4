// Which posts wait to share a system call with later ones, and how long at
// most.
#ifndef RXE_USER_PROGRESS_POST_BATCHER_H_
#define RXE_USER_PROGRESS_POST_BATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "rxe_user/progress/app_activity.h"
#include "transport/base/types.h"

namespace rxe_user {

// Send requests of one posting call.
struct PostedWork {
  int requests = 0;
  uint64_t bytes = 0;  // their payload
  int signaled = 0;    // how many of them request a completion
};

// A batch is sent at the next poll, when it is full, with the request that the
// application will wait for, or at its deadline, by the helper. ib_send_bw 64 B
// is 11 times as fast as with a system call for each post.
//
// The lane's lock guards it; deadline() and batches() may be read without it.
class PostBatcher {
 public:
  // A post may wait if it comes within this time after the last send, or after
  // the end of the previous posting call (a send alone takes longer), or while
  // packets are in flight. UD has no in-flight state: without this rule, every
  // UD post is its own system call. (scaled)
  static constexpr transport::Time kGap = 3 * transport::kMicrosecond;
  // Payload that is sent at once.
  static constexpr uint64_t kBytes = 60 << 10;
  // The same limit in requests, for each queue pair with pending sends: bursts
  // are per queue pair.
  static constexpr int kRequests = 48;
  // kRequests counts for this many queue pairs at most. With 1 instead of 4,
  // ib_write_bw -q 8 64 B is 9 % slower.
  static constexpr size_t kQueuePairs = 4;
  // A signaled request after this many unsignaled ones is the one that the
  // application will wait for. It ends the batch, so that the peer works while
  // the application posts more. ib_send_bw 64 B is 8 % slower without.
  static constexpr int kManyUnsignaled = 16;
  // Batches start after this many posts in a row without a poll. An application
  // that polls after each post gains nothing, and each batch needs the helper's
  // check interval to be short.
  static constexpr int kRow = 4;
  // An application that has polled within this time and posts back to back will
  // poll again. It may have been preempted between its posts, for some time
  // slices.
  static constexpr transport::Time kPollsSometimes =
      20 * transport::kMillisecond;
  // An application that posts this often in a row does not wait for its memory
  // to change after each post.
  static constexpr int kLongRow = 16;
  // How long a post waits at most: 50 us from the post to the wire, minus 10
  // for the helper to wake.
  static constexpr transport::Time kDeadline = 40 * transport::kMicrosecond;
  // Setting a timer takes less than this on a processor. Where it takes longer,
  // as in a virtual machine whose host sets it, the deadline is kTimerShare
  // times that, up to kMaxDeadline. With a timer that takes 8 us, ib_send_bw
  // 64 B has 0.5 of its speed with one timer each 40 us, and 0.93 with one each
  // 320 us.
  static constexpr transport::Time kCheapTimer = 2 * transport::kMicrosecond;
  static constexpr transport::Time kTimerShare = 100;
  static constexpr transport::Time kMaxDeadline = transport::kMillisecond;

  struct Situation {
    bool may_batch = false;     // the mode allows it
    bool lane_is_busy = false;  // packets are in flight
    size_t senders = 1;         // queue pairs with pending sends
  };

  // `timer`: how long setting a timer takes, ns.
  void SetTimerCost(transport::Time timer);

  // `work` has been posted. True: it waits, and the caller wakes the helper if
  // that would run after deadline(). False: the caller sends everything now.
  bool OnPost(transport::Time now, const PostedWork& work,
              const AppActivity& app, const Situation& situation);
  // Everything that could be sent has been: `bytes`.
  void OnTransmit(transport::Time now, size_t bytes);

  // When the batch has to be sent; kNever: there is none.
  transport::Time deadline() const { return deadline_.load(); }
  bool pending() const { return deadline() != transport::kNever; }
  // The last post was at least the kLongRow-th in a row.
  bool in_long_row() const { return row_ == kLongRow; }
  // How long a batch may wait, ns.
  transport::Time limit() const { return limit_; }
  // How many batches there have been.
  uint32_t batches() const { return batches_.load(std::memory_order_relaxed); }

 private:
  bool IsFull(size_t senders) const;

  std::atomic<transport::Time> deadline_ = transport::kNever;
  std::atomic<uint32_t> batches_ = 0;
  transport::Time limit_ = kDeadline;
  transport::Time last_transmit_ = kLongAgo;
  // Numbers of posts without a poll between them, up to kLongRow.
  int row_ = 0;         // since the last poll
  int last_row_ = 0;    // before it
  uint32_t polls_ = 0;  // the application's, at the last post
  int requests_ = 0;    // since the last transmit
  uint64_t bytes_ = 0;  // their payload
  int unsignaled_ = 0;  // in a row, up to kManyUnsignaled
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_POST_BATCHER_H_
