// A receive work queue: the transport's, with its number and users.
#ifndef RXE_USER_OBJECTS_WORK_QUEUE_H_
#define RXE_USER_OBJECTS_WORK_QUEUE_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "rxe_user/engine/lane.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "transport/raw/work_queue.h"

namespace rxe_user {

// Thread: any. The transport's queue is accessed under the lock of the raw
// packets' lane.
class RecvWorkQueue {
 public:
  struct Config {
    ProtectionDomain* pd = nullptr;
    CompletionQueue* cq = nullptr;
    uint32_t max_wr = 0;
    uint32_t max_sge = 0;
    EventQueue* async = nullptr;  // for the event of its failure
    void* element = nullptr;      // the `element` of its events
    int fatal_event = 0;          // the type of that event
  };

  // 0; EINVAL (beyond limits.h); errors of AllocateRawQpn.
  static int Create(const Config& config, std::unique_ptr<RecvWorkQueue>* out);
  // Drops its unpolled completions.
  ~RecvWorkQueue();

  uint32_t number() const { return queue_.number(); }
  const Config& config() const { return config_; }
  transport::WorkQueue* transport() { return &queue_; }

  transport::WqState state();
  int Modify(transport::WqState to);

  // Posts receives under one hold of the lane's lock.
  class Posting {
   public:
    explicit Posting(RecvWorkQueue& queue)
        : queue_(queue), guard_(queue.lane_) {}
    int Receive(const transport::ReceiveRequest& request) {
      return queue_.queue_.Post(request, Lane::Now());
    }

   private:
    RecvWorkQueue& queue_;
    Lane::Guard guard_;
  };

  // Indirection tables that refer to it.
  std::atomic<int> users{0};
  uint32_t WithdrawAsyncEvents() { return config_.async->Withdraw(&account_); }

 private:
  RecvWorkQueue(const Config& config, uint32_t number);
  Engine& engine() { return config_.pd->context.engine(); }

  const Config config_;
  const int lane_index_;
  Lane& lane_;
  EventAccount account_;        // guarded by the async queue's lock
  transport::WorkQueue queue_;  // guarded by the lane's lock
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_WORK_QUEUE_H_
