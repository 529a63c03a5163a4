// A receive work queue (manual page ibv_create_wq(3)): receives and a
// completion queue. Raw packet queue pairs distribute frames over work queues.
#ifndef TRANSPORT_RAW_WORK_QUEUE_H_
#define TRANSPORT_RAW_WORK_QUEUE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "transport/base/frames.h"
#include "transport/base/work.h"
#include "transport/qp/message_receiver.h"
#include "transport/qp/qp_core.h"

namespace transport {

// IBV_WQS_*
enum class WqState : uint8_t { kReset = 0, kReady = 1, kError = 2 };

// All calls with the lane's lock held.
class WorkQueue {
 public:
  // Uses the receive part of `config`: capacity, pd, memory, recv_cq, and
  // `qpn`, the number in its completions.
  explicit WorkQueue(const QpConfig& config);

  uint32_t number() const { return core_.config.qpn; }
  WqState state() const { return state_; }
  // 0 or EINVAL. kError flushes the posted receives; kReset drops them. kError
  // permits only kReset.
  int Modify(WqState to, Time now);
  // 0; EINVAL (too many SGEs, kReset); ENOMEM. In kError it completes at once.
  int Post(const ReceiveRequest& request, Time now);
  // The completion queue has overrun: enter kError.
  void OnCqError(Time now);

  void OnFrame(const ReceivedFrame& received, uint32_t tag, Time now);

  // Called when an error, not Modify, leads to kError. Set once.
  void OnFailure(std::function<void()> callback) {
    on_failure_ = std::move(callback);
  }

 private:
  void Fail(Reason reason, Time now);

  QpCore core_;
  MessageReceiver receiver_;
  WqState state_ = WqState::kReset;
  std::function<void()> on_failure_ = [] {};
};

// Puts a frame into a receive of `core`. Drops and counts it if there is none.
// A receive that is too short completes with kLocalLengthError. False: the
// receive's memory is gone, or the completion queue has overrun.
bool ReceiveFrame(const ReceivedFrame& received, uint32_t tag, Time now,
                  QpCore* core, MessageReceiver* receiver);

}  // namespace transport

#endif  // TRANSPORT_RAW_WORK_QUEUE_H_
