#include "transport/cm/listeners.h"

#include <gtest/gtest.h>

namespace transport::cm {
namespace {

const wire::IpAddress kA = *wire::IpAddress::Parse("10.0.0.1");
const wire::IpAddress kB = *wire::IpAddress::Parse("10.0.0.2");

TEST(ListenersTest, NarrowMasksAndAddressesComeFirst) {
  Listeners listeners;
  const ListenerId all =
      listeners.Add({.service_id = 0, .mask = 0, .local = {}});
  const ListenerId range =
      listeners.Add({.service_id = 0x100, .mask = 0xff00, .local = {}});
  const ListenerId exact = listeners.Add({.service_id = 0x123, .local = {}});
  const ListenerId here = listeners.Add({.service_id = 0x123, .local = kA});
  EXPECT_EQ(listeners.Match(0x999, kA)->id, all);
  EXPECT_EQ(listeners.Match(0x1ff, kA)->id, range);
  EXPECT_EQ(listeners.Match(0x123, kA)->id, here);
  EXPECT_EQ(listeners.Match(0x123, kB)->id, exact);
  EXPECT_TRUE(listeners.Remove(exact));
  EXPECT_EQ(listeners.Match(0x123, kB)->id, range);
  EXPECT_TRUE(listeners.Remove(all));
  EXPECT_EQ(listeners.Match(0x999, kA), nullptr);
  EXPECT_FALSE(listeners.Remove(all));
}

TEST(ListenersTest, WildcardsOfAFamily) {
  const wire::IpAddress v6 = *wire::IpAddress::Parse("2001:db8::1");
  Listeners listeners;
  const ListenerId six =
      listeners.Add({.service_id = 7, .local = {}, .ipv6_only = true});
  EXPECT_EQ(listeners.Match(7, kA), nullptr);
  EXPECT_EQ(listeners.Match(7, v6)->id, six);
  const ListenerId four =
      listeners.Add({.service_id = 7, .local = wire::IpAddress::FromV4(0)});
  EXPECT_EQ(listeners.Match(7, kA)->id, four);
  EXPECT_EQ(listeners.Match(7, v6)->id, six);
  const ListenerId here = listeners.Add({.service_id = 7, .local = kA});
  EXPECT_EQ(listeners.Match(7, kA)->id, here);
  EXPECT_EQ(listeners.Match(7, kB)->id, four);
}

TEST(ListenersTest, TheSameTwiceIsRefused) {
  Listeners listeners;
  const ListenerId first = listeners.Add({.service_id = 7, .local = {}});
  EXPECT_NE(first, 0u);
  EXPECT_EQ(listeners.Add({.service_id = 7, .local = {}}), 0u);
  EXPECT_NE(listeners.Add({.service_id = 7, .local = kA}), 0u);
  // Bits outside the mask do not count.
  EXPECT_NE(listeners.Add({.service_id = 0x1234, .mask = 0xff00, .local = {}}),
            0u);
  EXPECT_EQ(listeners.Add({.service_id = 0x12ff, .mask = 0xff00, .local = {}}),
            0u);
  EXPECT_TRUE(listeners.Remove(first));
  EXPECT_NE(listeners.Add({.service_id = 7, .local = {}}), 0u);
}

}  // namespace
}  // namespace transport::cm
