// A shared receive queue (ibv_create_srq(3)).
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

// Thread: any. One lock, taken inside lanes' locks.
class SharedReceiveQueue final : public transport::ReceiveSource {
 public:
  struct Config {
    ProtectionDomain* pd = nullptr;
    uint32_t max_wr = 0;
    uint32_t max_sge = 0;
    EventQueue* async = nullptr;  // for the limit event
    void* element = nullptr;      // the `element` of its events
    int limit_event = 0;          // the type of the limit event
    // XRC SRQs: the domain, and the completion queue.
    XrcDomain* xrc = nullptr;
    CompletionQueue* cq = nullptr;
  };

  // Throws bad_alloc if there is no memory.
  explicit SharedReceiveQueue(const Config& config);
  ~SharedReceiveQueue() override;

  // The number of an XRC SRQ, by which peers address it; else 0.
  uint32_t number() const { return number_; }
  // Tells apart the shared receive queues of this process.
  uint32_t id() const { return id_; }
  // Removes an XRC SRQ from its domain. On return no queue pair uses it. Call
  // it before destruction.
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

  // ibv_modify_srq(3). EINVAL: fewer than are outstanding, or a limit above
  // max_wr.
  int Resize(uint32_t max_wr);
  // Arms the limit event, which is raised once, when fewer than `limit`
  // receives are left. 0 disarms.
  int SetLimit(uint32_t limit);
  // Faults on command: raises an event, and nothing else.
  void Raise(int event);

  uint32_t max_wr();
  uint32_t limit();  // 0 after the event
  uint32_t max_sge() const { return config_.max_sge; }
  transport::PdId pd() const { return config_.pd->id; }
  ProtectionDomain* domain() const { return config_.pd; }

  // Queue pairs that use it.
  std::atomic<int> users{0};
  // The number of limit events that were taken. Call it when no queue pair uses
  // the queue, and an XRC SRQ is retired: no more events are posted then.
  uint32_t WithdrawAsyncEvents();

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };

  // Posted receives whose completions were not retrieved. mutex_ held.
  uint32_t outstanding() const { return posted_ - retrieved_.end(); }
  // Takes a number in the domain. Throws bad_alloc.
  void JoinXrcDomain();
  // Memory for `max_wr` receives.
  QueueMemory Allocate(uint32_t max_wr) const;
  // Sets the pointers into memory_.
  void Use(uint32_t max_wr);

  const Config config_;
  const uint32_t id_;
  uint32_t number_ = 0;
  EventAccount account_;  // guarded by the async queue's lock

  transport::Retrieved retrieved_;

  std::mutex mutex_;                // guards all below
  QueueMemory memory_;              // holds the next two
  Entry* entries_ = nullptr;        // a ring of max_wr_
  transport::Sge* sges_ = nullptr;  // max_sge for each entry
  uint32_t max_wr_ = 0;
  uint32_t head_ = 0;    // index of the oldest
  uint32_t count_ = 0;   // receives that no message has taken
  uint32_t posted_ = 0;  // in all, modulo 2^32
  uint32_t limit_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_SHARED_RECEIVE_QUEUE_H_
