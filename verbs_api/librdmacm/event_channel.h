// Event channels: rdma_create_event_channel(3).
#ifndef VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_
#define VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_

#include <rdma/rdma_cma.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "rxe_user/base/unique_fd.h"
#include "verbs_api/librdmacm/event.h"

namespace librdmacm {

// A queue of events. Moving an event between lists does not allocate.
using Events = std::list<std::shared_ptr<Event>>;

// An event that is not in a channel yet, with all the memory that queueing
// needs. Create it before changing the state of an id, so that the change
// cannot fail for lack of memory.
class UnsentEvent {
 public:
  UnsentEvent() { one_.push_back(std::make_shared<Event>()); }
  Event* operator->() const { return one_.front().get(); }

 private:
  friend class EventChannel;
  Events one_;
};

// A queue of events with an eventfd that counts them; each taker takes one from
// the counter. So the descriptor is readable while an event waits, its flags
// decide whether taking blocks, and signals interrupt it like any read(2).
//
// Thread: any. The lock of a channel is taken after that of an id (id.h).
class EventChannel {
 public:
  // Null, with errno, on failure.
  static std::shared_ptr<EventChannel> Create();

  rdma_event_channel* part() { return &part_; }

  // Discarded if the channel is closed. These functions do not allocate.
  void Push(UnsentEvent event) { Push(std::move(event.one_)); }
  void Push(Events events);
  // Waits for an event unless the descriptor is non-blocking. A cancellation
  // point. Counts the event as unacknowledged by its owner. Empty, with errno,
  // on failure: EAGAIN, EINTR, ... A thread that waits when the channel is
  // closed goes on waiting, as in the kernel.
  Events Take();
  // The same for the first event that satisfies `matches`. Other events stay,
  // and the descriptor stays readable for them. Also fails with EBADF when the
  // channel is closed meanwhile, and when no descriptor is left for waiting.
  using Matches = std::function<bool(const Event&)>;
  Events TakeIf(const Matches& matches);
  // Puts an event from Take back as the next one of its id's channel, or
  // discards it if the id is being destroyed or the channel is closed, and
  // counts it as acknowledged. Takes the locks of the id and of its channel.
  static void PutBack(Events event);
  // Whether a queued event satisfies `matches`.
  bool HasIf(const Matches& matches);
  // Removes the queued events of `owner`.
  Events Withdraw(const Id* owner);
  // Removes the queued events that satisfy `matches`.
  Events WithdrawIf(const Matches& matches);
  // Closes the descriptor, once no thread is in Take. Returns the events that
  // were not taken.
  Events Close();

 private:
  // A thread in TakeIf. Its descriptor becomes readable when a matching event
  // may be queued.
  struct Waiter {
    const Matches& matches;
    rxe_user::UniqueFd bell;
    Waiter* next;
  };

  EventChannel() = default;
  // Takes one from the counter; waits for it unless the descriptor is
  // non-blocking. Returns false with errno on failure. A cancellation point.
  bool Read();
  // With the lock held:
  // Takes the events, unless the channel is closed: then false.
  bool Insert(Events::const_iterator where, Events& events);
  // For an event that left the queue without a thread's Read.
  void TakeToken();

  rdma_event_channel part_ = {};
  // Threads in Take. They read the descriptor without the lock, so it stays
  // open until the last one leaves. Each counts itself before it looks at
  // closed_; Close sets closed_ before it looks at the count.
  std::atomic<int> readers_ = 0;
  std::atomic<bool> closed_ = false;
  std::mutex mutex_;  // guards the members below
  rxe_user::UniqueFd fd_;
  Events events_;
  // Threads that have read the eventfd's counter, but wait for the lock while
  // another thread takes or withdraws their event. Each reads again. Always:
  // counter + threads that have read it = events + withdrawn_.
  uint64_t withdrawn_ = 0;
  Waiter* waiters_ = nullptr;  // each is on its thread's stack
};

// The channel behind an application's pointer; null if there is none.
std::shared_ptr<EventChannel> FindChannel(const rdma_event_channel* channel);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_
