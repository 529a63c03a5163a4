#include "transport/raw/rx_hash.h"

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"
#include "wire/frame.h"

namespace transport {
namespace {

// The standard test vectors of receive side scaling (Microsoft, "Verifying the
// RSS Hash Calculation").
constexpr std::array<uint8_t, kRxHashKey> kKey = {
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67,
    0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb,
    0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30,
    0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa};

uint32_t Hash(const char* source, uint16_t source_port, const char* destination,
              uint16_t destination_port, uint64_t fields) {
  wire::FrameHeaders headers;
  headers.src = *wire::IpAddress::Parse(source);
  headers.dst = *wire::IpAddress::Parse(destination);
  headers.src_port = source_port;
  headers.dst_port = destination_port;
  const std::vector<uint8_t> bytes = wire::BuildFrame(headers, {});
  wire::EthernetFrame frame;
  EXPECT_TRUE(wire::ParseEthernet(bytes, &frame));
  RxHash hash;
  std::ranges::copy(kKey, hash.key.begin());
  hash.fields = fields;
  return HashOf(hash, frame);
}

constexpr uint64_t kAddresses = kRxHashSourceIpv4 | kRxHashDestinationIpv4 |
                                kRxHashSourceIpv6 | kRxHashDestinationIpv6;
constexpr uint64_t kPorts = kRxHashSourcePortUdp | kRxHashDestinationPortUdp;

TEST(RxHashTest, IsToeplitzOfTheFieldsInOrder) {
  EXPECT_EQ(Hash("66.9.149.187", 2794, "161.142.100.80", 1766, kAddresses),
            0x323e8fc2u);
  EXPECT_EQ(
      Hash("66.9.149.187", 2794, "161.142.100.80", 1766, kAddresses | kPorts),
      0x51ccc178u);
  EXPECT_EQ(
      Hash("199.92.111.2", 14230, "65.69.140.83", 4739, kAddresses | kPorts),
      0xc626b0eau);
  EXPECT_EQ(Hash("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766,
                 kAddresses),
            0x2cc18cd5u);
  EXPECT_EQ(Hash("3ffe:2501:200:1fff::7", 2794, "3ffe:2501:200:3::1", 1766,
                 kAddresses | kPorts),
            0x40207d3du);
}

TEST(RxHashTest, IsZeroWithoutTheFields) {
  EXPECT_EQ(Hash("192.0.2.1", 1, "192.0.2.2", 2,
                 kRxHashSourceIpv6 | kRxHashSourcePortTcp),
            0u);
}

}  // namespace
}  // namespace transport
