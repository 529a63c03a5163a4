#include "rxe_user/engine/engine_lane.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/settings.h"
#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {

void TranslationLog::OnTranslation(const transport::Translation& seen) {
  if (!seen.taken) {
    WarnOfTranslation(seen.peer, seen.source_port, seen.seen);
  } else if (seen.peer_qpn != 0) {
    LearnRoute(seen.peer, seen.peer_qpn, seen.seen);
    LearnSender(seen.seen, seen.peer);
  }
}

std::vector<wire::IpAddress> TranslationLog::KnownPeers(
    const transport::Via& seen) {
  return PossibleSenders(seen);
}

absl::Status EngineLane::Create(std::unique_ptr<Slot> slot,
                                std::unique_ptr<Port> port, uint32_t ifindex) {
  auto helper = HelperThread::Create("rxe-user-lane", [this](bool by_socket) {
    return lane_.RunHelper(by_socket);
  });
  if (!helper.ok()) return helper.status();
  helper_ = *std::move(helper);
  {
    const std::lock_guard<std::mutex> lock(numbers_mutex_);
    numbers_.clear();
    numbers_.push_back({slot->number(), {}});
  }
  slot_ = std::move(slot);
  port_ = std::move(port);
  port_->AddSlot(slot_->number());
  ifindex_ = ifindex;
  return absl::OkStatus();
}

absl::Status EngineLane::OpenAddress(const LocalAddress& local) {
  Port* const port = port_ != nullptr ? port_.get() : lane_.port();
  if (HasAddress(local.address)) return absl::OkStatus();
  // Allocate first: nothing below may throw once there is a socket.
  addresses_.reserve(addresses_.size() + 1);
  absl::StatusOr<int> fd = slot_->OpenAddress(local);
  if (!fd.ok()) return fd.status();
  absl::Status status = port->AddReceiver(local, *fd);
  if (!status.ok()) {
    // Nobody would read the datagrams that are steered to it.
    slot_->CloseAddress(local);
    return status;
  }
  addresses_.push_back({local, *fd});
  lane_.SocketAdded(*fd);
  return absl::OkStatus();
}

bool EngineLane::HasAddress(const wire::IpAddress& local) const {
  return std::ranges::any_of(
      addresses_, [&](const Address& a) { return a.local.address == local; });
}

void EngineLane::CloseAddresses(
    size_t keep, const std::function<bool(const wire::IpAddress&)>& is_wanted) {
  std::unordered_set<wire::IpAddress> sources;
  {
    const Lane::Guard guard(lane_);
    lane_.endpoint().ForEachAddress(
        [&](const auto& av) { sources.insert(av.source); });
  }
  for (size_t i = 0; i < addresses_.size() && addresses_.size() >= keep;) {
    const Address address = addresses_[i];
    if (is_wanted(address.local.address) ||
        sources.contains(address.local.address)) {
      ++i;
      continue;
    }
    addresses_.erase(addresses_.begin() + static_cast<ptrdiff_t>(i));
    // First, since another thread may get this descriptor's number once it is
    // closed.
    lane_.SocketRemoved(address.fd);
    {
      const Lane::Guard guard(lane_);
      lane_.port()->RemoveReceiver(address.local.address);
      CloseUnusedSenders();
    }
    slot_->CloseAddress(address.local);
  }
}

absl::Status EngineLane::JoinGroup(const wire::IpAddress& group,
                                   uint32_t ifindex) {
  if (const auto it = groups_.find(group); it != groups_.end()) {
    ++it->second.joined;
    return absl::OkStatus();
  }
  if (groups_.size() == kMaxGroups) {
    return absl::ResourceExhaustedError(
        "a device is in at most 64 multicast groups in a process");
  }
  // Allocate first: nothing below may throw once there is a socket.
  const auto joined = groups_.emplace(group, Group{-1, 1}).first;
  absl::Cleanup forget = [&] { groups_.erase(joined); };
  absl::StatusOr<int> fd = OpenGroup(group, ifindex);
  if (!fd.ok()) return fd.status();
  absl::Status status = lane_.port()->AddReceiver({group, 0}, *fd);
  if (!status.ok()) return status;
  std::move(forget).Cancel();
  joined->second.fd = *fd;
  lane_.SocketAdded(*fd);
  return absl::OkStatus();
}

void EngineLane::OnAddressesChanged() {
  const Lane::Guard guard(lane_);
  Port* const port = lane_.port();
  if (port == nullptr) return;
  if (Port::ControlTask* const task = port->control_task()) {
    task->OnAddressesChanged();
  }
}

void EngineLane::LeaveGroup(const wire::IpAddress& group) {
  const auto it = groups_.find(group);
  if (it == groups_.end() || --it->second.joined > 0) return;
  // First, since another thread may get this descriptor's number once it is
  // closed.
  lane_.SocketRemoved(it->second.fd);
  groups_.erase(it);
  const Lane::Guard guard(lane_);
  lane_.port()->RemoveReceiver(group);
}

absl::Status EngineLane::StartHelper() { return helper_->Start(); }

void EngineLane::Open(transport::PacketObserver* observer) {
  {
    const Lane::Guard guard(lane_);
    lane_.endpoint().Observe(port_->Watch(observer, &lane_.recorder()));
    lane_.endpoint().WatchTranslations(&translations_, NatMode());
  }
  lane_.Open(std::move(port_), slot_.get(), helper_.get(), HelperSpin());
}

void EngineLane::Close() {
  helper_.reset();
  lane_.Close();
  port_.reset();
  slot_.reset();
  addresses_.clear();
}

std::optional<uint32_t> EngineLane::AllocateQpn() {
  // In a fuller slot, numbers would be reused too soon.
  if (const auto qpn = AllocateBelow(QpnAllocator::kMaxWithQuarantine)) {
    return qpn;
  }
  {
    // Nothing may throw once there is a further slot.
    const std::lock_guard<std::mutex> lock(numbers_mutex_);
    numbers_.reserve(numbers_.size() + 1);
  }
  const absl::StatusOr<uint16_t> further = slot_->Extend();
  if (further.ok()) {
    const std::lock_guard<std::mutex> lock(numbers_mutex_);
    numbers_.push_back({*further, {}});
    lane_.port()->AddSlot(*further);
    return MakeQpn(*further, *numbers_.back().free.Allocate());
  }
  return AllocateBelow(SIZE_MAX);
}

std::optional<uint32_t> EngineLane::AllocateBelow(size_t limit) {
  const std::lock_guard<std::mutex> lock(numbers_mutex_);
  for (Numbers& numbers : numbers_) {
    if (numbers.free.in_use() >= limit) continue;
    const std::optional<uint16_t> number = numbers.free.Allocate();
    if (number.has_value()) return MakeQpn(numbers.slot, *number);
  }
  return std::nullopt;
}

void EngineLane::ReleaseQpn(uint32_t qpn) {
  const std::lock_guard<std::mutex> lock(numbers_mutex_);
  for (Numbers& numbers : numbers_) {
    if (numbers.slot == SlotOf(qpn)) numbers.free.Release(NumberOf(qpn));
  }
}

size_t EngineLane::queue_pairs() const {
  const std::lock_guard<std::mutex> lock(numbers_mutex_);
  size_t in_use = 0;
  for (const Numbers& numbers : numbers_) in_use += numbers.free.in_use();
  return in_use;
}

// The broker is not asked for a further slot while the lane is locked.
std::optional<uint32_t> EngineLane::AllocateNumber() {
  const auto qpn = AllocateBelow(QpnAllocator::kMaxWithQuarantine);
  return qpn.has_value() ? qpn : AllocateBelow(SIZE_MAX);
}

// Another thread may have held the mutex at the time of fork.
void EngineLane::ReleaseNumber(uint32_t number) {
  if (!abandoned_) ReleaseQpn(number);
}

// Chooses one of the lane's own sockets: its port equals the initiator's only
// by chance.
std::optional<uint16_t> EngineLane::SourcePort(
    const transport::AddressVector& target,
    const transport::Received& connect) {
  const uint32_t label = target.flow_label != 0
                             ? target.flow_label & 0xfffff
                             : FlowLabelOfSlot(connect.packet->dceth().src_qpn);
  const auto port =
      SourcePort(OnInterface(connect.datagram->destination, ifindex_),
                 SourcePortOf(label));
  return port.ok() ? std::optional<uint16_t>(*port) : std::nullopt;
}

uint32_t EngineLane::Random() { return SecureRandom32(); }

absl::StatusOr<uint16_t> EngineLane::SourcePort(const LocalAddress& local,
                                                uint32_t choice) {
  absl::StatusOr<uint16_t> found = lane_.port()->SourcePort(local, choice);
  if (found.ok()) return found;
  // Too many sockets, or too many descriptors in the process. Close those that
  // no flow needs any more, and retry.
  CloseUnusedSenders();
  return lane_.port()->SourcePort(local, choice);
}

absl::Status EngineLane::OpenSourcePort(const LocalAddress& local,
                                        uint16_t port) {
  absl::Status opened = lane_.port()->OpenSourcePort(local, port);
  if (!absl::IsResourceExhausted(opened)) return opened;
  CloseUnusedSenders();
  return lane_.port()->OpenSourcePort(local, port);
}

void EngineLane::CloseUnusedSenders() {
  const size_t closed = lane_.port()->CloseUnusedSenders(
      [this](const auto& in_use) { lane_.endpoint().ForEachAddress(in_use); });
  if (closed != 0) ++source_port_epoch_;
}

void EngineLane::UnlockInParent() {
  if (locked_for_fork_) lane_.UnlockAfterFork();
}

void EngineLane::AbandonInChild() {
  abandoned_ = true;
  lane_.AbandonInChild();
  if (helper_ != nullptr) helper_->AbandonInChild();
  // The other parts have their own fork guards (base/fork_guard.h).
}

}  // namespace rxe_user
