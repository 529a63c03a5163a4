// A host with a connection manager, for tests, which deliver MADs explicitly.
#ifndef TRANSPORT_CM_TEST_HOST_H_
#define TRANSPORT_CM_TEST_HOST_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "transport/cm/connection_manager.h"
#include "wire/cm.h"

namespace transport::cm {

// A counter instead of random numbers.
class CountingRandom : public RandomSource {
 public:
  explicit CountingRandom(uint32_t first) : next_(first) {}
  uint32_t Next32() override { return next_++; }

 private:
  uint32_t next_;
};

class TestHost {
 public:
  static constexpr uint64_t kService = 0x0000000001061c06;

  // "10.0.0.N", CA GUID N.
  explicit TestHost(int number, const Config& config = {})
      : address_(*wire::IpAddress::Parse("10.0.0." + std::to_string(number))),
        guid_(number),
        random_(number * 0x01000000u),
        manager_(config, &random_) {}

  const wire::IpAddress& address() const { return address_; }
  uint64_t guid() const { return guid_; }
  ConnectionManager& operator*() { return manager_; }
  ConnectionManager* operator->() { return &manager_; }

  ListenerId Listen(uint64_t service_id = kService, size_t backlog = 128) {
    ListenerId id = 0;
    manager_.Listen({.service_id = service_id, .local = {}, .backlog = backlog},
                    &id);
    return id;
  }

  // Exponent 10 is 4.2 ms: a REQ is retransmitted after 3 * 4.2 ms.
  ConnectOptions OptionsFor(const TestHost& to, uint32_t qpn) const {
    ConnectOptions options;
    options.local = address_;
    options.remote = to.address_;
    options.packet_life_time = 10;
    options.req.service_id = kService;
    options.req.local_ca_guid = guid_;
    options.req.local_qpn = qpn;
    options.req.remote_cm_response_timeout = 10;
    options.req.local_cm_response_timeout = 10;
    options.req.max_cm_retries = 15;
    options.req.primary.local_ack_timeout = 11;
    return options;
  }
  CmId Connect(const TestHost& to, uint32_t qpn, Time now) {
    CmId id = 0;
    manager_.Connect(OptionsFor(to, qpn), now, &id);
    return id;
  }
  Result Accept(CmId id, uint32_t qpn, Time now) {
    return manager_.Accept(id, {.local_qpn = qpn, .local_ca_guid = guid_}, now);
  }

  // The next MAD to send.
  std::optional<OutgoingMad> Sent() {
    OutgoingMad mad;
    if (!manager_.PollTransmit(&mad)) return std::nullopt;
    return mad;
  }
  // Drops all MADs to send and returns their names: "CM_REQ CM_REJ".
  std::string Drop() {
    std::string names;
    while (const auto mad = Sent()) names += Name(*mad);
    return names;
  }
  // Delivers all MADs to send and returns their names.
  std::string SendTo(TestHost& to, Time now) {
    std::string names;
    while (const auto mad = Sent()) {
      names += Name(*mad);
      to.Receive(*mad, now);
    }
    return names;
  }
  void Receive(const OutgoingMad& mad, Time now) {
    manager_.OnMad(
        {.local = mad.remote, .remote = mad.local, .bytes = mad.bytes}, now);
  }

  // The next event, if any.
  std::optional<Event> NextEvent() {
    Event event;
    if (!manager_.PollEvent(&event)) return std::nullopt;
    return event;
  }
  // The kinds of all pending events.
  std::vector<EventKind> Events() {
    std::vector<EventKind> kinds;
    while (const auto event = NextEvent()) kinds.push_back(event->kind);
    return kinds;
  }

 private:
  static std::string Name(const OutgoingMad& mad) {
    wire::CmView view;
    if (wire::CmView::Parse(mad.bytes, &view) != wire::CmParseError::kOk) {
      return "garbage ";
    }
    return std::string(wire::CmAttributeName(view.attribute())) + " ";
  }

  wire::IpAddress address_;
  uint64_t guid_;
  CountingRandom random_;
  ConnectionManager manager_;
};

// The REJ in a MAD.
inline wire::CmRej RejOf(std::span<const uint8_t> mad) {
  wire::CmView view;
  if (wire::CmView::Parse(mad, &view) != wire::CmParseError::kOk ||
      view.attribute() != wire::CmAttribute::kRej) {
    return {.reason = static_cast<wire::CmRejectReason>(0)};
  }
  return view.rej();
}

}  // namespace transport::cm

#endif  // TRANSPORT_CM_TEST_HOST_H_
