// Events for the application behind a descriptor: what a completion channel
// and the asynchronous events of a context are made of.
#ifndef RXE_USER_OBJECTS_EVENT_QUEUE_H_
#define RXE_USER_OBJECTS_EVENT_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "rxe_user/base/lane_set.h"

namespace rxe_user {

class Engine;

// How many events of one object the application has taken. Destroying the
// object waits until as many are acknowledged (ibv_ack_cq_events(3),
// ibv_ack_async_event(3)). Guarded by the queue's lock.
struct EventAccount {
  uint32_t taken = 0;
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

  // Makes the descriptor. 0, EMFILE, ENFILE or ENOMEM. Once, before use. There
  // is room for the events of a port then.
  int Open();
  int fd() const { return fd_; }
  // Gives the descriptor back; events are dropped from now on.
  void Close();

  // Needs no memory: who posts has reserved room for one event of each kind
  // (EventRoom). Where there is none for a further one of the same, it is
  // counted with the first, and comes right behind it.
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
  uint32_t Withdraw(const EventAccount* account);

 private:
  friend class EventRoom;
  struct Entry {
    Event event;
    uint32_t times = 1;
  };
  static constexpr size_t kPortEvents = 16;

  // Throws bad_alloc; then nothing has changed.
  void Reserve(size_t kinds);
  void Release(size_t kinds);
  bool TryTake(Event* event);
  // The following: mutex_ held.
  Entry& At(size_t i) { return ring_[(head_ + i) % ring_.size()]; }
  void Grow(size_t size);
  void Merge();

  const Waiter waiter_;
  std::mutex mutex_;
  int fd_ = -1;  // written under mutex_
  // The rest: guarded by mutex_.
  std::vector<Entry> ring_;  // of count_ entries, the oldest at head_
  size_t head_ = 0;
  size_t count_ = 0;
  size_t reserved_ = 0;  // kinds of events, of all who post
  LaneUse lanes_;        // changed under mutex_
};

// Room in a queue for events of so many kinds, for as long as it lives. The
// queue outlives it.
class EventRoom {
 public:
  EventRoom() = default;
  // Throws bad_alloc. `queue` may be null.
  EventRoom(EventQueue* queue, size_t kinds) : queue_(queue), kinds_(kinds) {
    if (queue_ != nullptr) queue_->Reserve(kinds_);
  }
  EventRoom(EventRoom&& other) noexcept
      : queue_(std::exchange(other.queue_, nullptr)), kinds_(other.kinds_) {}
  EventRoom& operator=(EventRoom&& other) noexcept {
    std::swap(queue_, other.queue_);
    std::swap(kinds_, other.kinds_);
    return *this;
  }
  ~EventRoom() {
    if (queue_ != nullptr) queue_->Release(kinds_);
  }

 private:
  EventQueue* queue_ = nullptr;
  size_t kinds_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_EVENT_QUEUE_H_
