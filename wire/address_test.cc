#include "wire/address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "absl/hash/hash_testing.h"

namespace wire {
namespace {

IpAddress Address(const std::string& text) {
  const std::optional<IpAddress> address = IpAddress::Parse(text);
  EXPECT_TRUE(address) << text;
  return address.value_or(IpAddress{});
}

TEST(AddressTest, V4IsTheGid) {
  const uint8_t gid[16] = {0, 0, 0,    0,    0,   0, 0, 0,
                           0, 0, 0xff, 0xff, 192, 0, 2, 1};
  const IpAddress address = IpAddress::FromGid(gid);
  EXPECT_TRUE(address.is_v4());
  EXPECT_EQ(address.ToString(), "192.0.2.1");
  EXPECT_EQ(address, Address("192.0.2.1"));
  EXPECT_EQ(address, Address("::ffff:192.0.2.1"));
  EXPECT_EQ(address, IpAddress::FromV4(htonl(0xc0000201)));
  EXPECT_EQ(address.v4_be(), htonl(0xc0000201));
}

TEST(AddressTest, V6) {
  EXPECT_EQ(Address("2001:DB8:0::1").ToString(), "2001:db8::1");
  EXPECT_FALSE(Address("::1").is_v4());
  EXPECT_FALSE(Address("::192.0.2.1").is_v4()) << "compatible, not mapped";
}

TEST(AddressTest, Kinds) {
  EXPECT_TRUE(Address("224.0.0.1").is_multicast());
  EXPECT_TRUE(Address("239.255.255.255").is_multicast());
  EXPECT_FALSE(Address("240.0.0.1").is_multicast());
  EXPECT_FALSE(Address("10.0.0.1").is_multicast());
  EXPECT_TRUE(Address("ff02::1").is_multicast());
  EXPECT_FALSE(Address("fe80::1").is_multicast());
  EXPECT_TRUE(IpAddress{}.is_unspecified());
  EXPECT_TRUE(Address("0.0.0.0").is_unspecified());
  EXPECT_FALSE(Address("::1").is_unspecified());
}

TEST(AddressTest, RejectsInvalidText) {
  for (const char* text : {"", "192.0.2", "192.0.2.1.", "fe80::1%eth0",
                           "localhost", "1:2:3:4:5:6:7:8:9"}) {
    EXPECT_FALSE(IpAddress::Parse(text)) << text;
  }
}

TEST(AddressTest, EqualAddressesHashEqually) {
  EXPECT_TRUE(absl::VerifyTypeImplementsAbslHashCorrectly(
      {IpAddress{}, Address("192.0.2.1"), Address("192.0.2.2"), Address("::1"),
       Address("fe80::1")}));
}

}  // namespace
}  // namespace wire
