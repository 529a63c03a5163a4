// Interfaces, neighbors and link changes as the kernel reports them, in a
// network namespace of the test.
#include "rxe_user/devices/netdev.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netlink/errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/devices/link_monitor.h"
#include "rxe_user/devices/netlink.h"
#include "rxe_user/testing/net_namespace.h"

namespace rxe_user {
namespace {

using ::testing::ElementsAre;

bool Shell(const std::string& commands) {
  return ::system(("(" + commands + ") >/dev/null 2>&1").c_str()) == 0;
}

// Callers retry after ENOMEM. After any other error, an interface counts as
// absent.
TEST(Netlink, AnErrorOfLibnlIsEnomemIfMemoryIsMissing) {
  EXPECT_EQ(ErrnoOf(netlink::ErrorStatus(-NLE_NOMEM, "x")), ENOMEM);
  EXPECT_EQ(ErrnoOf(netlink::ErrorStatus(-NLE_PERM, "x")), 0);
  EXPECT_FALSE(netlink::ErrorStatus(-NLE_PERM, "x").ok());
}

// A pair of interfaces. If they exist already, the test does not change them.
class NetdevTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Shell("ip link add rxeu_a mtu 3000 type veth peer name rxeu_b && "
               "ip link set rxeu_a address 02:00:00:00:0a:0a")) {
      GTEST_SKIP() << "needs ip, and a namespace to change";
    }
  }
  void TearDown() override { Shell("ip link del rxeu_a"); }

  static uint32_t Index() { return if_nametoindex("rxeu_a"); }
  static Interface Read() {
    const auto all = ReadInterfaces();
    EXPECT_TRUE(all.ok()) << all.status();
    const auto it =
        std::find_if(all->begin(), all->end(),
                     [](const Interface& i) { return i.name == "rxeu_a"; });
    return it == all->end() ? Interface{} : *it;
  }
};

TEST_F(NetdevTest, ReadsAnInterfaceAndItsAddressesInOrder) {
  ASSERT_TRUE(
      Shell("ip link set rxeu_a up; ip link set rxeu_b up;"
            "ip addr flush dev rxeu_a;"
            "ip addr add fe80::7/64 dev rxeu_a nodad;"
            "ip addr add 2001:db8::7/64 dev rxeu_a nodad;"
            "ip addr add 192.0.2.7/24 dev rxeu_a;"
            // A second address with a label, and one of a point-to-point link.
            "ip addr add 192.0.2.8/24 dev rxeu_a label rxeu_a:1;"
            "ip addr add 192.0.2.9 peer 198.51.100.9 dev rxeu_a"));
  const Interface a = Read();
  EXPECT_EQ(a.index, Index());
  EXPECT_EQ(a.mtu, 3000u);
  EXPECT_TRUE(a.up);
  EXPECT_TRUE(a.running);
  EXPECT_FALSE(a.loopback);
  EXPECT_EQ(a.kind, "veth");
  EXPECT_EQ(a.speed_mbps, 10000u);  // veth's constant
  EXPECT_THAT(a.mac, ElementsAre(2, 0, 0, 0, 0x0a, 0x0a));
  std::vector<std::string> addresses;
  for (const LocalAddress& local : a.addresses) {
    addresses.push_back(local.ToString());
    EXPECT_EQ(local.scope_id, IsLinkLocal(local.address) ? a.index : 0);
  }
  // The order of IPv4 addresses is the kernel's.
  std::sort(addresses.begin(), addresses.begin() + 3);
  EXPECT_THAT(addresses, ElementsAre("192.0.2.7", "192.0.2.8", "192.0.2.9",
                                     "2001:db8::7", "fe80::7%rxeu_a"));
  ASSERT_TRUE(Shell("ip link set rxeu_b down"));
  EXPECT_TRUE(Read().up);
  EXPECT_FALSE(Read().running);
}

// The result equals that in the list of all interfaces, except for the master.
TEST_F(NetdevTest, ReadsOneInterface) {
  ASSERT_TRUE(
      Shell("ip link set rxeu_a up; ip link set rxeu_b up;"
            "ip addr add fe80::7/64 dev rxeu_a nodad;"
            "ip addr add 192.0.2.7/24 dev rxeu_a"));
  const Interface listed = Read();
  const auto one = ReadInterface(Index());
  ASSERT_TRUE(one.ok()) << one.status();
  ASSERT_TRUE(one->has_value());
  EXPECT_EQ((*one)->name, "rxeu_a");
  EXPECT_EQ((*one)->mtu, listed.mtu);
  EXPECT_EQ((*one)->mac, listed.mac);
  EXPECT_EQ((*one)->kind, listed.kind);
  EXPECT_EQ((*one)->speed_mbps, listed.speed_mbps);
  ASSERT_GE(listed.addresses.size(), 2u);
  EXPECT_EQ((*one)->addresses, listed.addresses);
  const auto none = ReadInterface(123456789);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_value());
  EXPECT_FALSE(ReadInterface(0)->has_value());
}

TEST_F(NetdevTest, KnowsItsMaster) {
  if (!Shell("ip link add rxeu_br type bridge")) {
    GTEST_SKIP() << "no bridges here";
  }
  EXPECT_EQ(Read().master, "");
  ASSERT_TRUE(Shell("ip link set rxeu_a master rxeu_br"));
  EXPECT_EQ(Read().master, "rxeu_br");
  EXPECT_EQ(Read().master_kind, "bridge");
  EXPECT_TRUE(Shell("ip link del rxeu_br"));
}

TEST_F(NetdevTest, InterfacesAreOrderedByIndex) {
  const auto all = ReadInterfaces();
  ASSERT_TRUE(all.ok());
  EXPECT_GE(all->size(), 3u);
  EXPECT_TRUE(std::is_sorted(all->begin(), all->end(),
                             [](const Interface& a, const Interface& b) {
                               return a.index < b.index;
                             }));
  EXPECT_EQ(all->front().name, "lo");
  EXPECT_TRUE(all->front().loopback);
}

TEST_F(NetdevTest, KnowsNeighborsOfThisInterfaceOnly) {
  ASSERT_TRUE(
      Shell("ip link set rxeu_a up; ip link set rxeu_b up;"
            "ip neigh add 192.0.2.77 lladdr 02:00:00:00:00:77 dev rxeu_a "
            "nud permanent;"
            "ip neigh add 2001:db8::77 lladdr 02:00:00:00:00:78 dev rxeu_a "
            "nud stale;"
            "ip neigh add 192.0.2.79 lladdr 02:00:00:00:00:79 dev rxeu_a "
            "nud failed"));
  const auto v4 = *wire::IpAddress::Parse("192.0.2.77");
  const auto mac = NeighborMac(Index(), v4);
  ASSERT_TRUE(mac.has_value());
  EXPECT_THAT(*mac, ElementsAre(2, 0, 0, 0, 0, 0x77));
  const auto v6 = NeighborMac(Index(), *wire::IpAddress::Parse("2001:db8::77"));
  ASSERT_TRUE(v6.has_value());
  EXPECT_THAT(*v6, ElementsAre(2, 0, 0, 0, 0, 0x78));
  EXPECT_FALSE(NeighborMac(if_nametoindex("rxeu_b"), v4).has_value());
  EXPECT_FALSE(NeighborMac(Index(), *wire::IpAddress::Parse("192.0.2.78")));
  EXPECT_FALSE(NeighborMac(Index(), *wire::IpAddress::Parse("192.0.2.79")));
}

TEST_F(NetdevTest, ReportsAddressesAndALostInterface) {
  const auto monitor = LinkMonitor::Open(Index());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  // The number is high, since the program may have closed stderr.
  EXPECT_GE((*monitor)->fd(), kFirstHighFd);
  std::set<LinkChange> changes;
  const auto until = [&](LinkChange change) {
    while (changes.count(change) == 0) {
      pollfd fd = {(*monitor)->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&fd, 1, 10'000), 1);
      for (const LinkChange c : (*monitor)->Read()) changes.insert(c);
    }
  };
  // Changes of other interfaces are not reported.
  ASSERT_TRUE(Shell("ip addr add 192.0.2.55/24 dev rxeu_b"));
  EXPECT_TRUE((*monitor)->Read().empty());
  ASSERT_TRUE(Shell("ip addr add 192.0.2.7/24 dev rxeu_a"));
  until(LinkChange::kAddresses);
  EXPECT_EQ(changes.size(), 1u);
  ASSERT_TRUE(Shell("ip link set rxeu_a up; ip link set rxeu_b up"));
  until(LinkChange::kUp);
  ASSERT_TRUE(Shell("ip link del rxeu_a"));
  until(LinkChange::kDown);
}

// More messages arrive than the socket can buffer: the final state is still
// found.
TEST_F(NetdevTest, FindsTheStateAfterLostMessages) {
  const auto monitor = LinkMonitor::Open(Index());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  ASSERT_TRUE(
      Shell("for i in $(seq 3000); do echo addr add 192.0.2.1/32 dev rxeu_b;"
            "echo addr del 192.0.2.1/32 dev rxeu_b; done | ip -batch - && "
            "ip link set rxeu_a up && ip link set rxeu_b up"));
  std::vector<LinkChange> all;
  for (pollfd fd = {(*monitor)->fd(), POLLIN, 0}; ::poll(&fd, 1, 1000) == 1;) {
    for (const LinkChange change : (*monitor)->Read()) all.push_back(change);
  }
  EXPECT_EQ(std::count(all.begin(), all.end(), LinkChange::kUp), 1);
  EXPECT_EQ(std::count(all.begin(), all.end(), LinkChange::kDown), 0);
  // Only link-local addresses may have changed. A reported change of addresses
  // shows that messages were lost.
  EXPECT_GE(std::count(all.begin(), all.end(), LinkChange::kAddresses), 1);
}

TEST_F(NetdevTest, AForkedChildHoldsNothingOfAMonitor) {
  const auto monitor = LinkMonitor::Open(Index());
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const int fd = (*monitor)->fd();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const bool closed = ::fcntl(fd, F_GETFD) < 0 && (*monitor)->fd() == -1;
    ::_exit(closed && ReadInterfaces().ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(Shell("ip addr add 192.0.2.7/24 dev rxeu_a"));
  pollfd p = {fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 10'000), 1);
}

}  // namespace
}  // namespace rxe_user
