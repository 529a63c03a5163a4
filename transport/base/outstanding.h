// Which work requests are outstanding. A request is outstanding, and occupies
// its slot in the queue (ibv_create_qp(3), max_send_wr), from posting until the
// application polls its completion or a later one of the same queue (IBA vol.
// 1, 10.8.6), even if it has been executed.
//
// A queue numbers its requests in posting order, modulo 2^32. `end` is the
// number after a request's.
#ifndef TRANSPORT_BASE_OUTSTANDING_H_
#define TRANSPORT_BASE_OUTSTANDING_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace transport {

// How far the completions of one queue have been polled.
//
// Thread: any. Relaxed order suffices: a thread that posts because of a
// completion learned of it through code that synchronizes.
class Retrieved {
 public:
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }
  // The completion of the request before `end` was polled, which retires all
  // earlier requests too. Calls for one queue are not concurrent.
  void UpTo(uint32_t end) { end_.store(end, std::memory_order_relaxed); }
  // Retires one request of a queue whose completions come in any order.
  void One() { end_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> end_{0};
};

// The slot of one request, freed when its completion is polled.
struct QueueSlot {
  Retrieved* queue = nullptr;  // null: not counted
  uint32_t end = 0;
  bool any_order = false;  // Retrieved::One

  void Free() const {
    if (queue == nullptr) return;
    if (any_order) {
      queue->One();
    } else {
      queue->UpTo(end);
    }
  }
};

// The requests of one queue with in-order completions. Guarded by the lane's
// lock, except the counter that slots point to.
class Outstanding {
 public:
  // All requests before this one are retired.
  uint32_t retired() const {
    const uint32_t end = retrieved_.end();
    return end == reported_ ? settled_ : end;
  }
  QueueSlot SlotBefore(uint32_t end) {
    return {.queue = &retrieved_, .end = end};
  }

  // Call before pushing a completion into the completion queue. If the push
  // fails, pass the result to Lost: no thread will poll that completion.
  uint32_t Report(uint32_t end) {
    // With nothing left to poll, no other thread writes `retrieved_`.
    if (settled_ != reported_ && retrieved_.end() == reported_) {
      retrieved_.UpTo(settled_);
      reported_ = settled_;
    }
    settled_ = end;
    return std::exchange(reported_, end);
  }
  void Lost(uint32_t earlier) { reported_ = earlier; }
  // Requests before `end` get no completion of their own: they are retired
  // together with the requests around them that have one.
  void Settle(uint32_t end) { settled_ = end; }

 private:
  Retrieved retrieved_;
  uint32_t reported_ = 0;  // end of the last request with a completion
  uint32_t settled_ = 0;   // end of the last request that is done
};

}  // namespace transport

#endif  // TRANSPORT_BASE_OUTSTANDING_H_
