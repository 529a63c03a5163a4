// RingUse::kForBulk: large datagrams by the ring, small ones by plain calls.
#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/ports/uring_port.h"
#include "rxe_user/testing/loopback_port.h"
#include "rxe_user/testing/refused_calls.h"
#include "rxe_user/testing/ring_descriptors.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

class UringBulkTest : public LoopbackPortTest {
 protected:
  static constexpr size_t kSmall = 64;
  static constexpr size_t kLarge = 16 << 10;

  void SetUp() override { Open("127.0.0.1", CreateForBulk); }

  transport::Flow flow() const { return transport::Flow(av_); }
  void Send(size_t size, uint8_t number = 7) {
    Queue(flow(), {size}, number);
    port_->Flush();
  }
  // The first bytes of the batches of one Receive.
  std::vector<int> ReceiveOnce(bool thorough = true) {
    std::vector<int> numbers;
    for (const transport::GroBatch& batch : port_->Receive(thorough)) {
      numbers.push_back(batch.bytes[0]);
    }
    return numbers;
  }
  // Waits until the socket has datagrams. Fails the test if none comes.
  void Await() {
    pollfd fd = {port_->ReceiveDescriptors().at(0), POLLIN, 0};
    ASSERT_EQ(::poll(&fd, 1, 30'000), 1);
  }
  // The first bytes of the next `count` datagrams.
  std::vector<int> Receive(size_t count) {
    std::vector<int> numbers;
    while (!HasFailure() && numbers.size() < count) {
      Await();
      for (const int number : ReceiveOnce()) numbers.push_back(number);
    }
    return numbers;
  }
  // Whether a burst of this size goes by the ring. For threads that may not
  // call sendmmsg(2).
  bool SendsByRing(size_t size) {
    const uint64_t before = port_->counters().tx_errors;
    Send(size);
    return port_->counters().tx_errors == before;
  }
  // A datagram from a socket that is not the port's.
  void SendFromElsewhere(size_t size) const {
    const UniqueFd foreign(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::vector<uint8_t> bytes(size);
    SocketAddress to;
    const socklen_t length =
        ToSocketAddress(local_.address, wire::kRoceUdpPort, 0, &to);
    ASSERT_EQ(::sendto(foreign.get(), bytes.data(), size, 0, &to.any, length),
              static_cast<ssize_t>(size));
  }
};

// Runs `body` in a thread that may not make `calls`.
template <typename Body>
void Without(const std::vector<long>& calls, Body body) {
  std::thread([&] {
    for (const long call : calls) {
      if (!RefuseCall(call, EPERM)) GTEST_SKIP() << "no seccomp filter here";
    }
    body();
  }).join();
}

TEST_F(UringBulkTest, LargeBurstsAndThoseBehindThemGoByTheRing) {
  Without({__NR_sendmmsg}, [&] {
    EXPECT_FALSE(SendsByRing(kSmall));
    EXPECT_FALSE(SendsByRing(kLarge - 1));
    for (int turn = 0; turn < 2; ++turn) {
      EXPECT_TRUE(SendsByRing(kLarge));
      for (int i = 0; i < 63; ++i) ASSERT_TRUE(SendsByRing(kSmall)) << i;
      EXPECT_FALSE(SendsByRing(kSmall));
    }
  });
}

TEST_F(UringBulkTest, ALargeDatagramIsBulkToo) {
  SendFromElsewhere(kLarge);
  EXPECT_EQ(Receive(1).size(), 1u);
  Without({__NR_sendmmsg}, [&] { EXPECT_TRUE(SendsByRing(kSmall)); });
}

TEST_F(UringBulkTest, SmallDatagramsEndBulk) {
  Send(kLarge);
  EXPECT_EQ(Receive(1).size(), 1u);
  for (int i = 0; i < 64; ++i) {
    SendFromElsewhere(kSmall);
    EXPECT_EQ(Receive(1).size(), 1u);
  }
  Without({__NR_sendmmsg}, [&] { EXPECT_FALSE(SendsByRing(kSmall)); });
}

TEST_F(UringBulkTest, BulkIsReceivedByTheRing) {
  Without({__NR_recvmsg, __NR_recvmmsg}, [&] {
    EXPECT_EQ(ReceiveOnce(), std::vector<int>());
    EXPECT_NE(port_->counters().rx_errors, 0u);
    const uint64_t before = port_->counters().rx_errors;
    Send(kLarge, 1);
    Send(kSmall, 2);
    EXPECT_EQ(Receive(2), (std::vector<int>{1, 2}));
    EXPECT_EQ(port_->counters().rx_errors, before);
  });
}

// A poll that finds nothing says nothing about the size of what comes next, and
// opens no bell (arrival_bell.h).
TEST_F(UringBulkTest, EmptyPollsChangeNothing) {
  Send(kLarge);
  EXPECT_EQ(Receive(1).size(), 1u);
  const size_t rings = RingDescriptors().size();
  const uint64_t calls = port_->counters().rx_calls;
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(ReceiveOnce(false), std::vector<int>());
  }
  EXPECT_EQ(RingDescriptors().size(), rings);
  EXPECT_EQ(port_->counters().rx_calls, calls + 1000);
  Without({__NR_sendmmsg}, [&] { EXPECT_TRUE(SendsByRing(kSmall)); });
}

TEST_F(UringBulkTest, OnlySocketsWakeThreads) {
  EXPECT_EQ(port_->ReceiveDescriptors().size(), 1u);
}

TEST_F(UringBulkTest, DatagramsKeepTheirOrder) {
  std::mt19937 random(7);
  uint8_t sent = 0;
  uint8_t received = 0;
  const auto receive = [&] {
    for (const int number : ReceiveOnce()) EXPECT_EQ(number, received++);
  };
  // So that the socket's buffer holds all that is on its way.
  constexpr uint8_t kMaxInFlight = 8;
  for (int phase = 0; phase < 40; ++phase) {
    const bool bulk = phase % 2 == 1;
    for (int i = 0; i < 100; ++i) {
      for (auto queued = random() % 4; queued > 0; --queued) {
        if (static_cast<uint8_t>(sent - received) == kMaxInFlight) break;
        Queue(flow(), {(bulk ? kLarge : kSmall) + random() % 1000}, sent++);
        if (random() % 2 == 0) port_->Flush();
      }
      port_->Flush();
      if (random() % 4 != 0) receive();
    }
    while (!HasFailure() && received != sent) {
      Await();
      receive();
    }
  }
  EXPECT_EQ(port_->counters().rx_overflow, 0u);
}

// Bytes of a batch stay until the next Receive, whatever is sent meanwhile.
TEST_F(UringBulkTest, SendsDoNotOverwriteBatches) {
  for (const size_t size : {size_t{10'000}, kLarge}) {
    Send(size, 1);
    Await();
    const auto batches = port_->Receive(true);
    ASSERT_EQ(batches.size(), 1u);
    const std::vector<uint8_t> before(batches[0].bytes.begin(),
                                      batches[0].bytes.end());
    std::vector<int> sent;
    for (uint8_t i = 2; i < 12; ++i) {
      Send(kLarge + i, i);
      sent.push_back(i);
    }
    EXPECT_TRUE(std::ranges::equal(before, batches[0].bytes));
    EXPECT_EQ(Receive(sent.size()), sent);
  }
}

// A program forbids the call while the device is in use.
TEST_F(UringBulkTest, ARefusedCallIsFollowedByPlainOnes) {
  Send(kLarge, 1);
  Without({__NR_io_uring_enter}, [&] {
    EXPECT_EQ(Receive(1), std::vector<int>{1});
    for (uint8_t i = 2; i < 10; ++i) {
      Send(kLarge, i);
      EXPECT_FALSE(port_->blocked());
      EXPECT_EQ(Receive(1), std::vector<int>{i});
    }
    EXPECT_EQ(port_->counters().tx_blocked, 0u);
  });
}

}  // namespace
}  // namespace rxe_user
