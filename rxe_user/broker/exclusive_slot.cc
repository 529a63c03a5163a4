#include "rxe_user/broker/exclusive_slot.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/broker/further_slots.h"
#include "rxe_user/broker/udp.h"
#include "wire/mad.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

uint16_t RandomSlot() {
  return static_cast<uint16_t>(1 + SecureRandom32() % (kSlots - 1));
}

// A stray that owns its bytes.
struct KeptStray {
  Stray stray;
  std::vector<uint8_t> bytes;
};

// All exclusive slots of a process share one port, which cannot be bound twice.
// Held by a weak pointer, so the last slot frees the port.
class Port final : private ForkGuard {
 public:
  Port() : ForkGuard(ForkLevel::kDescriptors) { EnterForkGuard(); }
  ~Port() {
    {
      const std::lock_guard lock(mutex_);
      sockets_.clear();
    }
    LeaveForkGuard();
  }

  static std::shared_ptr<Port> Get() {
    struct Current {
      ForkSafeMutex mutex;
      std::weak_ptr<Port> port;  // under the mutex
    };
    Current& current = OnlyOne<Current>();
    // Created even if it turns out not to be needed: no lock may be taken while
    // the mutex is held.
    const auto fresh = std::make_shared<Port>();
    std::shared_ptr<Port> port;  // dropped after the mutex is free
    const std::lock_guard lock(current.mutex);
    port = current.port.lock();
    if (port != nullptr && !port->dead_) return port;
    current.port = fresh;
    return fresh;
  }

  uint16_t number() const { return number_; }
  absl::StatusOr<int> Open(const LocalAddress& local,
                           const std::string& reason) {
    if (dead_) return OpenedBeforeForkError();
    const std::lock_guard lock(mutex_);
    auto it = sockets_.find(local);
    if (it == sockets_.end()) {
      UniqueFd fd(MoveHigh(
          BindUdp(local, wire::kRoceUdpPort, Sharing::kExclusive).Release()));
      if (!fd.valid() && errno == EADDRINUSE) {
        return absl::UnavailableError(PortTakenText(local) + " (" + reason +
                                      ")");
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
      WarnOnce(reason +
               "; so this process owns UDP port 4791 exclusively, and no other "
               "can use it meanwhile");
    }
    const int copy = MoveHigh(it->second.Copy().Release());
    if (copy < 0) return ErrnoStatus(errno, "UDP socket");
    return copy;
  }

  // A slot starts or stops reading the address's socket.
  void AddReader(const LocalAddress& local) {
    const std::lock_guard lock(mutex_);
    ++readers_[local];
    Ring();
  }
  void RemoveReader(const LocalAddress& local) {
    const std::lock_guard lock(mutex_);
    const auto it = readers_.find(local);
    if (--it->second == 0) readers_.erase(it);
    Ring();
  }
  // A slot has opened the address's socket, or has returned it.
  void AddUser(const LocalAddress& local) {
    const std::lock_guard lock(mutex_);
    ++users_[local];
  }
  void RemoveUser(const LocalAddress& local) {
    const std::lock_guard lock(mutex_);
    const auto it = users_.find(local);
    if (--it->second > 0) return;
    users_.erase(it);
    sockets_.erase(local);
  }
  bool HasReader(const LocalAddress& local) const {
    const std::lock_guard lock(mutex_);
    return readers_.contains(local);
  }

  // --- Datagrams for queue pair 1.
  void OpenManagement() {
    const std::lock_guard lock(mutex_);
    if (!dead_) bell_.Reset(MoveHigh(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  }
  void CloseManagement() {
    const std::lock_guard lock(mutex_);
    bell_.Reset();
    kept_.clear();
  }
  int bell() const {
    const std::lock_guard lock(mutex_);
    return bell_.get();
  }
  void Keep(const Stray& stray) {
    const std::lock_guard lock(mutex_);
    if (!bell_.valid() || kept_.size() >= kMaxKept) return;
    kept_.push_back({stray, {stray.bytes.begin(), stray.bytes.end()}});
    Ring();
  }
  std::deque<KeptStray> TakeKept() {
    const std::lock_guard lock(mutex_);
    uint64_t count;
    (void)!read(bell_.get(), &count, sizeof(count));
    return std::exchange(kept_, {});
  }

 private:
  static constexpr size_t kMaxKept = 1024;

  void Ring() {
    const uint64_t one = 1;
    if (bell_.valid()) (void)!write(bell_.get(), &one, sizeof(one));
  }

  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override {
    dead_ = true;
    sockets_.clear();
    bell_.Reset();
    mutex_.unlock();
  }

  const uint16_t number_ = RandomSlot();
  std::atomic<bool> dead_ = false;
  mutable std::mutex mutex_;  // held during fork()
  // Under mutex_:
  std::map<LocalAddress, UniqueFd> sockets_;
  std::map<LocalAddress, int> readers_;  // number of slots
  std::map<LocalAddress, int> users_;    // number of slots
  UniqueFd bell_;  // readable when kept_ or readers_ have changed
  std::deque<KeptStray> kept_;
};

class ExclusiveSlot final : public Slot {
 public:
  explicit ExclusiveSlot(std::string reason) : reason_(std::move(reason)) {}
  ~ExclusiveSlot() override {
    for (const LocalAddress& local : read_) port_->RemoveReader(local);
    for (const LocalAddress& local : opened_) port_->RemoveUser(local);
    if (management_) port_->CloseManagement();
  }

  uint16_t number() const override { return port_->number(); }
  // All slots are free, since the process owns all of the port.
  absl::StatusOr<uint16_t> Extend() override {
    if (further_.full()) {
      return absl::ResourceExhaustedError("a process has too many slots");
    }
    const size_t next = number() + further_.size();
    further_.Add(static_cast<uint16_t>(1 + next % (kSlots - 1)));
    return further_[further_.size() - 1];
  }
  bool Owns(uint16_t wanted) const override {
    return wanted == number() || further_.Has(wanted);
  }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    const std::lock_guard lock(mutex_);
    const bool was_open = opened_.contains(local);
    absl::Cleanup undo = [&] {
      if (!was_open) Close(local);
    };
    Enter(opened_, local, &Port::AddUser);
    const absl::StatusOr<int> opened = port_->Open(local, reason_);
    if (!opened.ok()) return opened;
    UniqueFd fd(*opened);
    if (!management_) Enter(read_, local, &Port::AddReader);
    std::move(undo).Cancel();
    return fd.Release();
  }
  void CloseAddress(const LocalAddress& local) override {
    const std::lock_guard lock(mutex_);
    Close(local);
  }
  int fd() const override { return management_ ? port_->bell() : -1; }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override {
    if (!management_) return;
    for (KeptStray& kept : port_->TakeKept()) {
      kept.stray.bytes = kept.bytes;
      deliver(kept.stray);
    }
  }
  void TakeManagement() override {
    port_->OpenManagement();
    management_ = true;
  }
  Management ManagementOf(const LocalAddress& local) const override {
    return port_->HasReader(local) ? Management::kOtherSlot
                                   : Management::kSocket;
  }
  void Forward(const Stray& stray) override {
    const std::optional<uint32_t> qpn = wire::PeekDestQpn(stray.bytes);
    if (qpn == wire::kGsiQpn) port_->Keep(stray);
  }

 private:
  // Adds `local` to a set of the slot and to the port's count of that set: to
  // both or, without memory, to neither.
  void Enter(std::set<LocalAddress>& set, const LocalAddress& local,
             void (Port::*count)(const LocalAddress&)) {
    const auto [it, added] = set.insert(local);
    if (!added) return;
    absl::Cleanup undo = [&, it = it] { set.erase(it); };
    ((*port_).*count)(local);
    std::move(undo).Cancel();
  }
  // mutex_ is held.
  void Close(const LocalAddress& local) {
    if (read_.erase(local) != 0) port_->RemoveReader(local);
    if (opened_.erase(local) != 0) port_->RemoveUser(local);
  }

  const std::string reason_;
  const std::shared_ptr<Port> port_ = Port::Get();
  std::atomic<bool> management_ = false;
  FurtherSlots further_;
  std::mutex mutex_;
  std::set<LocalAddress> opened_;  // under mutex_
  std::set<LocalAddress> read_;    // under mutex_; those that this slot reads
};

}  // namespace

std::unique_ptr<Slot> MakeExclusiveSlot(std::string reason) {
  return std::make_unique<ExclusiveSlot>(std::move(reason));
}

}  // namespace rxe_user::broker
