// The engine behind engine.h, with its parts replaceable for tests.
#ifndef RXE_USER_ENGINE_ENGINE_IMPL_H_
#define RXE_USER_ENGINE_ENGINE_IMPL_H_

#include <atomic>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/devices/link_monitor.h"
#include "rxe_user/engine/alarms.h"
#include "rxe_user/engine/control_thread.h"
#include "rxe_user/engine/engine.h"
#include "rxe_user/engine/engine_lane.h"
#include "rxe_user/engine/helper_thread.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/observe/stat_socket.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/raw_packet/raw_port.h"
#include "transport/endpoint/packet_observer.h"

namespace rxe_user {

class EngineImpl final : public Engine {
 public:
  struct Parts {
    std::function<absl::StatusOr<std::unique_ptr<Slot>>()> acquire_slot;
    std::function<absl::StatusOr<std::unique_ptr<Port>>()> make_port;
    int lanes = 1;
    // Those of the device's interface as it is now.
    std::function<std::vector<LocalAddress>(const Device&)> addresses =
        [](const Device& device) { return device.gids; };
    // Who sees the packets of every lane from its opening on; null for nobody.
    std::function<transport::PacketObserver*()> observer = [] {
      return static_cast<transport::PacketObserver*>(nullptr);
    };
  };
  EngineImpl(std::shared_ptr<const Device> device, Parts parts);
  ~EngineImpl() override;

  bool alive() const override { return alive_; }
  void EnterContext() override;
  void LeaveContext() override;
  absl::StatusOr<uint32_t> AllocateQpn() override;
  absl::StatusOr<uint32_t> AllocateXrcQpn() override;
  void ReleaseQpn(uint32_t qpn) override;
  int LaneOf(uint32_t qpn) override;
  int lane_count() const override { return static_cast<int>(lanes_.size()); }
  LaneImpl& lane(int index) override { return At(index).lane(); }
  absl::Status OpenAddress(const wire::IpAddress& local) override;
  void HoldAddress(const wire::IpAddress& local) override;
  void ReleaseAddress(const wire::IpAddress& local) override;
  absl::Status JoinGroup(uint32_t qpn, const wire::IpAddress& group) override;
  void LeaveGroup(uint32_t qpn, const wire::IpAddress& group) override;
  absl::StatusOr<uint32_t> AllocateRawQpn() override;
  transport::FrameSink* frames() override;
  absl::Status AddFlow(transport::FlowRule* rule) override;
  void RemoveFlow(transport::FlowRule* rule) override;
  absl::StatusOr<uint16_t> SourcePort(const wire::IpAddress& local,
                                      uint32_t flow_label, uint32_t local_qpn,
                                      uint32_t remote_qpn) override;
  uint64_t SourcePortEpoch(uint32_t local_qpn) override;
  bool Progress(LaneSet lanes) override;
  void RenewLease(LaneSet lanes) override;
  void DropLease(LaneSet lanes) override;
  int WaitReadable(int fd, LaneSet lanes) override;
  int WaitPassive(int fd) override;
  uint64_t AddLinkListener(LinkListener listener) override;
  void RemoveLinkListener(uint64_t id) override;
  bool tells_of_links() const override { return tells_of_links_; }
  absl::StatusOr<uint64_t> AddAlarm(std::function<void()> ring) override;
  void SetAlarm(uint64_t id, transport::Time delay) override;
  void RemoveAlarm(uint64_t id) override;

  // From the first queue pair on. Locks each lane now and then, briefly.
  DeviceReport Report();

  // That of a lane. Null before the first queue pair.
  const HelperThread* helper(int index) { return At(index).helper(); }

  // --- exit and fork (see engine_registry.cc).
  void TransmitAtExit();
  void LockForFork();
  void UnlockInParent();
  void AbandonInChild();

 private:
  // That of raw packets, which there is always.
  static constexpr int kRawLane = 0;

  EngineLane& At(int index) { return lanes_[static_cast<size_t>(index)]; }
  // Calls `call` with each of `lanes`.
  template <typename Call>
  void ForEach(LaneSet lanes, Call&& call) {
    for (; lanes != 0; lanes &= lanes - 1) {
      call(lanes_[static_cast<size_t>(std::countr_zero(lanes))].lane());
    }
  }

  // The following: mutex_ held.
  absl::Status EnsureOpen();
  absl::Status OpenParts();
  absl::Status CreateLanes();
  absl::Status OpenAddressLocked(const LocalAddress& local);
  // The index of the lane that has the fewest queue pairs.
  int LeastUsedLane() const;
  absl::StatusOr<uint32_t> AllocateQpnIn(int lane);
  void CloseGoneAddresses();
  void Rest();

  absl::Status OpenRawPort();

  // Makes control_ if there is none.
  absl::Status StartControl();
  void RefreshRawMtu();
  void NotifyOfLink(const std::vector<LinkChange>& changes);

  const std::shared_ptr<const Device> device_;
  const Parts parts_;
  std::atomic<bool> alive_ = true;
  std::atomic<bool> open_ = false;  // lanes and sockets are there

  // Opening, addresses, numbers. Before any lane's lock, of which nobody holds
  // two.
  std::mutex mutex_;
  // As many as parts_ says, for ever. Those without a slot are not used.
  std::vector<EngineLane> lanes_;
  // That of XRC queue pairs, from the first one on until lanes are closed.
  // Under mutex_.
  int xrc_lane_ = kNoLane;
  // How often each is held. Under mutex_.
  std::unordered_map<wire::IpAddress, int, absl::Hash<wire::IpAddress>> held_;
  std::unique_ptr<StatServer> stat_server_;  // null where it is refused

  int contexts_ = 0;  // under mutex_
  // Threads in WaitReadable, who look at resting_ after they have counted
  // themselves; Rest looks at them after it has set that.
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> resting_ = false;

  // From the first raw packet queue pair on, until the last context ends; set
  // under mutex_.
  std::unique_ptr<RawPort> raw_port_;
  std::atomic<RawPort*> raw_ = nullptr;
  std::mutex flows_mutex_;  // one rule at a time; before the lane's lock

  // Started by the first queue pair or the first thread in WaitPassive.
  std::mutex control_mutex_;
  std::unique_ptr<LinkMonitor> link_monitor_;
  std::atomic<bool> tells_of_links_ = false;
  std::unique_ptr<ControlThread> control_;  // port broker, link, alarms

  std::mutex listeners_mutex_;
  uint64_t next_listener_ = 1;
  std::map<uint64_t, LinkListener> listeners_;

  Alarms alarms_;
};

// The flow label that a queue pair without one of its own gets, and the UDP
// source port that follows from a flow label (tests/golden/README.md).
uint32_t FlowLabelOf(uint32_t local_qpn, uint32_t remote_qpn);
uint16_t SourcePortOf(uint32_t flow_label);

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_IMPL_H_
