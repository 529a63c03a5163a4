#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/faults/fault_commands.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/report_text.h"

namespace rxe_user {
namespace {

using transport::kNever;
using transport::kSecond;
using transport::Time;

// Adds the descriptors that a thread serving `lane` waits for.
void AddDescriptors(const LaneImpl& lane, std::vector<pollfd>* fds) {
  if (const Port* port = lane.port(); port != nullptr) {
    for (const int socket : port->ReceiveDescriptors()) {
      fds->push_back({socket, POLLIN, 0});
    }
  }
  if (const int frames = lane.FrameDescriptor(); frames >= 0) {
    fds->push_back({frames, POLLIN, 0});
  }
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
    : device_(std::move(device)),
      parts_(std::move(parts)),
      lanes_(static_cast<size_t>(parts_.lanes)) {}

EngineImpl::~EngineImpl() {
  if (!alive_) return;  // all parts have been abandoned
  // Destroyed first, since the thread uses the other parts.
  control_.reset();
  CountAtClose();
  for (EngineLane& lane : lanes_) lane.Close();
}

// --- Opening.

absl::Status EngineImpl::EnsureOpen() {
  if (!alive_) return OpenedBeforeForkError();
  if (open_) return absl::OkStatus();
  absl::Cleanup close = [this] {
    for (EngineLane& lane : lanes_) lane.Close();
    stat_server_.reset();
  };
  absl::Status status = OpenParts();
  if (status.ok()) std::move(close).Cancel();
  return status;
}

void EngineImpl::EnterContext() {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++contexts_;
}

void EngineImpl::LeaveContext() {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (--contexts_ == 0) CloseIfIdle();
}

void EngineImpl::CloseIfIdle() {
  for (const EngineLane& lane : lanes_) {
    if (lane.queue_pairs() != 0) return;
  }
  closing_ = true;
  const absl::Cleanup end = [this] { closing_ = false; };
  if (waiting_ != 0) return;
  open_ = false;
  one_lane_ = kNoLane;
  {
    const std::lock_guard<std::mutex> lock(control_mutex_);
    reports_link_changes_ = false;
    alarms_.RunOn(nullptr);
    // Destroyed first, since the thread uses the other parts.
    control_.reset();
    link_monitor_.reset();
  }
  CountAtClose();
  for (EngineLane& lane : lanes_) lane.Close();
  stat_server_.reset();
  raw_.store(nullptr, std::memory_order_release);
  raw_port_.reset();
}

absl::Status EngineImpl::CreateLanes() {
  for (EngineLane& lane : lanes_) {
    absl::StatusOr<std::unique_ptr<Slot>> slot = parts_.acquire_slot();
    if (!slot.ok()) return slot.status();
    if (LaneOf(MakeQpn((*slot)->number(), 0)) != kNoLane) {
      WarnOnce("there is no port broker, so there is one lane only");
      break;  // without a broker a process has one slot
    }
    absl::StatusOr<std::unique_ptr<Port>> port = parts_.make_port();
    if (!port.ok()) return port.status();
    absl::Status status =
        lane.Create(*std::move(slot), *std::move(port), device_->ifindex);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::OpenParts() {
  if (absl::Status status = CreateLanes(); !status.ok()) return status;

  // One address that cannot be opened (an IPv6 address under duplicate address
  // detection, say) does not make the others fail. The addresses are read
  // again, since the device may have been opened long ago.
  absl::Status first_error;
  bool any = false;
  for (const LocalAddress& entry : parts_.addresses(*device_)) {
    if (entry.address.is_unspecified()) continue;  // left out of the GID table
    const absl::Status status = OpenAddressLocked(entry);
    // The broker does not answer: the next address would wait as long again.
    if (absl::IsDeadlineExceeded(status)) return status;
    any = any || status.ok();
    first_error.Update(status);
  }
  if (!any) {
    if (!first_error.ok()) return first_error;
    return absl::UnavailableError(
        absl::StrCat("interface ", device_->netdev, " has no address"));
  }
  // Optional: where it is refused, rxe-user stat does not see this engine.
  auto stat_server = StatServer::Open([this] { return ReportText(Report()); },
                                      [](const std::string& command) {
                                        return AnswerFaultCommand(
                                            command, ProcessFaults::Current());
                                      });
  if (IsOutOfFiles(stat_server.status())) return stat_server.status();
  if (stat_server.ok()) stat_server_ = *std::move(stat_server);
  for (EngineLane& lane : lanes_) {
    if (lane.slot() == nullptr) continue;
    if (absl::Status status = lane.StartHelper(); !status.ok()) return status;
  }
  if (absl::Status status = StartControl(); !status.ok()) return status;
  transport::PacketObserver* const observer = parts_.observer();
  for (EngineLane& lane : lanes_) {
    if (lane.slot() != nullptr) lane.Open(observer);
  }
  // These may be slow (starting a new port broker, say), so the helper threads
  // do not run them.
  std::vector<ControlThread::Source> sources;
  for (EngineLane& lane : lanes_) {
    Slot* const slot = lane.slot();
    if (slot == nullptr) continue;
    // Captured, since control_ is null while the thread's end is waited for.
    slot->OnChange([control = control_.get()] { control->Refresh(); });
    const auto deliver = [&lane](const Stray& stray) {
      lane.lane().DeliverStray(stray);
    };
    sources.push_back({.fd = [slot] { return slot->fd(); },
                       .time = [slot] { return slot->retry_at(); },
                       .run = [slot, deliver] { slot->OnReadable(deliver); }});
    if (Port::ControlTask* const task = lane.lane().port()->control_task()) {
      const auto with_lane = [&lane](const std::function<void()>& run) {
        const Lane::Guard guard(lane.lane());
        // A peer that has closed its end may have sent something before.
        lane.lane().Receive(Lane::Now());
        run();
      };
      sources.push_back({.fd = [task] { return task->fd(); },
                         .time = [task] { return task->time(); },
                         .run = [task, with_lane] { task->Run(with_lane); }});
    }
  }
  if (stat_server_ != nullptr) {
    sources.push_back({.fd = [this] { return stat_server_->fd(); },
                       .time = [this] { return stat_server_->time(); },
                       .run = [this] { stat_server_->OnReadable(); }});
  }
  // The last step that may fail: the sources cannot be removed again.
  control_->AddAll(std::move(sources));
  open_ = true;
  if (Tally* const tally = parts_.tally(); tally != nullptr) {
    tally->OnOpened();
    tally_ = tally;
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::StartControl() {
  const std::lock_guard<std::mutex> lock(control_mutex_);
  if (control_ != nullptr) return absl::OkStatus();
  // Optional: where it is refused, link changes are not reported.
  auto monitor = LinkMonitor::Open(device_->ifindex);
  if (IsOutOfFiles(monitor.status())) return monitor.status();
  auto control = ControlThread::Start();
  if (!control.ok()) return control.status();
  control_ = *std::move(control);
  alarms_.RunOn(control_.get());
  if (monitor.ok()) {
    link_monitor_ = *std::move(monitor);
    control_->Add({.fd = [this] { return link_monitor_->fd(); },
                   .run = [this] { NotifyOfLink(link_monitor_->Read()); }});
    NotifyOfLink({LinkChange::kUnknown});
    reports_link_changes_ = true;
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::OpenAddressLocked(const LocalAddress& local) {
  for (EngineLane& lane : lanes_) {
    if (lane.slot() == nullptr) continue;
    if (absl::Status status = lane.OpenAddress(local); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status EngineImpl::OpenAddress(const wire::IpAddress& local) {
  if (!alive_) return OpenedBeforeForkError();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  if (!lanes_[0].HasAddress(local)) CloseGoneAddresses();
  return OpenAddressLocked(OnInterface(local, device_->ifindex));
}

void EngineImpl::CloseGoneAddresses() {
  if (lanes_[0].addresses() < kKeptAddresses) return;
  const std::vector<LocalAddress> present = parts_.addresses(*device_);
  const auto is_wanted = [&](const wire::IpAddress& address) {
    return held_.contains(address) ||
           std::ranges::any_of(present, [&](const LocalAddress& p) {
             return p.address == address;
           });
  };
  for (EngineLane& lane : lanes_) {
    if (lane.slot() != nullptr) lane.CloseAddresses(kKeptAddresses, is_wanted);
  }
}

void EngineImpl::HoldAddress(const wire::IpAddress& local) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ++held_[local];
}

void EngineImpl::ReleaseAddress(const wire::IpAddress& local) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto held = held_.find(local);
  if (held != held_.end() && --held->second == 0) held_.erase(held);
}

absl::Status EngineImpl::JoinGroup(uint32_t qpn, const wire::IpAddress& group) {
  if (!alive_) return OpenedBeforeForkError();
  const std::lock_guard<std::mutex> lock(mutex_);
  return At(LaneOf(qpn)).JoinGroup(group, device_->ifindex);
}

void EngineImpl::LeaveGroup(uint32_t qpn, const wire::IpAddress& group) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  At(LaneOf(qpn)).LeaveGroup(group);
}

// --- Numbers.

absl::StatusOr<uint32_t> EngineImpl::AllocateQpn() {
  if (!alive_) return OpenedBeforeForkError();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  return AllocateQpnIn(LeastUsedLane());
}

absl::StatusOr<uint32_t> EngineImpl::AllocateOneLaneQpn() {
  if (!alive_) return OpenedBeforeForkError();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  if (one_lane_ == kNoLane) one_lane_ = LeastUsedLane();
  return AllocateQpnIn(one_lane_);
}

int EngineImpl::LeastUsedLane() const {
  size_t emptiest = 0;
  for (size_t i = 1; i < lanes_.size() && lanes_[i].slot() != nullptr; ++i) {
    if (lanes_[i].queue_pairs() < lanes_[emptiest].queue_pairs()) emptiest = i;
  }
  return static_cast<int>(emptiest);
}

absl::StatusOr<uint32_t> EngineImpl::AllocateQpnIn(int lane) {
  size_t queue_pairs = 0;
  for (const EngineLane& each : lanes_) queue_pairs += each.queue_pairs();
  const std::optional<uint32_t> qpn =
      queue_pairs < kMaxOpenQueuePairs ? At(lane).AllocateQpn() : std::nullopt;
  if (!qpn.has_value()) {
    return absl::ResourceExhaustedError(
        "a device has at most 32,768 queue pairs in a process");
  }
  return *qpn;
}

void EngineImpl::ReleaseQpn(uint32_t qpn) {
  if (!alive_) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const int lane = LaneOf(qpn); lane != kNoLane) At(lane).ReleaseQpn(qpn);
}

int EngineImpl::LaneOf(uint32_t qpn) {
  for (int i = 0; i < lane_count(); ++i) {
    const Slot* const slot = At(i).slot();
    if (slot != nullptr && slot->Owns(SlotOf(qpn))) return i;
  }
  return kNoLane;
}

absl::StatusOr<uint16_t> EngineImpl::SourcePort(const wire::IpAddress& local,
                                                uint32_t flow_label,
                                                uint32_t local_qpn,
                                                uint32_t remote_qpn) {
  const uint16_t ideal =
      SourcePortOf(flow_label != 0 ? flow_label & 0xfffff
                                   : FlowLabelOf(local_qpn, remote_qpn));
  if (!alive_) return OpenedBeforeForkError();
  return At(LaneOf(local_qpn))
      .SourcePort(OnInterface(local, device_->ifindex), ideal);
}

absl::Status EngineImpl::OpenSourcePort(const wire::IpAddress& local,
                                        uint16_t port, uint32_t local_qpn) {
  if (!alive_) return OpenedBeforeForkError();
  return At(LaneOf(local_qpn))
      .OpenSourcePort(OnInterface(local, device_->ifindex), port);
}

uint64_t EngineImpl::SourcePortEpoch(uint32_t local_qpn) {
  return alive_ ? At(LaneOf(local_qpn)).source_port_epoch() : 0;
}

// --- Progress.

bool EngineImpl::Progress(LaneSet lanes) {
  using PollResult = LaneImpl::PollResult;
  PollResult found = PollResult::kNothingForLong;
  ForEach(lanes,
          [&](LaneImpl& lane) { found = std::min(found, lane.Progress()); });
  // Returns at once if no other thread wants this core.
  if (found == PollResult::kNothingForLong) ::sched_yield();
  return found == PollResult::kSomething;
}

void EngineImpl::RenewLease(LaneSet lanes) {
  ForEach(lanes, [](LaneImpl& lane) { lane.RenewLease(); });
}

void EngineImpl::DropLease(LaneSet lanes) {
  ForEach(lanes, [](LaneImpl& lane) { lane.DropLease(); });
}

int EngineImpl::WaitReadable(int fd, LaneSet lanes) {
  if (!alive_) return ENODEV;
  // Undone on return, and when the thread is cancelled.
  struct Waiting {
    Waiting(EngineImpl& engine, LaneSet lanes) : engine(engine) {
      ++engine.waiting_;
      if (engine.closing_) return;
      engine.ForEach(lanes, [this](LaneImpl& lane) {
        if (lane.EnterWait()) served[count++] = &lane;
      });
    }
    ~Waiting() {
      for (int i = 0; i < count; ++i) served[i]->LeaveWait();
      --engine.waiting_;
    }
    EngineImpl& engine;
    LaneImpl* served[kMaxLanes];
    int count = 0;
  };
  const Waiting waiting(*this, lanes);
  std::vector<pollfd> fds;
  bool by_socket[kMaxLanes] = {};  // one of its sockets has woken us
  for (;;) {
    fds.assign(1, {fd, POLLIN, 0});
    size_t ends[kMaxLanes];  // end of each lane's part of `fds`
    const Time now = Lane::Now();
    Time until = kNever;
    for (int i = 0; i < waiting.count; ++i) {
      LaneImpl& lane = *waiting.served[i];
      if (lane.PollOnce(now, by_socket[i])) until = now;
      const Time rested = lane.sockets_disarmed_until();
      if (rested <= now) {
        AddDescriptors(lane, &fds);
      } else {
        until = std::min(until, rested);
      }
      ends[i] = fds.size();
    }
    timespec left{};
    left.tv_nsec = static_cast<long>(std::min(until - now, kSecond - 1));
    if (::ppoll(fds.data(), fds.size(), until != kNever ? &left : nullptr,
                nullptr) < 0) {
      return errno;
    }
    if (fds[0].revents != 0) return 0;
    for (size_t i = 0, at = 1; i < static_cast<size_t>(waiting.count); ++i) {
      by_socket[i] = false;
      for (; at < ends[i]; ++at) by_socket[i] |= fds[at].revents != 0;
    }
  }
}

int EngineImpl::WaitPassive(int fd) {
  if (!alive_) return ENODEV;
  if (!open_) {
    int before;
    ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    // Where it is refused, only the program's own threads raise events.
    (void)StartControl();
    ::pthread_setcancelstate(before, nullptr);
  }
  pollfd readable = {fd, POLLIN, 0};
  return ::poll(&readable, 1, -1) < 0 ? errno : 0;
}

// --- Links.

void EngineImpl::NotifyOfLink(const std::vector<LinkChange>& changes) {
  for (const LinkChange change : changes) {
    if (change == LinkChange::kMtu) {
      RefreshRawMtu();
    } else {
      for (EngineLane& lane : lanes_) lane.OnAddressesChanged();
    }
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

// --- Alarms.

absl::StatusOr<uint64_t> EngineImpl::AddAlarm(std::function<void()> ring) {
  if (!alive_) return OpenedBeforeForkError();
  if (absl::Status status = StartControl(); !status.ok()) return status;
  return alarms_.Add(std::move(ring));
}

void EngineImpl::SetAlarm(uint64_t id, Time delay) {
  if (!alive_) return;
  alarms_.Set(id, Alarms::Clock::now() + std::chrono::nanoseconds(delay));
}

void EngineImpl::RemoveAlarm(uint64_t id) {
  if (!alive_) return;
  alarms_.Remove(id);
}

// --- exit, fork.

void EngineImpl::TransmitAtExit() {
  for (EngineLane& lane : lanes_) lane.lane().TransmitAtExit();
}

void EngineImpl::CountAtClose() {
  Tally* const tally = tally_.exchange(nullptr);
  if (tally != nullptr) tally->AddCounters(CountersOf(Report()));
}

void EngineImpl::CountAtExit() {
  if (tally_ == nullptr) return;
  DeviceReport report;
  for (EngineLane& lane : lanes_) {
    if (lane.slot() == nullptr) continue;
    const std::optional<LaneReport> counters = lane.CountersAtExit();
    if (!counters) return;
    report.lanes.push_back(*counters);
  }
  Tally* const tally = tally_.exchange(nullptr);
  if (tally != nullptr) tally->AddCounters(CountersOf(report));
}

void EngineImpl::LockForFork() {
  for (EngineLane& lane : lanes_) lane.LockForFork();
}

void EngineImpl::UnlockInParent() {
  for (EngineLane& lane : lanes_) lane.UnlockInParent();
}

void EngineImpl::AbandonInChild() {
  alive_ = false;
  tally_ = nullptr;
  for (EngineLane& lane : lanes_) lane.AbandonInChild();
  if (raw_port_ != nullptr) raw_port_->AbandonInChild();
  // The other parts have their own fork guards (base/fork_guard.h).
}

}  // namespace rxe_user
