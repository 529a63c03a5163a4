// A shared receive queue.
#ifndef RXE_USER_OBJECTS_SHARED_RECEIVE_QUEUE_H_
#define RXE_USER_OBJECTS_SHARED_RECEIVE_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <mutex>

#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/queue_memory.h"
#include "transport/base/work.h"

namespace rxe_user {

// Thread: any; one lock of its own, taken inside lanes' locks.
class SharedReceiveQueue final : public transport::ReceiveSource {
 public:
  struct Config {
    ProtectionDomain* pd = nullptr;
    uint32_t max_wr = 0;
    uint32_t max_sge = 0;
    EventQueue* async = nullptr;  // for the limit event
    void* element = nullptr;      // what events name
    int limit_event = 0;          // the type of the limit event
    // An XRC SRQ: its domain, and where its receives complete.
    XrcDomain* xrc = nullptr;
    CompletionQueue* cq = nullptr;
  };

  // Throws bad_alloc when there is no memory for it.
  explicit SharedReceiveQueue(const Config& config);
  ~SharedReceiveQueue() override;

  // Of an XRC SRQ: the number that peers name it by; else 0.
  uint32_t number() const { return number_; }
  // An XRC SRQ leaves its domain: nobody uses it any more when this returns.
  // Before it is destroyed.
  void Retire();

  // Posts receives under one hold of the lock.
  class Posting {
   public:
    explicit Posting(SharedReceiveQueue& queue)
        : queue_(queue), lock_(queue.mutex_) {}

    // 0; EINVAL: more SGEs than max_sge; ENOMEM: full.
    int Receive(const transport::ReceiveRequest& request);

   private:
    SharedReceiveQueue& queue_;
    const std::lock_guard<std::mutex> lock_;
  };

  // --- transport::ReceiveSource
  bool Pop(transport::ReceiveWqe* out) override;
  transport::QueueSlot TakenSlot() override {
    return {.queue = &retrieved_, .any_order = true};
  }

  // ibv_modify_srq(3). EINVAL: fewer than are outstanding, a limit above
  // max_wr.
  int Resize(uint32_t max_wr);
  // Arms the limit event: once, when fewer than `limit` are left that no
  // message has taken. 0 disarms.
  int SetLimit(uint32_t limit);

  uint32_t max_wr();
  uint32_t limit();  // 0 after the event
  uint32_t max_sge() const { return config_.max_sge; }
  transport::PdId pd() const { return config_.pd->id; }
  ProtectionDomain* domain() const { return config_.pd; }

  // Queue pairs that use it.
  std::atomic<int> users{0};
  // Limit events taken. None is posted when no queue pair uses the queue, and
  // an XRC SRQ is retired.
  uint32_t WithdrawAsyncEvents();

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };

  // Posted, and nobody has retrieved its completion: mutex_ held.
  uint32_t outstanding() const { return posted_ - retrieved_.end(); }
  // Takes a number there. Throws bad_alloc.
  void JoinXrcDomain();
  // The memory of one for `max_wr` receives.
  QueueMemory Allocate(uint32_t max_wr) const;
  // Lays out memory_.
  void Use(uint32_t max_wr);

  const Config config_;
  uint32_t number_ = 0;
  EventAccount account_;  // by the async queue's lock

  transport::Retrieved retrieved_;

  std::mutex mutex_;                // guards all below
  QueueMemory memory_;              // of the next two
  Entry* entries_ = nullptr;        // a ring of max_wr_
  transport::Sge* sges_ = nullptr;  // max_sge for each entry
  uint32_t max_wr_ = 0;
  uint32_t head_ = 0;    // index of the oldest
  uint32_t count_ = 0;   // those that no message has taken yet
  uint32_t posted_ = 0;  // ever, modulo 2^32
  uint32_t limit_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_SHARED_RECEIVE_QUEUE_H_
