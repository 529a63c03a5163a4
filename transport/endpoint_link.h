// What an Endpoint notes about one of its queue pairs, kept inside the queue
// pair so that nothing is allocated when turns and timers change.
#ifndef TRANSPORT_ENDPOINT_LINK_H_
#define TRANSPORT_ENDPOINT_LINK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "transport/types.h"
#include "wire/address.h"
#include "wire/icrc.h"

namespace transport {

class Path;
class QueuePair;

// Where a queue pair stands in the order of turns.
enum class Turn : uint8_t {
  kIdle,    // in no list
  kActive,  // may have something to transmit
  kWaiting  // for the window of its path
};

struct EndpointLink {
  QueuePair* qp = nullptr;

  Turn turn = Turn::kIdle;
  bool received_data = false;  // in the list of those that received data
  // How the peer's packets were verified last: see wire::VerifyAnyId. From the
  // address vector's destination to its source; none: verify afresh.
  uint16_t peer_source_port = 0;
  std::optional<uint16_t> last_ip_id;
  Time last_ip_id_time = 0;
  std::optional<wire::IcrcFlow> peer_flow;

  EndpointLink* next = nullptr;
  EndpointLink* previous = nullptr;
  Path* waits_for = nullptr;  // while kWaiting
  int32_t deficit = 0;        // bytes that it may still send in this turn

  static constexpr uint32_t kNotInHeap = ~uint32_t{0};
  uint32_t heap_index = kNotInHeap;
  Time deadline = kNever;

  // Neighbours in the list of those that received data, newest first.
  EndpointLink* newer = nullptr;
  EndpointLink* older = nullptr;
  Time last_data = 0;
};

// An intrusive list through `next` and `previous`. Does not own.
class TurnList {
 public:
  bool empty() const { return head_ == nullptr; }
  size_t size() const { return size_; }
  EndpointLink* front() const { return head_; }
  void PushFront(EndpointLink* link);
  void PushBack(EndpointLink* link);
  void Remove(EndpointLink* link);  // which must be in this list

 private:
  EndpointLink* head_ = nullptr;
  EndpointLink* tail_ = nullptr;
  size_t size_ = 0;
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

#endif  // TRANSPORT_ENDPOINT_LINK_H_
