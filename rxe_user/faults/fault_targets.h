// The queue pairs and contexts of the process, on which fault rules act by
// asynchronous events and by the state of the port.
#ifndef RXE_USER_FAULTS_FAULT_TARGETS_H_
#define RXE_USER_FAULTS_FAULT_TARGETS_H_

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "transport/base/types.h"
#include "transport/faults/rule.h"

namespace rxe_user {

// Called with the lock of FaultTargets held, and perhaps that of a lane: must
// not take a lane's.
class FaultedQueuePair {
 public:
  virtual ~FaultedQueuePair() = default;
  // kEvent: gives the program the event. `received`: the direction of the
  // packet that the rule hit.
  virtual void OnEventOnCommand(const transport::faults::Rule& rule,
                                bool received) = 0;
  // kUnmap has hit a transfer, the `number`-th of this direction. The lane is
  // locked.
  virtual void OnTransferFault(const transport::faults::Rule& rule,
                               bool received, uint32_t number) = 0;
};

class FaultedContext {
 public:
  virtual ~FaultedContext() = default;
  // kEvent of the device or its port: gives the program the event.
  virtual void OnEventOnCommand(int type) = 0;
  // kLink: the port goes up or down.
  virtual void OnLinkOnCommand(bool up) = 0;
  // ProcessFaults::Tick must be called after `delay`.
  virtual void TickAfter(transport::Time delay) = 0;
};

// Thread: any; a lane's lock may be held. Its lock is taken inside that of a
// lane. A queue pair or context for which there is no memory stays unknown:
// rules do not act on it.
class FaultTargets {
 public:
  void Add(uint32_t qpn, FaultedQueuePair* qp);
  // Returns whether it is the only context.
  bool Add(FaultedContext* context);
  // After the return, `qp` is not being called and will not be called again.
  void Remove(uint32_t qpn, const FaultedQueuePair* qp);
  void Remove(FaultedContext* context);

  // Raises the event of a rule that hit a packet of `qpn`.
  void Raise(const transport::faults::Rule& rule, uint32_t qpn, bool received);
  void OnTransferFault(const transport::faults::Rule& rule, uint32_t qpn,
                       bool received, uint32_t number);
  void SetLink(bool up);
  void TickAfter(transport::Time delay);

 private:
  std::mutex mutex_;  // guards what follows
  std::unordered_map<uint32_t, FaultedQueuePair*> queue_pairs_;
  std::unordered_set<FaultedContext*> contexts_;
};

}  // namespace rxe_user

#endif  // RXE_USER_FAULTS_FAULT_TARGETS_H_
