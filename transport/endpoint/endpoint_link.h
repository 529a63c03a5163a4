// What an Endpoint notes about one of its queue pairs, kept inside the queue
// pair so that nothing is allocated when turns and timers change.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_LINK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/base/types.h"
#include "wire/address.h"
#include "wire/icrc.h"

namespace transport {

class QueuePair;
class TurnList;
struct EndpointLink;

// Neighbours in an intrusive list.
struct ListHook {
  EndpointLink* next = nullptr;
  EndpointLink* previous = nullptr;
};

// Which list of turns a queue pair is in,
enum class Turn : uint8_t {
  kIdle,    // in no list
  kActive,  // may have something to transmit
  kWaiting  // for the window of its path
};
// and where: before all of a later place.
enum class Place : uint8_t {
  kBegun,    // it has been idle, and is in the midst of its first turn
  kFresh,    // it has been idle, and has not had that
  kOngoing,  // it is in the midst of another turn
  kLast      // it has had its turn
};
inline constexpr size_t kPlaces = 4;

struct EndpointLink {
  QueuePair* qp = nullptr;

  Turn turn = Turn::kIdle;
  Place place = Place::kFresh;
  bool woken = false;    // no longer kWaiting, and has not had its turn since
  bool answers = false;  // in the list of those with acknowledgements
  bool received_data = false;   // in the list of those that received data
  int32_t deficit = 0;          // bytes that it may still send in this turn
  ListHook in_turns;            // kActive or kWaiting
  ListHook in_answers;          // while `answers`
  TurnList* waiting = nullptr;  // that it is in, while kWaiting
  uint32_t turn_since = 0;      // how many turns had ended when it got this one

  static constexpr uint32_t kNotInHeap = ~uint32_t{0};
  uint32_t heap_index = kNotInHeap;
  Time deadline = kNever;

  // How the peer's packets were verified last: see wire::VerifyAnyId. From the
  // address vector's destination to its source; none: verify afresh.
  uint16_t peer_source_port = 0;
  std::optional<uint16_t> last_ip_id;
  Time last_ip_id_time = 0;
  std::optional<wire::IcrcFlow> peer_flow;

  // Neighbours in the list of those that received data, newest first.
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

using AnswerList = LinkList<&EndpointLink::in_answers>;

// By `place`, which then stays as it is until the link is removed.
class TurnList {
 public:
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  EndpointLink* front() const { return list_.front(); }
  void PushFront(EndpointLink* link);  // of those of its place
  void PushBack(EndpointLink* link);
  void Remove(EndpointLink* link);  // which must be in this list

 private:
  // The last one of an earlier place; null: none.
  EndpointLink* LastBefore(Place place) const;

  LinkList<&EndpointLink::in_turns> list_;
  EndpointLink* last_[kPlaces] = {};  // by Place
};

// A binary heap by deadline that knows each entry's place. Does not own.
class TimerHeap {
 public:
  bool empty() const { return heap_.empty(); }
  EndpointLink* top() const { return heap_.front(); }
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
