// A port that sends to itself over loopback.
#ifndef RXE_USER_TESTING_LOOPBACK_PORT_H_
#define RXE_USER_TESTING_LOOPBACK_PORT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/ports/port.h"
#include "rxe_user/ports/udp_port.h"
#include "rxe_user/ports/uring_port.h"

namespace rxe_user {

class LoopbackPortTest : public ::testing::Test {
 public:
  static absl::StatusOr<std::unique_ptr<Port>> CreateUring() {
    return UringPort::Create(Uring::Requests::kByCaller);
  }
  static absl::StatusOr<std::unique_ptr<Port>> CreateForBulk() {
    return UringPort::Create(Uring::Requests::kByCaller, RingUse::kForBulk);
  }
  static absl::StatusOr<std::unique_ptr<Port>> CreateSqpoll() {
    return UringPort::Create(Uring::Requests::kByKernelThread);
  }

 protected:
  struct Packet {
    std::vector<uint8_t> bytes;
    uint16_t index;  // in its arrival
    transport::GroBatch arrival;
  };

  using CreatePort = absl::StatusOr<std::unique_ptr<Port>> (*)();

  // Opens `port_` at `address`, or fails the test. Skips the test without IPv6,
  // and where the system has no io_uring for another port than UdpPort.
  void Open(const char* address, CreatePort create = UdpPort::Create);
  // A socket bound as a receiver; -1 if not possible.
  int Bind() const { return Bind(local_); }
  static int Bind(const LocalAddress& local);
  // Queues packets of these sizes, in one burst if they fit. All bytes but the
  // ICRC are `fill` in the first packet, and `step` more in each later one.
  void Queue(const transport::Flow& flow, const std::vector<size_t>& sizes,
             uint8_t fill = 7, uint8_t step = 0);
  // Returns the next `count` packets.
  std::vector<Packet> Receive(size_t count);

  LocalAddress local_;
  std::unique_ptr<Port> port_;
  transport::AddressVector av_;  // to itself, source port choice 5
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_LOOPBACK_PORT_H_
