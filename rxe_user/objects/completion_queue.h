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
#include "rxe_user/progress/polled_completions.h"
#include "rxe_user/progress/thread_activity.h"
#include "transport/base/work.h"

namespace rxe_user {

class QueuePair;

// Thread: any. The ring has its own lock, taken inside lanes' locks. Under it
// only event queues are called.
class CompletionQueue final : public transport::CompletionSink {
 public:
  struct Config {
    uint32_t capacity = 0;                // completions
    bool ignore_overrun = false;          // drop the oldest, without an error
    EventQueue* channel = nullptr;        // may be null
    QueueAllocator* allocator = nullptr;  // of the ring; may be null
    EventQueue* async = nullptr;          // for the CQ error event
    void* element = nullptr;              // the `element` of its events
    int error_event = 0;                  // the type of the CQ error event
  };

  // Check `allocated()` after construction.
  CompletionQueue(Engine& engine, const Config& config);
  ~CompletionQueue() override;

  // False if there was no memory for the ring.
  bool allocated() const { return ring_ != nullptr; }
  uint32_t capacity() const { return capacity_; }
  // Tells apart the completion queues of this process.
  uint64_t id() const { return id_; }

  // --- transport::CompletionSink
  bool Push(const transport::Completion& completion) override;
  transport::CqReport Report() override;

  // Removes up to `count` completions, oldest first, and passes each to
  // `take(index, completion)`, which must not call back. If there are none,
  // makes progress in the lanes of the queue's users. Returns the number.
  template <typename Take>
  int Poll(int count, Take&& take);

  // Requests an event for the next completion that is added after this call, or
  // for the next solicited or failed one. A request for any completion is not
  // narrowed.
  //
  // A poll for several completions that returns all it asked for, and leaves
  // some, raises the event at once: a program that polls one batch for each
  // event, as perftest does, would otherwise wait for completions that it
  // already has. A poll for one does not: such a program expects one event for
  // each.
  void Arm(bool solicited_only);

  // ibv_modify_cq(3): an event waits for `count` completions, for `period` us
  // after the first of them, or until the ring is full. 0 disables a condition;
  // both 0: an event for each completion at once, the default. Completions that
  // already wait count. Returns 0, or what the system refused.
  int Moderate(uint16_t count, uint16_t period);

  // Resizes to `capacity` entries, for a request of `wanted`. 0, EINVAL (fewer
  // than are queued), ENOMEM.
  int Resize(uint32_t capacity, uint32_t wanted);

  // Drops the completions of `qpn` that were not polled: its queue pair is
  // reset or destroyed, and the application may have freed its work requests.
  void Forget(uint32_t qpn);
  // `queue` is about to be destroyed: its completions may still be polled, but
  // must not refer to it any more.
  void ForgetSlots(const transport::Retrieved* queue);

  // The queue has lost completions. Its queue pairs go to the error state: each
  // when it next completes something, and all of them when the application
  // polls or takes the event.
  bool overrun() const { return overrun_.load(std::memory_order_acquire); }
  void FailQueuePairs();

  // --- Faults on command.
  // Raises IBV_EVENT_CQ_ERR; the queue stays as it is.
  void RaiseError();
  // As if a completion had found the queue full.
  void Overrun();
  // A completion of a queue pair has failed: the queue pair goes to the error
  // state when the application polls, or takes an event.
  void FailLater() { fail_pending_.store(true, std::memory_order_release); }
  // Adds what is late.
  void RevealLate();

  // --- Users: queue pairs, each once.
  void Attach(QueuePair* qp);
  void Detach(QueuePair* qp);
  bool used();

  // --- XRC SRQs that complete here, and the lanes of the targets that fill
  // them.
  void AttachSrq();
  void DetachSrq();
  void AddLane(int lane);
  void RemoveLane(int lane);

  // The number of this queue's events that were taken from the channel, and
  // from the async queue. Call it when no queue pair uses the queue: no more
  // events are posted then.
  uint32_t WithdrawCompletionEvents();
  uint32_t WithdrawAsyncEvents();

 private:
  enum class Armed : uint8_t { kNo, kSolicited, kNext };

  // Completions were added that an event is requested for. mutex_ held.
  void OnEventWanted(uint32_t completions);
  void Lose();  // mutex_ held: the queue has overrun
  void StartHoldTimer(transport::Time time);  // mutex_ held
  void RaiseEvent();                          // mutex_ held
  void OnAlarm();

  // A ring of `capacity` entries, or null.
  QueueMemory Allocate(uint32_t capacity) const;

  Engine& engine_;
  const Config config_;
  const uint64_t id_;  // in this process

  std::mutex mutex_;  // guards the members up to polled_
  QueueMemory ring_memory_;
  transport::Completion* ring_;  // null: there was no memory
  uint32_t capacity_;
  uint32_t head_ = 0;  // index of the oldest
  Armed armed_ = Armed::kNo;
  // Moderation of events: the limits in completions and in us, the completions
  // since the last event, and the deadline.
  uint16_t hold_count_ = 0;
  uint16_t hold_period_ = 0;
  uint32_t held_ = 0;
  transport::Time hold_until_ = 0;
  uint64_t alarm_ = 0;  // 0: none
  PolledCompletions polled_;
  EventAccount completion_account_;  // guarded by the channel's lock
  EventAccount async_account_;       // guarded by the async queue's lock
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
    OnEventWanted(have - taken);
  }
  ThreadActivity::OnUseful();
  const PolledCompletions::Next next = polled_.OnPoll(taken, found_none);
  // The caller may be about to wait for its event, and has left progress to
  // others.
  const bool waits = armed_ != Armed::kNo;
  lock.unlock();
  if (waits) return static_cast<int>(taken);
  if (next == PolledCompletions::Next::kProgress) {
    engine_.Progress(lanes_.lanes());
  } else if (next == PolledCompletions::Next::kRenewLease) {
    engine_.RenewLease(lanes_.lanes());
  }
  return static_cast<int>(taken);
}

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_COMPLETION_QUEUE_H_
