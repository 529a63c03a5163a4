#include "verbs_api/librdmacm/id.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/warn_once.h"
#include "verbs_api/libibverbs/interface.h"
#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/devices.h"
#include "verbs_api/librdmacm/registry.h"

namespace librdmacm {
namespace {

Registry<rdma_cm_id, Id>& Ids() {
  return rxe_user::OnlyOne<Registry<rdma_cm_id, Id>>();
}

// The queue pair type of a port space; absent for unknown numbers.
std::optional<ibv_qp_type> QpTypeOf(int port_space) {
  switch (port_space) {
    case RDMA_PS_TCP:
    case RDMA_PS_IB:
      return IBV_QPT_RC;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
      return IBV_QPT_UD;
  }
  return std::nullopt;
}

// Reports an interface change to the ids on its device.
void OnLinkChange(uint32_t interface, rxe_user::InterfaceChange change) {
  const rdma_cm_event_type type = change == rxe_user::InterfaceChange::kGone
                                      ? RDMA_CM_EVENT_DEVICE_REMOVAL
                                      : RDMA_CM_EVENT_ADDR_CHANGE;
  // All memory is allocated before the first id is told, so on failure the
  // whole call can be repeated.
  struct Notice {
    std::shared_ptr<Id> id;
    UnsentEvent event;
  };
  std::vector<Notice> all;
  for (const std::shared_ptr<Id>& id : Ids().All()) {
    std::lock_guard<std::mutex> lock(id->mutex);
    if (id->interface != interface || id->destroyed) continue;
    all.push_back({id, id->NewEvent(type)});
  }
  for (Notice& notice : all) {
    std::lock_guard<std::mutex> lock(notice.id->mutex);
    if (notice.id->interface != interface || notice.id->destroyed) continue;
    notice.id->Push(std::move(notice.event));
    // Removal is reported once.
    if (type == RDMA_CM_EVENT_DEVICE_REMOVAL) notice.id->interface = 0;
  }
  if (change == rxe_user::InterfaceChange::kGone) OnInterfaceGone(interface);
}

__attribute__((constructor)) void GuardAfterLibibverbs() {
  rxe_user::ForkGuard::RegisterAfter(&rxe_user_guard_files);
}

// A share that is never given up. After fork() the child keeps the parent's.
std::atomic<std::shared_ptr<rxe_user::CmService>*> kept = nullptr;

// Like the kernel at process exit, closes what is still open. Runs after the
// program's own handlers, and after rsockets (whose destructor has no priority)
// have sent their last messages.
__attribute__((destructor(1000))) void DestroyAll() {
  const auto* const service = kept.load();
  if (service != nullptr) (*service)->DestroyAll();
}

}  // namespace

std::shared_ptr<rxe_user::CmService> Service() {
  struct ServiceLock {
    rxe_user::ForkRenewedMutex mutex;
  };
  static pid_t owner = 0;
  std::lock_guard<rxe_user::ForkRenewedMutex> lock(
      rxe_user::OnlyOne<ServiceLock>().mutex);
  if (owner != getpid()) {
    auto service = std::make_unique<std::shared_ptr<rxe_user::CmService>>(
        rxe_user::CmService::Get(
            [] {
              absl::StatusOr<std::unique_ptr<rxe_user::Slot>> slot =
                  absl::UnavailableError("");
              rxe_user_acquire_slot(&slot);
              return slot;
            },
            rxe_user_packet_observer(), rxe_user_cm_faults()));
    (*service)->WatchLinks(&OnLinkChange);
    kept = service.release();
    owner = getpid();
  }
  return *kept.load();
}

Id::Id(rdma_port_space ps, ibv_qp_type type) {
  part.ps = ps;
  part.qp_type = type;
  attributes.local_psn = rxe_user::SecureRandom32() & 0xffffff;
}

int Id::StartExchange(absl::FunctionRef<int(transport::cm::CmId*)> start) {
  absl::Cleanup undo = [this] {
    std::lock_guard<std::mutex> lock(mutex);
    state = IdState::kRouteResolved;
  };
  if (const int error = service->OpenAddress(source.local())) return error;
  transport::cm::CmId started = 0;
  if (const int error = start(&started)) return error;
  std::move(undo).Cancel();
  std::lock_guard<std::mutex> lock(mutex);
  connection = started;
  return 0;
}

void Id::CountReported() {
  std::lock_guard<std::mutex> lock(ack_mutex_);
  ++unacknowledged_;
}

void Id::CountAcknowledged() {
  std::lock_guard<std::mutex> lock(ack_mutex_);
  --unacknowledged_;
  acknowledged_.notify_all();
}

void Id::AwaitAcknowledged() {
  std::unique_lock<std::mutex> lock(ack_mutex_);
  acknowledged_.wait(lock, [&] { return unacknowledged_ == 0; });
}

UnsentEvent Id::NewEvent(int type, int status) {
  UnsentEvent event;
  event->part.id = &part;
  event->SetType(type);
  event->part.status = status;
  event->owner = shared_from_this();
  return event;
}

void WarnInherited() {
  rxe_user::WarnOnce(
      "the event channel or id was made before fork() and stayed with the "
      "parent process; make it after forking");
}

std::shared_ptr<Id> FindId(const rdma_cm_id* id) {
  std::shared_ptr<Id> found = Ids().Find(id);
  if (found == nullptr && Ids().IsInherited(id)) WarnInherited();
  return found;
}

void PublishId(const std::shared_ptr<Id>& id) { Ids().Add(&id->part, id); }

void WithdrawId(const Id& id) { Ids().Remove(&id.part); }

int CreateId(rdma_event_channel* channel, void* context, int port_space,
             std::optional<ibv_qp_type> type, std::shared_ptr<Id>* out) {
  const std::optional<ibv_qp_type> usual = QpTypeOf(port_space);
  if (!usual.has_value()) return EINVAL;
  auto id = std::make_shared<Id>(static_cast<rdma_port_space>(port_space),
                                 type.value_or(*usual));
  id->synchronous = channel == nullptr;
  if (id->synchronous) {
    channel = rdma_create_event_channel();
    if (channel == nullptr) return errno;
  }
  absl::Cleanup undo = [&] {
    if (id->synchronous) rdma_destroy_event_channel(channel);
  };
  id->channel = FindChannel(channel);
  if (id->channel == nullptr) return EINVAL;
  id->service = Service();
  id->part.channel = channel;
  id->part.context = context;
  PublishId(id);
  std::move(undo).Cancel();
  *out = std::move(id);
  return 0;
}

namespace {

// Gives back the device of an id that EndId has ended: nothing of the id uses
// it any more.
void ReleaseDeviceOf(Id& id) {
  std::shared_ptr<const void> share;
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    share.swap(id.device);
  }
  ReleaseDevice(std::move(share));
}

}  // namespace

void EndId(Id& id) {
  std::lock_guard<std::mutex> calls(id.calls);
  std::shared_ptr<EventChannel> channel;
  std::optional<AddressResolution> resolution;  // destroyed without the lock
  {
    std::lock_guard<std::mutex> lock(id.mutex);
    id.destroyed = true;
    channel = id.channel;
    resolution.swap(id.address_resolution);
  }
  if (resolution.has_value()) id.service->CancelNeighbor(resolution->wait);
  // Both calls wait for events in progress. No event comes afterwards.
  if (id.connection != 0) id.service->Destroy(id.connection);
  if (id.reserved != 0) id.service->Release(id.reserved);
  for (const std::shared_ptr<Event>& event : channel->Withdraw(&id)) {
    Discard(*event);
  }
}

void Discard(Event& event) {
  if (event.request == nullptr) return;
  Ids().Remove(&event.request->part);
  EndId(*event.request);
  ReleaseDeviceOf(*event.request);
}

CM_EXPORT int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id,
                             void* context, rdma_port_space ps) {
  return Call([&]() -> int {
    if (id == nullptr) return EINVAL;
    // The enumeration may hold any number.
    int number;
    static_assert(sizeof(number) == sizeof(ps));
    std::memcpy(&number, &ps, sizeof(number));
    std::shared_ptr<Id> created;
    if (const int error =
            CreateId(channel, context, number, std::nullopt, &created)) {
      return error;
    }
    *id = &created->part;
    return 0;
  });
}

CM_EXPORT int rdma_destroy_id(rdma_cm_id* pointer) {
  return Call([&] {
    const std::shared_ptr<Id> id = Ids().Remove(pointer);
    if (id == nullptr) return Ids().IsInherited(pointer) ? 0 : EINVAL;
    if (id->synchronous) AcknowledgeOwn(&id->part);
    EndId(*id);
    id->AwaitAcknowledged();
    ReleaseDeviceOf(*id);
    if (id->synchronous) rdma_destroy_event_channel(id->part.channel);
    return 0;
  });
}

namespace {

// Moves `id` and its events to `channel`. Requests that the application has not
// seen move with their listener. Returns the old channel.
std::shared_ptr<EventChannel> Move(Id& id,
                                   const std::shared_ptr<EventChannel>& channel,
                                   bool synchronous) {
  std::lock_guard<std::mutex> lock(id.mutex);
  std::shared_ptr<EventChannel> old = std::exchange(id.channel, channel);
  id.part.channel = channel->part();
  id.synchronous = synchronous;
  Events events = old->Withdraw(&id);
  while (!events.empty()) {
    Events first;
    first.splice(first.end(), events, events.begin());
    const std::shared_ptr<Id> request = first.front()->request;
    channel->Push(std::move(first));
    if (request != nullptr) Move(*request, channel, false);
  }
  return old;
}

}  // namespace

CM_EXPORT int rdma_migrate_id(rdma_cm_id* pointer,
                              rdma_event_channel* to_channel) {
  return Call([&]() -> int {
    const std::shared_ptr<Id> id = FindId(pointer);
    if (id == nullptr) return EINVAL;
    const bool synchronous = to_channel == nullptr;
    std::shared_ptr<EventChannel> old;
    bool was_synchronous;
    {
      std::lock_guard<std::mutex> calls(id->calls);
      if (id->destroyed || (synchronous && id->synchronous)) return EINVAL;
      if (synchronous) to_channel = rdma_create_event_channel();
      if (to_channel == nullptr) return errno;
      const std::shared_ptr<EventChannel> channel = FindChannel(to_channel);
      if (channel == nullptr) return EINVAL;
      was_synchronous = id->synchronous;
      if (was_synchronous) AcknowledgeOwn(&id->part);
      old = Move(*id, channel, synchronous);
    }
    // As the manual page requires.
    id->AwaitAcknowledged();
    if (was_synchronous) rdma_destroy_event_channel(old->part());
    return 0;
  });
}

}  // namespace librdmacm
