// rdma_resolve_addr(3) with hosts on the link, or gateways, that answer ARP and
// NDP or do not.
#include <arpa/inet.h>
#include <net/if.h>
#include <rdma/rsocket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <semaphore>
#include <string>
#include <thread>

#include "rxe_user/testing/net_namespace.h"
#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

constexpr int kLongMs = 60'000;

bool Shell(const std::string& commands) {
  return std::system(("{ " + commands + "; } 2>/dev/null").c_str()) == 0;
}

class SocketAddress {
 public:
  // An address of either family; link-local ones are on rxeu_a.
  explicit SocketAddress(const std::string& text, uint16_t port = 7471) {
    auto& in = reinterpret_cast<sockaddr_in&>(storage_);
    auto& in6 = reinterpret_cast<sockaddr_in6&>(storage_);
    if (inet_pton(AF_INET, text.c_str(), &in.sin_addr) == 1) {
      in.sin_family = AF_INET;
      in.sin_port = htons(port);
      return;
    }
    in6.sin6_family = AF_INET6;
    in6.sin6_port = htons(port);
    EXPECT_EQ(inet_pton(AF_INET6, text.c_str(), &in6.sin6_addr), 1) << text;
    if (text.starts_with("fe80")) in6.sin6_scope_id = if_nametoindex("rxeu_a");
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage_); }

 private:
  sockaddr_storage storage_ = {};
};

// The link of rxeu_a has no hosts until a test adds one.
class CmNeighborTest : public CmTest {
 protected:
  void SetUp() override {
    CmTest::SetUp();
    if (!Shell("ip link add rxeu_a type veth peer name rxeu_b && "
               "ip link set rxeu_b addrgenmode none && "
               "ip link set rxeu_a addrgenmode none && "
               "ip link set rxeu_b up && ip link set rxeu_a up && "
               "ip addr add 192.0.2.1/24 dev rxeu_a && "
               "ip route add 198.51.100.0/24 via 192.0.2.254")) {
      GTEST_SKIP() << "not allowed to";
    }
    if (rxe_user::HaveIpv6()) {
      ASSERT_TRUE(
          Shell("ip addr add fd00:db8::1/64 dev rxeu_a nodad && "
                "ip addr add fe80::1/64 dev rxeu_a nodad && "
                "ip route add fd00:db8:1::/64 via fd00:db8::fe"));
    }
    Ask(1000, 3600);
  }
  void TearDown() override {
    Shell("ip link del rxeu_a");
    CmTest::TearDown();
  }

  // Sets how often and how long the kernel sends ARP and NDP requests.
  static void Ask(int milliseconds, int times) {
    for (const char* table : {"arp_cache", "ndisc_cache"}) {
      if (*table == 'n' && !rxe_user::HaveIpv6()) continue;
      ASSERT_TRUE(Shell("ip ntable change name " + std::string(table) +
                        " dev rxeu_a retrans " + std::to_string(milliseconds) +
                        " mcast_probes " + std::to_string(times)));
    }
  }
  static void AddNeighbor(const std::string& address,
                          const std::string& state = "reachable") {
    ASSERT_TRUE(Shell("ip neigh replace " + address +
                      " lladdr 02:00:00:00:00:02 dev rxeu_a nud " + state));
  }
  static int Resolve(rdma_cm_id* id, const std::string& to,
                     int timeout_ms = kLongMs) {
    return rdma_resolve_addr(id, nullptr, SocketAddress(to).get(), timeout_ms);
  }
  static rdma_cm_id* NewSynchronous() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    return id;
  }
};

TEST_F(CmNeighborTest, ASilentHostIsUnreachable) {
  Ask(10, 2);
  for (const rdma_port_space ps : {RDMA_PS_TCP, RDMA_PS_UDP}) {
    rdma_cm_id* const id = NewId(ps);
    for (const char* address : {"192.0.2.2", "198.51.100.7"}) {
      ASSERT_EQ(Resolve(id, address), 0) << std::strerror(errno);
      EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH)->id, id);
      EXPECT_EQ(rdma_resolve_route(id, 2000), -1);
      EXPECT_EQ(errno, EINVAL);
    }
    // The id may then connect elsewhere.
    ASSERT_EQ(Resolve(id, "127.0.0.1"), 0) << std::strerror(errno);
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_F(CmNeighborTest, TheTimeoutCounts) {
  rdma_cm_id* const id = NewId();
  for (const int timeout_ms : {0, 50}) {
    ASSERT_EQ(Resolve(id, "192.0.2.2", timeout_ms), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_ERROR, -ETIMEDOUT)->id, id);
  }
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(CmNeighborTest, ItIsResolvedWhenTheNeighborIsKnown) {
  struct Case {
    const char* to;
    const char* neighbor;
  };
  for (const Case& c : {Case{"192.0.2.2", "192.0.2.2"},
                        {"198.51.100.7", "192.0.2.254"},
                        {"fd00:db8::2", "fd00:db8::2"},
                        {"fd00:db8:1::7", "fd00:db8::fe"},
                        {"fe80::2", "fe80::2"}}) {
    if (std::strchr(c.to, ':') != nullptr && !rxe_user::HaveIpv6()) continue;
    SCOPED_TRACE(c.to);
    rdma_cm_id* const id = NewId();
    // A negative time-out waits as long as the kernel does.
    ASSERT_EQ(Resolve(id, c.to, -1), 0) << std::strerror(errno);
    EXPECT_EQ(Resolve(id, c.to), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_resolve_route(id, 2000), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_FALSE(IsReadable(channel_));
    AddNeighbor(c.neighbor);
    EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
    EXPECT_EQ(rdma_resolve_route(id, 2000), 0) << std::strerror(errno);
    Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

// Neighbor states of hosts with traffic.
TEST_F(CmNeighborTest, AKnownNeighborIsNotResolvedAgain) {
  for (const char* state : {"stale", "permanent", "noarp"}) {
    AddNeighbor("192.0.2.2", state);
    rdma_cm_id* const id = NewId();
    ASSERT_EQ(Resolve(id, "192.0.2.2"), 0) << std::strerror(errno);
    EXPECT_TRUE(IsReadable(channel_)) << state;
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

// Addresses of this host, and a group.
TEST_F(CmNeighborTest, LocalAddressesAndGroupsNeedNoResolution) {
  for (const char* address : {"192.0.2.1", "127.0.0.1", "0.0.0.0"}) {
    rdma_cm_id* const id = NewId();
    ASSERT_EQ(Resolve(id, address), 0) << std::strerror(errno);
    EXPECT_TRUE(IsReadable(channel_)) << address;
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  rdma_cm_id* const id = NewId(RDMA_PS_UDP);
  ASSERT_EQ(rdma_resolve_addr(id, SocketAddress("192.0.2.1", 0).get(),
                              SocketAddress("239.1.2.3").get(), kLongMs),
            0)
      << std::strerror(errno);
  EXPECT_TRUE(IsReadable(channel_));
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(CmNeighborTest, SynchronousIdsWait) {
  rdma_cm_id* const id = NewSynchronous();
  EXPECT_EQ(Resolve(id, "192.0.2.2", 10), -1);
  EXPECT_EQ(errno, ETIMEDOUT);
  rxe_user::WatchedThread resolving(
      [&] { EXPECT_EQ(Resolve(id, "192.0.2.2"), 0) << std::strerror(errno); });
  EXPECT_TRUE(resolving.AwaitSleep());
  AddNeighbor("192.0.2.2");
  resolving.join();
  EXPECT_EQ(rdma_resolve_route(id, 2000), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(CmNeighborTest, EndpointsAndSocketsAreUnreachableToo) {
  Ask(10, 2);
  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("192.0.2.2", "7471", &hints, &info), 0);
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_ep(&id, info, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EHOSTUNREACH);
  rdma_freeaddrinfo(info);

  const int socket = rsocket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(socket, 0);
  SocketAddress to("192.0.2.2");
  EXPECT_EQ(rconnect(socket, to.get(), sizeof(sockaddr_in)), -1);
  EXPECT_EQ(errno, EHOSTUNREACH);
  rclose(socket);
}

TEST_F(CmNeighborTest, AWaitingIdCanBeDestroyedAndMoved) {
  rdma_event_channel* const other = rdma_create_event_channel();
  rdma_cm_id* const given_up = NewId();
  rdma_cm_id* const moved = NewId();
  ASSERT_EQ(Resolve(given_up, "192.0.2.2"), 0) << std::strerror(errno);
  ASSERT_EQ(Resolve(moved, "192.0.2.2"), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_destroy_id(given_up), 0);
  EXPECT_EQ(rdma_migrate_id(moved, other), 0);
  AddNeighbor("192.0.2.2");
  EXPECT_EQ(Next(other, RDMA_CM_EVENT_ADDR_RESOLVED)->id, moved);
  EXPECT_FALSE(IsReadable(channel_));
  EXPECT_EQ(rdma_destroy_id(moved), 0);
  rdma_destroy_event_channel(other);
}

// Many ids and several neighbors: each id gets its own result.
TEST_F(CmNeighborTest, ManyWaitAtOnce) {
  constexpr int kNeighbors = 8;
  constexpr int kIds = 8;  // of each neighbor
  const auto address = [](int i) {
    return "192.0.2." + std::to_string(10 + i);
  };
  rdma_cm_id* ids[kNeighbors][kIds];
  for (int i = 0; i < kNeighbors; ++i) {
    for (rdma_cm_id*& id : ids[i]) {
      id = NewId();
      ASSERT_EQ(Resolve(id, address(i)), 0) << std::strerror(errno);
    }
  }
  for (int i = kNeighbors - 1; i >= 0; --i) {
    AddNeighbor(address(i));
    for (rdma_cm_id* const id : ids[i]) {
      EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
    }
    EXPECT_FALSE(IsReadable(channel_));
  }
  for (auto& of_one : ids) {
    for (rdma_cm_id* const id : of_one) EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

// The host is in its own namespace.
TEST_F(CmNeighborTest, AHostThatIsThereIsFound) {
  std::binary_semaphore entered(0);
  std::binary_semaphore moved(0);
  std::binary_semaphore set_up(0);
  std::binary_semaphore done(0);
  pid_t thread = 0;
  bool ok = false;
  std::thread host([&] {
    ok = rxe_user::EnterFreshNetNamespace();
    thread = gettid();
    entered.release();
    moved.acquire();
    ok = ok && Shell(
                   "ip link set rxeu_b up && "
                   "ip addr add 192.0.2.2/24 dev rxeu_b");
    if (ok && rxe_user::HaveIpv6()) {
      ok = Shell("ip addr add fd00:db8::2/64 dev rxeu_b nodad");
    }
    set_up.release();
    done.acquire();  // the namespace lives as long as the thread
  });
  entered.acquire();
  ok = ok && Shell("ip link set rxeu_b netns " + std::to_string(thread));
  moved.release();
  set_up.acquire();
  EXPECT_TRUE(ok);
  for (const char* address : {"192.0.2.2", "fd00:db8::2"}) {
    if (std::strchr(address, ':') != nullptr && !rxe_user::HaveIpv6()) continue;
    rdma_cm_id* const id = NewId();
    EXPECT_EQ(Resolve(id, address), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  done.release();
  host.join();
}

}  // namespace
}  // namespace conformance
