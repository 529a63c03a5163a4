// The objects that applications hold pointers to: the C structures of
// <infiniband/verbs.h>, with what we need behind them.
#ifndef VERBS_API_LIBIBVERBS_ABI_H_
#define VERBS_API_LIBIBVERBS_ABI_H_

#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/handle_table.h"
#include "rxe_user/objects/memory_region.h"
#include "rxe_user/objects/queue_pair.h"
#include "rxe_user/objects/shared_receive_queue.h"

// Macros of the header that hide the functions that we define.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

// A function of the C ABI under its plain name. Which version node it belongs
// to says libibverbs.map.
#define VERBS_EXPORT extern "C" __attribute__((visibility("default")))

namespace verbs_api {

struct Context;

// A device as ibv_get_device_list shows it. Never freed: applications keep
// pointers longer than they may.
struct Device : ibv_device {
  // Vendor libraries look behind ibv_device for their own marks (struct
  // verbs_device); they find none.
  uint8_t not_a_vendor_device[512];
  std::mutex mutex;
  std::shared_ptr<const rxe_user::Device> snapshot;  // guarded by mutex
};

struct Qp;

// verbs_context ends with the ibv_context whose address the application has.
struct Context : verbs_context {
  std::shared_ptr<rxe_user::Context> device;
  rxe_user::EventQueue async{rxe_user::EventQueue::Waiter::kStandsAside};
  std::mutex mutex;
  absl::flat_hash_set<Qp*> qps;  // guarded by mutex
  bool closed = false;           // guarded by mutex
  int objects = 0;               // that point here; guarded by mutex

  uint64_t link_listener = 0;  // of the engine

  std::shared_ptr<const rxe_user::Device> snapshot() const {
    return device->device();
  }
};

struct Pd : ibv_pd {
  Context* owner;
  // Shared with imported handles.
  std::shared_ptr<rxe_user::ProtectionDomain> domain;
};

struct Mr : ibv_mr {
  Context* owner;
  std::shared_ptr<rxe_user::MemoryRegion> region;
};

struct Ah : ibv_ah {
  Context* owner;
  std::shared_ptr<rxe_user::ProtectionDomain> domain;
  transport::AddressVector av;
};

struct Channel : ibv_comp_channel {
  Context* owner;
  rxe_user::EventQueue events;
  std::mutex mutex;  // guards refcnt
  // Itself and the threads that wait on it: the last one deletes it.
  std::atomic<int> holders{1};
};

// ibv_cq_ex begins as ibv_cq does.
struct Cq : ibv_cq_ex {
  Context* owner;
  std::unique_ptr<rxe_user::CompletionQueue> queue;
  // ibv_start_poll .. ibv_end_poll; not held when single_threaded.
  bool single_threaded;
  std::mutex session;
  transport::Completion current;

  ibv_cq* base() { return reinterpret_cast<ibv_cq*>(this); }
};

struct Srq : ibv_srq {
  Context* owner;
  std::unique_ptr<rxe_user::SharedReceiveQueue> queue;
};

// What ibv_wr_start .. ibv_wr_complete gather.
struct WorkBuilder {
  struct Work {
    transport::SendRequest request;
    size_t first_sge = 0;
    size_t num_sge = 0;
    size_t first_inline = 0;
    bool has_data = false;
  };
  std::mutex critical;  // held from start to complete or abort
  bool active = false;
  int error = 0;  // of the first call that was wrong
  std::vector<Work> works;
  std::vector<transport::Sge> sges;
  std::vector<uint8_t> inline_bytes;
};

// What the application holds is a part of it: an ibv_qp, or the ibv_qp_ex that
// begins with one.
struct Qp {
  explicit Qp(ibv_qp* base) : base(base) {}
  virtual ~Qp() = default;
  virtual ibv_qp_ex* extended() { return nullptr; }

  ibv_qp* const base;
  Context* owner = nullptr;
  std::unique_ptr<rxe_user::QueuePair> pair;  // null after its context closed
  rxe_user::EventAccount account;
};

struct PlainQp final : Qp {
  PlainQp() : Qp(&part) {}
  ibv_qp part = {};
};

// Made with send_ops_flags.
struct ExtendedQp final : Qp {
  struct Part : ibv_qp_ex {
    // Newer headers have it here, in struct ibv_qp_ex.
    void (*wr_flush)(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                     size_t length, uint8_t type, uint8_t level);
    ExtendedQp* self;
  };

  explicit ExtendedQp(uint64_t send_ops);
  ibv_qp_ex* extended() override { return &part; }

  const uint64_t send_ops;
  WorkBuilder builder;
  Part part = {};
};

// --- Lookup: null when the application's pointer is not an object of ours, or
// not any more. The handle inside is what is looked up.

template <typename T>
inline rxe_user::HandleTable<T>& Handles() {
  // Never destroyed: other threads may outlive main().
  static auto* const table = new rxe_user::HandleTable<T>;
  return *table;
}

// A child of fork has none of its parent's objects (fork.cc). Destroying them
// there does nothing; whatever else is tried with them is told once, and they
// are not found.
void TellLost();
template <typename T>
inline T* NotFound(uint32_t handle) {
  if (Handles<T>().IsLost(handle)) TellLost();
  return nullptr;
}
bool IsLost(ibv_context* context);
bool IsLost(ibv_comp_channel* channel);
inline bool IsLost(ibv_qp* qp) {
  return qp != nullptr && Handles<Qp>().IsLost(qp->handle);
}
inline bool IsLost(ibv_cq* cq) {
  return cq != nullptr && Handles<Cq>().IsLost(cq->handle);
}
inline bool IsLost(ibv_srq* srq) {
  return srq != nullptr && Handles<Srq>().IsLost(srq->handle);
}
inline bool IsLost(ibv_pd* pd) {
  return pd != nullptr && Handles<Pd>().IsLost(pd->handle);
}
inline bool IsLost(ibv_mr* mr) {
  return mr != nullptr && Handles<Mr>().IsLost(mr->handle);
}
inline bool IsLost(ibv_ah* ah) {
  return ah != nullptr && Handles<Ah>().IsLost(ah->handle);
}

// One that may have outlived its context: only good for destroying.
inline Qp* FindEvenClosed(ibv_qp* qp) {
  if (qp == nullptr) return nullptr;
  Qp* found = Handles<Qp>().Find(qp->handle);
  return found != nullptr && found->base == qp ? found : nullptr;
}
inline Qp* Find(ibv_qp* qp) {
  Qp* found = FindEvenClosed(qp);
  return found != nullptr && found->pair != nullptr
             ? found
             : NotFound<Qp>(qp == nullptr ? 0 : qp->handle);
}
inline Cq* Find(ibv_cq* cq) {
  if (cq == nullptr) return nullptr;
  Cq* found = Handles<Cq>().Find(cq->handle);
  return found != nullptr && found->base() == cq ? found
                                                 : NotFound<Cq>(cq->handle);
}
inline Srq* Find(ibv_srq* srq) {
  if (srq == nullptr) return nullptr;
  Srq* found = Handles<Srq>().Find(srq->handle);
  return found == srq ? found : NotFound<Srq>(srq->handle);
}
inline Pd* Find(ibv_pd* pd) {
  if (pd == nullptr) return nullptr;
  Pd* found = Handles<Pd>().Find(pd->handle);
  return found == pd ? found : NotFound<Pd>(pd->handle);
}
inline Mr* Find(ibv_mr* mr) {
  if (mr == nullptr) return nullptr;
  Mr* found = Handles<Mr>().Find(mr->handle);
  return found == mr ? found : NotFound<Mr>(mr->handle);
}
inline Ah* Find(ibv_ah* ah) {
  if (ah == nullptr) return nullptr;
  Ah* found = Handles<Ah>().Find(ah->handle);
  return found == ah ? found : NotFound<Ah>(ah->handle);
}
Context* Find(ibv_context* context);  // open ones only
Channel* Find(ibv_comp_channel* channel);
void SetLive(ibv_context* context, bool live);
void SetLive(ibv_comp_channel* channel, bool live);
std::vector<Context*> LiveContexts();

// From now on fork() is prepared for. With the first context.
void WatchForks();
// fork.cc's use: the devices, and the contexts and channels.
void LockDevicesForFork();
void UnlockDevicesAfterFork();
void LockRegistriesForFork();
void UnlockRegistriesInParent();
void LoseRegistriesInChild();

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

// --- Arguments.

// The number in an enumeration that the application filled in: any number.
template <typename Enum>
int Raw(const Enum& value) {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// --- Results.

// For functions that return a pointer.
inline std::nullptr_t Fail(int error) {
  errno = error;
  return nullptr;
}
// For functions that return -1.
inline int FailMinusOne(int error) {
  errno = error;
  return -1;
}

// Runs `body` with no exception coming out: out of memory becomes
// `failed(ENOMEM)`.
template <typename Body, typename Failed>
auto NoThrow(Body&& body, Failed&& failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return failed(ENOMEM);
  }
}
template <typename Body>
int ErrnoCall(Body&& body) noexcept {
  return NoThrow(body, [](int error) { return error; });
}
template <typename Body>
auto PointerCall(Body&& body) noexcept -> decltype(body()) {
  return NoThrow(body,
                 [](int error) -> decltype(body()) { return Fail(error); });
}

// --- Parts of the function tables; the files that define them say more.
void InitContextOps(Context* context);
int PollCq(ibv_cq* cq, int count, ibv_wc* wc);
int ReqNotifyCq(ibv_cq* cq, int solicited_only);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* attr);
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr,
              size_t size);
int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size);
int QueryRtValues(ibv_context* context, ibv_values_ex* values);

// Fills the caller's part of an address vector. EINVAL: no GRH, a port other
// than 1, a GID index beyond the table.
int ToAddressVector(const Context& context, const ibv_ah_attr& attr,
                    transport::AddressVector* av);

// Waits until `*completed` has reached `taken`.
void WaitForAcks(pthread_mutex_t* mutex, pthread_cond_t* cond,
                 const uint32_t* completed, uint32_t taken);

// The verbs' and the transport's scatter/gather entries are one layout.
std::span<const transport::Sge> ToSges(const ibv_sge* list, size_t count);

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_ABI_H_
