// A lane of an engine with what is its alone: a slot of the UDP port, and with
// it the numbers of its queue pairs, sockets, a helper thread.
#ifndef RXE_USER_ENGINE_ENGINE_LANE_H_
#define RXE_USER_ENGINE_ENGINE_LANE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/engine/helper_thread.h"
#include "rxe_user/engine/lane_impl.h"
#include "rxe_user/engine/qpn_allocator.h"
#include "rxe_user/observe/device_report.h"
#include "rxe_user/ports/port.h"
#include "transport/endpoint/translation.h"

namespace rxe_user {

// Where what an endpoint finds of translated addresses goes: a warning, or the
// process's routes (base/nat_routes.h).
class TranslationLog final : public transport::TranslationSink {
 public:
  void OnTranslation(const transport::Translation& seen) override;
  std::vector<wire::IpAddress> KnownPeers() override;
};

// Thread: lane() any; the rest by the engine's mutex, but where noted.
class EngineLane {
 public:
  // Never null, and the same for as long as this lives.
  LaneImpl& lane() { return lane_; }

  // --- Opening, in this order. Close() is allowed at any time.

  absl::Status Create(std::unique_ptr<Slot> slot, std::unique_ptr<Port> port);
  // Makes sure that `local` has its socket. Also later on, then not with the
  // lane locked.
  absl::Status OpenAddress(const LocalAddress& local);
  bool HasAddress(const wire::IpAddress& local) const;
  // How many have been opened and not closed.
  size_t addresses() const { return addresses_.size(); }
  // Closes what OpenAddress has opened, the oldest first, until fewer than
  // `keep` are left: but for those that `is_wanted` says, and those from which
  // queue pairs may still send. Not with the lane locked.
  void CloseAddresses(
      size_t keep,
      const std::function<bool(const wire::IpAddress&)>& is_wanted);
  // As those of Engine, for this lane.
  absl::Status JoinGroup(const wire::IpAddress& group, uint32_t ifindex);
  void LeaveGroup(const wire::IpAddress& group);
  absl::Status StartHelper();
  // The last: from now on threads may wait on the sockets, and count on them.
  // `observer`, null for none, sees the packets, and outlives the lane.
  void Open(transport::PacketObserver* observer);
  // Ends the helper thread, closes the sockets, and gives the slot back. Nobody
  // waits.
  void Close();

  // --- Once it is created.

  // Null before. Thread: any, once the engine is open.
  Slot* slot() const { return slot_.get(); }
  const HelperThread* helper() const { return helper_.get(); }

  // Empty when all of the slot's are in use.
  std::optional<uint32_t> AllocateQpn();
  void ReleaseQpn(uint32_t qpn);
  // How many numbers are in use.
  size_t queue_pairs() const { return numbers_.in_use(); }

  // As those of Engine. The lane is locked.
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                      uint32_t choice);
  uint64_t source_port_epoch() const { return source_port_epoch_; }

  // Thread: any. Locks the lane now and then, briefly.
  LaneReport Report();

  // --- fork (engine_registry.cc).
  void LockForFork() { locked_for_fork_ = lane_.LockForFork(); }
  void UnlockInParent();
  void AbandonInChild();

 private:
  TranslationLog translations_;
  LaneImpl lane_;
  QpnAllocator numbers_;
  std::unique_ptr<Slot> slot_;
  std::unique_ptr<Port> port_;  // the lane's once that is open
  std::unique_ptr<HelperThread> helper_;
  void CloseUnusedSenders();  // the lane is locked

  struct Address {
    LocalAddress local;
    int fd;  // of its socket, which is the port's
  };
  std::vector<Address> addresses_;  // in the order in which they were opened
  // How often each was joined and not left.
  struct Group {
    int fd;      // of its socket, which is the port's
    int joined;  // how often
  };
  std::unordered_map<wire::IpAddress, Group, absl::Hash<wire::IpAddress>>
      groups_;
  uint64_t source_port_epoch_ = 0;  // under the lane's lock
  bool locked_for_fork_ = false;    // only between fork's handlers
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ENGINE_LANE_H_
