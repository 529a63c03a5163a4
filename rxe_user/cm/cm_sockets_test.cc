// What the watch tells of interfaces when there is more than it can hold.
#include "rxe_user/cm/cm_sockets.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace rxe_user {
namespace {

bool Ip(const std::string& arguments) {
  return std::system(("ip " + arguments).c_str()) == 0;
}

TEST(CmSocketsTest, AnOverflowOfTheWatchLosesNoChange) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a network namespace";
  if (!Ip("link add cmwgone type veth peer name cmwaddr")) {
    GTEST_SKIP() << "no veth here";
  }
  ASSERT_TRUE(Ip("link add cmwstay type veth peer name cmwstay1"));
  const uint32_t gone = if_nametoindex("cmwgone");
  const uint32_t other = if_nametoindex("cmwstay");
  CmSockets sockets;
  sockets.OpenWatch();
  ASSERT_GE(sockets.watch(), 0);
  const int least = 1;
  ASSERT_EQ(
      setsockopt(sockets.watch(), SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)),
      0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Ip("link add cmwmore type veth peer name cmwmore1"));
    ASSERT_TRUE(Ip("link delete cmwmore"));
  }
  ASSERT_TRUE(Ip("link delete cmwgone"));
  ASSERT_TRUE(Ip("link set cmwstay address 02:00:00:00:00:94"));
  const std::vector<LinkWatch::News> news = sockets.ReadWatch();
  const auto count = [&news](const LinkWatch::News& n) {
    return std::count(news.begin(), news.end(), n);
  };
  EXPECT_EQ(count({gone, InterfaceChange::kGone}), 1);
  EXPECT_EQ(count({other, InterfaceChange::kAddress}), 1);
  EXPECT_TRUE(sockets.ReadWatch().empty());
  EXPECT_TRUE(Ip("link delete cmwstay"));
}

}  // namespace
}  // namespace rxe_user
