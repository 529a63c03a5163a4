// Closing an engine while its control thread serves the port broker.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/engine/engine_registry.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/test_slots.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {
namespace {

// A slot for which a message from the broker is waiting. It processes the
// message while `closing` waits for it, and then has a new descriptor.
class ReconnectingSlot final : public Slot {
 public:
  struct Script {
    std::atomic<bool> entered = false;
    std::function<void()> await_closing;
  };
  ReconnectingSlot(std::unique_ptr<Slot> slot, Script* script)
      : slot_(std::move(slot)), script_(*script) {}
  ~ReconnectingSlot() override { ::close(fd_); }

  uint16_t number() const override { return slot_->number(); }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    return slot_->OpenAddress(local);
  }
  int fd() const override { return fd_; }
  void OnReadable(const std::function<void(const Stray&)>&) override {
    uint64_t count;
    ASSERT_EQ(::read(fd_, &count, sizeof(count)), 8);
    script_.entered = true;
    script_.await_closing();
    changed_();
  }
  void OnChange(std::function<void()> changed) override {
    changed_ = std::move(changed);
  }
  void Forward(const Stray& stray) override { slot_->Forward(stray); }

 private:
  const std::unique_ptr<Slot> slot_;
  Script& script_;
  std::function<void()> changed_;
  const int fd_ = ::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
};

TEST(EngineClose, WaitsForAReconnectionInProgress) {
  TestSlots slots;
  ReconnectingSlot::Script script;
  std::atomic<WatchedThread*> closer = nullptr;
  script.await_closing = [&] {
    while (closer == nullptr) std::this_thread::yield();
    EXPECT_TRUE(closer.load()->AwaitSleep());
  };
  auto device = std::make_shared<Device>();
  device->netdev = "lo";
  device->ifindex = 1;
  device->loopback = true;
  device->mtu = 65536;
  device->roce_mtu = 4096;
  device->gids = {{*wire::IpAddress::Parse("127.0.0.1"), 0}};
  const auto acquire = [&]() -> absl::StatusOr<std::unique_ptr<Slot>> {
    auto slot = slots.Acquire();
    if (!slot.ok()) return slot.status();
    return std::make_unique<ReconnectingSlot>(*std::move(slot), &script);
  };
  std::shared_ptr<EngineImpl> engine =
      MakeEngine(std::move(device), {acquire, CreateSocketPort});
  const auto qpn = engine->AllocateQpn();
  ASSERT_TRUE(qpn.ok()) << qpn.status();
  engine->ReleaseQpn(*qpn);
  while (!script.entered) std::this_thread::yield();
  WatchedThread thread([&] { engine.reset(); });
  closer = &thread;
  thread.join();
}

}  // namespace
}  // namespace rxe_user
