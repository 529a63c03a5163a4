#include "rxe_user/faults/fault_targets.h"

#include <new>

namespace rxe_user {

using transport::faults::EventOf;
using transport::faults::Rule;

void FaultTargets::Add(uint32_t qpn, FaultedQueuePair* qp) {
  const std::lock_guard lock(mutex_);
  try {
    queue_pairs_[qpn] = qp;
  } catch (const std::bad_alloc&) {
    // Not recorded: rules raise no events of this queue pair.
  }
}

bool FaultTargets::Add(FaultedContext* context) {
  const std::lock_guard lock(mutex_);
  try {
    contexts_.insert(context);
  } catch (const std::bad_alloc&) {
    return false;  // it gets no events
  }
  return contexts_.size() == 1;
}

void FaultTargets::Remove(uint32_t qpn, const FaultedQueuePair* qp) {
  const std::lock_guard lock(mutex_);
  const auto found = queue_pairs_.find(qpn);
  if (found != queue_pairs_.end() && found->second == qp) {
    queue_pairs_.erase(found);
  }
}

void FaultTargets::Remove(FaultedContext* context) {
  const std::lock_guard lock(mutex_);
  contexts_.erase(context);
}

void FaultTargets::Raise(const Rule& rule, uint32_t qpn, bool received) {
  const std::lock_guard lock(mutex_);
  if (rule.event_of == EventOf::kDevice) {
    for (FaultedContext* const each : contexts_) {
      each->OnEventOnCommand(rule.event);
    }
    return;
  }
  const auto found = queue_pairs_.find(qpn);
  if (found != queue_pairs_.end()) {
    found->second->OnEventOnCommand(rule, received);
  }
}

void FaultTargets::OnTransferFault(const Rule& rule, uint32_t qpn,
                                   bool received, uint32_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = queue_pairs_.find(qpn);
  if (found != queue_pairs_.end()) {
    found->second->OnTransferFault(rule, received, number);
  }
}

void FaultTargets::SetLink(bool up) {
  const std::lock_guard lock(mutex_);
  for (FaultedContext* const each : contexts_) each->OnLinkOnCommand(up);
}

void FaultTargets::TickAfter(transport::Time delay) {
  const std::lock_guard lock(mutex_);
  for (FaultedContext* const each : contexts_) each->TickAfter(delay);
}

}  // namespace rxe_user
