#include "rxe_user/broker/public_slot.h"

#include <utility>

#include "rxe_user/base/public_addresses.h"

namespace rxe_user::broker {
namespace {

class PublicSlot final : public Slot {
 public:
  explicit PublicSlot(std::unique_ptr<Slot> slot) : slot_(std::move(slot)) {}

  uint16_t number() const override { return slot_->number(); }
  absl::StatusOr<uint16_t> Extend() override { return slot_->Extend(); }
  bool Owns(uint16_t number) const override { return slot_->Owns(number); }
  absl::StatusOr<int> OpenAddress(const LocalAddress& local) override {
    return slot_->OpenAddress(Bound(local));
  }
  void CloseAddress(const LocalAddress& local) override {
    slot_->CloseAddress(Bound(local));
  }
  int fd() const override { return slot_->fd(); }
  Clock::time_point retry_at() const override { return slot_->retry_at(); }
  void OnReadable(const std::function<void(const Stray&)>& deliver) override {
    slot_->OnReadable([&](const Stray& stray) {
      Stray known = stray;
      // In a datagram from this host to itself, the source is one of our
      // addresses, too.
      if (known.source == known.destination) {
        known.source = KnownAddress(known.source);
      }
      known.destination = KnownAddress(known.destination);
      deliver(known);
    });
  }
  void OnChange(std::function<void()> changed) override {
    slot_->OnChange(std::move(changed));
  }
  void TellConnections(
      std::function<std::vector<OpenConnection>()> connections) override {
    slot_->TellConnections([connections = std::move(connections)] {
      std::vector<OpenConnection> all = connections();
      for (OpenConnection& one : all) one.local = Bound(one.local);
      return all;
    });
  }
  void TellConnected(const OpenConnection& connection) override {
    OpenConnection bound = connection;
    bound.local = Bound(connection.local);
    slot_->TellConnected(bound);
  }
  void TakeManagement() override { slot_->TakeManagement(); }
  Management ManagementOf(const LocalAddress& local) const override {
    return slot_->ManagementOf(Bound(local));
  }
  absl::Status Reserve(uint32_t token, const Service& service) override {
    Service bound = service;
    bound.local = Bound(service.local);
    return slot_->Reserve(token, bound);
  }
  void Unreserve(uint32_t token) override { slot_->Unreserve(token); }
  void Forward(const Stray& stray) override {
    Stray bound = stray;
    bound.destination = BoundAddress(stray.destination);
    if (stray.source == stray.destination) bound.source = bound.destination;
    slot_->Forward(bound);
  }

 private:
  const std::unique_ptr<Slot> slot_;
};

}  // namespace

std::unique_ptr<Slot> WithPublicAddresses(std::unique_ptr<Slot> slot) {
  return std::make_unique<PublicSlot>(std::move(slot));
}

}  // namespace rxe_user::broker
