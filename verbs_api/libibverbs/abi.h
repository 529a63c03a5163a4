// The objects that applications hold pointers to: the C structures of
// <infiniband/verbs.h>, each followed by our own members.
#ifndef VERBS_API_LIBIBVERBS_ABI_H_
#define VERBS_API_LIBIBVERBS_ABI_H_

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rxe_user/base/no_cancellation.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/device_memory.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/memory_key.h"
#include "rxe_user/objects/memory_region.h"
#include "rxe_user/objects/memory_window.h"
#include "rxe_user/objects/queue_pair.h"
#include "rxe_user/objects/shared_receive_queue.h"
#include "rxe_user/objects/work_queue.h"
#include "rxe_user/objects/xrc_domain.h"
#include "transport/raw/flow_table.h"
#include "verbs_api/libibverbs/context_faults.h"
#include "verbs_api/libibverbs/mlx5_interface.h"
#include "verbs_api/libibverbs/refusal.h"

// verbs.h defines macros with the names of these functions.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

// Exports a function of the C ABI under its plain name. libibverbs.map gives
// its version node.
#define VERBS_EXPORT extern "C" __attribute__((visibility("default")))

namespace verbs_api {

inline constexpr uint8_t kPort = 1;  // the only one

// --- FLUSH in newer headers. The numbers are those of the kernel's ABI.
inline constexpr uint64_t kQpExWithFlush = 1 << 11;
inline constexpr uint64_t kDeviceFlushGlobal = uint64_t{1} << 38;
inline constexpr uint64_t kDeviceFlushPersistent = uint64_t{1} << 39;
inline constexpr uint64_t kDeviceAtomicWrite = uint64_t{1} << 40;

struct Context;

// A device as ibv_get_device_list shows it. Never freed: applications use
// pointers to devices after they freed the list.
struct Device : ibv_device {
  // Vendor libraries look for their own marks behind ibv_device (struct
  // verbs_device). They must find none.
  uint8_t not_a_vendor_device[512];
  std::mutex mutex;
  std::shared_ptr<const rxe_user::Device> snapshot;  // guarded by mutex
};

struct Flow;
struct Qp;

// verbs_context ends with the ibv_context that the application points to.
struct Context : verbs_context {
  std::shared_ptr<rxe_user::Context> device;
  rxe_user::EventQueue async{rxe_user::EventQueue::Waiter::kPassive};
  std::mutex mutex;
  std::vector<Qp*> qps;             // guarded by mutex; see AddQp
  std::unordered_set<Flow*> flows;  // guarded by mutex
  // mlx5dv_reserved_qpn_alloc(3); guarded by mutex
  std::unordered_set<uint32_t> reserved_qpns;
  bool closed = false;  // guarded by mutex
  int objects = 0;      // that point here; guarded by mutex

  uint64_t link_listener = 0;             // of the engine
  std::unique_ptr<ContextFaults> faults;  // null: they are off
  uint64_t guid = 0;                      // of the device when it was opened
  bool mlx5 = false;                      // the same

  std::shared_ptr<const rxe_user::Device> snapshot() const {
    return device->device();
  }
};

// A program may pass an object of the wrong kind. Then the handle is read at
// the other kind's offset, and its value shows the fault. So each object must
// be long enough for that read.
inline constexpr size_t kMinObjectSize =
    std::max({offsetof(ibv_pd, handle), offsetof(ibv_mr, handle),
              offsetof(ibv_mw, handle), offsetof(ibv_dm, handle),
              offsetof(ibv_ah, handle), offsetof(ibv_cq, handle),
              offsetof(ibv_srq, handle), offsetof(ibv_qp, handle),
              offsetof(ibv_wq, handle)}) +
    sizeof(uint32_t);

// A thread domain. The application promises that one thread at a time uses its
// objects.
struct alignas(64) Td : ibv_td {  // for kMinObjectSize
  Context* owner;
  std::atomic<int> users{0};  // parent domains
};

struct alignas(64) Pd : ibv_pd {  // for kMinObjectSize
  Context* owner;
  // Shared with imported handles.
  std::shared_ptr<rxe_user::ProtectionDomain> domain;
  Td* td = nullptr;  // of a parent domain that has one

  bool is_parent() const { return domain->of != nullptr; }
  bool IsDestroyed() const { return domain->gone; }
};

struct Mr : ibv_mr {
  Context* owner;
  // Shared with imported handles.
  std::shared_ptr<rxe_user::MemoryRegion> region;

  bool IsDestroyed() const { return region->withdrawn(); }
};

struct alignas(64) Mw : ibv_mw {  // for kMinObjectSize
  Context* owner;
  std::unique_ptr<rxe_user::MemoryWindow> window;
};

struct Dm : ibv_dm {
  Context* owner;
  // Shared with regions and imported handles.
  std::shared_ptr<rxe_user::DeviceMemory> memory;

  bool IsDestroyed() const { return memory->gone; }
};

struct Ah : ibv_ah {
  Context* owner;
  rxe_user::ProtectionDomain* domain;  // its `users` includes this handle
  transport::AddressVector av;
  std::optional<rxe_user::HeldAddress> source;
};

struct Channel : ibv_comp_channel {
  Context* owner;
  rxe_user::EventQueue events;
  std::mutex mutex;  // guards refcnt
  // References: the channel itself and the threads that wait on it. The last
  // one deletes it.
  std::atomic<int> holders{1};
};

// ibv_cq_ex begins with the members of ibv_cq.
struct Cq : ibv_cq_ex {
  Context* owner;
  rxe_user::ProtectionDomain* domain;  // the parent domain, or null
  std::unique_ptr<rxe_user::CompletionQueue> queue;
  // Held from ibv_start_poll to ibv_end_poll, unless single_threaded.
  bool single_threaded;
  std::mutex session;
  transport::Completion current;

  ibv_cq* base() { return reinterpret_cast<ibv_cq*>(this); }
};

struct alignas(64) Xrcd : ibv_xrcd {  // for kMinObjectSize
  Context* owner;
  std::shared_ptr<rxe_user::XrcDomain> domain;
  std::atomic<int> users{0};  // SRQs and queue pairs that were made with it
};

struct Srq : ibv_srq {
  Context* owner;
  Xrcd* xrcd = nullptr;  // of an XRC SRQ
  std::unique_ptr<rxe_user::SharedReceiveQueue> queue;
};

struct Wq : ibv_wq {
  Context* owner;
  std::unique_ptr<rxe_user::RecvWorkQueue> queue;
};

struct alignas(64) RwqTable : ibv_rwq_ind_table {  // for kMinObjectSize
  Context* owner;
  std::vector<Wq*> queues;
  std::atomic<int> users{0};  // queue pairs
};

struct alignas(64) Counters : ibv_counters {  // for kMinObjectSize
  struct Point {
    std::shared_ptr<const transport::FlowCount> of;
    std::atomic<uint64_t> transport::FlowCount::*value = nullptr;
    uint64_t before = 0;
  };
  Context* owner;
  // Of the flows that name these counters.
  std::shared_ptr<transport::FlowCount> flows =
      std::make_shared<transport::FlowCount>();
  std::mutex mutex;
  // The sources that are summed at each index. Guarded by mutex.
  std::vector<std::vector<Point>> points;
  std::atomic<int> users{0};  // flows that name it
};

// struct ibv_comp_cntr of rdma-core 65. Debian 12's header does not have it.
struct CompletionCounterPart {
  ibv_context* context;
  uint32_t handle;
};
struct alignas(64) CompletionCounter : CompletionCounterPart {
  Context* owner;
  // Shared with the queue pairs that it is attached to.
  std::shared_ptr<transport::CompletionCounter> counter;
};

// The first members are those of struct mlx5dv_mkey.
struct Mkey : MkeyNumbers {
  Context* owner;
  std::unique_ptr<rxe_user::MemoryKey> key;
};

struct alignas(64) Flow : ibv_flow {  // for kMinObjectSize
  Flow() : ibv_flow{} {}
  Context* owner = nullptr;
  // Null after its context closed.
  std::shared_ptr<rxe_user::QueuePair> pair;
  Counters* counters = nullptr;
  // The counters of this flow alone.
  std::shared_ptr<transport::FlowCount> count =
      std::make_shared<transport::FlowCount>();
  transport::FlowRule rule;
};

static_assert(std::min({sizeof(Pd), sizeof(Mr), sizeof(Mw), sizeof(Dm),
                        sizeof(Ah), sizeof(Channel), sizeof(Cq), sizeof(Srq),
                        sizeof(ibv_qp), sizeof(Td), sizeof(Xrcd), sizeof(Wq),
                        sizeof(RwqTable), sizeof(Counters), sizeof(Flow),
                        sizeof(CompletionCounter)}) >= kMinObjectSize);

// Entries of a memory key that fit a work request, whatever the queue pair's
// `max_inline_data` (mlx5dv_wr_post(3)).
inline constexpr uint32_t kMinMkeyEntries = 4;

// The setters of mlx5dv_wr_mkey_configure(3) that were called and will be.
struct MkeySetters {
  uint8_t left = 0;
  bool has_access = false;
  bool has_layout = false;
  bool has_signature = false;
  bool may_have_signature = false;  // the memory key was created for it
  uint16_t max_entries = 0;         // of the memory key
  rxe_user::SignatureConfig signature = {};
};

// The requests between ibv_wr_start and ibv_wr_complete. The vectors keep their
// memory between critical regions.
struct WorkBuilder {
  // Where the data of a request is. Offsets, because the vectors may move.
  struct Data {
    size_t first_sge = 0;
    size_t num_sge = 0;
    size_t first_inline = 0;
    size_t first_header = 0;  // of segments, among the inline bytes
    size_t header_size = 0;
    bool is_set = false;
    bool is_addressed = false;
    transport::AddressVector av;  // of a datagram
    ibv_mw* window = nullptr;     // the window to bind
    MkeySetters mkey;             // of the configuration of a memory key
  };
  std::mutex critical;  // held from start to complete or abort
  bool active = false;
  int error = 0;  // of the first invalid call
  // `error` only means that the last memory key lacks setters. Valid if `error`
  // is not 0.
  bool is_unfinished = false;
  std::vector<transport::SendRequest> requests;
  std::vector<Data> data;  // of each request
  std::vector<transport::Sge> sges;
  std::vector<uint8_t> inline_bytes;
};

// The application holds a pointer to a part of it: an ibv_qp, or the ibv_qp_ex
// that begins with one.
struct Qp {
  explicit Qp(ibv_qp* base) : base(base) {}
  virtual ~Qp() = default;
  virtual ibv_qp_ex* extended() { return nullptr; }

  ibv_qp* const base;
  Context* owner = nullptr;
  // Null after its context is closed. The handles of an XRC target share it.
  std::shared_ptr<rxe_user::QueuePair> pair;
  Xrcd* xrcd = nullptr;       // of an XRC target
  RwqTable* table = nullptr;  // it receives through this table
  rxe_user::EventAccount account;
  size_t place = 0;  // its index in `qps` of its context
};

// The mutex of the context is held. The first may throw bad_alloc. The second
// does nothing if the context no longer lists it.
inline void AddQp(Context* context, Qp* qp) {
  qp->place = context->qps.size();
  context->qps.push_back(qp);
}
inline void RemoveQp(Context* context, Qp* qp) {
  std::vector<Qp*>& qps = context->qps;
  if (qp->place >= qps.size() || qps[qp->place] != qp) return;
  qps[qp->place] = qps.back();
  qps[qp->place]->place = qp->place;
  qps.pop_back();
}

struct PlainQp final : Qp {
  PlainQp() : Qp(&part) {}
  ibv_qp part = {};
};

// struct ibv_qp_ex of rdma-core 45 and newer, with wr_flush.
template <typename Header>
struct WithFlush : Header {
  void (*wr_flush)(struct ibv_qp_ex* qp, uint32_t rkey, uint64_t remote_addr,
                   size_t length, uint8_t type, uint8_t level);
};
template <typename Header>
requires requires(Header header) { header.wr_flush; }
struct WithFlush<Header> : Header {};

// Whether it was created with send_ops_flags.
struct ExtendedQp final : Qp {
  struct Part : WithFlush<ibv_qp_ex> {
    ExtendedQp* self;
  };

  explicit ExtendedQp(uint64_t send_ops);
  ibv_qp_ex* extended() override { return &part; }

  const uint64_t send_ops;
  WorkBuilder builder;
  // Of libmlx5; null: none. Guarded by the mutex of the context.
  std::unique_ptr<Mlx5Extension> extension;
  // The addresses that its raw WQEs sent from. Guarded by `builder.critical`.
  std::unordered_map<wire::IpAddress, rxe_user::HeldAddress> raw_sources;
  Part part = {};
};

// --- Arguments.

// Reads an enumeration that the application filled in: it may hold any number.
template <typename Enum>
int Raw(const Enum& value) {
  static_assert(std::is_enum_v<Enum> && sizeof(Enum) == sizeof(int));
  int number;
  std::memcpy(&number, &value, sizeof(number));
  return number;
}

// Reads a field once. Other threads of the application may change it at any
// time; the checks and the use must see one value.
template <typename T>
T ReadOnce(const T& field) {
  T value;
  __atomic_load(&field, &value, __ATOMIC_RELAXED);
  return value;
}

// --- Results.

// For functions that return an errno value. errno is set too, because programs
// read it, as after a library whose calls end in an ioctl.
inline int Refuse(int error) {
  errno = error;
  return error;
}
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

// Runs `body` and lets no exception out. Out of memory becomes
// `failed(ENOMEM)`.
template <typename Body, typename Failed>
auto NoThrow(Body&& body, Failed&& failed) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (...) {
    return failed(ENOMEM);
  }
}
// For posting. Returns an errno value and sets errno as Refuse does. `function`
// is the name of the caller; do not pass it.
template <typename Body>
int PostCall(Body&& body,
             const char* function = __builtin_FUNCTION()) noexcept {
  const int error = NoThrow(body, [](int failed) { return failed; });
  if (error == 0) return 0;
  ReportRefusal(function, error);
  return Refuse(error);
}

// --- Cancellation. No function of the C ABI is a cancellation point: each uses
// one of the wrappers below or its own NoCancellation. Two kinds need neither:
// functions that wait for events are cancellation points, and posting and
// polling make no system call except under a lane's lock or by syscall(2).
using rxe_user::NoCancellation;

// For functions that return an errno value. Sets errno on failure, as Refuse
// does, and leaves it alone otherwise.
template <typename Body>
int ErrnoCall(Body&& body,
              const char* function = __builtin_FUNCTION()) noexcept {
  const int before = errno;
  const NoCancellation no_cancellation;
  const int64_t began = CallBegins();
  const int error = PostCall(
      [&]() -> int {
        if (const int failed = FailOnCommand(function)) return failed;
        return body();
      },
      function);
  if (began != 0) CallEnds(function, began, error, error);
  if (error == 0) errno = before;
  return error;
}
// The same for functions that return a pointer; null on failure.
template <typename Body>
auto PointerCall(Body&& body,
                 const char* function = __builtin_FUNCTION()) noexcept
    -> decltype(body()) {
  const int before = errno;
  const NoCancellation no_cancellation;
  const int64_t began = CallBegins();
  const auto result = NoThrow(
      [&]() -> decltype(body()) {
        if (const int failed = FailOnCommand(function)) return Fail(failed);
        return body();
      },
      [](int error) -> decltype(body()) { return Fail(error); });
  if (result != nullptr) {
    NoteMade(result);
    errno = before;
  } else {
    ReportRefusal(function, errno);
  }
  if (began != 0) {
    CallEnds(function, began, result != nullptr, result ? 0 : errno);
  }
  return result;
}

// --- Entries of the function tables. The files that define them document them.
void InitContextOps(Context* context);
int PollCq(ibv_cq* cq, int count, ibv_wc* wc);
int ReqNotifyCq(ibv_cq* cq, int solicited_only);
int ModifyCq(ibv_cq* cq, ibv_modify_cq_attr* attr);
ibv_cq_ex* CreateCqEx(ibv_context* context, ibv_cq_init_attr_ex* attr);
int PostSend(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int PostRecv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int PostSrqRecv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
ibv_qp* CreateQpEx(ibv_context* context, ibv_qp_init_attr_ex* attr);
// The same with the attributes of mlx5dv_create_qp(3).
ibv_qp* CreateMlx5Qp(ibv_context* context, ibv_qp_init_attr_ex* attr,
                     const Mlx5QpAttributes& mlx5);
ibv_srq* CreateSrqEx(ibv_context* context, ibv_srq_init_attr_ex* attr);
// Creates a handle of `region`. Returns null and ENOMEM if there are too many.
ibv_mr* ShowMr(Pd* pd, std::shared_ptr<rxe_user::MemoryRegion> region);
ibv_mr* AllocNullMr(ibv_pd* pd);
ibv_mw* AllocMw(ibv_pd* pd, ibv_mw_type type);
int DeallocMw(ibv_mw* mw);
int BindMw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
// Makes `request` bind the type 2 window `ibv` under the key `rkey`. Returns 0,
// or EINVAL: not live objects of one context, or not a key of that window.
int ToBindRequest(const Qp& qp, ibv_mw* ibv, uint32_t rkey,
                  const ibv_mw_bind_info& info,
                  transport::SendRequest* request);
// Call after posting. `rkey` is what ToBindRequest stored in the request.
void ShowBoundKey(ibv_mw* ibv, uint32_t rkey);
int AdviseMr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags,
             ibv_sge* list, uint32_t count);
ibv_dm* AllocDm(ibv_context* context, ibv_alloc_dm_attr* attr);
int FreeDm(ibv_dm* dm);
ibv_mr* RegDmMr(ibv_pd* pd, ibv_dm* dm, uint64_t offset, size_t length,
                unsigned int access);
int GetSrqNum(ibv_srq* srq, uint32_t* number);
ibv_td* AllocTd(ibv_context* context, ibv_td_init_attr* attr);
int DeallocTd(ibv_td* td);
ibv_pd* AllocParentDomain(ibv_context* context,
                          ibv_parent_domain_init_attr* attr);
ibv_xrcd* OpenXrcd(ibv_context* context, ibv_xrcd_init_attr* attr);
int CloseXrcd(ibv_xrcd* xrcd);
ibv_qp* OpenQp(ibv_context* context, ibv_qp_open_attr* attr);
int ModifyQpRateLimit(ibv_qp* qp, ibv_qp_rate_limit_attr* attr);
ibv_flow* CreateFlow(ibv_qp* qp, ibv_flow_attr* attr);
int DestroyFlow(ibv_flow* flow);
// Removes its rule; does nothing if the rule is gone.
void EndFlow(Flow* flow);
ibv_counters* CreateCounters(ibv_context* context,
                             ibv_counters_init_attr* attr);
int DestroyCounters(ibv_counters* counters);
int AttachCounters(ibv_counters* counters, ibv_counter_attach_attr* attr,
                   ibv_flow* flow);
int ReadCounters(ibv_counters* counters, uint64_t* values, uint32_t count,
                 uint32_t flags);
ibv_wq* CreateWq(ibv_context* context, ibv_wq_init_attr* attr);
int ModifyWq(ibv_wq* wq, ibv_wq_attr* attr);
int DestroyWq(ibv_wq* wq);
ibv_rwq_ind_table* CreateRwqTable(ibv_context* context,
                                  ibv_rwq_ind_table_init_attr* attr);
int DestroyRwqTable(ibv_rwq_ind_table* table);
// Returns 0 or errno.
int ToRxHash(const RwqTable& table, const ibv_rx_hash_conf& conf,
             std::shared_ptr<const transport::RxHash>* out);
int QueryPort(ibv_context* context, uint8_t port, ibv_port_attr* attr,
              size_t size);
int QueryDeviceEx(ibv_context* context, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size);
int QueryRtValues(ibv_context* context, ibv_values_ex* values);

// Fills the caller's fields of an address vector. EINVAL: no GRH, a port other
// than 1, a GID index beyond the table, or no GID of the peer if it
// `names_peer`.
int ToAddressVector(const Context& context, const ibv_ah_attr& attr,
                    transport::AddressVector* av, bool names_peer = true);

// Waits until `*completed` has reached `taken`.
void WaitForAcks(pthread_mutex_t* mutex, pthread_cond_t* cond,
                 const uint32_t* completed, uint32_t taken);

// Copies the members that have one name, and the same values, in ibv_qp_attr,
// transport::QpAttributes and ib_uverbs_qp_attr.
template <typename From, typename To>
void CopyQpAttributes(const From& from, To* to) {
  to->qkey = from.qkey;
  to->pkey_index = from.pkey_index;
  to->alt_pkey_index = from.alt_pkey_index;
  to->en_sqd_async_notify = from.en_sqd_async_notify;
  to->max_rd_atomic = from.max_rd_atomic;
  to->max_dest_rd_atomic = from.max_dest_rd_atomic;
  to->min_rnr_timer = from.min_rnr_timer;
  to->port_num = from.port_num;
  to->timeout = from.timeout;
  to->retry_cnt = from.retry_cnt;
  to->rnr_retry = from.rnr_retry;
  to->alt_port_num = from.alt_port_num;
  to->alt_timeout = from.alt_timeout;
}

// The MTU of an ABI code, in bytes; 0 for an invalid code.
inline uint32_t MtuBytes(int code) {
  return code >= IBV_MTU_256 && code <= IBV_MTU_4096 ? 128u << code : 0;
}
// The code of the largest MTU that fits into `bytes`; the smallest code if none
// does.
inline ibv_mtu MtuCode(uint32_t bytes) {
  constexpr int kBefore = std::bit_width(128u);
  return static_cast<ibv_mtu>(std::clamp<int>(std::bit_width(bytes) - kBefore,
                                              IBV_MTU_256, IBV_MTU_4096));
}

// The scatter/gather entries of verbs and transport have one layout.
inline std::span<const transport::Sge> ToSges(const ibv_sge* list,
                                              size_t count) {
  return {reinterpret_cast<const transport::Sge*>(list), count};
}

// Posts receives to a queue pair, a shared receive queue or a work queue under
// one hold of its lock. The scatter list is copied unchecked.
template <typename Posting>
int PostReceives(Posting* posting, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  for (; wr != nullptr; wr = wr->next) {
    const ibv_sge* const list = wr->sg_list;
    const int count = ReadOnce(wr->num_sge);
    int error = EINVAL;
    if (count >= 0 && (count == 0 || list != nullptr)) {
      error = posting->Receive(
          {wr->wr_id, ToSges(list, static_cast<size_t>(count))});
    }
    if (error != 0) {
      if (bad != nullptr) *bad = wr;
      return error;
    }
  }
  return 0;
}

// The scatter/gather entries of a send request that is being posted. Each is
// read once.
class SgeCopy {
 public:
  // EINVAL: a negative count, more than any queue accepts, or no list.
  int Read(const ibv_sge* list, int count) {
    if (count < 0 || count > transport::kMaxSge ||
        (count > 0 && list == nullptr)) {
      return EINVAL;
    }
    for (int i = 0; i < count; ++i) {
      sges_[i] = {ReadOnce(list[i].addr), ReadOnce(list[i].length),
                  ReadOnce(list[i].lkey)};
    }
    count_ = static_cast<size_t>(count);
    return 0;
  }
  std::span<const transport::Sge> sges() const { return ToSges(sges_, count_); }

 private:
  ibv_sge sges_[transport::kMaxSge];  // uninitialized: most requests use one
  size_t count_ = 0;
};

}  // namespace verbs_api

#endif  // VERBS_API_LIBIBVERBS_ABI_H_
