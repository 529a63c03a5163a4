#include "wire/grh.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "wire/bytes.h"

namespace wire {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(GrhTest, V4) {
  Bytes bytes(kGrhSize, 0xee);
  EmitGrh({.source = *IpAddress::Parse("192.0.2.1"),
           .destination = *IpAddress::Parse("192.0.2.200"),
           .traffic_class = 0x2e,
           .hop_limit = 63},
          100, bytes.data());
  // The checksum was computed by hand.
  const Bytes expected = {0,    0,    0,   0,   0, 0, 0,    0, 0,  0,
                          0,    0,    0,   0,   0, 0, 0,    0, 0,  0,
                          0x45, 0x2e, 0,   128, 0, 0, 0x40, 0, 63, 17,
                          0xb6, 0x75, 192, 0,   2, 1, 192,  0, 2,  200};
  EXPECT_EQ(bytes, expected);
  Grh grh;
  ASSERT_TRUE(ParseGrh(bytes.data(), &grh));
  EXPECT_EQ(grh.source.ToString(), "192.0.2.1");
  EXPECT_EQ(grh.destination.ToString(), "192.0.2.200");
  EXPECT_EQ(grh.traffic_class, 0x2e);
  EXPECT_EQ(grh.hop_limit, 63);
  // Undefined bytes that look like an IPv6 header.
  bytes[0] = 0x60;
  ASSERT_TRUE(ParseGrh(bytes.data(), &grh));
  EXPECT_TRUE(grh.source.is_v4());
}

TEST(GrhTest, V6) {
  Bytes bytes(kGrhSize, 0xee);
  const Grh sent = {.source = *IpAddress::Parse("2001:db8::1"),
                    .destination = *IpAddress::Parse("fe80::2"),
                    .traffic_class = 0x2e,
                    .hop_limit = 5,
                    .flow_label = 0xabcde};
  EmitGrh(sent, 1000, bytes.data());
  EXPECT_EQ(LoadBe32(bytes.data()), 0x62eabcdeu);
  EXPECT_EQ(LoadBe16(bytes.data() + 4), 1008);
  EXPECT_EQ(bytes[6], 17);
  Grh grh;
  ASSERT_TRUE(ParseGrh(bytes.data(), &grh));
  EXPECT_EQ(grh, sent);
}

TEST(GrhTest, Neither) {
  Bytes bytes(kGrhSize);
  Grh grh;
  EXPECT_FALSE(ParseGrh(bytes.data(), &grh));
  bytes[kGrhV4Offset] = 0x46;  // with options, which do not fit
  EXPECT_FALSE(ParseGrh(bytes.data(), &grh));
}

}  // namespace
}  // namespace wire
