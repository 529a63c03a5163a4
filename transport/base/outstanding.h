// Which work requests are outstanding: from posting until the application has
// retrieved their completion, or that of a later one of their queue, from its
// completion queue (IBA vol. 1, 10.8.6). So long they hold their place in the
// queue (ibv_create_qp(3), max_send_wr), also when they have been executed.
//
// A queue numbers its requests in the order in which they are posted, modulo
// 2^32. `end` is the number after a request's.
#ifndef TRANSPORT_BASE_OUTSTANDING_H_
#define TRANSPORT_BASE_OUTSTANDING_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace transport {

// How far the completions of one queue have been retrieved.
//
// Thread: any. Nothing is published by it: who posts because of a completion
// has it from somebody who has retrieved that.
class Retrieved {
 public:
  uint32_t end() const { return end_.load(std::memory_order_relaxed); }
  // That of the request before `end`, and with it all earlier ones. Calls for
  // one queue follow each other.
  void UpTo(uint32_t end) { end_.store(end, std::memory_order_relaxed); }
  // One more: of a queue whose completions come in any order.
  void One() { end_.fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> end_{0};
};

// The place of one request, for its completion to give up.
struct Place {
  Retrieved* queue = nullptr;  // null: nobody counts
  uint32_t end = 0;
  bool any_order = false;  // Retrieved::One

  void GiveUp() const {
    if (queue == nullptr) return;
    if (any_order) {
      queue->One();
    } else {
      queue->UpTo(end);
    }
  }
};

// The requests of one queue whose completions come in order. Guarded by the
// lane's lock, but for what places point to.
class Outstanding {
 public:
  // The end of those that hold no place any more.
  uint32_t retired() const {
    const uint32_t end = retrieved_.end();
    return end == reported_ ? settled_ : end;
  }
  Place PlaceBefore(uint32_t end) { return {.queue = &retrieved_, .end = end}; }

  // A completion is about to go into the completion queue. Returns what Lost
  // needs when that has not taken it: nobody will retrieve it.
  uint32_t Report(uint32_t end) {
    // Where nothing is left to retrieve, nobody else writes `retrieved_`.
    if (settled_ != reported_ && retrieved_.end() == reported_) {
      retrieved_.UpTo(settled_);
      reported_ = settled_;
    }
    settled_ = end;
    return std::exchange(reported_, end);
  }
  void Lost(uint32_t earlier) { reported_ = earlier; }
  // The application hears of it, and of all before it, by other means: they
  // hold their places only for as long as completions before or after them do.
  void Settle(uint32_t end) { settled_ = end; }

 private:
  Retrieved retrieved_;
  uint32_t reported_ = 0;  // end of the last that a completion tells of
  uint32_t settled_ = 0;   // or that something does
};

}  // namespace transport

#endif  // TRANSPORT_BASE_OUTSTANDING_H_
