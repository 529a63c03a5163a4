#include "rxe_user/broker/public_slot.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "rxe_user/base/public_addresses.h"

namespace rxe_user::broker {
namespace {

class FakeSlot final : public Slot {
 public:
  explicit FakeSlot(OpenConnection* told) : told_(told) {}

  uint16_t number() const override { return 1; }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    (void)local;
    return -1;
  }
  int fd() const override { return -1; }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override {
    (void)deliver;
  }
  void TellConnected(const OpenConnection& connection) override {
    *told_ = connection;
  }
  void Forward(const Stray& stray) override { (void)stray; }

 private:
  OpenConnection* const told_;
};

// The broker knows the addresses of the interfaces. With public ones it could
// not disconnect the connections of a killed process.
TEST(PublicSlotTest, TheBrokerGetsTheInterfacesAddress) {
  const wire::IpAddress known = *wire::IpAddress::Parse("203.0.113.7");
  const wire::IpAddress bound = *wire::IpAddress::Parse("10.1.2.3");
  AddPublicAddresses({{known, bound}});
  OpenConnection told;
  const std::unique_ptr<Slot> slot =
      WithPublicAddresses(std::make_unique<FakeSlot>(&told));
  slot->TellConnected({.local = {known, 0},
                       .peer = *wire::IpAddress::Parse("192.0.2.1"),
                       .local_id = 0x01000002});
  EXPECT_EQ(told.local, (LocalAddress{bound, 0}));
  EXPECT_EQ(told.local_id, 0x01000002u);
}

}  // namespace
}  // namespace rxe_user::broker
