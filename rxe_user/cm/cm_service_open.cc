// The start of the service, and the addresses that it serves.
#include <algorithm>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/cm/cm_report.h"
#include "rxe_user/cm/cm_service_impl.h"
#include "rxe_user/devices/device.h"

namespace rxe_user {
namespace {

// The service keeps the sockets of up to this many addresses that the
// interfaces no longer have, since addresses may return.
constexpr size_t kKeptAddresses = 32;

int ErrnoFor(const absl::Status& status) {
  if (status.ok()) return 0;
  if (const int error = ErrnoOf(status); error != 0) return error;
  if (absl::IsNotFound(status)) return EADDRNOTAVAIL;
  return ENODEV;
}

}  // namespace

uint32_t CmServiceImpl::Random::Next32() { return SecureRandom32(); }

CmServiceImpl::CmServiceImpl(AcquireSlot acquire_slot,
                             const transport::cm::Config& config,
                             transport::PacketObserver* observer,
                             CmFaults* faults)
    : ForkGuard(ForkLevel::kEngines),
      acquire_slot_(std::move(acquire_slot)),
      observer_(observer),
      faults_(faults),
      config_(config),
      sockets_(observer) {
  EnterForkGuard();
}

CmServiceImpl::~CmServiceImpl() {
  owned_control_.reset();
  if (open_ && !dead_) {
    const std::lock_guard lock(mutex_);
    DestroyAllLocked();
  }
  slot_.reset();
  LeaveForkGuard();
}

void CmServiceImpl::DestroyAllLocked() {
  for (const auto& [id, handler] : handlers_) {
    (void)manager_->Destroy(id, Now());
    Drain();  // makes space for the next one's MADs
  }
  // Send MADs that were held back, since no thread will send them later.
  manager_->SendAllHeldBack(Now());
  Drain();
}

void CmServiceImpl::DestroyAll() {
  if (!open_ || dead_) return;
  // The wait is limited: a signal handler may call exit in a thread that holds
  // the mutex.
  std::unique_lock lock(mutex_, std::try_to_lock);
  const Time end = Now() + 100 * transport::kMillisecond;
  while (!lock.owns_lock() && Now() < end) {
    std::this_thread::yield();
    (void)lock.try_lock();
  }
  if (lock.owns_lock()) DestroyAllLocked();
}

void CmServiceImpl::AfterForkInChild() {
  dead_ = true;
  // The destructor would wait for threads that do not exist here.
  (void)done_.release();
  mutex_.unlock();
}

transport::Time CmServiceImpl::Now() {
  return std::chrono::nanoseconds(
             ControlThread::Clock::now().time_since_epoch())
      .count();
}

int CmServiceImpl::Open() {
  if (dead_) return ENODEV;
  if (open_) return 0;
  const absl::Status status = Start();
  if (status.ok()) return 0;
  WarnOnce("no connection manager: " + std::string(status.message()));
  return ErrnoFor(status);
}

absl::Status CmServiceImpl::Start() {
  absl::StatusOr<std::unique_ptr<Slot>> slot = acquire_slot_();
  if (!slot.ok()) return slot.status();
  if (absl::Status bell = sockets_.OpenBell(); !bell.ok()) return bell;
  absl::StatusOr<std::unique_ptr<ControlThread>> control =
      ControlThread::Start();
  if (!control.ok()) return control.status();
  // Undone if there is no memory for the rest.
  absl::Cleanup undo = [this] {
    owned_control_.reset();
    stat_server_.reset();
    slot_.reset();
    const std::lock_guard lock(mutex_);
    manager_.reset();
  };
  slot_ = *std::move(slot);
  slot_->TakeManagement();
  owned_control_ = *std::move(control);
  control_ = owned_control_.get();
  config_.id_prefix = slot_->number();
  {
    const std::lock_guard lock(mutex_);
    manager_.emplace(config_, &random_);
  }
  // Ring needs no memory. Calls that release services get here, too.
  slot_->OnChange([this] {
    refresh_ = true;
    sockets_.Ring();
  });
  slot_->TellConnections([this] { return OpenConnections(); });
  control_->Add({.fd = [this] { return slot_->fd(); },
                 .time = [this] { return slot_->retry_at(); },
                 .run = [this] { OnBroker(); }});
  control_->Add({.fd = [this] { return sockets_.bell(); },
                 .time =
                     [this] {
                       const Time deadline = deadline_;
                       return deadline == transport::kNever
                                  ? ControlThread::Clock::time_point::max()
                                  : ControlThread::Clock::time_point(
                                        std::chrono::nanoseconds(deadline));
                     },
                 .run = [this] { OnBell(); }});
  control_->Add({.fd = [this] { return sockets_.watch(); },
                 .time = [this] { return changes_retry_; },
                 .run = [this] { OnAddresses(); }});
  control_->Add({.fd = [this] { return neighbors_.fd(); },
                 .time = [this] { return neighbors_.time(); },
                 .run = [this] { neighbors_.Run(); }});
  if (auto stat = StatServer::Open(
          [this] { return ReportText(ReportOf(size(), counters())); });
      stat.ok()) {
    stat_server_ = *std::move(stat);
    control_->Add({.fd = [this] { return stat_server_->fd(); },
                   .time = [this] { return stat_server_->time(); },
                   .run = [this] { stat_server_->OnReadable(); }});
  }
  if (on_link_ != nullptr) Watch();
  std::move(undo).Cancel();
  open_ = true;
  return absl::OkStatus();
}

std::vector<OpenConnection> CmServiceImpl::OpenConnections() const {
  std::vector<OpenConnection> out;
  const std::lock_guard lock(mutex_);
  for (const transport::cm::ConnectedPeer& peer : manager_->Connected()) {
    out.push_back(OpenOf(peer));
  }
  return out;
}

OpenConnection CmServiceImpl::OpenOf(const transport::cm::ConnectedPeer& peer) {
  return {.local = {peer.local, 0},
          .peer = peer.remote,
          .local_id = peer.id,
          .remote_id = peer.remote_comm_id,
          .remote_qpn = peer.remote_qpn};
}

void CmServiceImpl::WatchLinks(OnLinkChange on_change) {
  if (dead_) return;
  const std::lock_guard lock(opening_);
  if (!open_) on_link_ = std::move(on_change);
}

void CmServiceImpl::Watch() {
  if (watching_) return;
  sockets_.OpenWatch();
  control_->Refresh();
  watching_ = true;
}

int CmServiceImpl::OpenAddress(const LocalAddress& given) {
  if (dead_) return ENODEV;
  const LocalAddress local = Normalized(given);
  if (open_ && sockets_.Has(local)) return 0;
  const std::lock_guard lock(opening_);
  if (const int error = Open(); error != 0) return error;
  return OpenLocked(local);
}

int CmServiceImpl::OpenLocked(const LocalAddress& local) {
  if (sockets_.Has(local)) return 0;
  if (local.address.is_unspecified()) return EINVAL;
  absl::StatusOr<int> socket = slot_->OpenAddress(local);
  if (!socket.ok()) return ErrnoFor(socket.status());
  // An open address must have a thread that reads it, so it is removed if that
  // fails.
  absl::Cleanup undo = [&] {
    sockets_.Remove(local);
    slot_->CloseAddress(local);
  };
  const absl::StatusOr<uint64_t> number =
      sockets_.Add(local, UniqueFd(*socket));
  if (!number.ok()) return ErrnoFor(number.status());
  const CmSockets::Opened opened = {local, *number};
  std::vector<ControlThread::Source> sources(2);
  sources[0].fd = [this, opened] {
    return slot_->ManagementOf(opened.local) == Slot::Management::kOtherSlot
               ? -1
               : sockets_.Received(opened);
  };
  sources[0].run = [this, opened] { OnSocket(opened); };
  sources[0].owner = *number;
  sources[1].fd = [this, opened] { return sockets_.Sender(opened); };
  sources[1].run = [this, opened] { OnUndelivered(opened); };
  sources[1].owner = *number;
  control_->AddAll(std::move(sources));
  std::move(undo).Cancel();
  if (sockets_.size() > kKeptAddresses) {
    close_gone_addresses_ = true;
    sockets_.Ring();
  }
  return 0;
}

bool CmServiceImpl::IsUsed(const LocalAddress& local) const {
  const std::lock_guard lock(mutex_);
  return manager_->Uses(local.address) ||
         std::ranges::any_of(services_, [&](const auto& s) {
           return s.second.service.local == local;
         });
}

void CmServiceImpl::CloseGoneAddresses() {
  const absl::StatusOr<Devices> devices = ListDevicesAgain();
  if (!devices.ok()) return;
  const auto is_there = [&](const LocalAddress& local) {
    return std::ranges::any_of(*devices, [&](const auto& device) {
      return std::ranges::any_of(device->gids, [&](const LocalAddress& gid) {
        return Normalized(gid) == local;
      });
    });
  };
  for (const CmSockets::Opened& opened : sockets_.All()) {
    if (sockets_.size() <= kKeptAddresses) return;
    if (is_there(opened.local) || IsUsed(opened.local)) continue;
    control_->Remove(opened.number);
    sockets_.Remove(opened.local);
    slot_->CloseAddress(opened.local);
  }
}

int CmServiceImpl::OpenAll(const absl::StatusOr<Devices>& devices) {
  if (!devices.ok()) return ErrnoFor(devices.status()) == ENOMEM ? ENOMEM : 0;
  int result = 0;
  for (const auto& device : *devices) {
    for (const LocalAddress& local : device->gids) {
      if (local.address.is_unspecified()) continue;
      const int error = OpenLocked(Normalized(local));
      // The broker does not answer: the next would wait as long again.
      if (error == ETIMEDOUT) return error;
      if (error == ENOMEM) result = error;
    }
  }
  return result;
}

}  // namespace rxe_user
