// The RDMA CM with interfaces and addresses that appear after a program has
// listed devices.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "gtest/gtest.h"
#include "verbs_api/libibverbs/interface.h"

namespace {

std::atomic<int> netlink_sockets = 0;

}  // namespace

// Replaces the C library's function.
extern "C" __attribute__((visibility("default"))) int socket(int family,
                                                             int type,
                                                             int protocol) {
  if (family == AF_NETLINK) ++netlink_sockets;
  return static_cast<int>(syscall(SYS_socket, family, type, protocol));
}

namespace conformance {
namespace {

bool Shell(const std::string& commands) {
  return std::system(("{ " + commands + "; } 2>/dev/null").c_str()) == 0;
}

constexpr int kTries = 5000;

class CmDevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    ibv_context** const list = rdma_get_devices(&count);
    ASSERT_NE(list, nullptr);
    rdma_free_devices(list);
    if (!Shell("ip link add rxeu_a type veth peer name rxeu_b && "
               "ip link set rxeu_a addrgenmode none && "
               "ip link set rxeu_b addrgenmode none && "
               "ip link set rxeu_a up && ip link set rxeu_b up && "
               "ip addr add 192.0.2.1/24 dev rxeu_a")) {
      GTEST_SKIP() << "not allowed to";
    }
  }
  void TearDown() override { Shell("ip link del rxeu_a"); }

  // An id bound to `address`, or null with errno.
  static rdma_cm_id* NewId(const char* address) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in local = {};
    local.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, address, &local.sin_addr), 1);
    // Retries, since devices and their addresses are cached for 10 ms.
    bool bound = false;
    for (int i = 0; i < kTries && !bound; ++i) {
      bound = rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&local)) == 0;
      if (!bound) poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(bound) << address << ": " << std::strerror(errno);
    return id;
  }
  // The interface of the device with `address`; 0: none.
  static int Bind(const char* address) {
    rdma_cm_id* const id = NewId(address);
    const int interface =
        id->verbs != nullptr
            ? static_cast<int>(rxe_user_interface_of(id->verbs->device))
            : 0;
    EXPECT_EQ(rdma_destroy_id(id), 0);
    return interface;
  }
};

// The new interface is listed before loopback, which was first until then.
TEST_F(CmDevicesTest, AnInterfaceThatComesLaterIsServed) {
  EXPECT_EQ(Bind("192.0.2.1"), static_cast<int>(if_nametoindex("rxeu_a")));
  EXPECT_EQ(Bind("127.0.0.1"), static_cast<int>(if_nametoindex("lo")));
}

// Like an address that moves from host to host.
TEST_F(CmDevicesTest, AnAddressThatComesLaterIsServed) {
  const int interface = Bind("192.0.2.1");
  ASSERT_TRUE(Shell("ip addr add 192.0.2.9/24 dev rxeu_a"));
  EXPECT_EQ(Bind("192.0.2.9"), interface);
}

// Reading one device means reading all interfaces.
TEST_F(CmDevicesTest, BindingReadsOnlyTheDeviceOfTheAddress) {
  constexpr int kMore = 8;
  std::string name = "rxeu_0";
  std::string address;
  for (int i = 0; i < kMore; ++i) {
    name.back() = static_cast<char>('0' + i);
    address = "203.0.113." + std::to_string(i + 1);
    ASSERT_TRUE(Shell("ip link add " + name + " type veth peer name " + name +
                      "p && ip link set " + name + " addrgenmode none && " +
                      "ip link set " + name + " up && ip addr add " + address +
                      "/32 dev " + name));
    Bind(address.c_str());
  }
  // Cached state is then older than its limit of 10 ms.
  poll(nullptr, 0, 20);
  netlink_sockets = 0;
  Bind(address.c_str());
  EXPECT_GE(netlink_sockets, 1);
  EXPECT_LE(netlink_sockets, 2);
  for (int i = 0; i < kMore; ++i) {
    name.back() = static_cast<char>('0' + i);
    EXPECT_TRUE(Shell("ip link del " + name));
  }
}

// The open descriptors and the threads of the process.
struct Open {
  static size_t Count(const char* directory) {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(directory), {}));
  }

  size_t descriptors = Count("/proc/self/fd");
  size_t threads = Count("/proc/self/task");
};

// Like the interface of a container that is restarted repeatedly.
TEST_F(CmDevicesTest, NothingOfARemovedInterfaceStaysOpen) {
  constexpr int kRounds = 5;
  Open before;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(
        Shell("ip link add rxeu_c type veth peer name rxeu_d && "
              "ip link set rxeu_c addrgenmode none && "
              "ip link set rxeu_c up && "
              "ip addr add 198.51.100.1/24 dev rxeu_c"));
    rdma_cm_id* const id = NewId("198.51.100.1");
    ibv_qp_init_attr attr = {};
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << std::strerror(errno);
    rdma_destroy_qp(id);
    // Either the id or the interface ends first.
    const bool id_first = i % 2 == 0;
    if (id_first) {
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
    ASSERT_TRUE(Shell("ip link del rxeu_c"));
    if (!id_first) {
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
    // The first round starts the threads and opens the descriptors that all
    // rounds share.
    if (i == 0) before = Open();
  }
  Open now;
  for (int i = 0; i < kTries && (now.descriptors > before.descriptors ||
                                 now.threads > before.threads);
       ++i) {
    poll(nullptr, 0, 1);
    now = Open();
  }
  EXPECT_LE(now.descriptors, before.descriptors);
  EXPECT_LE(now.threads, before.threads);
}

}  // namespace
}  // namespace conformance
