// A lane of an engine, and what belongs to it alone: sockets, a helper thread,
// and a slot of the UDP port, which gives the numbers of its queue pairs.
#ifndef RXE_USER_ENGINE_ENGINE_LANE_H_
#define RXE_USER_ENGINE_ENGINE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/engine/helper_thread.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/engine/qpn_allocator.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/ports/port.h"
#include "transport/dc/dc_connections.h"
#include "transport/dc/dc_lane.h"
#include "transport/endpoint/translation.h"

namespace rxe_user {

// Receives an endpoint's findings about translated addresses (NAT). Writes a
// warning, or adds to the process's routes (base/nat_routes.h).
class TranslationLog final : public transport::TranslationSink {
 public:
  void OnTranslation(const transport::Translation& seen) override;
  std::vector<wire::IpAddress> KnownPeers(const transport::Via& seen) override;
};

// Thread: lane() any; the others under the engine's mutex, unless noted.
class EngineLane final : private transport::DcLane {
 public:
  // Never null; the same for the lifetime of this object.
  LaneImpl& lane() { return lane_; }

  // --- Opening, in this order. Close() is allowed at any time.

  // `ifindex`: of the device's interface.
  absl::Status Create(std::unique_ptr<Slot> slot, std::unique_ptr<Port> port,
                      uint32_t ifindex);
  // Makes sure that `local` has its socket. Also allowed after Open, with the
  // lane not locked.
  absl::Status OpenAddress(const LocalAddress& local);
  bool HasAddress(const wire::IpAddress& local) const;
  // Addresses that are open.
  size_t addresses() const { return addresses_.size(); }
  // Closes addresses, the oldest first, until fewer than `keep` are left. Keeps
  // those for which `is_wanted` returns true, and those from which queue pairs
  // may still send. Lane not locked.
  void CloseAddresses(
      size_t keep,
      const std::function<bool(const wire::IpAddress&)>& is_wanted);
  // As Engine's, for this lane.
  absl::Status JoinGroup(const wire::IpAddress& group, uint32_t ifindex);
  void LeaveGroup(const wire::IpAddress& group);
  // As Port::ControlTask's. Lane not locked.
  void OnAddressesChanged();
  absl::Status StartHelper();
  // The last step: from now on threads may wait on the sockets. `observer` sees
  // the packets and must outlive the lane; may be null.
  void Open(transport::PacketObserver* observer);
  // Ends the helper thread, closes the sockets and returns the slot. No thread
  // may be waiting.
  void Close();

  // --- After Create.

  // Null before Create. Thread: any, once the engine is open.
  Slot* slot() const { return slot_.get(); }
  const HelperThread* helper() const { return helper_.get(); }

  // Empty when all numbers of the slots are in use, and there is no further
  // slot. May wait for the broker.
  std::optional<uint32_t> AllocateQpn();
  void ReleaseQpn(uint32_t qpn);
  // Numbers in use: those of queue pairs, and of DC targets' connections.
  size_t queue_pairs() const;
  // Lane locked.
  transport::DcConnections& dc_connections() { return dc_; }

  // As Engine's. Lane locked.
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice);
  absl::Status OpenSourcePort(const LocalAddress& local, uint16_t port);
  uint64_t source_port_epoch() const { return source_port_epoch_; }

  // Thread: any. Locks the lane repeatedly, briefly each time.
  LaneReport Report();
  // Its counters alone. None if the lane stays locked: exit() may have
  // interrupted a thread.
  std::optional<LaneReport> CountersAtExit();

  // --- fork (engine_registry.cc).
  void LockForFork() { locked_for_fork_ = lane_.LockForFork(); }
  void UnlockInParent();
  void AbandonInChild();

 private:
  // --- DcLane. Lane locked.
  std::optional<uint32_t> AllocateNumber() override;
  void ReleaseNumber(uint32_t number) override;
  std::optional<uint16_t> SourcePort(
      const transport::AddressVector& target,
      const transport::Received& connect) override;
  uint32_t Random() override;

  TranslationLog translations_;
  LaneImpl lane_;
  struct Numbers {
    uint16_t slot;
    QpnAllocator free;
  };
  // A number of a slot that has fewer than `limit` in use.
  std::optional<uint32_t> AllocateBelow(size_t limit);

  transport::DcConnections dc_{lane_.endpoint(), *this};
  // Taken last: by the engine, and by the connections of a locked lane.
  mutable std::mutex numbers_mutex_;
  std::vector<Numbers> numbers_;  // of each slot; guarded by numbers_mutex_
  uint32_t ifindex_ = 0;
  bool abandoned_ = false;  // in a child of fork
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<Port> port_;  // moved into the lane by Open
  std::unique_ptr<HelperThread> helper_;
  void CloseUnusedSenders();  // lane locked

  struct Address {
    LocalAddress local;
    int fd;  // its socket, owned by the port
  };
  std::vector<Address> addresses_;  // oldest first
  struct Group {
    int fd;      // its socket, owned by the port
    int joined;  // calls of JoinGroup minus LeaveGroup
  };
  std::unordered_map<wire::IpAddress, Group> groups_;
  uint64_t source_port_epoch_ = 0;  // guarded by the lane's lock
  bool locked_for_fork_ = false;    // used between fork's handlers
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_LANE_H_
