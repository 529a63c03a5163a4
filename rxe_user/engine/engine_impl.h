// The engine behind engine.h, with its parts replaceable for tests.
#ifndef RXE_USER_ENGINE_ENGINE_IMPL_H_
#define RXE_USER_ENGINE_ENGINE_IMPL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rxe_user/broker/slot.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/engine/engine.h"
#include "rxe_user/engine/helper_thread.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/engine/qpn_allocator.h"
#include "rxe_user/ports/port.h"

namespace rxe_user {

class EngineImpl final : public Engine {
 public:
  struct Parts {
    std::function<absl::StatusOr<std::unique_ptr<Slot>>()> acquire_slot;
    std::function<absl::StatusOr<std::unique_ptr<Port>>()> make_port;
  };
  EngineImpl(std::shared_ptr<const Device> device, Parts parts);
  ~EngineImpl() override;

  bool alive() const override { return alive_; }
  absl::StatusOr<uint32_t> AllocateQpn() override;
  void ReleaseQpn(uint32_t qpn) override;
  LaneImpl& LaneOf(uint32_t qpn) override;
  int lane_count() const override { return static_cast<int>(lanes_.size()); }
  LaneImpl& lane(int index) override {
    return *lanes_[static_cast<size_t>(index)];
  }
  absl::Status OpenAddress(const wire::IpAddress& local) override;
  absl::StatusOr<uint16_t> SourcePort(const wire::IpAddress& local,
                                      uint32_t flow_label, uint32_t local_qpn,
                                      uint32_t remote_qpn) override;
  bool Progress() override;
  void SignOfLife() override;
  void DropLease() override;
  int WaitReadable(int fd) override;
  int WaitAside(int fd) override;
  uint64_t AddLinkListener(LinkListener listener) override;
  void RemoveLinkListener(uint64_t id) override;

  // Null before the first queue pair.
  const HelperThread* helper() const { return helper_.get(); }

  // --- fork (see engine_registry.cc).
  void LockForFork();
  void UnlockInParent();
  void AbandonInChild();

 private:
  // The following: mutex_ held.
  absl::Status EnsureOpen();
  absl::Status OpenParts();
  absl::Status OpenAddressLocked(const GidEntry& entry);

  // The interface's index for a link-local address, else 0.
  uint32_t ScopeOf(const wire::IpAddress& address) const;
  transport::Time HelperTurn();
  void OnSlotReadable();
  void OnLinkReadable();
  void TellLink(const std::vector<LinkChange>& changes);
  // The descriptor of aside_monitor_, made when new; -1 if that is refused.
  int AsideLink();
  void OnAsideLink();

  const std::shared_ptr<const Device> device_;
  const Parts parts_;
  std::vector<std::unique_ptr<LaneImpl>> lanes_;
  std::atomic<bool> alive_ = true;
  std::atomic<bool> open_ = false;  // slot_, helper_, sockets are there

  std::mutex mutex_;  // opening, addresses, numbers; before any lane's lock
  QpnAllocator numbers_;
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<LinkMonitor> link_monitor_;
  std::unique_ptr<HelperThread> helper_;       // makes progress
  std::unique_ptr<HelperThread> housekeeper_;  // port broker, link events

  // Before there is a housekeeper, threads in WaitAside tell the link's events.
  std::mutex aside_mutex_;
  std::unique_ptr<LinkMonitor> aside_monitor_;  // guarded by aside_mutex_

  std::mutex listeners_mutex_;
  uint64_t next_listener_ = 1;
  std::map<uint64_t, LinkListener> listeners_;

  std::vector<bool> locked_for_fork_;  // by lane; only between fork's handlers
};

// The flow label that a queue pair without one of its own gets, and the UDP
// source port that follows from a flow label (tests/golden/README.md).
uint32_t FlowLabelOf(uint32_t local_qpn, uint32_t remote_qpn);
uint16_t SourcePortOf(uint32_t flow_label);

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_IMPL_H_
