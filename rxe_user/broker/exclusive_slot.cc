#include "rxe_user/broker/exclusive_slot.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/random.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

uint8_t RandomSlot() {
  return static_cast<uint8_t>(1 + SecureRandom32() % (kSlots - 1));
}

// All exclusive slots of a process are one: the port cannot be bound twice.
// Kept by weak pointers, so that the port is free when the last of them has
// gone.
class Port final : private ForkGuard {
 public:
  Port() : ForkGuard(ForkLevel::kDescriptors) { EnterForkGuard(); }
  ~Port() {
    {
      const std::lock_guard lock(descriptors_);
      sockets_.clear();
    }
    LeaveForkGuard();
  }

  static std::shared_ptr<Port> Get() {
    static std::mutex mu;
    static std::weak_ptr<Port> port;
    const std::lock_guard lock(mu);
    std::shared_ptr<Port> p = port.lock();
    if (p == nullptr || p->dead_) {
      p = std::make_shared<Port>();
      port = p;
    }
    return p;
  }

  uint8_t number() const { return number_; }
  absl::StatusOr<int> Open(const LocalAddress& local) {
    if (dead_) {
      return absl::FailedPreconditionError(
          "the device was opened before fork(); open it in the child");
    }
    const std::lock_guard lock(descriptors_);
    auto it = sockets_.find(local);
    if (it == sockets_.end()) {
      UniqueFd fd = BindUdp(local, wire::kRoceUdpPort, Sharing::kExclusive);
      if (!fd.valid() && errno == EADDRINUSE) {
        return absl::UnavailableError(PortTakenText(local));
      }
      if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
        return ErrnoStatus(errno, "UDP socket");
      }
      if (!fd.valid()) {
        return absl::NotFoundError("cannot bind UDP port 4791 of " +
                                   local.ToString() + ": " +
                                   std::strerror(errno));
      }
      it = sockets_.emplace(local, std::move(fd)).first;
    }
    const int copy = it->second.Copy().Release();
    if (copy < 0) return ErrnoStatus(errno, "UDP socket");
    return copy;
  }

 private:
  void BeforeFork() override { descriptors_.lock(); }
  void AfterForkInParent() override { descriptors_.unlock(); }
  void AfterForkInChild() override {
    dead_ = true;
    sockets_.clear();
    descriptors_.unlock();
  }

  const uint8_t number_ = RandomSlot();
  std::atomic<bool> dead_ = false;
  std::mutex descriptors_;                    // held during fork()
  std::map<LocalAddress, UniqueFd> sockets_;  // under descriptors_
};

class ExclusiveSlot final : public Slot {
 public:
  uint8_t number() const override { return port_->number(); }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    return port_->Open(local);
  }
  int fd() const override { return -1; }
  void OnReadable(const std::function<void(const Stray&)>&) override {}
  void Forward(const Stray&) override {}

 private:
  const std::shared_ptr<Port> port_ = Port::Get();
};

}  // namespace

std::unique_ptr<Slot> MakeExclusiveSlot() {
  return std::make_unique<ExclusiveSlot>();
}

}  // namespace rxe_user::broker
