// What the objects of an application on one device share: the engine, the
// memory keys, and the IDs of protection domains.
#ifndef RXE_USER_OBJECTS_CONTEXT_H_
#define RXE_USER_OBJECTS_CONTEXT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "rxe_user/devices/device.h"
#include "rxe_user/engine/engine.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/queue_memory.h"
#include "rxe_user/objects/xrc_domain.h"
#include "transport/base/memory.h"
#include "transport/base/types.h"
#include "wire/headers.h"

namespace rxe_user {

// Shared by all contexts of one device in the process, so that an XRC domain
// and its queue pairs may span several: keys and IDs are unique among them.
//
// Thread: any.
class DeviceSpace {
 public:
  // The space of `engine`, created if there is none.
  static std::shared_ptr<DeviceSpace> For(std::shared_ptr<Engine> engine);
  explicit DeviceSpace(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)) {}

  Engine& engine() { return *engine_; }
  RegionTable& regions() { return regions_; }
  // The memory that queue pairs access: the regions, behind the memory that
  // PutInFront has added, if any, and behind that of faults on command.
  transport::Memory& memory() {
    if (faulted_ != nullptr) return *faulted_;
    return in_front_ != nullptr ? *in_front_ : regions_;
  }
  // Puts `make(regions())` in front of the regions, unless PutInFront has added
  // a memory before. Call before the first queue pair is created.
  template <typename Make>
  void PutInFront(Make&& make) {
    std::call_once(in_front_once_, [&] { in_front_ = make(regions_); });
  }
  // Lets rules take memory away. Call it after PutInFront, and before the first
  // queue pair is created.
  void FollowFaults(ProcessFaults& faults);
  XrcDomainTable& xrc_domains() { return xrc_domains_; }
  transport::PdId NewPdId() { return next_pd_.fetch_add(1); }
  // Numbers for XRC SRQs; reused after 2^24 others.
  uint32_t NewSrqn() { return next_srqn_.fetch_add(1) & wire::kQpnMask; }

 private:
  const std::shared_ptr<Engine> engine_;
  RegionTable regions_;
  std::once_flag in_front_once_;
  std::unique_ptr<transport::Memory> in_front_;  // mostly null
  std::once_flag faulted_once_;
  std::unique_ptr<transport::Memory> faulted_;  // mostly null
  XrcDomainTable xrc_domains_;
  std::atomic<transport::PdId> next_pd_{1};
  std::atomic<uint32_t> next_srqn_{1};
};

// Thread: any. Outlives every object created in it.
class Context {
 public:
  explicit Context(std::shared_ptr<const Device> device);

  // The current device; 10 ms old at most while the engine does not report
  // changes. A GID keeps its index while its address exists. An index whose
  // address is gone holds the unspecified address until a new one takes it.
  std::shared_ptr<const Device> device();
  Engine& engine() { return space_->engine(); }
  DeviceSpace& space() { return *space_; }
  RegionTable& regions() { return space_->regions(); }

  // The next device() reads the device again. Thread: any, at any time.
  void DeviceChanged() { stale_.store(true, std::memory_order_release); }

  // On return, everything that a lane was doing at the call has ended. The
  // caller holds no lane's lock.
  void WaitForLanes();
  // A NIC executes a request when it arrives; here it may wait in a socket. On
  // return, requests that had arrived at the call have been executed, up to
  // some MiB. The caller holds no lane's lock.
  void ExecuteArrived();

  // Reserves device memory (ibv_alloc_dm(3)). False: less is left of
  // kMaxDeviceMemory.
  bool TakeDeviceMemory(uint64_t bytes);
  void ReturnDeviceMemory(uint64_t bytes) { device_memory_ -= bytes; }

  // Completes an address vector with `destination`, `gid_index` and GRH fields,
  // except the UDP port: sets the source address and a hop limit that leaves
  // the link. 0, or EINVAL (GID index, address family), or the error of opening
  // the address.
  int ResolveAddress(transport::AddressVector* av);
  // The same without a destination.
  int ResolveSource(transport::AddressVector* av);
  // Sets the UDP source port for a queue pair, whose lane must be locked until
  // the queue pair has it.
  int ResolvePort(uint32_t local_qpn, uint32_t remote_qpn,
                  transport::AddressVector* av);

 private:
  // Whether `device_` must be read again; clears stale_. device_mutex_ held.
  bool MayHaveChanged();

  std::mutex device_mutex_;
  std::shared_ptr<const Device> device_;  // guarded by device_mutex_
  // The same: when to read it again if changes are not reported.
  transport::Time next_read_ = 0;
  std::atomic<bool> stale_{false};
  const std::shared_ptr<DeviceSpace> space_;
  std::atomic<uint64_t> device_memory_{0};  // bytes in use
};

// Holds an address (Engine::HoldAddress) while it lives.
class HeldAddress {
 public:
  // `engine` outlives it.
  HeldAddress(Engine& engine, const wire::IpAddress& address)
      : engine_(engine), address_(address) {
    engine.HoldAddress(address);
  }
  ~HeldAddress() { engine_.ReleaseAddress(address_); }
  HeldAddress(const HeldAddress&) = delete;
  HeldAddress& operator=(const HeldAddress&) = delete;

 private:
  Engine& engine_;
  const wire::IpAddress address_;
};

// A protection domain, and the number of objects in it: it must outlive them.
struct ProtectionDomain {
  explicit ProtectionDomain(Context& context)
      : context(context), id(context.space().NewPdId()) {}
  // A parent domain: another name for `of`, with users of its own. It counts as
  // a user of `of`, and must not outlive it.
  explicit ProtectionDomain(ProtectionDomain& of)
      : context(of.context), id(of.id), of(&of) {
    ++of.users;
  }
  ~ProtectionDomain() {
    if (of != nullptr) --of->users;
  }
  ProtectionDomain(const ProtectionDomain&) = delete;
  ProtectionDomain& operator=(const ProtectionDomain&) = delete;

  Context& context;
  const transport::PdId id;  // equal for a domain and its parent domains
  ProtectionDomain* const of = nullptr;
  // The allocator of a parent domain, if it has one, for queues created with
  // it.
  std::unique_ptr<QueueAllocator> allocator;
  std::atomic<int> users{0};
  // Deallocated through one of several handles (ibv_import_pd(3)): the others
  // can only be unimported.
  std::atomic<bool> gone{false};
};

// `now` with each GID that exists in `before` at its old index.
std::shared_ptr<const Device> WithStableGids(const Device& before,
                                             const Device& now);

// Prints the message of `status` on stderr, once for each message, and returns
// the closest errno value.
int ReportedErrno(const absl::Status& status);

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_CONTEXT_H_
