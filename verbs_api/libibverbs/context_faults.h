// Carries out fault rules on a context: raises events of the device and its
// port, and calls ProcessFaults::Tick when a rule is due
// (docs/faults-on-command.md).
#ifndef VERBS_API_LIBIBVERBS_CONTEXT_FAULTS_H_
#define VERBS_API_LIBIBVERBS_CONTEXT_FAULTS_H_

#include <cstdint>
#include <memory>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"

namespace verbs_api {

// Thread: any. Exists while its context is open.
class ContextFaults final : private rxe_user::FaultedContext {
 public:
  // Null if faults are off. Carries out rules that are due before it returns.
  // `async` must outlive the result.
  static std::unique_ptr<ContextFaults> Create(
      std::shared_ptr<rxe_user::Context> device, rxe_user::EventQueue& async);
  ~ContextFaults() override;

 private:
  ContextFaults(rxe_user::ProcessFaults& faults,
                std::shared_ptr<rxe_user::Context> device,
                rxe_user::EventQueue& async)
      : faults_(faults), device_(std::move(device)), async_(async) {}

  // --- FaultedContext
  void OnEventOnCommand(int type) override;
  void OnLinkOnCommand(bool up) override;
  void TickAfter(transport::Time delay) override;

  void Tick();

  rxe_user::ProcessFaults& faults_;
  const std::shared_ptr<rxe_user::Context> device_;
  rxe_user::EventQueue& async_;
  uint64_t alarm_ = 0;  // 0: the system refused it
};

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_CONTEXT_FAULTS_H_
