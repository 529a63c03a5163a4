#include "rxe_user/cm/cm_service.h"

#include <mutex>
#include <utility>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/cm/cm_service_impl.h"

namespace rxe_user {
namespace {

struct Current {
  ForkSafeMutex mutex;
  std::weak_ptr<CmServiceImpl> service;  // under the mutex
};

}  // namespace

std::shared_ptr<CmService> CmService::Get(AcquireSlot acquire_slot,
                                          transport::PacketObserver* observer,
                                          CmFaults* faults) {
  Current& current = OnlyOne<Current>();
  // Created even if it turns out not to be needed, which is cheap: no lock may
  // be taken while the mutex is held.
  auto fresh = std::make_shared<CmServiceImpl>(
      std::move(acquire_slot), transport::cm::Config(), observer, faults);
  std::shared_ptr<CmServiceImpl> service;
  {
    const std::lock_guard lock(current.mutex);
    service = current.service.lock();
    if (service == nullptr || service->dead()) {
      service = fresh;
      current.service = fresh;
    }
  }
  return service;
}

}  // namespace rxe_user
