// Raw packets of an engine: one lane receives the interface's frames.
#include "absl/status/status.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/engine/engine_impl.h"

namespace rxe_user {

absl::Status EngineImpl::OpenRawPort() {
  if (raw_port_ != nullptr) return absl::OkStatus();
  absl::StatusOr<std::unique_ptr<RawPort>> port = RawPort::Open(*device_);
  if (!port.ok()) return port.status();
  raw_port_ = *std::move(port);
  raw_.store(raw_port_.get(), std::memory_order_release);
  At(kRawLane).lane().SetRawPort(raw_port_.get());
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> EngineImpl::AllocateRawQpn() {
  if (!alive_) return OpenedBeforeForkError();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  if (absl::Status status = OpenRawPort(); !status.ok()) return status;
  return AllocateQpnIn(kRawLane);
}

transport::FrameSink* EngineImpl::frames() {
  RawPort* const raw = raw_.load(std::memory_order_acquire);
  return raw != nullptr ? &raw->transmitter() : nullptr;
}

absl::Status EngineImpl::AddFlow(transport::FlowRule* rule) {
  if (!alive_) return OpenedBeforeForkError();
  RawPort& raw = *raw_.load(std::memory_order_acquire);
  LaneImpl& lane = At(kRawLane).lane();
  const std::lock_guard<std::mutex> lock(flows_mutex_);
  int fresh;
  absl::Status status = raw.Prepare(*rule, &fresh);
  if (!status.ok()) return status;
  if (fresh >= 0) lane.SocketAdded(fresh);
  const Lane::Guard guard(lane);
  raw.flows().Add(rule);
  return absl::OkStatus();
}

void EngineImpl::RemoveFlow(transport::FlowRule* rule) {
  if (!alive_) return;
  RawPort& raw = *raw_.load(std::memory_order_acquire);
  LaneImpl& lane = At(kRawLane).lane();
  const std::lock_guard<std::mutex> lock(flows_mutex_);
  {
    const Lane::Guard guard(lane);
    raw.flows().Remove(rule);
  }
  const int fd = raw.Retire(*rule);
  if (fd < 0) return;
  lane.SocketRemoved(fd);
  raw.Close();
}

void EngineImpl::RefreshRawMtu() {
  RawPort* const raw = raw_.load(std::memory_order_acquire);
  if (raw != nullptr) raw->transmitter().ReadMtu();
}

}  // namespace rxe_user
