// An engine without sockets, for tests of objects that are only polled.
#ifndef RXE_USER_OBJECTS_FAKE_ENGINE_H_
#define RXE_USER_OBJECTS_FAKE_ENGINE_H_

#include <poll.h>

#include <cstdlib>
#include <functional>

#include "rxe_user/engine/engine.h"

namespace rxe_user {

class FakeEngine final : public Engine {
 public:
  std::function<void()> on_progress = [] {};
  int progressed = 0;
  int leases_renewed = 0;
  int leases_dropped = 0;

  bool alive() const override { return true; }
  void EnterContext() override {}
  void LeaveContext() override {}
  absl::StatusOr<uint32_t> AllocateQpn() override {
    return absl::UnavailableError("a fake has no numbers");
  }
  absl::StatusOr<uint32_t> AllocateOneLaneQpn() override {
    return AllocateQpn();
  }
  void ReleaseQpn(uint32_t /*qpn*/) override {}
  int LaneOf(uint32_t /*qpn*/) override { return kNoLane; }
  int lane_count() const override { return 0; }
  Lane& lane(int /*index*/) override { std::abort(); }
  transport::DcConnections& dc_connections(int /*lane*/) override {
    std::abort();
  }
  absl::Status OpenAddress(const wire::IpAddress& /*local*/) override {
    return absl::OkStatus();
  }
  void HoldAddress(const wire::IpAddress& /*local*/) override {}
  void ReleaseAddress(const wire::IpAddress& /*local*/) override {}
  absl::StatusOr<uint16_t> SourcePort(const wire::IpAddress& /*local*/,
                                      uint32_t /*flow_label*/,
                                      uint32_t /*local_qpn*/,
                                      uint32_t /*remote_qpn*/) override {
    return uint16_t{0xc000};
  }
  absl::Status OpenSourcePort(const wire::IpAddress& /*local*/,
                              uint16_t /*port*/,
                              uint32_t /*local_qpn*/) override {
    return absl::OkStatus();
  }
  uint64_t SourcePortEpoch(uint32_t /*local_qpn*/) override { return 0; }
  absl::Status JoinGroup(uint32_t /*qpn*/,
                         const wire::IpAddress& /*group*/) override {
    return absl::OkStatus();
  }
  void LeaveGroup(uint32_t /*qpn*/, const wire::IpAddress& /*group*/) override {
  }
  absl::StatusOr<uint32_t> AllocateRawQpn() override { return AllocateQpn(); }
  transport::FrameSink* frames() override { return nullptr; }
  absl::Status AddFlow(transport::FlowRule* /*rule*/) override {
    return absl::OkStatus();
  }
  void RemoveFlow(transport::FlowRule* /*rule*/) override {}
  bool Progress(LaneSet /*lanes*/) override {
    ++progressed;
    on_progress();
    return false;
  }
  void RenewLease(LaneSet /*lanes*/) override { ++leases_renewed; }
  void DropLease(LaneSet /*lanes*/) override { ++leases_dropped; }
  int WaitReadable(int fd, LaneSet /*lanes*/) override {
    pollfd p = {fd, POLLIN, 0};
    return poll(&p, 1, 10'000) < 0 ? errno : 0;
  }
  int WaitPassive(int fd) override { return WaitReadable(fd, 0); }
  uint64_t AddLinkListener(LinkListener /*listener*/) override { return 1; }
  void RemoveLinkListener(uint64_t /*id*/) override {}
  bool reports_link_changes() const override { return true; }
  // One alarm at a time. The test rings it.
  std::function<void()> alarm;
  transport::Time alarm_delay = 0;  // 0: not set
  absl::StatusOr<uint64_t> AddAlarm(std::function<void()> ring) override {
    alarm = std::move(ring);
    return 1;
  }
  void SetAlarm(uint64_t /*id*/, transport::Time delay) override {
    if (alarm_delay == 0) alarm_delay = delay;
  }
  void RemoveAlarm(uint64_t /*id*/) override {
    alarm = nullptr;
    alarm_delay = 0;
  }
};

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_FAKE_ENGINE_H_
