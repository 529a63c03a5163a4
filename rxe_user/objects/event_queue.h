// Events for the application behind a descriptor: what a completion channel
// and the asynchronous events of a context are made of.
#ifndef RXE_USER_OBJECTS_EVENT_QUEUE_H_
#define RXE_USER_OBJECTS_EVENT_QUEUE_H_

#include <cstdint>
#include <deque>
#include <mutex>

#include "rxe_user/base/lane_set.h"

namespace rxe_user {

class Engine;

// What a queue of events keeps for one object. Guarded by the queue's lock.
struct EventAccount {
  // How many of its events the application has taken. Destroying the object
  // waits until as many are acknowledged (ibv_ack_cq_events(3),
  // ibv_ack_async_event(3)).
  uint32_t taken = 0;
  // Events for which there was no memory: bits by their type, and the next
  // object that has some.
  uint32_t noted = 0;
  void* element = nullptr;
  EventAccount* next_noted = nullptr;
};

struct Event {
  int type = 0;             // IBV_EVENT_*; unused on completion channels
  void* element = nullptr;  // the object, as its owner calls it
  int port = 0;             // events of the port: its number
  EventAccount* account = nullptr;  // of the object; null for port and device
};

// The descriptor is readable exactly while events wait, so poll and epoll work
// on it, and O_NONBLOCK on it is honoured.
//
// Thread: any; one lock of its own, taken inside every other.
class EventQueue {
 public:
  // Whether a thread that waits for an event makes progress meanwhile. For
  // events that packets bring it should; a thread that waits for the rare
  // others would only be woken by packets that somebody else polls for.
  enum class Waiter { kMakesProgress, kStandsAside };

  explicit EventQueue(Waiter waiter = Waiter::kMakesProgress)
      : waiter_(waiter) {}
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  // Makes the descriptor. 0, EMFILE, ENFILE or ENOMEM. Once, before use.
  int Open();
  int fd() const { return fd_; }
  // Gives the descriptor back; events are dropped from now on.
  void Close();

  // Where there is no memory for it, it is noted with its object, or as one of
  // the port: those of one type become one then, and come after the others.
  void Post(const Event& event);

  // A queue pair in `lane` may bring events from now on, or no longer. Who
  // takes events makes progress in these lanes.
  void AddLane(int lane);
  void RemoveLane(int lane);

  // Takes the oldest event. Without one: blocks while there is progress,
  // or gives EAGAIN when the descriptor is O_NONBLOCK. 0, EAGAIN, EBADF
  // (closed), or EINTR (unless every handler of the program has SA_RESTART).
  // Waiting is a cancellation point, left by unwinding.
  int Take(Engine& engine, Event* event);

  // Drops the events of an object that nobody has taken yet; returns how many
  // were taken. To be called when no more can be posted for it.
  uint32_t Withdraw(EventAccount* account);

 private:
  bool TryTake(Event* event);
  // The following: mutex_ held.
  bool empty() const {
    return events_.empty() && noted_ == nullptr && port_.noted == 0;
  }
  void Note(const Event& event);
  Event TakeNoted();

  const Waiter waiter_;
  std::mutex mutex_;
  int fd_ = -1;                    // written under mutex_
  std::deque<Event> events_;       // guarded by mutex_, as the next three
  EventAccount* noted_ = nullptr;  // the first object that has some
  EventAccount port_;
  int noted_port_ = 0;  // of what is noted there
  LaneUse lanes_;       // changed under mutex_
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_EVENT_QUEUE_H_
