#include "wire/rdma_cm.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace wire {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Emit(const RdmaCmHeader& header) {
  Bytes bytes(kRdmaCmHeaderSize, 0xa5);
  EmitRdmaCmHeader(header, bytes.data());
  return bytes;
}

TEST(RdmaCmTest, ServiceIds) {
  EXPECT_EQ(RdmaServiceId(RdmaPortSpace::kTcp, 7174), 0x0000000001061c06u);
  EXPECT_EQ(RdmaServiceId(0x3f, 0xffff), 0x00000000013fffffu);
  EXPECT_EQ(ParseRdmaServiceId(0x0000000001111234),
            (RdmaService{.port_space = 0x11, .port = 0x1234}));
  EXPECT_EQ(ParseRdmaServiceId(0x0000000002111234), std::nullopt);
  EXPECT_EQ(ParseRdmaServiceId(0x1000000001111234), std::nullopt);
}

TEST(RdmaCmTest, V4) {
  const RdmaCmHeader h = {.major_version = 0,
                          .minor_version = 1,
                          .ip_version = 4,
                          .source_port = 0x1234,
                          .source = *IpAddress::Parse("192.0.2.1"),
                          .destination = *IpAddress::Parse("192.0.2.2")};
  Bytes expected(kRdmaCmHeaderSize);
  expected[0] = 0x01;
  expected[1] = 0x40;
  expected[2] = 0x12;
  expected[3] = 0x34;
  expected[16] = expected[32] = 192;
  expected[18] = expected[34] = 2;
  expected[19] = 1;
  expected[35] = 2;
  EXPECT_EQ(Emit(h), expected);
  EXPECT_EQ(ParseRdmaCmHeader(expected), h);
}

TEST(RdmaCmTest, V6) {
  const RdmaCmHeader h = {.ip_version = 6,
                          .source_port = 1,
                          .source = *IpAddress::Parse("2001:db8::1"),
                          .destination = *IpAddress::Parse("fe80::2")};
  const Bytes bytes = Emit(h);
  EXPECT_EQ(bytes[1], 0x60);
  EXPECT_EQ(bytes[4], 0x20);
  EXPECT_EQ(bytes[20], 0xfe);
  EXPECT_EQ(bytes[35], 2);
  EXPECT_EQ(ParseRdmaCmHeader(bytes), h);
}

TEST(RdmaCmTest, InvalidHeadersAreRejected) {
  const Bytes good = Emit({});
  ASSERT_TRUE(ParseRdmaCmHeader(good));
  EXPECT_FALSE(ParseRdmaCmHeader(std::span(good).first(35)));
  EXPECT_FALSE(ParseRdmaCmHeader({}));
  Bytes bad = good;
  bad[0] = 0x10;  // another major version
  EXPECT_FALSE(ParseRdmaCmHeader(bad));
  bad = good;
  bad[1] = 0x50;
  EXPECT_FALSE(ParseRdmaCmHeader(bad));
}

}  // namespace
}  // namespace wire
