// Maps the application's pointers to our objects.
//
// A pointer to anything but a live object of ours yields null. The handle in
// the object is read through the pointer, unless the pointer is null or too
// small to be valid.
#ifndef VERBS_API_LIBIBVERBS_LOOKUP_H_
#define VERBS_API_LIBIBVERBS_LOOKUP_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <type_traits>
#include <unordered_set>

#include "rxe_user/objects/handle_table.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

// --- Objects with a handle, by C structure: our type that contains the
// structure, and where.

template <typename Ibv, typename T>
struct DerivedObject {
  using Object = T;
  static Ibv* Base(T* object) { return object; }
  static bool IsOpen(const T* /*object*/) { return true; }
  static bool IsDestroyed(const T* /*object*/) { return false; }
};
// An object that several handles may share (ibv_import_pd(3) and others). Once
// it was destroyed through one handle, the others are valid only for
// ibv_unimport_*.
template <typename Ibv, typename T>
struct SharedObject : DerivedObject<Ibv, T> {
  static bool IsOpen(const T* object) { return !IsDestroyed(object); }
  static bool IsDestroyed(const T* object) { return object->IsDestroyed(); }
};

template <typename Ibv>
struct ObjectTrait;
template <>
struct ObjectTrait<ibv_pd> : SharedObject<ibv_pd, Pd> {};
template <>
struct ObjectTrait<ibv_mr> : SharedObject<ibv_mr, Mr> {};
template <>
struct ObjectTrait<ibv_mw> : DerivedObject<ibv_mw, Mw> {};
template <>
struct ObjectTrait<ibv_dm> : SharedObject<ibv_dm, Dm> {};
template <>
struct ObjectTrait<ibv_ah> : DerivedObject<ibv_ah, Ah> {};
template <>
struct ObjectTrait<ibv_srq> : DerivedObject<ibv_srq, Srq> {};
template <>
struct ObjectTrait<ibv_wq> : DerivedObject<ibv_wq, Wq> {};
template <>
struct ObjectTrait<ibv_cq> {
  using Object = Cq;
  static ibv_cq* Base(Cq* cq) { return cq->base(); }
  static bool IsOpen(const Cq* /*cq*/) { return true; }
  static bool IsDestroyed(const Cq* /*cq*/) { return false; }
};
template <>
struct ObjectTrait<ibv_qp> {
  using Object = Qp;
  static ibv_qp* Base(Qp* qp) { return qp->base; }
  static bool IsOpen(const Qp* qp) { return qp->pair != nullptr; }
  static bool IsDestroyed(const Qp* /*qp*/) { return false; }
};

template <typename Ibv>
using ObjectOf = typename ObjectTrait<Ibv>::Object;
template <typename Ibv>
concept HasHandle = requires {
  typename ObjectOf<Ibv>;
};

template <typename T>
[[gnu::noinline, gnu::cold]] rxe_user::HandleTable<T>* MakeHandleTable() {
  // Static storage: lookups and destruction must not allocate.
  alignas(rxe_user::HandleTable<T>) static std::byte
      storage[sizeof(rxe_user::HandleTable<T>)];
  return new (storage) rxe_user::HandleTable<T>;
}
template <typename T>
inline rxe_user::HandleTable<T>& Handles() {
  // Never destroyed: other threads may outlive main().
  static auto* const table = MakeHandleTable<T>();
  return *table;
}

// Calls `f` with the handle table of each kind of object.
template <typename F>
void ForEachHandleTable(F&& f) {
  f(Handles<Qp>());
  f(Handles<Cq>());
  f(Handles<Srq>());
  f(Handles<Pd>());
  f(Handles<Mr>());
  f(Handles<Mw>());
  f(Handles<Dm>());
  f(Handles<Ah>());
  f(Handles<Wq>());
}

// Whether `pointer` can be valid. The system maps nothing below 64 KiB
// (vm.mmap_min_addr), and small numbers are what programs pass by mistake.
inline bool MayBePointer(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) >= 65536;
}

// Whether `ibv` was inherited by fork. A child inherits pointers to its
// parent's objects, but not the objects (fork.cc). Destroying them in the child
// does nothing; any other use is refused, with one line on stderr.
template <HasHandle Ibv>
bool IsInherited(Ibv* ibv) {
  return MayBePointer(ibv) && Handles<ObjectOf<Ibv>>().IsInherited(ibv->handle);
}
void WarnInherited();

// Finds an object even if its context is closed or the shared object is
// destroyed. The result is only valid for destroying.
template <typename Ibv>
inline ObjectOf<Ibv>* FindIncludingClosed(Ibv* ibv) {
  if (!MayBePointer(ibv)) return nullptr;
  auto* const found = Handles<ObjectOf<Ibv>>().Find(ibv->handle);
  return found != nullptr && ObjectTrait<Ibv>::Base(found) == ibv ? found
                                                                  : nullptr;
}
// The errno value for an object that was not found, as in the kernel: ENOENT
// for an unknown handle, EINVAL for the handle of another object and for an
// invalid pointer.
template <typename Ibv>
[[gnu::noinline, gnu::cold]] int NotFoundErrno(Ibv* ibv) {
  if (!MayBePointer(ibv)) return EINVAL;
  bool known = false;
  ForEachHandleTable([&](const auto& table) {
    known = known || table.Find(ibv->handle) != nullptr;
  });
  return known ? EINVAL : ENOENT;
}
// Finds an object to destroy. If there is none, returns null and stores an
// errno value in `*error`. Handles are per context, so an object whose member
// `context` was changed is not found either. Device memory in a child of fork()
// has no owner.
template <HasHandle Ibv>
ObjectOf<Ibv>* FindToDestroy(Ibv* ibv, int* error) {
  auto* const found = FindIncludingClosed(ibv);
  if (found == nullptr) {
    *error = NotFoundErrno(ibv);
  } else if ((found->owner != nullptr &&
              ibv->context != &found->owner->context) ||
             ObjectTrait<Ibv>::IsDestroyed(found)) {
    *error = ENOENT;
    return nullptr;
  }
  return found;
}
// Find calls this for an object that was not found. Returns null; separate, to
// keep it out of the path of successful lookups.
template <typename Ibv>
[[gnu::noinline, gnu::cold]] ObjectOf<Ibv>* NotFound(Ibv* ibv) {
  if (IsInherited(ibv)) WarnInherited();
  return nullptr;
}
template <typename Ibv>
inline ObjectOf<Ibv>* Find(Ibv* ibv) {
  auto* const found = FindIncludingClosed(ibv);
  return found != nullptr && ObjectTrait<Ibv>::IsOpen(found) ? found
                                                             : NotFound(ibv);
}

// The address handle of a UD request of `qp`. Null if it is none, or belongs to
// another protection domain (IBA vol. 1, 10.2.2.2).
inline Ah* FindAddress(const Qp& qp, ibv_ah* ibv) {
  Ah* const ah = Find(ibv);
  return ah != nullptr && ah->domain->id == qp.pair->pd()->id ? ah : nullptr;
}

// --- Looked up by address: contexts, channels, XRC domains, thread domains,
// flows, counters of both kinds, indirection tables, memory keys of mlx5dv.

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
template <typename T>
inline Registry& RegistryOf() {
  // Never destroyed, like the handle tables.
  static auto* const registry = new Registry;
  return *registry;
}

// Calls `f` with the registry of each kind of object. Only fork holds the locks
// of two.
template <typename F>
void ForEachRegistry(F&& f) {
  f(RegistryOf<Context>());
  f(RegistryOf<Channel>());
  f(RegistryOf<Xrcd>());
  f(RegistryOf<Td>());
  f(RegistryOf<Flow>());
  f(RegistryOf<Counters>());
  f(RegistryOf<RwqTable>());
  f(RegistryOf<CompletionCounter>());
  f(RegistryOf<Mkey>());
}

template <typename T>
void SetLive(T* object, bool live) {
  RegistryOf<T>().SetLive(object, live);
}

template <typename T, typename Ibv>
T* FindLive(Ibv* ibv) {
  // `ibv` may be any address. An object begins with what the application sees.
  const bool live = ibv != nullptr && RegistryOf<T>().IsLive(ibv);
  return live ? static_cast<T*>(ibv) : nullptr;
}
Context* Find(ibv_context* ibv);  // open contexts only
inline Channel* Find(ibv_comp_channel* ibv) { return FindLive<Channel>(ibv); }
inline Xrcd* Find(ibv_xrcd* ibv) { return FindLive<Xrcd>(ibv); }
inline Td* Find(ibv_td* ibv) { return FindLive<Td>(ibv); }
inline Flow* Find(ibv_flow* ibv) { return FindLive<Flow>(ibv); }
inline Counters* Find(ibv_counters* ibv) { return FindLive<Counters>(ibv); }
inline RwqTable* Find(ibv_rwq_ind_table* ibv) {
  return FindLive<RwqTable>(ibv);
}
inline CompletionCounter* Find(CompletionCounterPart* ibv) {
  return FindLive<CompletionCounter>(ibv);
}
inline Mkey* Find(MkeyNumbers* ibv) { return FindLive<Mkey>(ibv); }

// The same for an object without a handle: EINVAL.
template <typename Ibv>
requires(!HasHandle<Ibv>) auto* FindToDestroy(Ibv* ibv, int* error) {
  auto* const found = Find(ibv);
  if (found == nullptr) *error = EINVAL;
  return found;
}

bool IsInherited(ibv_context* ibv);
template <typename Ibv>
requires(!HasHandle<Ibv>) bool IsInherited(Ibv* ibv) {
  using Object = std::remove_pointer_t<decltype(Find(ibv))>;
  return RegistryOf<Object>().IsInherited(ibv);
}

// Calls `call` for each live context, under a lock that keeps it live. `call`
// must not use this registry.
void ForEachLiveContext(const std::function<void(const Context&)>& call);

// --- Devices. They are never freed (device_list.cc).

// The device as it was listed last; null if it was never listed.
std::shared_ptr<const rxe_user::Device> FindDevice(ibv_device* device);

// --- fork (fork.cc).

// Prepares for later calls of fork(). Called with the first context.
void WatchForks();
void LockDevicesForFork();
void UnlockDevicesAfterFork();

// --- Contexts and the objects that point to them. A closed context stays in
// memory until the last such object is gone.

void Retain(Context* context);
void Release(Context* context);
// A channel stays in memory while threads wait on it.
void Release(Channel* channel);

// Deletes an object that no lookup finds any more. Its owner may be null.
template <typename T>
void Delete(T* object) {
  Context* const owner = object->owner;
  delete object;
  if (owner != nullptr) Release(owner);
}

// For functions that destroy `ibv`: `body` gets our object, and returns an
// errno value. A child of fork() leaves inherited objects alone.
template <typename Ibv, typename Body>
int DestroyCall(Ibv* ibv, Body&& body,
                const char* function = __builtin_FUNCTION()) noexcept {
  return ErrnoCall(
      [&]() -> int {
        if (IsInherited(ibv)) return 0;
        int error = 0;
        auto* const object = FindToDestroy(ibv, &error);
        return object != nullptr ? body(object) : error;
      },
      function);
}

// Holds a context or a channel while a thread waits. If the thread is
// cancelled, unwinding releases it.
class Hold {
 public:
  explicit Hold(Context* context) : context_(context) { Retain(context); }
  explicit Hold(Channel* channel) : channel_(channel) { ++channel->holders; }
  ~Hold() {
    if (context_ != nullptr) Release(context_);
    if (channel_ != nullptr) Release(channel_);
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

 private:
  Context* context_ = nullptr;
  Channel* channel_ = nullptr;
};

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_LOOKUP_H_
