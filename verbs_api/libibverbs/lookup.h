// From the application's pointers to our objects.
//
// A pointer that is not one of ours, or not any more, gives null. It is read
// (its handle is) unless it is null or otherwise cannot point to anything.
#ifndef VERBS_API_LIBIBVERBS_LOOKUP_H_
#define VERBS_API_LIBIBVERBS_LOOKUP_H_

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>

#include "rxe_user/objects/handle_table.h"
#include "verbs_api/libibverbs/abi.h"

namespace verbs_api {

// --- Objects with a handle, by their C structure: which of ours stands behind
// it, and where the structure is in that.

template <typename Ibv, typename T>
struct DerivedObject {
  using Object = T;
  static Ibv* Base(T* object) { return object; }
  static bool IsOpen(const T* /*object*/) { return true; }
  static bool IsDestroyed(const T* /*object*/) { return false; }
};
// One that several handles may stand for (ibv_import_pd(3) and others): when it
// has been destroyed by one, the others are good for ibv_unimport_* only.
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

template <typename T>
[[gnu::noinline, gnu::cold]] rxe_user::HandleTable<T>* MakeHandleTable() {
  // Looking for a handle, and destroying, need no memory.
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

// Whether something may be there: the system maps nothing below 64 KiB
// (vm.mmap_min_addr), and small numbers are what programs pass by mistake.
inline bool MayPoint(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer) >= 65536;
}

// A child of fork inherits pointers to its parent's objects, but not the
// objects (fork.cc). Destroying them there does nothing; any other use is
// refused, with one line on stderr.
template <typename Ibv>
bool IsInherited(Ibv* ibv) {
  return MayPoint(ibv) && Handles<ObjectOf<Ibv>>().IsInherited(ibv->handle);
}
bool IsInherited(ibv_context* context);
bool IsInherited(ibv_comp_channel* channel);
bool IsInherited(ibv_xrcd* xrcd);
bool IsInherited(ibv_td* td);
bool IsInherited(ibv_flow* flow);
bool IsInherited(ibv_counters* counters);
bool IsInherited(ibv_rwq_ind_table* table);
bool IsInherited(CompletionCounterPart* counter);
void WarnInherited();

// One that may have outlived its context, or what it stood for: only good for
// destroying.
template <typename Ibv>
inline ObjectOf<Ibv>* FindEvenClosed(Ibv* ibv) {
  if (!MayPoint(ibv)) return nullptr;
  auto* const found = Handles<ObjectOf<Ibv>>().Find(ibv->handle);
  return found != nullptr && ObjectTrait<Ibv>::Base(found) == ibv ? found
                                                                  : nullptr;
}
// The errno value for one that was not found, as the kernel has it: ENOENT for
// the handle of nothing, EINVAL for that of another object. EINVAL for what
// cannot point to anything.
template <typename Ibv>
[[gnu::noinline, gnu::cold]] int NotThere(Ibv* ibv) {
  if (!MayPoint(ibv)) return EINVAL;
  bool known = false;
  ForEachHandleTable([&](const auto& table) {
    known = known || table.Find(ibv->handle) != nullptr;
  });
  return known ? EINVAL : ENOENT;
}
// One that is to be destroyed: null, and its errno value in `*error`, if it is
// not there. Handles are those of one context, so that an object whose member
// `context` was changed is not there either. (Device memory of a child of fork
// has no owner.)
template <typename Ibv>
ObjectOf<Ibv>* FindToDestroy(Ibv* ibv, int* error) {
  auto* const found = FindEvenClosed(ibv);
  if (found == nullptr) {
    *error = NotThere(ibv);
  } else if ((found->owner != nullptr &&
              ibv->context != &found->owner->context) ||
             ObjectTrait<Ibv>::IsDestroyed(found)) {
    *error = ENOENT;
    return nullptr;
  }
  return found;
}
// Why an open one was not found, for Find; null. Out of the way of those that
// are.
template <typename Ibv>
[[gnu::noinline, gnu::cold]] ObjectOf<Ibv>* NotFound(Ibv* ibv) {
  if (IsInherited(ibv)) WarnInherited();
  return nullptr;
}
template <typename Ibv>
inline ObjectOf<Ibv>* Find(Ibv* ibv) {
  auto* const found = FindEvenClosed(ibv);
  return found != nullptr && ObjectTrait<Ibv>::IsOpen(found) ? found
                                                             : NotFound(ibv);
}

// The address handle that a datagram of `qp` names; null if it is none, or of
// another protection domain (IBA vol. 1, 10.2.2.2).
inline Ah* FindAddress(const Qp& qp, ibv_ah* ibv) {
  Ah* const ah = Find(ibv);
  return ah != nullptr && ah->domain->id == qp.pair->pd()->id ? ah : nullptr;
}

// --- Contexts, channels, XRC domains, thread domains, flows, counters of
// both kinds and indirection tables are looked up by address.

Context* Find(ibv_context* context);  // open ones only
Channel* Find(ibv_comp_channel* channel);
Xrcd* Find(ibv_xrcd* xrcd);
Td* Find(ibv_td* td);
Flow* Find(ibv_flow* flow);
Counters* Find(ibv_counters* counters);
RwqTable* Find(ibv_rwq_ind_table* table);
CompletionCounter* Find(CompletionCounterPart* counter);
void SetLive(ibv_context* context, bool live);
void SetLive(ibv_comp_channel* channel, bool live);
void SetLive(ibv_xrcd* xrcd, bool live);
void SetLive(ibv_td* td, bool live);
void SetLive(ibv_flow* flow, bool live);
void SetLive(ibv_counters* counters, bool live);
void SetLive(ibv_rwq_ind_table* table, bool live);
void SetLive(CompletionCounterPart* counter, bool live);
// Each is live, and stays it, while `call` is called: under a lock, so that it
// must not come back here.
void ForEachLiveContext(const std::function<void(const Context&)>& call);

// --- Devices, which are never freed (device_list.cc).

// As it was listed last; null for what was never listed.
std::shared_ptr<const rxe_user::Device> FindDevice(ibv_device* device);

// --- fork (fork.cc).

// From now on fork() is prepared for. With the first context.
void WatchForks();
void LockDevicesForFork();
void UnlockDevicesAfterFork();
void LockRegistriesForFork();
void UnlockRegistriesInParent();
void AbandonRegistriesInChild();

// --- Contexts and the objects that point to them. A closed context stays in
// memory until the last of them is gone.

void Retain(Context* context);
void Release(Context* context);
// A channel stays while threads wait on it.
void Release(Channel* channel);
// Keeps a context or a channel as long as it lives: across waiting, which a
// cancelled thread leaves by unwinding.
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
