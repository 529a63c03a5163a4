// A port without sockets, which is never blocked: what ports of tests have in
// common.
#ifndef RXE_USER_TESTING_SOCKETLESS_PORT_H_
#define RXE_USER_TESTING_SOCKETLESS_PORT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"
#include "wire/address.h"

namespace rxe_user {

// A test adds how packets are sent and received.
class SocketlessPort : public Port {
 public:
  absl::Status AddReceiver(const LocalAddress&, int) override {
    return absl::OkStatus();
  }
  bool HasReceiver(const wire::IpAddress&) const override { return false; }
  void RemoveReceiver(const wire::IpAddress&) override {}
  absl::StatusOr<uint16_t> SourcePort(const LocalAddress&, uint32_t) override {
    return 0xc000;
  }
  absl::Status OpenSourcePort(const LocalAddress&, uint16_t) override {
    return absl::OkStatus();
  }
  size_t CloseUnusedSenders(const ForEachUsed&) override { return 0; }
  std::vector<int> ReceiveDescriptors() const override { return {}; }
  bool more() const override { return false; }
  uint64_t TakeOverflow() override { return 0; }
  void Flush() override {}
  bool blocked() const override { return false; }
  bool must_retry() const override { return false; }
  const PortCounters& counters() const override { return counters_; }
  void AbandonInChild() override {}

 private:
  PortCounters counters_;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_SOCKETLESS_PORT_H_
