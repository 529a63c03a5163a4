#include "rxe_user/testing/loopback_port.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/testing/net_namespace.h"
#include "wire/packet.h"

namespace rxe_user {

void LoopbackPortTest::Open(const char* address, CreatePort create) {
  local_.address = *wire::IpAddress::Parse(address);
  if (!local_.address.is_v4() && !HaveIpv6()) GTEST_SKIP() << "no IPv6 here";
  absl::StatusOr<std::unique_ptr<Port>> port = create();
  if (create != UdpPort::Create && !port.ok()) {
    GTEST_SKIP() << port.status();
  }
  ASSERT_TRUE(port.ok()) << port.status();
  port_ = *std::move(port);
  const int fd = Bind();
  ASSERT_GE(fd, 0);
  ASSERT_TRUE(port_->AddReceiver(local_, fd).ok());
  av_.source = local_.address;
  av_.destination = local_.address;
  av_.source_port = port_->SourcePort(local_, 5).value_or(0);
  ASSERT_NE(av_.source_port, 0);
}

int LoopbackPortTest::Bind(const LocalAddress& local) {
  SocketAddress address;
  const socklen_t length =
      ToSocketAddress(local.address, wire::kRoceUdpPort, 0, &address);
  const int fd = ::socket(address.any.sa_family,
                          SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  return ::bind(fd, &address.any, length) == 0 ? fd : -1;
}

void LoopbackPortTest::Queue(const transport::Flow& flow,
                             const std::vector<size_t>& sizes, uint8_t fill,
                             uint8_t step) {
  transport::Burst* burst = port_->Begin(flow);
  ASSERT_NE(burst, nullptr);
  for (const size_t size : sizes) {
    if (burst->Room(size) == 0) {
      port_->Queue();
      burst = port_->Begin(flow);
      ASSERT_NE(burst, nullptr);
    }
    uint8_t* packet = burst->Reserve(size);
    ASSERT_NE(packet, nullptr);
    std::fill_n(packet, size, fill);
    burst->Commit();
    fill = static_cast<uint8_t>(fill + step);
  }
  port_->Queue();
}

std::vector<LoopbackPortTest::Packet> LoopbackPortTest::Receive(size_t count) {
  std::vector<Packet> packets;
  while (packets.size() < count) {
    std::vector<pollfd> fds;
    for (const int fd : port_->ReceiveDescriptors()) {
      fds.push_back({fd, POLLIN, 0});
    }
    if (::poll(fds.data(), fds.size(), 10'000) < 1) break;
    for (const transport::GroBatch& arrival : port_->Receive(true)) {
      uint16_t index = 0;
      for (size_t at = 0; at < arrival.bytes.size();
           at += arrival.segment_size) {
        const auto part = arrival.bytes.subspan(
            at, std::min(arrival.segment_size, arrival.bytes.size() - at));
        packets.push_back({{part.begin(), part.end()}, index++, arrival});
      }
    }
  }
  EXPECT_EQ(packets.size(), count);
  return packets;
}

}  // namespace rxe_user
