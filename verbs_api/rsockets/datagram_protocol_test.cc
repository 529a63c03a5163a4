#include "verbs_api/rsockets/datagram_protocol.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include <vector>

namespace rsockets {
namespace {

DatagramAddress Ipv4() {
  DatagramAddress address;
  address.family = AF_INET;
  address.port = 0x1234;
  address.bytes = {10, 1, 2, 3};
  return address;
}

DatagramAddress Ipv6() {
  DatagramAddress address;
  address.family = AF_INET6;
  address.port = 0x1234;
  inet_pton(AF_INET6, "fd00::5", address.bytes.data());
  return address;
}

std::vector<uint8_t> Bytes(const HeaderBytes& header) {
  return {header.bytes.begin(), header.bytes.begin() + header.length};
}

TEST(UdpHeaderTest, BytesAreThoseOfTheDocument) {
  const std::vector<uint8_t> expected = {0x55, 0x55, 0x55, 0x55, 4,  7, 16, 0,
                                         0,    0xab, 0xcd, 0xef, 10, 1, 2,  3};
  EXPECT_EQ(Bytes(Encode(UdpHeader{UdpOp::kControl, 0xabcdef, Ipv4()})),
            expected);
}

TEST(UdpHeaderTest, ComesBack) {
  for (const DatagramAddress& address : {Ipv4(), Ipv6()}) {
    auto bytes = Bytes(Encode(UdpHeader{UdpOp::kData, 77, address}));
    bytes.push_back(1);
    size_t length = 0;
    const auto parsed = ParseUdpHeader(bytes, &length);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(length, bytes.size() - 1);
    EXPECT_EQ(parsed->op, UdpOp::kData);
    EXPECT_EQ(parsed->qpn, 77u);
    EXPECT_EQ(parsed->address.bytes, address.bytes);
  }
}

TEST(UdpHeaderTest, TruncatedAndOtherHeadersAreRefused) {
  const auto bytes = Bytes(Encode(UdpHeader{UdpOp::kData, 77, Ipv6()}));
  size_t length;
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(
        ParseUdpHeader(std::span(bytes).first(n), &length).has_value());
  }
  for (const size_t at : {0, 4, 5, 6}) {
    auto other = bytes;
    other[at] ^= 1;
    EXPECT_FALSE(ParseUdpHeader(other, &length).has_value()) << at;
  }
}

TEST(SourceTest, BytesAreThoseOfTheDocument) {
  EXPECT_EQ(Bytes(EncodeSource(Ipv4())),
            (std::vector<uint8_t>{4, 8, 0x12, 0x34, 10, 1, 2, 3}));
  const auto ipv6 = Bytes(EncodeSource(Ipv6()));
  ASSERT_EQ(ipv6.size(), 24u);
  EXPECT_EQ(ipv6[0], 6);
  EXPECT_EQ(ipv6[1], 24);
  EXPECT_EQ(ipv6[8], 0xfd);
}

TEST(SourceTest, ComesBackAndIsCheckedForItsLength) {
  for (const DatagramAddress& address : {Ipv4(), Ipv6()}) {
    const auto bytes = Bytes(EncodeSource(address));
    size_t length = 0;
    const auto parsed = ParseSource(bytes, &length);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(length, bytes.size());
    EXPECT_EQ(parsed->Key(), address.Key());
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_FALSE(ParseSource(std::span(bytes).first(n), &length).has_value());
    }
  }
}

TEST(DatagramAddressTest, Ipv4IsMapped) {
  const auto gid = Ipv4().Gid();
  EXPECT_EQ(gid[10], 0xff);
  EXPECT_EQ(gid[12], 10);
  sockaddr_storage storage;
  EXPECT_EQ(Ipv4().Fill(&storage), sizeof(sockaddr_in));
  EXPECT_EQ(DatagramAddress::Of(reinterpret_cast<sockaddr*>(&storage)).Key(),
            Ipv4().Key());
}

}  // namespace
}  // namespace rsockets
