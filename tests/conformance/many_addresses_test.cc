// A program that uses many source addresses during its life, as in a container
// whose addresses change.
#include <arpa/inet.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

bool Shell(const std::string& commands) {
  return std::system(("{ " + commands + "; } 2>/dev/null").c_str()) == 0;
}

std::string AddressOf(int number) {
  return "10.77." + std::to_string(number / 200) + "." +
         std::to_string(1 + number % 200);
}

constexpr uint32_t kQkey = 0x11111111;

size_t OpenDescriptors() {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

// `a_` and `b_` stay connected by 127.0.0.1.
class ManyAddressesTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    if (!Shell("ip addr replace 10.77.99.1/32 dev lo")) {
      GTEST_SKIP() << "not allowed to add addresses";
    }
  }

  // Makes the fixture's calls use `address`.
  void Use(const std::string& address) {
    ibv_gid wanted = {};
    wanted.raw[10] = wanted.raw[11] = 0xff;
    ASSERT_EQ(inet_pton(AF_INET, address.c_str(), wanted.raw + 12), 1);
    // The kernel's notification may not have been read yet.
    const int64_t limit = NowMs() + kTimeoutMs;
    while (NowMs() < limit) {
      ibv_port_attr port;
      ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
      for (int i = 0; i < port.gid_tbl_len; ++i) {
        ibv_gid gid;
        ASSERT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
        if (std::memcmp(gid.raw, wanted.raw, sizeof(gid.raw)) != 0) continue;
        gid_index_ = static_cast<uint8_t>(i);
        gid_ = gid;
        return;
      }
    }
    FAIL() << "no GID of " << address;
  }
  // Sends one message between two ends.
  void Exchange(Side& from, Side& to) {
    ASSERT_EQ(Receive(to, 1, 0, 64), 0);
    ASSERT_EQ(Send(from, IBV_WR_SEND, 2, 0, 64), 0);
    ExpectSuccess(from.cq, 2);
    ExpectSuccess(to.cq, 1);
  }
};

TEST_F(ManyAddressesTest, ConnectionsFromOneAfterTheOther) {
  constexpr int kAddresses = 300;
  size_t after_some = 0;
  for (int i = 0; i < kAddresses; ++i) {
    ASSERT_TRUE(Shell("ip addr add " + AddressOf(i) + "/32 dev lo"));
    ASSERT_NO_FATAL_FAILURE(Use(AddressOf(i)));
    Side c;
    Side d;
    MakeSide(&c, {}, 16, nullptr, 4096);
    MakeSide(&d, {}, 16, nullptr, 4096);
    ASSERT_FALSE(HasFailure()) << "address " << i + 1;
    Connect(&c, &d);
    ASSERT_FALSE(HasFailure()) << "address " << i + 1;
    Exchange(c, d);
    DestroySide(&c);
    DestroySide(&d);
    ASSERT_FALSE(HasFailure()) << "address " << i + 1;
    ASSERT_TRUE(Shell("ip addr del " + AddressOf(i) + "/32 dev lo"));
    if (i == kAddresses / 2) after_some = OpenDescriptors();
  }
  EXPECT_LE(OpenDescriptors(), after_some);
  Exchange(a_, b_);
}

// The index of a GID in an address handle's attributes has 8 bits.
TEST_F(ManyAddressesTest, ADatagramToAGidWhoseIndexDoesNotFit) {
  constexpr int kAddresses = 260;
  std::string commands;
  for (int i = 0; i < kAddresses; ++i) {
    commands += "ip addr add " + AddressOf(i) + "/32 dev lo;";
  }
  ASSERT_TRUE(Shell(commands + "true"));
  ibv_port_attr port = {};
  const int64_t limit = NowMs() + kTimeoutMs;
  while (port.gid_tbl_len < kAddresses && NowMs() < limit) {
    ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  }
  ASSERT_GE(port.gid_tbl_len, kAddresses);
  for (const int index : {255, 256, 258}) {
    ibv_grh grh = {};
    grh.version_tclass_flow = htonl(6u << 28);
    grh.next_hdr = 27;
    ASSERT_EQ(ibv_query_gid(context_, 1, index, &grh.dgid), 0);
    ASSERT_EQ(ibv_query_gid(context_, 1, 0, &grh.sgid), 0);
    ibv_wc wc = {};
    wc.wc_flags = IBV_WC_GRH;
    ibv_ah_attr attr = {};
    errno = 0;
    const int result = ibv_init_ah_from_wc(context_, 1, &wc, &grh, &attr);
    if (index > 255) {
      EXPECT_EQ(result, -1) << index;
      EXPECT_EQ(errno, EADDRNOTAVAIL) << index;
    } else {
      EXPECT_EQ(result, 0) << index << ": " << std::strerror(errno);
      EXPECT_EQ(attr.grh.sgid_index, index);
    }
  }
  commands.clear();
  for (int i = 0; i < kAddresses; ++i) {
    commands += "ip addr del " + AddressOf(i) + "/32 dev lo;";
  }
  ASSERT_TRUE(Shell(commands + "true"));
}

// The addresses remain, and each is used by the flows of a few address handles.
TEST_F(ManyAddressesTest, DatagramsFromOneAfterTheOther) {
  constexpr int kAddresses = 50;
  constexpr uint32_t kFlows = 8;
  Side ud;
  MakeSide(&ud, {.type = IBV_QPT_UD}, 16, nullptr, 4096);
  ToRtsAsUd(ud.qp, kQkey);
  ASSERT_FALSE(HasFailure());
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kAddresses; ++i) {
      if (round == 0) {
        ASSERT_TRUE(Shell("ip addr add " + AddressOf(i) + "/32 dev lo"));
      }
      ASSERT_NO_FATAL_FAILURE(Use(AddressOf(i)));
      for (uint32_t flow = 1; flow <= kFlows; ++flow) {
        ibv_ah_attr to = {};
        to.is_global = 1;
        to.port_num = 1;
        to.grh.dgid = gid_;
        to.grh.sgid_index = gid_index_;
        to.grh.flow_label = flow;
        ibv_ah* const ah = ibv_create_ah(pd_, &to);
        ASSERT_NE(ah, nullptr) << "address " << i + 1;
        ASSERT_EQ(Receive(ud, 1, 0, 128), 0);
        ibv_sge sge = ud.Sge(256, 64);
        ibv_send_wr request = {};
        request.wr_id = 2;
        request.sg_list = &sge;
        request.num_sge = 1;
        request.opcode = IBV_WR_SEND;
        request.send_flags = IBV_SEND_SIGNALED;
        request.wr.ud.ah = ah;
        request.wr.ud.remote_qpn = ud.qp->qp_num;
        request.wr.ud.remote_qkey = kQkey;
        ibv_send_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_send(ud.qp, &request, &bad), 0)
            << "address " << i + 1 << ", flow " << flow;
        ExpectSuccess(ud.cq, 2);
        ExpectSuccess(ud.cq, 1);
        EXPECT_EQ(ibv_destroy_ah(ah), 0);
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  DestroySide(&ud);
  Exchange(a_, b_);
  for (int i = 0; i < kAddresses; ++i) {
    Shell("ip addr del " + AddressOf(i) + "/32 dev lo");
  }
}

}  // namespace
}  // namespace conformance
