// A port that sends to itself, over loopback.
#ifndef RXE_USER_TESTING_LOOPBACK_PORT_H_
#define RXE_USER_TESTING_LOOPBACK_PORT_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "rxe_user/ports/port.h"

namespace rxe_user {

class LoopbackPortTest : public ::testing::Test {
 protected:
  struct Packet {
    std::vector<uint8_t> bytes;
    uint16_t index;  // in its arrival
    transport::GroBatch arrival;
  };

  // Opens `port_` at `address`, or fails the test; skips it where there is no
  // IPv6.
  void Open(const char* address);
  // A socket where a receiver has to be bound; -1 where that is not possible.
  int Bind() const { return Bind(local_); }
  static int Bind(const LocalAddress& local);
  // Queues packets of these sizes, in one burst where it takes all of them. All
  // bytes but the ICRC are `fill` in the first, and `step` more in each that
  // follows.
  void Queue(const transport::Flow& flow, const std::vector<size_t>& sizes,
             uint8_t fill = 7, uint8_t step = 0);
  // The next `count` packets.
  std::vector<Packet> Receive(size_t count);

  LocalAddress local_;
  std::unique_ptr<Port> port_;
  transport::AddressVector av_;  // to itself, from source port choice 5
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_LOOPBACK_PORT_H_
