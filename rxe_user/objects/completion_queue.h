// A completion queue: a ring that lanes fill and the application empties.
#ifndef RXE_USER_OBJECTS_COMPLETION_QUEUE_H_
#define RXE_USER_OBJECTS_COMPLETION_QUEUE_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "rxe_user/base/lane_set.h"
#include "rxe_user/engine/engine.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/queue_memory.h"
#include "rxe_user/progress/taken_completions.h"
#include "rxe_user/progress/thread_activity.h"
#include "transport/base/work.h"

namespace rxe_user {

class QueuePair;

// Thread: any. The ring has a lock of its own, taken inside lanes' locks; what
// is called with it held calls nothing but the event queues.
class CompletionQueue final : public transport::CompletionSink {
 public:
  struct Config {
    uint32_t capacity = 0;                // completions
    bool ignore_overrun = false;          // the oldest make room, no error
    EventQueue* channel = nullptr;        // may be null
    QueueAllocator* allocator = nullptr;  // of the ring; may be null
    EventQueue* async = nullptr;          // for the CQ error event
    void* element = nullptr;              // what events name
    int error_event = 0;                  // the type of the CQ error event
  };

  // Check `allocated()` after construction.
  CompletionQueue(Engine& engine, const Config& config);
  ~CompletionQueue() override;

  // False when there was no memory for the ring.
  bool allocated() const { return ring_ != nullptr; }
  uint32_t capacity() const { return capacity_; }

  // --- transport::CompletionSink
  bool Push(const transport::Completion& completion) override;

  // Takes up to `count` completions, oldest first, each given to
  // `take(index, completion)`, which must not call back. Makes progress when
  // there is none, in the lanes of the queue's users. Returns how many.
  template <typename Take>
  int Poll(int count, Take&& take);

  // An event for the next completion that is added after this call, or for the
  // next that is solicited or failed. A wider wish is never narrowed.
  //
  // A poll that takes all of several that it asked for, and leaves some, brings
  // the event at once: a program that polls one batch for each event, as
  // perftest does, would else wait for ever for what it already has. Not so a
  // poll for one: who polls one for each event counts on as many events.
  void Arm(bool solicited_only);

  // ibv_modify_cq(3): an event waits until `count` completions have come for
  // it, or `period` us have passed since the first of them, or the ring is
  // full. 0: that is not waited for; both 0: for each at once, as at first.
  // What is waited for already counts. 0, or what the system refused.
  int Moderate(uint16_t count, uint16_t period);

  // `capacity` entries, for somebody who has asked for `wanted` of them. 0,
  // EINVAL (fewer are wanted than are queued), ENOMEM.
  int Resize(uint32_t capacity, uint32_t wanted);

  // Drops what `qpn` completed and nobody has taken yet: its queue pair starts
  // afresh or is about to go, and the application with its work requests may be
  // gone too.
  void Forget(uint32_t qpn);
  // `queue` is about to go before those who completed its requests: they may
  // still be polled.
  void ForgetSlots(const transport::Retrieved* queue);

  // The queue has lost completions; its queue pairs go to the error state, each
  // at the latest when it next completes something, and all of them when the
  // application polls or takes the event.
  bool overrun() const { return overrun_.load(std::memory_order_acquire); }
  void FailQueuePairs();

  // --- Users: queue pairs, each once.
  void Attach(QueuePair* qp);
  void Detach(QueuePair* qp);
  bool used();

  // --- XRC SRQs that complete here, and the lanes of the targets that may fill
  // those.
  void AttachSrq();
  void DetachSrq();
  void AddLane(int lane);
  void RemoveLane(int lane);

  // Events of this queue that were taken from the channel, and from the async
  // queue. None is posted after no queue pair uses it.
  uint32_t WithdrawCompletionEvents();
  uint32_t WithdrawAsyncEvents();

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kNext };

  // Completions have come that an event is wanted for. mutex_ held.
  void OnWanted(uint32_t completions);
  void HoldBack(transport::Time time);  // mutex_ held
  void Announce();                      // mutex_ held
  void OnAlarm();

  // A ring of `capacity` entries, or null.
  QueueMemory Allocate(uint32_t capacity) const;

  Engine& engine_;
  const Config config_;

  std::mutex mutex_;  // guards what follows until completion_account_
  QueueMemory ring_memory_;
  transport::Completion* ring_;  // null: there was no memory
  uint32_t capacity_;
  uint32_t head_ = 0;  // index of the oldest
  Armed armed_ = Armed::kNo;
  // Of events: kept back until there are so many completions, or so many us
  // have passed; how many there are, and when the time is over.
  uint16_t hold_count_ = 0;
  uint16_t hold_period_ = 0;
  uint32_t held_ = 0;
  transport::Time hold_until_ = 0;
  uint64_t alarm_ = 0;  // 0: none
  TakenCompletions taken_;
  EventAccount completion_account_;  // by the channel's lock
  EventAccount async_account_;       // by the async queue's lock
  std::atomic<uint32_t> count_{0};   // changed under mutex_
  std::atomic<bool> overrun_{false};
  std::atomic<bool> fail_pending_{false};

  // Taken outside the lanes' locks: FailQueuePairs takes those under it.
  std::mutex users_mutex_;
  std::vector<QueuePair*> users_;  // guarded by users_mutex_
  uint32_t srqs_ = 0;              // guarded by users_mutex_
  LaneUse lanes_;                  // changed under users_mutex_
};

template <typename Take>
int CompletionQueue::Poll(int count, Take&& take) {
  if (fail_pending_.load(std::memory_order_acquire)) FailQueuePairs();
  bool found_none = false;
  if (count_.load(std::memory_order_acquire) == 0) {
    engine_.Progress(lanes_.lanes());
    if (count_.load(std::memory_order_acquire) == 0) return 0;
    found_none = true;
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const uint32_t have = count_.load(std::memory_order_relaxed);
  const uint32_t taken = std::min(have, static_cast<uint32_t>(count));
  for (uint32_t i = 0; i < taken; ++i) {
    const transport::Completion& completion = ring_[head_];
    take(static_cast<int>(i), completion);
    completion.slot.Free();
    if (++head_ == capacity_) head_ = 0;
  }
  count_.store(have - taken, std::memory_order_release);
  if (armed_ == Armed::kNext && have > taken && taken > 1) {
    OnWanted(have - taken);
  }
  ThreadActivity::OnUseful();
  const TakenCompletions::Next next = taken_.OnPoll(taken, found_none);
  // Who is to be told of the next one may be about to wait for it, and has left
  // progress to others.
  const bool waits = armed_ != Armed::kNo;
  lock.unlock();
  if (waits) return static_cast<int>(taken);
  if (next == TakenCompletions::Next::kProgress) {
    engine_.Progress(lanes_.lanes());
  } else if (next == TakenCompletions::Next::kRenewLease) {
    engine_.RenewLease(lanes_.lanes());
  }
  return static_cast<int>(taken);
}

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_COMPLETION_QUEUE_H_
