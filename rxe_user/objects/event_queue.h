// Events for the application behind a descriptor: the base of completion
// channels and of a context's asynchronous events.
#ifndef RXE_USER_OBJECTS_EVENT_QUEUE_H_
#define RXE_USER_OBJECTS_EVENT_QUEUE_H_

#include <cstdint>
#include <deque>
#include <mutex>

#include "rxe_user/base/lane_set.h"

namespace rxe_user {

class Engine;

// What a queue of events stores for one object. Guarded by the queue's lock.
struct EventAccount {
  // The number of its events that the application has taken. Destroying the
  // object waits until as many are acknowledged (ibv_ack_cq_events(3),
  // ibv_ack_async_event(3)).
  uint32_t taken = 0;
  // Events that could not be queued for lack of memory: bits by type, and the
  // next object with such events.
  uint32_t noted = 0;
  void* element = nullptr;
  EventAccount* next_noted = nullptr;
};

struct Event {
  int type = 0;             // IBV_EVENT_*; unused on completion channels
  void* element = nullptr;  // the object, as its owner names it
  int port = 0;             // port events: the port's number
  EventAccount* account = nullptr;  // of the object; null for port and device
};

// The descriptor is readable exactly while events wait, so poll and epoll work,
// and O_NONBLOCK is honored.
//
// Thread: any. One lock, taken inside all others.
class EventQueue {
 public:
  // Whether a thread that waits for an event makes progress meanwhile: yes for
  // events that packets cause. A thread that waits for rare events should not
  // be woken by packets that other threads poll for.
  enum class Waiter { kMakesProgress, kPassive };

  explicit EventQueue(Waiter waiter = Waiter::kMakesProgress)
      : waiter_(waiter) {}
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Creates the descriptor. 0, EMFILE, ENFILE or ENOMEM. Call it once, before
  // use.
  int Open();
  int fd() const { return fd_; }
  // Closes the descriptor; events are dropped from now on.
  void Close();

  // Without memory, the event is recorded in its object, or as a port event.
  // Events of one type are then merged, and come after the others.
  void Post(const Event& event);

  // A queue pair in `lane` may cause events from now on, or no longer. Take
  // makes progress in these lanes.
  void AddLane(int lane);
  void RemoveLane(int lane);

  // Takes the oldest event. If there is none, blocks and makes progress, or
  // returns EAGAIN if the descriptor is O_NONBLOCK. 0, EAGAIN, EBADF (closed),
  // or EINTR (unless every handler of the program has SA_RESTART). A
  // cancellation point, left by unwinding.
  int Take(Engine& engine, Event* event);

  // Drops the untaken events of an object. Returns how many were taken. Call it
  // when no more can be posted for it.
  uint32_t Withdraw(EventAccount* account);

 private:
  bool TryTake(Event* event);
  // mutex_ held for the following.
  bool empty() const {
    return events_.empty() && noted_ == nullptr && port_.noted == 0;
  }
  void Note(const Event& event);
  Event TakeNoted();

  const Waiter waiter_;
  std::mutex mutex_;
  int fd_ = -1;                    // written under mutex_
  std::deque<Event> events_;       // guarded by mutex_, as are the next three
  EventAccount* noted_ = nullptr;  // the first object with such events
  EventAccount port_;
  int noted_port_ = 0;  // the port's number
  LaneUse lanes_;       // changed under mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_EVENT_QUEUE_H_
