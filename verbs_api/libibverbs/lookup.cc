#include "verbs_api/libibverbs/lookup.h"

#include <cstddef>
#include <mutex>

namespace verbs_api {
namespace {

Context* FromIbv(ibv_context* context) {
  return static_cast<Context*>(reinterpret_cast<verbs_context*>(
      reinterpret_cast<char*>(context) - offsetof(verbs_context, context)));
}

}  // namespace

Context* Find(ibv_context* ibv) {
  return ibv != nullptr && RegistryOf<Context>().IsLive(FromIbv(ibv))
             ? FromIbv(ibv)
             : nullptr;
}

bool IsInherited(ibv_context* ibv) {
  return ibv != nullptr && RegistryOf<Context>().IsInherited(FromIbv(ibv));
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
