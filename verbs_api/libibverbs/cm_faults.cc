// Gives librdmacm the fault rules for CM messages and for its calls.
#include "rxe_user/cm/cm_faults.h"

#include <string_view>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/process_files.h"
#include "verbs_api/libibverbs/interface.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/refusal.h"

namespace verbs_api {
namespace {

class FaultsOfMads final : public rxe_user::CmFaults {
 public:
  Fate Decide(bool sent, wire::CmAttribute attribute,
              const wire::IpAddress& peer) override {
    rxe_user::ProcessFaults* const faults = rxe_user::ProcessFaults::Find();
    if (faults == nullptr) return {};
    const transport::faults::NumberedFate fate =
        faults->DecideMad({.transmitted = sent,
                           .attribute = static_cast<uint16_t>(attribute),
                           .peer = peer},
                          rxe_user::ProcessFaults::Now());
    if (fate.rule == nullptr) return {};
    using transport::faults::Action;
    const Action action = fate.rule->action;
    if (action == Action::kLink) return {.copies = 0};
    if (auto* const tracer = rxe_user::CurrentTracer()) {
      tracer->OnFault(*fate.rule, 1,
                      {.received = !sent,
                       .number = static_cast<uint32_t>(fate.number),
                       .attribute = static_cast<uint8_t>(attribute),
                       .delay = fate.delay});
    }
    switch (action) {
      case Action::kDrop:
        return {.copies = 0};
      case Action::kDuplicate:
        return {.copies = 2};
      default:
        return {.copies = 1, .delay = fate.delay};
    }
  }
  bool LinkIsDown() override {
    const rxe_user::ProcessFaults* const faults =
        rxe_user::ProcessFaults::Find();
    return faults != nullptr &&
           faults->link_is_down(rxe_user::ProcessFaults::Now());
  }
};

}  // namespace

VERBS_EXPORT rxe_user::CmFaults* rxe_user_cm_faults() {
  if (rxe_user::ProcessFaults::Find() == nullptr) return nullptr;
  static auto* const faults = new FaultsOfMads;
  return faults;
}

VERBS_EXPORT int rxe_user_fail_on_command(const char* function) {
  if (!std::string_view(function).starts_with("rdma_")) return 0;
  const int error = FailOnCommand(function);
  if (error != 0) ReportRefusal(function, error);
  return error;
}

}  // namespace verbs_api
