#include "verbs_api/libibverbs/lookup.h"

#include <cstddef>
#include <mutex>

namespace verbs_api {
namespace {

// Where the Context begins if `ibv`, which may be any address, is of one.
void* BeginOf(ibv_context* ibv) {
  return reinterpret_cast<char*>(ibv) - offsetof(verbs_context, context);
}

}  // namespace

Context* Find(ibv_context* ibv) {
  if (ibv == nullptr || !RegistryOf<Context>().IsLive(BeginOf(ibv))) {
    return nullptr;
  }
  return static_cast<Context*>(BeginOf(ibv));
}

bool IsInherited(ibv_context* ibv) {
  return ibv != nullptr && RegistryOf<Context>().IsInherited(BeginOf(ibv));
}

void ForEachLiveContext(const std::function<void(const Context&)>& call) {
  RegistryOf<Context>().ForEachLive(
      [&](const void* live) { call(*static_cast<const Context*>(live)); });
}

void Retain(Context* context) {
  std::lock_guard<std::mutex> lock(context->mutex);
  ++context->objects;
}

void Release(Context* context) {
  bool last;
  {
    std::lock_guard<std::mutex> lock(context->mutex);
    last = --context->objects == 0 && context->closed;
  }
  if (last) delete context;
}

void Release(Channel* channel) {
  if (--channel->holders != 0) return;
  Context* context = channel->owner;
  delete channel;
  Release(context);
}

}  // namespace verbs_api
