// An endpoint's bookkeeping for one queue pair. Stored in the queue pair, so
// turns and timers never allocate.
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

// Links of an intrusive list.
struct ListHook {
  EndpointLink* next = nullptr;
  EndpointLink* previous = nullptr;
};

// The transmit scheduler's list that a queue pair is in.
enum class Schedule : uint8_t {
  kIdle,    // in none
  kActive,  // has something to transmit
  kWaiting  // waits for its path's window
};
// Order in a list: all of an earlier priority come first.
enum class Priority : uint8_t {
  kBegun,    // was idle; in the middle of its first turn
  kFresh,    // was idle; before its first turn
  kOngoing,  // in the middle of a later turn
  kLast      // has used up its turn
};
inline constexpr size_t kPriorities = 4;

struct EndpointLink {
  EndpointQp* qp = nullptr;
  // Flow of its next packets and the path that they use; null while it has
  // nothing to send. The queue pair owns the flow.
  const Flow* flow = nullptr;
  SharedPath* path = nullptr;

  // --- Of the transmit scheduler.
  Schedule schedule = Schedule::kIdle;
  Priority priority = Priority::kFresh;
  // Woken from kWaiting, but has not had its turn since.
  bool woken : 1 = false;
  bool acks : 1 = false;  // in the list of queue pairs with ACKs
  // In the list of queue pairs that received data.
  bool received_data : 1 = false;
  bool held : 1 = false;  // the sink refuses its flow (Endpoint::OnRoom)
  int32_t deficit = 0;    // bytes left in this turn
  ListHook in_schedule;   // while kActive or kWaiting
  ListHook in_acks;       // while `acks`
  ScheduleList* waiting = nullptr;  // its list while kWaiting
  uint32_t turn_since = 0;  // number of ended turns when this turn began

  // --- Of the timer heap.
  static constexpr uint32_t kNotInHeap = ~uint32_t{0};
  uint32_t heap_index = kNotInHeap;
  Time deadline = kNever;

  PeerIcrc peer_icrc;

  // --- List of queue pairs that received data, newest first.
  EndpointLink* newer = nullptr;
  EndpointLink* older = nullptr;
  Time last_data = 0;
};

// An intrusive list through `kHook`. Does not own its links.
template <ListHook EndpointLink::*kHook>
class LinkList {
 public:
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }
  EndpointLink* front() const { return head_; }
  EndpointLink* back() const { return tail_; }
  // Inserts after `before`, which is in this list; null: at the front.
  void InsertBehind(EndpointLink* before, EndpointLink* link) {
    ListHook& hook = link->*kHook;
    hook.previous = before;
    hook.next = before != nullptr ? (before->*kHook).next : head_;
    (before != nullptr ? (before->*kHook).next : head_) = link;
    (hook.next != nullptr ? (hook.next->*kHook).previous : tail_) = link;
    ++size_;
  }
  void Remove(EndpointLink* link) {  // must be in this list
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

// Sorted by `priority`, which must not change while a link is in the list.
class ScheduleList {
 public:
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  EndpointLink* front() const { return list_.front(); }
  void PushFront(EndpointLink* link) {  // before links of the same priority
    EndpointLink*& last = last_[static_cast<size_t>(link->priority)];
    list_.InsertBehind(LastBefore(link->priority), link);
    if (last == nullptr) last = link;
  }
  void PushBack(EndpointLink* link) {
    EndpointLink*& last = last_[static_cast<size_t>(link->priority)];
    list_.InsertBehind(last != nullptr ? last : LastBefore(link->priority),
                       link);
    last = link;
  }
  void Remove(EndpointLink* link) {  // must be in this list
    EndpointLink*& last = last_[static_cast<size_t>(link->priority)];
    if (link == last) {
      EndpointLink* const previous = link->in_schedule.previous;
      last = previous != nullptr && previous->priority == link->priority
                 ? previous
                 : nullptr;
    }
    list_.Remove(link);
  }

 private:
  // The last link of an earlier priority; null: none.
  EndpointLink* LastBefore(Priority priority) const {
    for (auto i = static_cast<size_t>(priority); i > 0; --i) {
      if (last_[i - 1] != nullptr) return last_[i - 1];
    }
    return nullptr;
  }

  LinkList<&EndpointLink::in_schedule> list_;
  EndpointLink* last_[kPriorities] = {};  // by Priority
};

// A path and the queue pairs that wait for its window.
struct SharedPath : Path {
  wire::IpAddress destination;
  ScheduleList waiting;
};

// A binary heap by deadline; links know their index. Does not own its links.
class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  EndpointLink* top() const { return heap_.front(); }
  // Allocates for this many links: Set then needs no memory.
  void Reserve(size_t links);
  // Inserts, moves or (with kNever) removes `link`.
  void Set(EndpointLink* link, Time deadline);
  void Remove(EndpointLink* link);  // no effect if absent

 private:
  void Place(EndpointLink* link, size_t index);
  void Up(size_t index);
  void Down(size_t index);

  std::vector<EndpointLink*> heap_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_
