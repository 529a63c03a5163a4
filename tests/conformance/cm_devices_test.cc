// The RDMA CM on interfaces and addresses that come after a program has looked
// at the devices for the first time.
#include <arpa/inet.h>
#include <net/if.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"

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

  // The interface of the device that serves `address`; 0 and errno: none.
  static int Bind(const char* address) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in local = {};
    local.sin_family = AF_INET;
    EXPECT_EQ(inet_pton(AF_INET, address, &local.sin_addr), 1);
    // The device may have been looked at a moment ago.
    bool bound = false;
    for (int i = 0; i < kTries && !bound; ++i) {
      bound = rdma_bind_addr(id, reinterpret_cast<sockaddr*>(&local)) == 0;
      if (!bound) poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(bound) << address << ": " << std::strerror(errno);
    const int interface = bound ? ibv_get_device_index(id->verbs->device) : 0;
    EXPECT_EQ(rdma_destroy_id(id), 0);
    return interface;
  }
};

// It is listed before loopback, which was the first until then.
TEST_F(CmDevicesTest, AnInterfaceThatComesLaterIsServed) {
  EXPECT_EQ(Bind("192.0.2.1"), static_cast<int>(if_nametoindex("rxeu_a")));
  EXPECT_EQ(Bind("127.0.0.1"), static_cast<int>(if_nametoindex("lo")));
}

// As one does that moves from host to host.
TEST_F(CmDevicesTest, AnAddressThatComesLaterIsServed) {
  const int interface = Bind("192.0.2.1");
  ASSERT_TRUE(Shell("ip addr add 192.0.2.9/24 dev rxeu_a"));
  EXPECT_EQ(Bind("192.0.2.9"), interface);
}

}  // namespace
}  // namespace conformance
