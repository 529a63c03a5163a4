// What an application's objects on one device share: the engine, the memory
// keys, and the identities of protection domains.
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
#include "rxe_user/memory/region_table.h"
#include "rxe_user/objects/queue_memory.h"
#include "rxe_user/objects/xrc_domain.h"
#include "transport/base/types.h"
#include "wire/headers.h"

namespace rxe_user {

// What all contexts of one device have in common within the process, so that an
// XRC domain, and the queue pairs in it, may be of several: keys and identities
// are unique among them.
//
// Thread: any.
class DeviceSpace {
 public:
  // That of `engine`, made when new.
  static std::shared_ptr<DeviceSpace> For(std::shared_ptr<Engine> engine);
  explicit DeviceSpace(std::shared_ptr<Engine> engine)
      : engine_(std::move(engine)) {}

  Engine& engine() { return *engine_; }
  RegionTable& regions() { return regions_; }
  XrcDomainTable& xrc_domains() { return xrc_domains_; }
  transport::PdId NewPdId() { return next_pd_.fetch_add(1); }
  // Numbers for XRC SRQs; each again after 2^24 others.
  uint32_t NewSrqn() { return next_srqn_.fetch_add(1) & wire::kQpnMask; }

 private:
  const std::shared_ptr<Engine> engine_;
  RegionTable regions_;
  XrcDomainTable xrc_domains_;
  std::atomic<transport::PdId> next_pd_{1};
  std::atomic<uint32_t> next_srqn_{1};
};

// Thread: any. Outlives every object made in it.
class Context {
 public:
  explicit Context(std::shared_ptr<const Device> device);

  // As it is now, or was 10 ms ago as long as the engine tells of no changes.
  // A GID keeps its index while its address lasts; an index whose
  // address has gone holds the unspecified address until a new one takes it.
  std::shared_ptr<const Device> device();
  Engine& engine() { return space_->engine(); }
  DeviceSpace& space() { return *space_; }
  RegionTable& regions() { return space_->regions(); }

  // Reads the device anew at the next call of device(). From any thread, at any
  // time.
  void DeviceChanged() { stale_.store(true, std::memory_order_release); }

  // When it returns, everything that a lane was doing when it was called is
  // over. The caller holds no lane's lock.
  void WaitForLanes();
  // A network card executes a request when it comes; here it may lie in a
  // socket for a while. When this returns, what had come when it was called has
  // been executed, up to some MiB. The caller holds no lane's lock.
  void ExecuteArrived();

  // Of what ibv_alloc_dm(3) may have, kMaxDeviceMemory. False: not so much.
  bool TakeDeviceMemory(uint64_t bytes);
  void ReturnDeviceMemory(uint64_t bytes) { device_memory_ -= bytes; }

  // Completes an address vector in which `destination`, `gid_index` and the
  // fields of the GRH are set, but for the UDP port: the source address, a hop
  // limit that leaves this link. 0, or EINVAL (GID index, address family), or
  // what opening the address gave.
  int ResolveAddress(transport::AddressVector* av);
  // The UDP source port, for a queue pair whose lane is locked and stays so
  // until it has it.
  int ResolvePort(uint32_t local_qpn, uint32_t remote_qpn,
                  transport::AddressVector* av);

 private:
  // device_mutex_ held. Whether `device_` is to be read anew; that it was stale
  // is forgotten.
  bool MayHaveChanged();

  std::mutex device_mutex_;
  std::shared_ptr<const Device> device_;  // guarded by device_mutex_
  // The same: when it is read again, if nobody tells of changes.
  transport::Time next_look_ = 0;
  std::atomic<bool> stale_{false};
  const std::shared_ptr<DeviceSpace> space_;
  std::atomic<uint64_t> device_memory_{0};  // bytes in use
};

// An address that is held (Engine::HoldAddress) as long as this lives.
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

// A protection domain, and how many objects are in it: it cannot go before
// they do.
struct ProtectionDomain {
  explicit ProtectionDomain(Context& context)
      : context(context), id(context.space().NewPdId()) {}
  // A parent domain: `of` by another name, which has users of its own. It is
  // one of `of` itself, and outlives neither.
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
  const transport::PdId id;  // what makes two of them the same
  ProtectionDomain* const of = nullptr;
  // Of a parent domain that brings one: of the queues that are made with it.
  std::unique_ptr<QueueAllocator> allocator;
  std::atomic<int> users{0};
  // Deallocated by one of several handles (ibv_import_pd(3)): the others can
  // only be taken back.
  std::atomic<bool> gone{false};
};

// `now` with every GID of `before` that still exists at its old index.
std::shared_ptr<const Device> WithStableGids(const Device& before,
                                             const Device& now);

// The errno value that says nearest what `status` does, after its message went
// to stderr: once for each message.
int ReportedErrno(const absl::Status& status);

}  // namespace rxe_user

#endif  // RXE_USER_OBJECTS_CONTEXT_H_
