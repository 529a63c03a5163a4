// Devices and contexts whose interfaces are added, removed and changed: what a
// program without a queue pair sees, and what remains of its objects.
#include <arpa/inet.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/fixture.h"
#include "verbs_api/libibverbs/interface.h"

namespace conformance {
namespace {

bool Shell(const std::string& commands) {
  return std::system(("{ " + commands + "; } 2>/dev/null").c_str()) == 0;
}

// Two interfaces that are up and have no address yet.
class DevicesTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!Shell("ip link add rxeu_a type veth peer name rxeu_b && "
               "ip link set rxeu_a addrgenmode none && "
               "ip link set rxeu_b addrgenmode none && "
               "ip link set rxeu_a up && ip link set rxeu_b up")) {
      GTEST_SKIP() << "not allowed to";
    }
  }
  void TearDown() override {
    if (qp_ != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp_), 0);
    }
    if (cq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
    }
    if (pd_ != nullptr) {
      EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    }
    if (context_ != nullptr) {
      EXPECT_EQ(ibv_close_device(context_), 0);
    }
    Shell("ip link del rxeu_a");
  }

  static bool AddAddress(const std::string& address, const char* interface) {
    return Shell("ip addr add " + address + "/24 dev " + interface);
  }
  static int IndexOf(ibv_context* context, const char* address) {
    ibv_port_attr port;
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    ibv_gid wanted = {};
    wanted.raw[10] = wanted.raw[11] = 0xff;
    EXPECT_EQ(inet_pton(AF_INET, address, wanted.raw + 12), 1);
    for (int i = 0; i < port.gid_tbl_len; ++i) {
      ibv_gid gid;
      EXPECT_EQ(ibv_query_gid(context, 1, i, &gid), 0);
      if (std::memcmp(gid.raw, wanted.raw, sizeof(gid.raw)) == 0) return i;
    }
    return -1;
  }
  static bool Has(ibv_context* context, const char* address) {
    return IndexOf(context, address) >= 0;
  }
  static ibv_port_state PortState(ibv_context* context) {
    ibv_port_attr port;
    EXPECT_EQ(ibv_query_port(context, 1, &port), 0);
    return port.state;
  }
  template <typename Condition>
  static bool Await(Condition&& condition) {
    const int64_t limit = NowMs() + kTimeoutMs;
    while (!condition()) {
      if (NowMs() > limit) return false;
      std::this_thread::yield();
    }
    return true;
  }

  struct Listed {
    ibv_device* device;
    std::string name;
    std::string node;
    int interface;
  };
  static std::vector<Listed> List() {
    std::vector<Listed> out;
    ibv_device** const list = ibv_get_device_list(nullptr);
    EXPECT_NE(list, nullptr);
    for (ibv_device** at = list; at != nullptr && *at != nullptr; ++at) {
      out.push_back({*at, ibv_get_device_name(*at), (*at)->dev_name,
                     static_cast<int>(rxe_user_interface_of(*at))});
    }
    ibv_free_device_list(list);
    return out;
  }
  static Listed Find(const char* interface) {
    for (const Listed& listed : List()) {
      if (listed.interface == static_cast<int>(if_nametoindex(interface))) {
        return listed;
      }
    }
    ADD_FAILURE() << "no device of " << interface;
    return {};
  }
  void Open(const char* interface) {
    context_ = ibv_open_device(Find(interface).device);
    ASSERT_NE(context_, nullptr);
    pd_ = ibv_alloc_pd(context_);
    cq_ = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
    ASSERT_TRUE(pd_ != nullptr && cq_ != nullptr);
  }
  void CreateQp() {
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq_;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    qp_ = ibv_create_qp(pd_, &init);
    ASSERT_NE(qp_, nullptr) << std::strerror(errno);
  }
  // Connects a queue pair to itself.
  void ToRtr(const char* address) {
    const int index = IndexOf(context_, address);
    ASSERT_GE(index, 0);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp_, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                IBV_QP_ACCESS_FLAGS),
              0);
    attr.qp_state = IBV_QPS_RTR;
    attr.path_mtu = IBV_MTU_1024;
    attr.dest_qp_num = qp_->qp_num;
    attr.max_dest_rd_atomic = 1;
    attr.min_rnr_timer = 1;
    attr.ah_attr.is_global = 1;
    attr.ah_attr.port_num = 1;
    attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(index);
    ASSERT_EQ(ibv_query_gid(context_, 1, index, &attr.ah_attr.grh.dgid), 0);
    EXPECT_EQ(
        ibv_modify_qp(qp_, &attr,
                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                          IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
        0);
  }

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_qp* qp_ = nullptr;
};

// Opening a device of an old list gives its current state, even if it is open
// elsewhere.
TEST_F(DevicesTest, ADeviceThatWasListedBefore) {
  ASSERT_TRUE(AddAddress("192.0.2.1", "rxeu_a"));
  ibv_device* const device = Find("rxeu_a").device;
  ASSERT_NO_FATAL_FAILURE(Open("rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(CreateQp());
  ASSERT_TRUE(AddAddress("192.0.2.2", "rxeu_a"));
  ASSERT_TRUE(Await([this] { return Has(context_, "192.0.2.2"); }));
  ibv_context* const second = ibv_open_device(device);
  ASSERT_NE(second, nullptr);
  EXPECT_TRUE(Has(second, "192.0.2.2"));
  EXPECT_EQ(ibv_close_device(second), 0);
}

// Queries return the current state, not that of opening the device.
TEST_F(DevicesTest, PortAndGidsAreCurrentWithoutAQueuePair) {
  ASSERT_TRUE(AddAddress("192.0.2.1", "rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(Open("rxeu_a"));
  ASSERT_TRUE(Has(context_, "192.0.2.1"));
  ASSERT_TRUE(AddAddress("192.0.2.2", "rxeu_a"));
  EXPECT_TRUE(Await([this] { return Has(context_, "192.0.2.2"); }));
  ASSERT_TRUE(Shell("ip link set rxeu_b down"));  // no carrier
  EXPECT_TRUE(Await([this] { return PortState(context_) == IBV_PORT_DOWN; }));
  ASSERT_TRUE(Shell("ip link set rxeu_b up"));
  EXPECT_TRUE(Await([this] { return PortState(context_) == IBV_PORT_ACTIVE; }));
}

// Changes before the first queue pair are not lost.
TEST_F(DevicesTest, ChangesBeforeTheFirstQueuePairAreSeen) {
  ASSERT_TRUE(AddAddress("192.0.2.1", "rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(Open("rxeu_a"));
  ASSERT_TRUE(AddAddress("192.0.2.2", "rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(CreateQp());
  EXPECT_TRUE(Has(context_, "192.0.2.2"));
}

// A deleted interface, and one whose last address was removed.
TEST_F(DevicesTest, GidsGoWithTheirAddresses) {
  for (const char* how :
       {"ip addr del 192.0.2.1/24 dev rxeu_a", "ip link del rxeu_a"}) {
    ASSERT_TRUE(AddAddress("192.0.2.1", "rxeu_a"));
    if (context_ == nullptr) {
      ASSERT_NO_FATAL_FAILURE(Open("rxeu_a"));
      ASSERT_NO_FATAL_FAILURE(CreateQp());
    }
    EXPECT_TRUE(Await([this] { return Has(context_, "192.0.2.1"); }));
    EXPECT_TRUE(
        Await([this] { return PortState(context_) == IBV_PORT_ACTIVE; }));
    ASSERT_TRUE(Shell(how));
    EXPECT_TRUE(Await([this] { return !Has(context_, "192.0.2.1"); })) << how;
    EXPECT_EQ(PortState(context_), IBV_PORT_DOWN) << how;
  }
}

// A queue pair also uses current addresses.
TEST_F(DevicesTest, AQueuePairOnAnInterfaceWithANewAddress) {
  ASSERT_TRUE(AddAddress("192.0.2.1", "rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(Open("rxeu_a"));
  ASSERT_TRUE(Shell("ip addr del 192.0.2.1/24 dev rxeu_a"));
  ASSERT_TRUE(AddAddress("192.0.2.2", "rxeu_a"));
  ASSERT_NO_FATAL_FAILURE(CreateQp());
  ToRtr("192.0.2.2");
}

// Interfaces are listed by index, so one that gets its address late may come
// before an open one.
TEST_F(DevicesTest, AnOpenDeviceIsNotRenamedByOneThatComesLater) {
  const char* late = "rxeu_a";
  const char* early = "rxeu_b";
  if (if_nametoindex(late) > if_nametoindex(early)) std::swap(late, early);
  ASSERT_TRUE(AddAddress("192.0.2.1", early));
  ASSERT_NO_FATAL_FAILURE(Open(early));
  ASSERT_NO_FATAL_FAILURE(CreateQp());
  const Listed before = Find(early);
  ASSERT_TRUE(AddAddress("198.51.100.1", late));
  const Listed after = Find(early);
  EXPECT_EQ(after.device, before.device);
  EXPECT_EQ(after.name, before.name);
  const Listed other = Find(late);
  for (const Listed& listed : List()) {
    if (listed.device == other.device) continue;
    EXPECT_NE(listed.name, other.name);
    EXPECT_NE(listed.node, other.node);
  }
  // The pointer of the earlier list still opens the same device.
  ibv_context* const again = ibv_open_device(before.device);
  ASSERT_NE(again, nullptr);
  EXPECT_TRUE(Has(again, "192.0.2.1"));
  EXPECT_EQ(ibv_close_device(again), 0);
  // An open device follows its interface.
  ASSERT_TRUE(AddAddress("192.0.2.2", early));
  EXPECT_TRUE(Await([this] { return Has(context_, "192.0.2.2"); }));
  EXPECT_EQ(PortState(context_), IBV_PORT_ACTIVE);
  EXPECT_EQ(ibv_get_device_name(context_->device), before.name);
}

// The open descriptors and the threads of the process.
struct OpenThings {
  static size_t Count(const char* directory) {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(directory), {}));
  }

  size_t descriptors = Count("/proc/self/fd");
  size_t threads = Count("/proc/self/task");
};

// Like the interface of a container that is restarted repeatedly, with a
// program that closes contexts without destroying its objects.
TEST_F(DevicesTest, NothingOfAClosedContextStaysOpen) {
  constexpr int kRounds = 6;
  OpenThings before;
  std::vector<std::pair<ibv_cq*, ibv_pd*>> left;
  for (int i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(
        Shell("ip link add rxeu_c type veth peer name rxeu_d && "
              "ip link set rxeu_c addrgenmode none && "
              "ip link set rxeu_c up"));
    ASSERT_TRUE(AddAddress("198.51.100.1", "rxeu_c"));
    ASSERT_NO_FATAL_FAILURE(Open("rxeu_c"));
    ASSERT_NO_FATAL_FAILURE(CreateQp());
    ASSERT_NO_FATAL_FAILURE(ToRtr("198.51.100.1"));
    if (i % 2 != 0) {
      EXPECT_EQ(ibv_destroy_qp(qp_), 0);
      EXPECT_EQ(ibv_destroy_cq(cq_), 0);
      EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
    } else {
      left.emplace_back(cq_, pd_);
    }
    EXPECT_EQ(ibv_close_device(context_), 0);
    qp_ = nullptr;
    cq_ = nullptr;
    pd_ = nullptr;
    context_ = nullptr;
    ASSERT_TRUE(Shell("ip link del rxeu_c"));
    // The first round starts the threads and opens the descriptors that all
    // rounds share.
    if (i == 0) before = OpenThings();
  }
  const OpenThings now;
  EXPECT_LE(now.descriptors, before.descriptors);
  EXPECT_LE(now.threads, before.threads);
  ibv_wc wc;
  for (const auto& [cq, pd] : left) {
    EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }
}

}  // namespace
}  // namespace conformance
