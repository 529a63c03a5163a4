// Event channels: rdma_create_event_channel(3).
#ifndef VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_
#define VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <utility>

#include "rxe_user/base/unique_fd.h"
#include "verbs_api/librdmacm/event.h"

namespace librdmacm {

// Events in order. To move some from one list to another needs no memory.
using Events = std::list<std::shared_ptr<Event>>;

// An event that is not in a channel yet, with all the memory that it takes
// there: what its id is to be may be noted once it has been made.
class UnsentEvent {
 public:
  UnsentEvent() { one_.push_back(std::make_shared<Event>()); }
  Event* operator->() const { return one_.front().get(); }

 private:
  friend class EventChannel;
  Events one_;
};

// A queue of events behind a descriptor that is readable as long as one waits:
// an eventfd that counts them, of which each taker takes one. So it is the
// descriptor's own flags that say whether taking blocks, and signals interrupt
// it as they do any read(2).
//
// Thread: any. The lock of a channel is taken after that of an id (id.h).
class EventChannel {
 public:
  // Null, with errno.
  static std::shared_ptr<EventChannel> Create();

  rdma_event_channel* part() { return &part_; }

  // Dropped if the channel was closed. None of these needs memory.
  void Push(UnsentEvent event) { Push(std::move(event.one_)); }
  void Push(Events events);
  // Waits for an event as the descriptor's flags say: a cancellation point.
  // Counts it to those of its owner that are to be acknowledged. None, with
  // errno: EAGAIN, EINTR, ...
  Events Take();
  // The same for the first event that `matches` says: the others stay, and the
  // descriptor tells of them. Also EBADF, when the channel is closed meanwhile,
  // and what the system says of a descriptor more, which waiting takes.
  using Matches = std::function<bool(const Event&)>;
  Events TakeIf(const Matches& matches);
  // What Take has returned is the next one again.
  void PutBack(Events event);
  // Whether an event waits that `matches` says.
  bool HasIf(const Matches& matches);
  // Takes the events of `owner` back.
  Events Withdraw(const Id* owner);
  // Those that `matches` says.
  Events WithdrawIf(const Matches& matches);
  // Closes the descriptor. Returns what nobody has taken.
  Events Close();

 private:
  // A thread that waits for what it says. Its descriptor becomes readable when
  // there may be some.
  struct Waiter {
    const Matches& matches;
    rxe_user::UniqueFd bell;
    Waiter* next;
  };

  EventChannel() = default;
  // Waits, as the descriptor's flags say, and takes one of its counter. False
  // with errno. A cancellation point.
  bool Read();
  // With the lock held:
  void Insert(Events::const_iterator where, Events events);

  rdma_event_channel part_ = {};
  std::mutex mutex_;  // guards what follows
  rxe_user::UniqueFd fd_;
  Events events_;
  Waiter* waiters_ = nullptr;  // each is of its thread
};

// The channel of an application's pointer; null if it is none.
std::shared_ptr<EventChannel> FindChannel(const rdma_event_channel* channel);

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_EVENT_CHANNEL_H_
