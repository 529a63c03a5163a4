// An io_uring port on the loopback interface, for its tests.
#ifndef RXE_USER_PORTS_URING_PORT_FIXTURE_H_
#define RXE_USER_PORTS_URING_PORT_FIXTURE_H_

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/testing/loopback_port.h"
#include "wire/packet.h"

namespace rxe_user {

class UringPortTest : public LoopbackPortTest {
 protected:
  void SetUp() override { Open("127.0.0.1", CreateUring); }

  int ring() const { return port_->ReceiveDescriptors().back(); }
  bool RingIsReadable() const {
    pollfd fd = {ring(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  // The first bytes of the batches of one Receive.
  std::vector<int> ReceiveOnce(bool thorough = true) {
    std::vector<int> numbers;
    for (const transport::GroBatch& batch : port_->Receive(thorough)) {
      numbers.push_back(batch.bytes[0]);
    }
    return numbers;
  }
  // Adds sockets of 127.0.0.2 and so on. Returns the last one's address.
  wire::IpAddress AddSockets(int count) {
    LocalAddress local;
    for (int i = 0; i < count; ++i) {
      const std::string text = "127.0.0." + std::to_string(2 + i);
      local.address = *wire::IpAddress::Parse(text);
      EXPECT_TRUE(port_->AddReceiver(local, Bind(local)).ok());
    }
    return local.address;
  }
  // Sends `size` bytes to `address`, by a socket that is not the port's.
  void SendFromElsewhere(const wire::IpAddress& address, size_t size,
                         uint8_t first = 0) const {
    std::vector<uint8_t> bytes(size);
    bytes[0] = first;
    SocketAddress to;
    const socklen_t length =
        ToSocketAddress(address, wire::kRoceUdpPort, 0, &to);
    ASSERT_EQ(::sendto(foreign_.get(), bytes.data(), size, 0, &to.any, length),
              static_cast<ssize_t>(size));
  }

  const UniqueFd foreign_{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_URING_PORT_FIXTURE_H_
