// The watch on interfaces when its buffer overflows.
#include "rxe_user/cm/cm_sockets.h"

#include <gtest/gtest.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

bool Ip(const std::string& arguments) {
  return std::system(("ip " + arguments).c_str()) == 0;
}

// The interface to rename while its address is being queried.
const char* renamed = nullptr;

}  // namespace

// Replaces the C library's function.
extern "C" int ioctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == SIOCGIFHWADDR && renamed != nullptr &&
      std::string(static_cast<ifreq*>(argument)->ifr_name) == renamed) {
    Ip(std::string("link set ") + renamed + " name cmwrenamed");
    renamed = nullptr;
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

namespace rxe_user {
namespace {

// More changes than the watch can buffer.
void Overflow(int watch) {
  const int least = 1;
  ASSERT_EQ(setsockopt(watch, SOL_SOCKET, SO_RCVBUF, &least, sizeof(least)), 0);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(Ip("link add cmwmore type veth peer name cmwmore1"));
    ASSERT_TRUE(Ip("link delete cmwmore"));
  }
}

bool Has(const std::vector<LinkWatch::Change>& all,
         const LinkWatch::Change& change) {
  return std::find(all.begin(), all.end(), change) != all.end();
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
  Overflow(sockets.watch());
  ASSERT_TRUE(Ip("link delete cmwgone"));
  ASSERT_TRUE(Ip("link set cmwstay address 02:00:00:00:00:94"));
  const std::vector<LinkWatch::Change> changes = sockets.ReadWatch();
  const auto count = [&changes](const LinkWatch::Change& n) {
    return std::count(changes.begin(), changes.end(), n);
  };
  EXPECT_EQ(count({gone, InterfaceChange::kGone}), 1);
  EXPECT_EQ(count({other, InterfaceChange::kAddress}), 1);
  EXPECT_TRUE(sockets.ReadWatch().empty());
  EXPECT_TRUE(Ip("link delete cmwstay"));
}

// Tunnels have no hardware address.
TEST(CmSocketsTest, AnOverflowLosesNoInterfaceWithoutHardwareAddress) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a network namespace";
  CmSockets sockets;
  sockets.OpenWatch();
  ASSERT_GE(sockets.watch(), 0);
  if (!Ip("tuntap add cmwtun mode tun")) GTEST_SKIP() << "no tunnels here";
  const uint32_t gone = if_nametoindex("cmwtun");
  EXPECT_TRUE(sockets.ReadWatch().empty());
  Overflow(sockets.watch());
  ASSERT_TRUE(Ip("link delete cmwtun"));
  EXPECT_TRUE(Has(sockets.ReadWatch(), {gone, InterfaceChange::kGone}));
}

TEST(CmSocketsTest, ARenamedInterfaceIsNotGone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs a network namespace";
  if (!Ip("link add cmwname type veth peer name cmwname1")) {
    GTEST_SKIP() << "no veth here";
  }
  CmSockets sockets;
  sockets.OpenWatch();
  ASSERT_GE(sockets.watch(), 0);
  const uint32_t stays = if_nametoindex("cmwname");
  Overflow(sockets.watch());
  renamed = "cmwname";
  EXPECT_FALSE(Has(sockets.ReadWatch(), {stays, InterfaceChange::kGone}));
  EXPECT_EQ(renamed, nullptr);
  EXPECT_TRUE(Ip("link delete cmwrenamed"));
}

}  // namespace
}  // namespace rxe_user
