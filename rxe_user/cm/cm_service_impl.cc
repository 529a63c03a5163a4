// The application's calls.
#include "rxe_user/cm/cm_service_impl.h"

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/random.h"

namespace rxe_user {
namespace {

using transport::cm::CmId;
using transport::cm::Event;
using transport::cm::EventKind;
using transport::cm::Result;

// The holder of all entries in own_services_.
constexpr uint8_t kUs = 0;
// IANA's range of dynamic ports, in which ports are chosen, and the number of
// ports to try.
constexpr uint32_t kFirstDynamicPort = 49152;
constexpr uint32_t kDynamicPorts = 65536 - kFirstDynamicPort;
constexpr int kPortTries = 256;

int ErrnoFor(Result result) {
  switch (result) {
    case Result::kOk:
      return 0;
    case Result::kUnknownId:
      return ENOENT;
    case Result::kQpnInUse:
      return EBUSY;
    case Result::kServiceInUse:
      return EADDRINUSE;
    case Result::kWrongState:
    case Result::kInvalid:
      break;
  }
  return EINVAL;
}

// The errno for a status of Slot::Reserve.
int ErrnoOfReserving(const absl::Status& status) {
  return status.ok()                         ? 0
         : absl::IsAlreadyExists(status)     ? EADDRINUSE
         : absl::IsDeadlineExceeded(status)  ? ETIMEDOUT
         : absl::IsResourceExhausted(status) ? ENOBUFS
                                             : ENODEV;
}

bool IsRequest(const Event& event) {
  return event.kind == EventKind::kRequest ||
         event.kind == EventKind::kServiceRequest;
}

}  // namespace

int CmServiceImpl::Call(absl::FunctionRef<Result(Manager&, Time)> call) {
  if (dead_) return ENODEV;
  if (!open_) return ENOENT;
  const std::lock_guard lock(mutex_);
  const Result result = call(*manager_, Now());
  Drain();
  if (manager_->HasEvents()) sockets_.Ring();
  return ErrnoFor(result);
}

void CmServiceImpl::WaitForHandler(std::unique_lock<std::mutex>& lock,
                                   const std::function<bool()>& matches) {
  if (dispatcher_ == std::this_thread::get_id()) return;
  done_->wait(lock, [&] { return !running_ || !matches(); });
}

// --- Neighbors.

int CmServiceImpl::AwaitNeighbor(const LocalAddress& local,
                                 const wire::IpAddress& remote, int timeout_ms,
                                 std::shared_ptr<NeighborHandler> handler,
                                 NeighborWait* wait) {
  if (dead_) return ENODEV;
  if (!open_) return EINVAL;
  const auto deadline =
      timeout_ms < 0
          ? NeighborWaits::Clock::time_point::max()
          : NeighborWaits::Clock::now() + std::chrono::milliseconds(timeout_ms);
  *wait = neighbors_.Begin(local, remote, deadline, std::move(handler));
  if (*wait == 0) return 0;
  // Ring wakes the control thread without needing memory.
  refresh_ = true;
  sockets_.Ring();
  return 0;
}

void CmServiceImpl::CancelNeighbor(NeighborWait wait) {
  if (!dead_) neighbors_.Cancel(wait);
}

// --- Services.

int CmServiceImpl::Reserve(const ServiceOptions& options, ServiceHandle* handle,
                           uint64_t* service_id) {
  // In a child of fork(), opening_ may stay locked.
  if (dead_) return ENODEV;
  const LocalAddress local = Normalized(options.local);
  {
    const std::lock_guard lock(opening_);
    if (const int error = Open(); error != 0) return error;
    if (!local.address.is_unspecified()) {
      if (const int error = OpenLocked(local); error != 0) return error;
    }
  }
  ServiceHandle mine;
  {
    const std::lock_guard lock(mutex_);
    do {
      mine = ++last_handle_;
    } while (mine == 0 || services_.contains(mine));
  }
  // Allocate first: a granted reservation must be recorded.
  decltype(services_) kept;
  kept.try_emplace(mine);
  Service service = {.service_id = options.service_id,
                     .mask = options.mask,
                     .local = local,
                     .ipv6_only = options.ipv6_only,
                     .reuse = options.reuse};
  // This also undoes a first reservation that was granted.
  absl::Cleanup undo = [&] {
    {
      const std::lock_guard lock(mutex_);
      own_services_.Remove(kUs, mine);
    }
    slot_->Unreserve(mine);
  };
  int error = EADDRINUSE;
  if (options.choose_port) {
    // Choose a port that no other service has, not even one that shares it.
    Service alone = service;
    alone.reuse = 0;
    const uint32_t start = SecureRandom32();
    for (int i = 0; i < kPortTries && error == EADDRINUSE; ++i) {
      const uint32_t port =
          kFirstDynamicPort +
          (start + static_cast<uint32_t>(i) * 0x9e5) % kDynamicPorts;
      alone.service_id = (options.service_id & ~uint64_t{0xffff}) | port;
      error = ReserveOne(mine, alone);
    }
    service.service_id = alone.service_id;
  }
  if (!options.choose_port || (error == 0 && options.reuse)) {
    error = ReserveOne(mine, service);
  }
  if (error != 0) return error;
  std::move(undo).Cancel();
  kept.begin()->second.service = service;
  const std::lock_guard lock(mutex_);
  services_.merge(kept);
  *handle = mine;
  if (service_id != nullptr) *service_id = service.service_id;
  return 0;
}

int CmServiceImpl::ReserveOne(ServiceHandle handle, const Service& service) {
  {
    const std::lock_guard lock(mutex_);
    if (!own_services_.Set(kUs, handle, service)) return EADDRINUSE;
  }
  return ErrnoOfReserving(slot_->Reserve(handle, service));
}

int CmServiceImpl::Share(ServiceHandle handle, bool ipv6_only, bool reuse) {
  if (dead_) return ENODEV;
  Service before;
  Service shared;
  {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(handle);
    if (found == services_.end()) return ENOENT;
    if (found->second.listener != 0) return EINVAL;
    before = shared = found->second.service;
    shared.ipv6_only = ipv6_only ? 1 : 0;
    shared.reuse = reuse ? 1 : 0;
    if (!own_services_.Set(kUs, handle, shared)) return EADDRINUSE;
  }
  const int error = ErrnoOfReserving(slot_->Reserve(handle, shared));
  const std::lock_guard lock(mutex_);
  const auto found = services_.find(handle);
  if (found == services_.end()) return ENOENT;
  if (error != 0) {
    (void)own_services_.Set(kUs, handle, before);
  } else {
    found->second.service = shared;
  }
  return error;
}

int CmServiceImpl::Listen(ServiceHandle handle, size_t backlog,
                          std::shared_ptr<CmEventHandler> handler) {
  if (dead_) return ENODEV;
  Service service;
  {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(handle);
    if (found == services_.end()) return ENOENT;
    if (found->second.listener != 0) return EINVAL;
    service = found->second.service;
  }
  if (service.local.address.is_unspecified()) {
    const std::lock_guard lock(opening_);
    const bool before = std::exchange(listens_all_, true);
    Watch();
    if (OpenAll(ListDevices()) == ETIMEDOUT) {
      listens_all_ = before;
      return ETIMEDOUT;
    }
  }
  Handler refused;  // destroyed without a lock held
  absl::Cleanup undo = [&] {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(handle);
    if (found == services_.end()) return;
    (void)own_services_.Set(kUs, handle, service);
    ServiceEntry& entry = found->second;
    if (entry.listener == 0) return;
    listening_.erase(entry.listener);
    (void)manager_->StopListening(std::exchange(entry.listener, 0));
    refused = std::move(entry.handler);
  };
  Service listening = service;
  listening.listening = 1;
  // Listen before the broker forwards requests.
  {
    const std::lock_guard lock(mutex_);
    const auto found = services_.find(handle);
    if (found == services_.end()) return ENOENT;
    ServiceEntry& entry = found->second;
    if (!own_services_.Set(kUs, handle, listening)) return EADDRINUSE;
    const Result result = manager_->Listen({.service_id = service.service_id,
                                            .mask = service.mask,
                                            .local = service.local.address,
                                            .ipv6_only = service.ipv6_only == 1,
                                            .backlog = backlog},
                                           &entry.listener);
    if (result != Result::kOk) return ErrnoFor(result);
    entry.handler = std::move(handler);
    listening_[entry.listener] = handle;
  }
  if (const absl::Status status = slot_->Reserve(handle, listening);
      !status.ok()) {
    return ErrnoOfReserving(status);
  }
  {
    const std::lock_guard lock(mutex_);
    if (services_.contains(handle)) {
      std::move(undo).Cancel();
      return 0;
    }
  }
  slot_->Unreserve(handle);  // the service was released meanwhile
  return ENOENT;
}

int CmServiceImpl::Release(ServiceHandle handle) {
  if (dead_) return ENODEV;
  ServiceEntry entry;  // its handler is destroyed without a lock held
  {
    std::unique_lock lock(mutex_);
    const auto found = services_.find(handle);
    if (found == services_.end()) return ENOENT;
    entry = std::move(found->second);
    services_.erase(found);
    own_services_.Remove(kUs, handle);
    if (entry.listener != 0) {
      listening_.erase(entry.listener);
      (void)manager_->StopListening(entry.listener);
      WaitForHandler(lock, [&] {
        return IsRequest(*next_) && next_->listener == entry.listener;
      });
    }
  }
  slot_->Unreserve(handle);
  return 0;
}

// --- Connections.

template <typename F>
int CmServiceImpl::Begin(const wire::IpAddress& local, Handler handler,
                         CmId* id, F&& make) {
  if (const int error = OpenAddress({local, 0}); error != 0) return error;
  // Allocate first: a new id must be recorded.
  decltype(handlers_) one;
  one.try_emplace(0, std::move(handler));
  auto kept = one.extract(one.begin());
  return Call([&](Manager& manager, Time now) {
    const Result result = make(manager, now);
    if (result != Result::kOk) return result;
    kept.key() = *id;
    handlers_.insert(std::move(kept));
    return result;
  });
}

int CmServiceImpl::Connect(const transport::cm::ConnectOptions& options,
                           std::shared_ptr<CmEventHandler> handler, CmId* id) {
  return Begin(
      options.local, std::move(handler), id,
      [&](Manager& m, Time now) { return m.Connect(options, now, id); });
}

int CmServiceImpl::Resolve(const transport::cm::ResolveOptions& options,
                           std::shared_ptr<CmEventHandler> handler, CmId* id) {
  return Begin(
      options.local, std::move(handler), id,
      [&](Manager& m, Time now) { return m.Resolve(options, now, id); });
}

int CmServiceImpl::SetHandler(CmId id,
                              std::shared_ptr<CmEventHandler> handler) {
  if (dead_) return ENODEV;
  const std::lock_guard lock(mutex_);
  const auto found = handlers_.find(id);
  if (found == handlers_.end()) return ENOENT;
  // The former handler is destroyed by the caller, without a lock held.
  found->second.swap(handler);
  return 0;
}

int CmServiceImpl::Destroy(CmId id) {
  Handler handler;  // destroyed without a lock held
  const int error = Call([&](Manager& manager, Time now) {
    const auto found = handlers_.find(id);
    if (found == handlers_.end()) return Result::kUnknownId;
    handler = std::move(found->second);
    handlers_.erase(found);
    return manager.Destroy(id, now);
  });
  if (error != 0) return error;
  std::unique_lock lock(mutex_);
  WaitForHandler(lock, [&] { return next_->id == id; });
  return 0;
}

// --- Getters.

std::optional<transport::cm::State> CmServiceImpl::state(CmId id) const {
  if (dead_ || !open_) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return manager_->state(id);
}

size_t CmServiceImpl::size() const {
  if (dead_ || !open_) return 0;
  const std::lock_guard lock(mutex_);
  return manager_->size();
}

transport::cm::Counters CmServiceImpl::counters() const {
  if (dead_ || !open_) return {};
  const std::lock_guard lock(mutex_);
  return manager_->counters();
}

}  // namespace rxe_user
