#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/observe/report_text.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::Time;

constexpr int kLanes = 1;

absl::Status ForkedStatus() {
  return absl::FailedPreconditionError(
      "the device was opened before fork() and stayed with the parent process; "
      "open it after forking");
}

}  // namespace

uint32_t FlowLabelOf(uint32_t local_qpn, uint32_t remote_qpn) {
  uint64_t v = uint64_t{local_qpn} * remote_qpn;
  v ^= v >> 20;
  v ^= v >> 40;
  return static_cast<uint32_t>(v & 0xfffff);
}

uint16_t SourcePortOf(uint32_t flow_label) {
  return static_cast<uint16_t>(((flow_label & 0x3fff) ^ (flow_label >> 14)) |
                               0xc000);
}

EngineImpl::EngineImpl(std::shared_ptr<const Device> device, Parts parts)
    : device_(std::move(device)), parts_(std::move(parts)) {
  for (int i = 0; i < kLanes; ++i) {
    lanes_.push_back(std::make_unique<LaneImpl>(&app_));
  }
}

EngineImpl::~EngineImpl() {
  if (!alive_) return;  // every part has been abandoned
  // The threads first: they use all the others.
  control_.reset();
  helper_.reset();
  for (auto& lane : lanes_) lane->Close();
}

// --- Opening.

absl::Status EngineImpl::EnsureOpen() {
  if (!alive_) return ForkedStatus();
  if (open_) return absl::OkStatus();
  absl::Status status = OpenParts();
  if (!status.ok()) {
    helper_.reset();
    for (auto& lane : lanes_) lane->Close();
    stat_server_.reset();
    slot_.reset();
  }
  return status;
}

absl::Status EngineImpl::OpenParts() {
  absl::StatusOr<std::unique_ptr<Slot>> slot = parts_.acquire_slot();
  if (!slot.ok()) return slot.status();
  slot_ = *std::move(slot);
  absl::StatusOr<std::unique_ptr<Port>> port = parts_.make_port();
  if (!port.ok()) return port.status();

  absl::StatusOr<std::unique_ptr<HelperThread>> helper =
      HelperThread::Create("rxe-user", [this] { return RunHelper(); });
  if (!helper.ok()) return helper.status();
  helper_ = *std::move(helper);

  // One address that cannot be had (an IPv6 one that is still being checked
  // for duplicates, say) does not spoil the others.
  absl::Status first_error;
  bool any = false;
  for (const LocalAddress& entry : device_->gids) {
    if (entry.address.is_unspecified()) continue;  // left out of the GID table
    absl::StatusOr<int> fd = slot_->OpenAddress(entry);
    absl::Status status =
        fd.ok() ? (*port)->AddReceiver(entry, *fd) : fd.status();
    any = any || status.ok();
    first_error.Update(status);
  }
  if (!any) {
    if (!first_error.ok()) return first_error;
    return absl::UnavailableError(
        absl::StrCat("interface ", device_->netdev, " has no address"));
  }
  // Nice to have: where it is refused, rxe-user stat does not see this engine.
  auto stat_server = StatServer::Open([this] { return ReportText(Report()); });
  if (IsOutOfFiles(stat_server.status())) return stat_server.status();
  if (stat_server.ok()) stat_server_ = *std::move(stat_server);
  if (absl::Status status = helper_->Start(); !status.ok()) return status;
  if (absl::Status status = StartControl(); !status.ok()) return status;
  // The lane last: from then on threads may wait on its sockets, and count on
  // them.
  lanes_[0]->Open(*std::move(port), slot_.get(), helper_.get(), 0,
                  HelperSpin());
  open_ = true;
  // What follows may take its time, such as starting a new port broker: the
  // helper must not wait for it.
  // Not by control_, which is null while its thread is waited for.
  slot_->OnChange([control = control_.get()] { control->Refresh(); });
  control_->Add({.fd = [this] { return slot_->fd(); },
                 .time = [this] { return slot_->retry_at(); },
                 .run = [this] { OnSlotReadable(); }});
  if (stat_server_ != nullptr) {
    control_->Add({.fd = [this] { return stat_server_->fd(); },
                   .run = [this] { stat_server_->OnReadable(); }});
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::StartControl() {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  if (control_ != nullptr) return absl::OkStatus();
  // Nice to have: where it is refused, nobody hears of changes of the link.
  auto monitor = LinkMonitor::Open(device_->ifindex);
  if (IsOutOfFiles(monitor.status())) return monitor.status();
  auto control = ControlThread::Start();
  if (!control.ok()) return control.status();
  control_ = *std::move(control);
  if (monitor.ok()) {
    link_monitor_ = *std::move(monitor);
    control_->Add({.fd = [this] { return link_monitor_->fd(); },
                   .run = [this] { NotifyOfLink(link_monitor_->Read()); }});
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::OpenAddressLocked(const LocalAddress& entry) {
  Port* port = lanes_[0]->port();
  if (port->HasReceiver(entry.address)) return absl::OkStatus();
  absl::StatusOr<int> fd = slot_->OpenAddress(entry);
  if (!fd.ok()) return fd.status();
  absl::Status status = port->AddReceiver(entry, *fd);
  if (status.ok()) lanes_[0]->SocketAdded(*fd);
  return status;
}

absl::Status EngineImpl::OpenAddress(const wire::IpAddress& local) {
  if (!alive_) return ForkedStatus();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  return OpenAddressLocked(OnInterface(local, device_->ifindex));
}

// --- Numbers.

absl::StatusOr<uint32_t> EngineImpl::AllocateQpn() {
  if (!alive_) return ForkedStatus();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  const std::optional<uint16_t> number = numbers_.Allocate();
  if (!number.has_value()) {
    return absl::ResourceExhaustedError(
        "all 65,534 queue pair numbers of this process are in use");
  }
  return MakeQpn(slot_->number(), *number);
}

void EngineImpl::ReleaseQpn(uint32_t qpn) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  numbers_.Release(NumberOf(qpn));
}

LaneImpl& EngineImpl::LaneOf(uint32_t qpn) {
  return *lanes_[qpn % lanes_.size()];
}

absl::StatusOr<uint16_t> EngineImpl::SourcePort(const wire::IpAddress& local,
                                                uint32_t flow_label,
                                                uint32_t local_qpn,
                                                uint32_t remote_qpn) {
  const uint16_t ideal =
      SourcePortOf(flow_label != 0 ? flow_label & 0xfffff
                                   : FlowLabelOf(local_qpn, remote_qpn));
  if (!alive_) return ForkedStatus();
  if (!open_) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  }
  return lanes_[0]->port()->SourcePort(OnInterface(local, device_->ifindex),
                                       ideal);
}

// --- Progress.

bool EngineImpl::Progress() {
  bool did = false;
  for (auto& lane : lanes_) did |= lane->Progress();
  return did;
}

void EngineImpl::RenewLease() {
  for (auto& lane : lanes_) lane->RenewLease();
}

void EngineImpl::DropLease() {
  for (auto& lane : lanes_) lane->DropLease();
}

int EngineImpl::WaitReadable(int fd) {
  if (!alive_) return ENODEV;
  // Left by return, and by cancellation of the thread.
  struct Waiting {
    explicit Waiting(EngineImpl& engine) {
      for (auto& lane : engine.lanes_) {
        if (lane->EnterWait()) lanes[count++] = lane.get();
      }
    }
    ~Waiting() {
      for (int i = 0; i < count; ++i) lanes[i]->LeaveWait();
    }
    LaneImpl* lanes[kLanes];
    int count = 0;
  };
  const Waiting waiting(*this);
  std::vector<pollfd> fds;
  for (;;) {
    fds.assign(1, {fd, POLLIN, 0});
    bool more = false;
    const Time now = Lane::Now();
    for (int i = 0; i < waiting.count; ++i) {
      LaneImpl& lane = *waiting.lanes[i];
      more |= lane.PollOnce(now);
      if (const Port* port = lane.port(); port != nullptr) {
        for (const int socket : port->ReceiveDescriptors()) {
          fds.push_back({socket, POLLIN, 0});
        }
      }
    }
    const timespec at_once{};
    if (::ppoll(fds.data(), fds.size(), more ? &at_once : nullptr, nullptr) <
        0) {
      return errno;
    }
    if (fds[0].revents != 0) return 0;
  }
}

int EngineImpl::WaitPassive(int fd) {
  if (!alive_) return ENODEV;
  if (!open_) {
    int before;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    // Where it is refused, there are only events that others bring.
    (void)StartControl();
    ::pthread_setcancelstate(before, nullptr);
  }
  pollfd readable = {fd, POLLIN, 0};
  return ::poll(&readable, 1, -1) < 0 ? errno : 0;
}

// --- The threads.

Time EngineImpl::RunHelper() {
  Time wake = kNever;
  for (auto& lane : lanes_) wake = std::min(wake, lane->RunHelper());
  return wake;
}

void EngineImpl::OnSlotReadable() {
  slot_->OnReadable([this](const Stray& stray) {
    const std::optional<uint32_t> qpn = wire::PeekDestQpn(stray.bytes);
    if (qpn.has_value()) LaneOf(*qpn).DeliverStray(stray);
  });
}

void EngineImpl::NotifyOfLink(const std::vector<LinkChange>& changes) {
  for (const LinkChange change : changes) {
    const std::lock_guard<std::mutex> lock(listeners_mutex_);
    for (const auto& [id, listener] : listeners_) listener(change);
  }
}

uint64_t EngineImpl::AddLinkListener(LinkListener listener) {
  if (!alive_) return 0;
  const std::lock_guard<std::mutex> lock(listeners_mutex_);
  listeners_.emplace(next_listener_, std::move(listener));
  return next_listener_++;
}

void EngineImpl::RemoveLinkListener(uint64_t id) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(listeners_mutex_);
  listeners_.erase(id);
}

// --- fork.

void EngineImpl::LockForFork() {
  locked_for_fork_.clear();
  for (auto& lane : lanes_) locked_for_fork_.push_back(lane->LockForFork());
}

void EngineImpl::UnlockInParent() {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (locked_for_fork_[i]) lanes_[i]->UnlockAfterFork();
  }
}

void EngineImpl::AbandonInChild() {
  alive_ = false;
  for (auto& lane : lanes_) lane->AbandonInChild();
  if (helper_ != nullptr) helper_->AbandonInChild();
  // The others see to themselves (base/fork_guard.h).
}

}  // namespace rxe_user
