#include "verbs_api/libibverbs/context_faults.h"

#include <infiniband/verbs.h>

#include <string>

#include "rxe_user/base/warn_once.h"
#include "rxe_user/observe/process_files.h"
#include "transport/faults/events.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {
std::unique_ptr<ContextFaults> ContextFaults::Create(
    std::shared_ptr<rxe_user::Context> device, rxe_user::EventQueue& async) {
  rxe_user::ProcessFaults* const faults = rxe_user::ProcessFaults::Find();
  if (faults == nullptr) return nullptr;
  auto made = std::unique_ptr<ContextFaults>(
      new ContextFaults(*faults, std::move(device), async));
  ContextFaults* const self = made.get();
  const auto alarm = self->device_->engine().AddAlarm([self] { self->Tick(); });
  if (alarm.ok()) {
    self->alarm_ = *alarm;
  } else {
    rxe_user::WarnOnce("fault rules that depend on time do not fire: " +
                       std::string(alarm.status().message()));
  }
  faults->Add(self, rxe_user::ProcessFaults::Now());
  // The port may have gone down before this context existed.
  if (faults->link_is_down()) self->device_->DeviceChanged();
  self->Tick();
  return made;
}

ContextFaults::~ContextFaults() {
  faults_.Remove(this);
  if (alarm_ != 0) device_->engine().RemoveAlarm(alarm_);
}

void ContextFaults::OnEventOnCommand(int type) {
  const bool of_port = type != transport::faults::kDeviceFatal;
  async_.Post({type, nullptr, of_port ? kPort : 0, nullptr});
}

void ContextFaults::OnLinkOnCommand(bool up) {
  device_->DeviceChanged();
  async_.Post({up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR, nullptr, kPort,
               nullptr});
}

void ContextFaults::TickAfter(transport::Time delay) {
  if (alarm_ != 0) device_->engine().SetAlarm(alarm_, delay);
}

void ContextFaults::Tick() {
  const transport::Time now = rxe_user::ProcessFaults::Now();
  transport::Time next;
  for (const transport::faults::Rule* const rule : faults_.Tick(now, &next)) {
    if (auto* const tracer = rxe_user::CurrentTracer()) {
      tracer->OnFault(*rule, 0, {});
    }
  }
  if (next != transport::kNever) TickAfter(next - now);
}

}  // namespace verbs_api
