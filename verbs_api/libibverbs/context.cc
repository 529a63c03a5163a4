// ibv_open_device(3), ibv_close_device(3), ibv_import_device(3).
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/needed_calls.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/objects/limits.h"
#include "rxe_user/observe/explainer.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/check.h"
#include "verbs_api/libibverbs/fault_ops.h"
#include "verbs_api/libibverbs/lookup.h"
#include "verbs_api/libibverbs/split_keys.h"
#include "verbs_api/libibverbs/trace.h"

namespace verbs_api {
namespace {

// The event that programs get for a link change. None for a change of the MTU,
// and none for changes before they could wait for events.
std::optional<int> EventOf(rxe_user::LinkChange change) {
  switch (change) {
    case rxe_user::LinkChange::kUp:
      return IBV_EVENT_PORT_ACTIVE;
    case rxe_user::LinkChange::kDown:
      return IBV_EVENT_PORT_ERR;
    case rxe_user::LinkChange::kAddresses:
      return IBV_EVENT_GID_CHANGE;
    case rxe_user::LinkChange::kMtu:
    case rxe_user::LinkChange::kUnknown:
      break;
  }
  return std::nullopt;
}

ibv_context* Open(ibv_device* device,
                  std::shared_ptr<rxe_user::Context> shared) {
  WatchForks();
  if (const absl::Status allowed = rxe_user::CheckNeededCalls();
      !allowed.ok()) {
    rxe_user::WarnOnce(std::string(allowed.message()));
    return Fail(rxe_user::ErrnoOf(allowed));
  }
  if (const int error = rxe_user::TallyError(); error != 0) return Fail(error);
  auto context = std::make_unique<Context>();
  // The C part must start as zeros; `new` leaves it uninitialized.
  std::memset(static_cast<verbs_context*>(context.get()), 0,
              sizeof(verbs_context));
  context->device = std::move(shared);
  context->guid = context->snapshot()->guid;
  context->mlx5 = context->snapshot()->mlx5;
  if (const int error = context->async.Open(); error != 0) return Fail(error);
  ibv_context& base = context->context;
  base.device = device;
  base.async_fd = context->async.fd();
  // The descriptor identifies the context across dup() and SCM_RIGHTS, for
  // ibv_import_device(3).
  rxe_user::UniqueFd identity(memfd_create("rxe_user", MFD_CLOEXEC));
  if (!identity.valid()) return Fail(errno);
  base.cmd_fd = identity.get();
  base.num_comp_vectors = rxe_user::kCompletionVectors;
  pthread_mutex_init(&base.mutex, nullptr);
  base.abi_compat = __VERBS_ABI_IS_EXTENDED;
  context->sz = sizeof(verbs_context);
  InitContextOps(context.get());
  rxe_user::Context* const changed = context->device.get();
  rxe_user::EventQueue* const async = &context->async;
  context->link_listener = changed->engine().AddLinkListener(
      [changed, async](rxe_user::LinkChange change) {
        changed->DeviceChanged();
        if (const std::optional<int> event = EventOf(change)) {
          async->Post({*event, nullptr, kPort, nullptr});
        }
      });
  absl::Cleanup forget = [&] { context->faults.reset(); };
  context->faults = ContextFaults::Create(context->device, context->async);
  // The device may have changed since it was listed, before we listened.
  changed->DeviceChanged();
  absl::Cleanup stop = [&] {
    changed->engine().RemoveLinkListener(context->link_listener);
  };
  SetLive(context.get(), true);
  changed->engine().EnterContext();
  std::move(stop).Cancel();
  std::move(forget).Cancel();
  (void)identity.Release();
  return &context.release()->context;
}

}  // namespace

void InitContextOps(Context* context) {
  ibv_context_ops& ops = context->context.ops;
  ops.alloc_mw = AllocMw;
  ops.bind_mw = BindMw;
  ops.dealloc_mw = DeallocMw;
  ops.poll_cq = PollCq;
  ops.req_notify_cq = ReqNotifyCq;
  ops.post_srq_recv = PostSrqRecv;
  ops.post_send = PostSend;
  ops.post_recv = PostRecv;
  if (rxe_user::ProcessTracer() != nullptr) TraceOps(&ops);
  if (lint::Checker::OfProcess() != nullptr) {
    CheckOps(&ops);
    rxe_user::DeviceSpace& space = context->device->space();
    space.PutInFront([&](rxe_user::RegionTable& regions) {
      return SplitKeys(regions, &space.engine());
    });
  }
  if (auto* const faults = rxe_user::ProcessFaults::Find()) {
    context->device->space().FollowFaults(*faults);
  }
  FaultOps(&ops);  // last: its functions call those before them
  // Entries that stay null make the header return EOPNOTSUPP.
  context->query_port = QueryPort;
  context->query_device_ex = QueryDeviceEx;
  context->query_rt_values = QueryRtValues;
  context->create_cq_ex = CreateCqEx;
  context->modify_cq = ModifyCq;
  context->create_qp_ex = CreateQpEx;
  context->create_srq_ex = CreateSrqEx;
  context->alloc_null_mr = AllocNullMr;
  context->advise_mr = AdviseMr;
  context->alloc_dm = AllocDm;
  context->free_dm = FreeDm;
  context->reg_dm_mr = RegDmMr;
  context->alloc_td = AllocTd;
  context->dealloc_td = DeallocTd;
  context->alloc_parent_domain = AllocParentDomain;
  context->open_xrcd = OpenXrcd;
  context->close_xrcd = CloseXrcd;
  context->get_srq_num = GetSrqNum;
  context->open_qp = OpenQp;
  context->modify_qp_rate_limit = ModifyQpRateLimit;
  context->ibv_create_flow = CreateFlow;
  context->ibv_destroy_flow = DestroyFlow;
  context->create_counters = CreateCounters;
  context->destroy_counters = DestroyCounters;
  context->attach_counters_point_flow = AttachCounters;
  context->read_counters = ReadCounters;
  context->create_wq = CreateWq;
  context->modify_wq = ModifyWq;
  context->destroy_wq = DestroyWq;
  context->create_rwq_ind_table = CreateRwqTable;
  context->destroy_rwq_ind_table = DestroyRwqTable;
}

VERBS_EXPORT ibv_context* ibv_open_device(ibv_device* device) {
  return PointerCall([&]() -> ibv_context* {
    auto found = FindDevice(device);
    if (found == nullptr) return Fail(EINVAL);
    return Open(device, std::make_shared<rxe_user::Context>(std::move(found)));
  });
}

// Works within this process only: the memory of another process is out of
// reach.
VERBS_EXPORT ibv_context* ibv_import_device(int cmd_fd) {
  return PointerCall([&]() -> ibv_context* {
    struct stat wanted;
    if (fstat(cmd_fd, &wanted) != 0) return Fail(EBADF);
    ibv_device* device = nullptr;
    std::shared_ptr<rxe_user::Context> shared;
    ForEachLiveContext([&](const Context& context) {
      struct stat its;
      if (fstat(context.context.cmd_fd, &its) == 0 &&
          its.st_dev == wanted.st_dev && its.st_ino == wanted.st_ino) {
        device = context.context.device;
        shared = context.device;
      }
    });
    return shared != nullptr ? Open(device, std::move(shared)) : Fail(ENODEV);
  });
}

// Like the kernel when the last descriptor is closed: traffic ends at once.
// Pointers to objects that the application did not destroy stay valid for
// destroying.
VERBS_EXPORT int ibv_close_device(ibv_context* ibv) {
  const int before = errno;
  const NoCancellation no_cancellation;
  if (IsInherited(ibv)) return 0;
  Context* context = Find(ibv);
  if (context == nullptr) return FailMinusOne(EINVAL);
  SetLive(context, false);
  rxe_user::AwaitExplanations();
  std::vector<Qp*> qps;
  std::unordered_set<Flow*> flows;
  std::unordered_set<uint32_t> reserved;
  {
    std::lock_guard<std::mutex> lock(context->mutex);
    qps.swap(context->qps);
    flows.swap(context->flows);
    reserved.swap(context->reserved_qpns);
  }
  for (const uint32_t qpn : reserved) {
    context->device->engine().ReleaseQpn(qpn);
  }
  for (Flow* flow : flows) EndFlow(flow);
  context->faults.reset();
  context->device->engine().RemoveLinkListener(context->link_listener);
  for (Qp* qp : qps) {
    if (qp->xrcd != nullptr) qp->pair->StopListening(&qp->account);
    qp->pair.reset();
  }
  context->async.Close();
  if (ibv->cmd_fd >= 0) close(ibv->cmd_fd);
  context->device->engine().LeaveContext();
  bool last;
  {
    std::lock_guard<std::mutex> lock(context->mutex);
    context->closed = true;
    last = context->objects == 0;
  }
  if (last) delete context;
  errno = before;
  return 0;
}

}  // namespace verbs_api
