#include "verbs_api/libibverbs/lookup.h"

#include <cstddef>
#include <mutex>
#include <unordered_set>

namespace verbs_api {
namespace {

// The objects of one kind that have no handle, by their addresses.
class Registry {
 public:
  bool IsLive(const void* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (live_.contains(object)) return true;
    if (inherited_.contains(object)) WarnInherited();
    return false;
  }
  bool IsInherited(const void* object) {
    std::lock_guard<std::mutex> lock(mutex_);
    return inherited_.contains(object);
  }
  void SetLive(const void* object, bool live) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (live) {
      live_.insert(object);
    } else {
      live_.erase(object);
    }
  }
  template <typename Call>
  void ForEachLive(Call&& call) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const void* object : live_) call(object);
  }
  // The lock is held while the process forks.
  void LockForFork() { mutex_.lock(); }
  void UnlockInParent() { mutex_.unlock(); }
  void AbandonInChild() {
    inherited_.merge(live_);
    live_.clear();
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;  // guards both
  std::unordered_set<const void*> live_;
  std::unordered_set<const void*> inherited_;
};
// Never destroyed, like the handle tables.
Registry& Contexts() {
  static auto* const registry = new Registry;
  return *registry;
}
Registry& Channels() {
  static auto* const registry = new Registry;
  return *registry;
}
Registry& Xrcds() {
  static auto* const registry = new Registry;
  return *registry;
}
Registry& Tds() {
  static auto* const registry = new Registry;
  return *registry;
}

Registry& Flows() {
  static auto* const registry = new Registry;
  return *registry;
}
Registry& CounterSets() {
  static auto* const registry = new Registry;
  return *registry;
}
Registry& RwqTables() {
  static auto* const registry = new Registry;
  return *registry;
}

Registry& CompletionCounters() {
  static auto* const registry = new Registry;
  return *registry;
}

Registry& Mkeys() {
  static auto* const registry = new Registry;
  return *registry;
}

Context* FromIbv(ibv_context* context) {
  return static_cast<Context*>(reinterpret_cast<verbs_context*>(
      reinterpret_cast<char*>(context) - offsetof(verbs_context, context)));
}

}  // namespace

Context* Find(ibv_context* context) {
  return context != nullptr && Contexts().IsLive(context) ? FromIbv(context)
                                                          : nullptr;
}
Channel* Find(ibv_comp_channel* channel) {
  return channel != nullptr && Channels().IsLive(channel)
             ? static_cast<Channel*>(channel)
             : nullptr;
}
Xrcd* Find(ibv_xrcd* xrcd) {
  return xrcd != nullptr && Xrcds().IsLive(xrcd) ? static_cast<Xrcd*>(xrcd)
                                                 : nullptr;
}
Td* Find(ibv_td* td) {
  return td != nullptr && Tds().IsLive(td) ? static_cast<Td*>(td) : nullptr;
}

Flow* Find(ibv_flow* flow) {
  return flow != nullptr && Flows().IsLive(flow) ? static_cast<Flow*>(flow)
                                                 : nullptr;
}
Counters* Find(ibv_counters* counters) {
  return counters != nullptr && CounterSets().IsLive(counters)
             ? static_cast<Counters*>(counters)
             : nullptr;
}
RwqTable* Find(ibv_rwq_ind_table* table) {
  return table != nullptr && RwqTables().IsLive(table)
             ? static_cast<RwqTable*>(table)
             : nullptr;
}

CompletionCounter* Find(CompletionCounterPart* counter) {
  return counter != nullptr && CompletionCounters().IsLive(counter)
             ? static_cast<CompletionCounter*>(counter)
             : nullptr;
}

Mkey* Find(MkeyNumbers* mkey) {
  return mkey != nullptr && Mkeys().IsLive(mkey) ? static_cast<Mkey*>(mkey)
                                                 : nullptr;
}

bool IsInherited(MkeyNumbers* mkey) { return Mkeys().IsInherited(mkey); }
bool IsInherited(ibv_flow* flow) { return Flows().IsInherited(flow); }
bool IsInherited(ibv_counters* counters) {
  return CounterSets().IsInherited(counters);
}
bool IsInherited(ibv_rwq_ind_table* table) {
  return RwqTables().IsInherited(table);
}
bool IsInherited(CompletionCounterPart* counter) {
  return CompletionCounters().IsInherited(counter);
}
bool IsInherited(ibv_context* context) {
  return Contexts().IsInherited(context);
}
bool IsInherited(ibv_comp_channel* channel) {
  return Channels().IsInherited(channel);
}
bool IsInherited(ibv_td* td) { return Tds().IsInherited(td); }
bool IsInherited(ibv_xrcd* xrcd) { return Xrcds().IsInherited(xrcd); }

void SetLive(ibv_context* context, bool live) {
  Contexts().SetLive(context, live);
}
void SetLive(ibv_comp_channel* channel, bool live) {
  Channels().SetLive(channel, live);
}
void SetLive(ibv_td* td, bool live) { Tds().SetLive(td, live); }
void SetLive(ibv_xrcd* xrcd, bool live) { Xrcds().SetLive(xrcd, live); }

void SetLive(ibv_flow* flow, bool live) { Flows().SetLive(flow, live); }
void SetLive(ibv_counters* counters, bool live) {
  CounterSets().SetLive(counters, live);
}
void SetLive(ibv_rwq_ind_table* table, bool live) {
  RwqTables().SetLive(table, live);
}

void SetLive(CompletionCounterPart* counter, bool live) {
  CompletionCounters().SetLive(counter, live);
}
void SetLive(MkeyNumbers* mkey, bool live) { Mkeys().SetLive(mkey, live); }

void ForEachLiveContext(const std::function<void(const Context&)>& call) {
  Contexts().ForEachLive([&](const void* live) {
    call(*FromIbv(static_cast<ibv_context*>(const_cast<void*>(live))));
  });
}

namespace {

// Only fork holds the locks of two registries.
template <typename F>
void ForEachRegistry(F&& f) {
  for (Registry* registry :
       {&Contexts(), &Channels(), &Xrcds(), &Tds(), &Flows(), &CounterSets(),
        &RwqTables(), &CompletionCounters(), &Mkeys()}) {
    f(*registry);
  }
}

}  // namespace

void LockRegistriesForFork() {
  ForEachRegistry([](Registry& registry) { registry.LockForFork(); });
}
void UnlockRegistriesInParent() {
  ForEachRegistry([](Registry& registry) { registry.UnlockInParent(); });
}
void AbandonRegistriesInChild() {
  ForEachRegistry([](Registry& registry) { registry.AbandonInChild(); });
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
