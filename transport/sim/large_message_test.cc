// Messages of 2^31 bytes at a path MTU of 256: 2^23 packets, half of all PSNs.
// The memory generates and checks a pattern instead of storing them.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

#include "transport/sim/pair.h"

namespace sim {
namespace {

using transport::SendOpcode;
using transport::WcStatus;

constexpr uint32_t kBytes = 1u << 31;
constexpr uint32_t kPackets = kBytes / 256;

class LargeMessage : public ::testing::TestWithParam<SendOpcode> {
 protected:
  // One message over `link`, then a small WRITE.
  void Run(const LinkProfile& link, uint32_t path_mtu) {
    const auto start = std::chrono::steady_clock::now();
    PairOptions options;
    options.path_mtu = path_mtu;
    options.link = link;
    options.psn_a = 0xabcdef;
    options.buffer_bytes = 4096;
    Pair pair(options);
    PatternMemory source(kBytes, 3);
    PatternMemory target(kBytes, 3);
    ASSERT_NE(source.data(), nullptr);
    ASSERT_NE(target.data(), nullptr);
    const bool read = GetParam() == SendOpcode::kRdmaRead;
    PatternMemory& at_a = read ? target : source;
    PatternMemory& at_b = read ? source : target;
    pair.a.node->memory().AddPattern(&at_a);
    pair.b.node->memory().AddPattern(&at_b);
    const Region region_a = pair.a.node->memory().Register(
        pair.a.region.pd, at_a.data(), 0x10000, kBytes, kAllAccess);
    const Region region_b = pair.b.node->memory().Register(
        pair.b.region.pd, at_b.data(), 0x7fff00000000, kBytes, kAllAccess);
    pair.Connect();
    const transport::Sge sge_b = {region_b.va, kBytes, region_b.lkey};
    ASSERT_EQ(pair.b.qp->PostReceive({.wr_id = 7, .sges = {&sge_b, 1}}, 0), 0);
    const transport::Sge sge_a = {region_a.va, kBytes, region_a.lkey};
    transport::SendRequest request;
    request.wr_id = 1;
    request.opcode = GetParam();
    request.flags = transport::kSendSignaled;
    request.sges = {&sge_a, 1};
    request.remote_addr = region_b.va;
    request.rkey = region_b.rkey;
    ASSERT_EQ(pair.a.Post(request), 0);
    ASSERT_EQ(pair.a.Write(2, 0, 0, 100), 0);
    EXPECT_TRUE(pair.RunUntilSent(pair.a, 2, 10'000 * transport::kSecond))
        << "packets so far: " << pair.net.packets()
        << ", bytes in place: " << target.written_in_order();
    const auto sent = pair.a.TakeSend();
    ASSERT_EQ(sent.size(), 2u);
    EXPECT_EQ(sent[0].wr_id, 1u);
    EXPECT_EQ(sent[0].status, WcStatus::kSuccess);
    EXPECT_EQ(sent[1].status, WcStatus::kSuccess);
    if (link.lossy() && read) {
      // Responses may be placed out of order, or twice.
      EXPECT_GE(target.written(), uint64_t{kBytes});
    } else {
      EXPECT_EQ(target.written_in_order(), uint64_t{kBytes});
      EXPECT_EQ(target.written(), uint64_t{kBytes});
    }
    EXPECT_FALSE(target.mismatch());
    if (GetParam() == SendOpcode::kSend) {
      const auto received = pair.b.TakeRecv();
      ASSERT_EQ(received.size(), 1u);
      EXPECT_EQ(received[0].byte_len, kBytes);
    }
    EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
            .count();
    std::printf("%llu packets, %.2f s, %.0f ns a packet, %.3f s virtual\n",
                static_cast<unsigned long long>(pair.net.packets()), seconds,
                seconds * 1e9 / static_cast<double>(pair.net.packets()),
                static_cast<double>(pair.now()) / 1e9);
  }
};

INSTANTIATE_TEST_SUITE_P(Opcodes, LargeMessage,
                         ::testing::Values(SendOpcode::kRdmaWrite,
                                           SendOpcode::kRdmaRead,
                                           SendOpcode::kSend));

TEST_P(LargeMessage, HalfThePsnSpace) {
  static_assert(kPackets == 1u << 23);
  LinkProfile link;
  link.delay = 1 * transport::kMicrosecond;
  Run(link, 256);
}

TEST_P(LargeMessage, WithLosses) {
  LinkProfile link;
  link.delay = 1 * transport::kMicrosecond;
  link.loss = 1000;  // 0.1 %
  link.reorder = 1000;
  link.reorder_delay = 20 * transport::kMicrosecond;
  Run(link, 4096);
}

}  // namespace
}  // namespace sim
