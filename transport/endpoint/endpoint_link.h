// What an Endpoint notes about one of its queue pairs, kept inside the queue
// pair so that nothing is allocated when turns and timers change.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/peer_icrc.h"
#include "wire/address.h"

namespace transport {

class EndpointQp;
class ScheduleList;
struct EndpointLink;
struct Flow;
struct SharedPath;

// Neighbours in an intrusive list.
struct ListHook {
  EndpointLink* next = nullptr;
  EndpointLink* previous = nullptr;
};

// Which list of the transmit scheduler a queue pair is in,
enum class Schedule : uint8_t {
  kIdle,    // in none
  kActive,  // has something to transmit
  kWaiting  // for the window of its path
};
// and where: before all of a later priority.
enum class Priority : uint8_t {
  kBegun,    // it has been idle, and is in the midst of its first turn
  kFresh,    // it has been idle, and has not had that
  kOngoing,  // it is in the midst of another turn
  kLast      // it has had its turn
};
inline constexpr size_t kPriorities = 4;

struct EndpointLink {
  EndpointQp* qp = nullptr;
  // Where the packets that it sends next go, and the window they share; null
  // while it has none to send. The flow is the queue pair's.
  const Flow* flow = nullptr;
  SharedPath* path = nullptr;

  // --- The transmit scheduler's.
  Schedule schedule = Schedule::kIdle;
  Priority priority = Priority::kFresh;
  // No longer kWaiting, and has not had its turn since.
  bool woken : 1 = false;
  bool acks : 1 = false;           // in the list of those with acknowledgements
  bool received_data : 1 = false;  // in the list of those that did
  int32_t deficit = 0;             // bytes that it may still send in this turn
  ListHook in_schedule;            // while kActive or kWaiting
  ListHook in_acks;                // while `acks`
  ScheduleList* waiting = nullptr;  // that it is in, while kWaiting
  uint32_t turn_since = 0;  // how many turns had ended when it got this one

  // --- The timer heap's.
  static constexpr uint32_t kNotInHeap = ~uint32_t{0};
  uint32_t heap_index = kNotInHeap;
  Time deadline = kNever;

  PeerIcrc peer_icrc;

  // --- Those that received data, newest first.
  EndpointLink* newer = nullptr;
  EndpointLink* older = nullptr;
  Time last_data = 0;
};

// An intrusive list through `kHook`. Does not own.
template <ListHook EndpointLink::*kHook>
class LinkList {
 public:
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }
  EndpointLink* front() const { return head_; }
  EndpointLink* back() const { return tail_; }
  // Behind `before`, which is in this list; null: at the front.
  void InsertBehind(EndpointLink* before, EndpointLink* link) {
    ListHook& hook = link->*kHook;
    hook.previous = before;
    hook.next = before != nullptr ? (before->*kHook).next : head_;
    (before != nullptr ? (before->*kHook).next : head_) = link;
    (hook.next != nullptr ? (hook.next->*kHook).previous : tail_) = link;
    ++size_;
  }
  void Remove(EndpointLink* link) {  // which must be in this list
    ListHook& hook = link->*kHook;
    (hook.previous != nullptr ? (hook.previous->*kHook).next : head_) =
        hook.next;
    (hook.next != nullptr ? (hook.next->*kHook).previous : tail_) =
        hook.previous;
    hook = {};
    --size_;
  }

 private:
  EndpointLink* head_ = nullptr;
  EndpointLink* tail_ = nullptr;
  size_t size_ = 0;
};

using AckList = LinkList<&EndpointLink::in_acks>;

// By `priority`, which then stays as it is until the link is removed.
class ScheduleList {
 public:
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  EndpointLink* front() const { return list_.front(); }
  void PushFront(EndpointLink* link);  // of those of its priority
  void PushBack(EndpointLink* link);
  void Remove(EndpointLink* link);  // which must be in this list

 private:
  // The last one of an earlier priority; null: none.
  EndpointLink* LastBefore(Priority priority) const;

  LinkList<&EndpointLink::in_schedule> list_;
  EndpointLink* last_[kPriorities] = {};  // by Priority
};

// A path, who shares it, and who waits for its window.
struct SharedPath : Path {
  wire::IpAddress destination;
  ScheduleList waiting;
};

// A binary heap by deadline that knows each entry's place. Does not own.
class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  EndpointLink* top() const { return heap_.front(); }
  // For so many links: Set then needs no memory.
  void Reserve(size_t links);
  // Enters, moves or (with kNever) removes `link`.
  void Set(EndpointLink* link, Time deadline);
  void Remove(EndpointLink* link);  // harmless when it is not there

 private:
  void Place(EndpointLink* link, size_t index);
  void Up(size_t index);
  void Down(size_t index);

  std::vector<EndpointLink*> heap_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_
