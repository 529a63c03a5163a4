// RingUse::kForBulk: large datagrams by the ring, small ones by plain calls.
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "rxe_user/ports/uring_port.h"
#include "rxe_user/testing/loopback_port.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user {
namespace {

class UringBulkTest : public LoopbackPortTest {
 protected:
  static constexpr size_t kSmall = 64;
  static constexpr size_t kLarge = 16 << 10;

  void SetUp() override { Open("127.0.0.1", CreateForBulk); }

  // A send by the ring also receives, and the ring is readable then.
  bool RingHasReceived() const {
    pollfd fd = {port_->ReceiveDescriptors().back(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  }
  // Whether it went by the ring.
  bool SendByRing(size_t size, uint8_t number = 7) {
    Queue(flow(), {size}, number);
    port_->Flush();
    return RingHasReceived();
  }
  transport::Flow flow() const { return transport::Flow(av_); }
  // The first bytes of the batches of one Receive.
  std::vector<int> ReceiveOnce() {
    std::vector<int> numbers;
    for (const transport::GroBatch& batch : port_->Receive(true)) {
      numbers.push_back(batch.bytes[0]);
    }
    return numbers;
  }
  void ReceiveAll() {
    while (!ReceiveOnce().empty()) continue;
  }
};

TEST_F(UringBulkTest, SmallDatagramsGoByPlainCalls) {
  for (uint8_t i = 1; i < 100; ++i) {
    EXPECT_FALSE(SendByRing(kSmall, i));
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
  }
}

TEST_F(UringBulkTest, ALargeBurstGoesByTheRing) {
  EXPECT_FALSE(SendByRing(kLarge - 1));
  ReceiveAll();
  EXPECT_TRUE(SendByRing(kLarge));
}

TEST_F(UringBulkTest, ALargeDatagramMakesTheSendsBehindItGoByTheRing) {
  EXPECT_TRUE(SendByRing(kLarge));
  for (int i = 0; i < 100; ++i) {
    ReceiveAll();
    if (!SendByRing(kSmall)) break;
    ASSERT_LT(i, 99);
  }
  // The other end sends a large one.
  std::unique_ptr<Port> receiver = std::exchange(port_, nullptr);
  const transport::AddressVector av = av_;
  local_.address = *wire::IpAddress::Parse("127.0.0.2");
  port_ = *CreateForBulk();
  av_.source = local_.address;
  av_.source_port = port_->SourcePort(local_, 5).value_or(0);
  Queue(flow(), {kLarge});
  port_->Flush();
  port_ = std::move(receiver);
  av_ = av;
  ReceiveAll();
  EXPECT_TRUE(SendByRing(kSmall));
}

// Acknowledgements go between bulk; a ping-pong of small ones ends it.
TEST_F(UringBulkTest, ManySmallDatagramsEndBulk) {
  EXPECT_TRUE(SendByRing(kLarge));
  ReceiveAll();
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(SendByRing(kSmall));
    ReceiveAll();
  }
  for (int i = 0; i < 48; ++i) {
    (void)SendByRing(kSmall);
    ReceiveAll();
  }
  EXPECT_FALSE(SendByRing(kSmall));
}

TEST_F(UringBulkTest, EmptyPollsDoNotEndBulk) {
  EXPECT_TRUE(SendByRing(kLarge));
  ReceiveAll();
  for (int i = 0; i < 200; ++i) EXPECT_EQ(ReceiveOnce(), std::vector<int>());
  EXPECT_TRUE(SendByRing(kSmall));
}

TEST_F(UringBulkTest, DatagramsKeepTheirOrder) {
  std::mt19937 random(7);
  uint8_t sent = 0;
  uint8_t received = 0;
  const auto receive = [&] {
    const std::vector<int> numbers = ReceiveOnce();
    for (const int number : numbers) ASSERT_EQ(number, received++);
  };
  for (int phase = 0; phase < 40; ++phase) {
    const bool bulk = phase % 2 == 1;
    for (int i = 0; i < 100; ++i) {
      for (int queued = static_cast<int>(random() % 4); queued > 0; --queued) {
        // Of different sizes, so that the kernel does not coalesce them.
        Queue(flow(), {(bulk ? kLarge : kSmall) + random() % 1000}, sent++);
      }
      port_->Flush();
      receive();
      if (random() % 2 == 0) receive();
    }
    while (received != sent) receive();
  }
  EXPECT_EQ(port_->counters().rx_overflow, 0u);
}

// Bytes of a batch stay until the next Receive, whatever is sent meanwhile, and
// by whichever calls.
TEST_F(UringBulkTest, SendsDoNotOverwriteBatches) {
  Queue(flow(), {1000}, 1);
  port_->Flush();
  const auto batches = port_->Receive(true);
  ASSERT_EQ(batches.size(), 1u);
  const std::vector<uint8_t> before(batches[0].bytes.begin(),
                                    batches[0].bytes.end());
  for (uint8_t i = 2; i < 20; ++i) {
    EXPECT_FALSE(SendByRing(kLarge + i, i));
  }
  EXPECT_TRUE(std::ranges::equal(before, batches[0].bytes));
  for (int i = 2; i < 20;) {
    for (const int number : ReceiveOnce()) EXPECT_EQ(number, i++);
  }
  EXPECT_TRUE(SendByRing(kSmall));
}

// A program forbids the call while the device is in use.
TEST_F(UringBulkTest, ARefusedCallIsFollowedByPlainOnes) {
  EXPECT_TRUE(SendByRing(kLarge, 1));
  std::thread([&] {
    if (!RefuseCall(__NR_io_uring_enter, EPERM)) {
      GTEST_SKIP() << "no seccomp filter here";
    }
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{1});
    for (uint8_t i = 2; i < 10; ++i) {
      EXPECT_FALSE(SendByRing(kLarge, i));
      EXPECT_FALSE(port_->blocked());
      EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
    }
    EXPECT_EQ(port_->counters().tx_blocked, 0u);
    EXPECT_EQ(port_->counters().rx_errors, 0u);
  }).join();
}

}  // namespace
}  // namespace rxe_user
