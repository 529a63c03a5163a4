// Creates engines. Contexts of one device share one, and fork() finds all.
#ifndef RXE_USER_ENGINE_ENGINE_REGISTRY_H_
#define RXE_USER_ENGINE_ENGINE_REGISTRY_H_

#include <memory>

#include "rxe_user/engine/engine_impl.h"

namespace rxe_user {

// A new engine, for tests. fork() finds it.
std::shared_ptr<EngineImpl> MakeEngine(std::shared_ptr<const Device> device,
                                       EngineImpl::Parts parts);

// The engine of the device's interface, created if there is none.
std::shared_ptr<EngineImpl> FindOrMakeEngine(
    std::shared_ptr<const Device> device, EngineImpl::Parts parts);

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_REGISTRY_H_
