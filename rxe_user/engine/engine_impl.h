// The implementation of engine.h, with parts that tests can replace.
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
#include "rxe_user/observe/tally.h"
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
    // The current addresses of the device's interface.
    std::function<std::vector<LocalAddress>(const Device&)> addresses =
        [](const Device& device) { return device.gids; };
    // Sees the packets of every lane from its opening on; may be null.
    std::function<transport::PacketObserver*()> observer = [] {
      return static_cast<transport::PacketObserver*>(nullptr);
    };
    // Gets the counters when the lanes are closed, or at exit; may be null.
    std::function<Tally*()> tally = [] { return static_cast<Tally*>(nullptr); };
  };
  EngineImpl(std::shared_ptr<const Device> device, Parts parts);
  ~EngineImpl() override;

  bool alive() const override { return alive_; }
  void EnterContext() override;
  void LeaveContext() override;
  absl::StatusOr<uint32_t> AllocateQpn() override;
  absl::StatusOr<uint32_t> AllocateOneLaneQpn() override;
  void ReleaseQpn(uint32_t qpn) override;
  int LaneOf(uint32_t qpn) override;
  int lane_count() const override { return static_cast<int>(lanes_.size()); }
  LaneImpl& lane(int index) override { return At(index).lane(); }
  transport::DcConnections& dc_connections(int lane) override {
    return At(lane).dc_connections();
  }
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
  absl::Status OpenSourcePort(const wire::IpAddress& local, uint16_t port,
                              uint32_t local_qpn) override;
  uint64_t SourcePortEpoch(uint32_t local_qpn) override;
  bool Progress(LaneSet lanes) override;
  void RenewLease(LaneSet lanes) override;
  void DropLease(LaneSet lanes) override;
  int WaitReadable(int fd, LaneSet lanes) override;
  int WaitPassive(int fd) override;
  uint64_t AddLinkListener(LinkListener listener) override;
  void RemoveLinkListener(uint64_t id) override;
  bool reports_link_changes() const override { return reports_link_changes_; }
  absl::StatusOr<uint64_t> AddAlarm(std::function<void()> ring) override;
  void SetAlarm(uint64_t id, transport::Time delay) override;
  void RemoveAlarm(uint64_t id) override;

  // From the first queue pair on. Locks each lane repeatedly, briefly each
  // time.
  DeviceReport Report();

  // The helper of a lane. Null before the first queue pair.
  const HelperThread* helper(int index) { return At(index).helper(); }

  // --- exit and fork (see engine_registry.cc).
  void TransmitAtExit();
  // Does not affect a later close. If a lane stays locked, the counters are not
  // added.
  void CountAtExit();
  void LockForFork();
  void UnlockInParent();
  void AbandonInChild();

 private:
  // The lane of raw packets; every engine has it.
  static constexpr int kRawLane = 0;

  EngineLane& At(int index) { return lanes_[static_cast<size_t>(index)]; }
  template <typename Call>
  void ForEach(LaneSet lanes, Call&& call) {
    for (; lanes != 0; lanes &= lanes - 1) {
      call(lanes_[static_cast<size_t>(std::countr_zero(lanes))].lane());
    }
  }

  // mutex_ held for the following.
  absl::Status EnsureOpen();
  absl::Status OpenParts();
  absl::Status CreateLanes();
  absl::Status OpenAddressLocked(const LocalAddress& local);
  // The index of the lane with the fewest queue pairs.
  int LeastUsedLane() const;
  absl::StatusOr<uint32_t> AllocateQpnIn(int lane);
  void CloseGoneAddresses();
  void CloseIfIdle();

  // The lanes are about to be closed: gives their counters to the tally.
  void CountAtClose();

  absl::Status OpenRawPort();

  // Creates control_ if there is none.
  absl::Status StartControl();
  void RefreshRawMtu();
  void NotifyOfLink(const std::vector<LinkChange>& changes);

  const std::shared_ptr<const Device> device_;
  const Parts parts_;
  std::atomic<bool> alive_ = true;
  std::atomic<bool> open_ = false;  // lanes and sockets are open

  // Guards opening, addresses and numbers. Taken before any lane's lock. No
  // thread holds the locks of two lanes.
  std::mutex mutex_;
  // As many as parts_ says; never resized. Those without a slot are unused.
  std::vector<EngineLane> lanes_;
  // The lane of AllocateOneLaneQpn, from the first one until the lanes are
  // closed. Guarded by mutex_.
  int one_lane_ = kNoLane;
  // HoldAddress calls minus ReleaseAddress calls. Guarded by mutex_.
  std::unordered_map<wire::IpAddress, int> held_;
  std::unique_ptr<StatServer> stat_server_;  // null where the system refuses it
  // From opening until the counters are added.
  std::atomic<Tally*> tally_ = nullptr;

  int contexts_ = 0;  // guarded by mutex_
  // Threads in WaitReadable. A thread increments waiting_ and then reads
  // closing_; CloseIfIdle sets closing_ and then reads waiting_.
  std::atomic<int> waiting_ = 0;
  std::atomic<bool> closing_ = false;

  // From the first raw packet queue pair until the last context is closed.
  // Written under mutex_.
  std::unique_ptr<RawPort> raw_port_;
  std::atomic<RawPort*> raw_ = nullptr;
  std::mutex flows_mutex_;  // one rule at a time; taken before the lane's lock

  // Started by the first queue pair or the first WaitPassive.
  std::mutex control_mutex_;
  std::unique_ptr<LinkMonitor> link_monitor_;
  std::atomic<bool> reports_link_changes_ = false;
  std::unique_ptr<ControlThread> control_;  // port broker, link, alarms

  std::mutex listeners_mutex_;
  uint64_t next_listener_ = 1;
  std::map<uint64_t, LinkListener> listeners_;

  Alarms alarms_;
};

// The flow label of a queue pair that has none of its own, and the UDP source
// port for a flow label (tests/golden/README.md).
uint32_t FlowLabelOf(uint32_t local_qpn, uint32_t remote_qpn);
uint16_t SourcePortOf(uint32_t flow_label);

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_IMPL_H_
