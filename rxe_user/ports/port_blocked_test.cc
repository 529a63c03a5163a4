// The port when the system refuses its sends, and when a receive returns an
// error. Sends are refused when a slow link fills the socket's send buffer, or
// when the path takes no segmented sends. Loopback never does any of this, so a
// seccomp listener answers each call in the kernel's place.
#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <future>
#include <iterator>
#include <optional>
#include <thread>
#include <vector>

#include "rxe_user/ports/udp_socket.h"
#include "rxe_user/testing/loopback_port.h"
#include "rxe_user/testing/refused_calls.h"
#include "transport/testing/scarce_memory.h"
#include "wire/headers.h"

namespace rxe_user {
namespace {

std::atomic<bool> no_memory = false;

// Makes each recvmsg(2) of the calling thread from `fd` fail, permanently.
bool RefuseReceives(int fd, int error) {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 3, __NR_recvmsg},
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, args)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<uint32_t>(fd)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program = {6, code};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0;
}

// Answers the calls at `listener` with `answers`: a number of messages sent, a
// negative errno, or nothing to let the kernel do it. All later calls go to the
// kernel. Ends when the calling thread has ended.
void Answer(int listener, std::vector<std::optional<int>> answers) {
  for (size_t i = 0;; ++i) {
    const bool given = i < answers.size() && answers[i].has_value();
    const int answer = given ? *answers[i] : 0;
    pollfd ready = {listener, POLLIN, 0};
    if (::poll(&ready, 1, 30'000) != 1 || (ready.revents & POLLIN) == 0) return;
    seccomp_notif call = {};
    if (::ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) return;
    seccomp_notif_resp response = {};
    response.id = call.id;
    if (!given) {
      response.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    } else if (answer < 0) {
      response.error = answer;
    } else {
      response.val = answer;
    }
    (void)::ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  }
}

class PortBlockedTest : public LoopbackPortTest {
 protected:
  void SetUp() override {
    Open("127.0.0.1");
    if (IsSkipped() || HasFatalFailure()) return;
    other_av_ = av_;
    other_av_.source_port = port_->SourcePort(local_, 6).value_or(0);
    ASSERT_NE(av_.source_port, other_av_.source_port);
  }

  // Runs `sends` in a thread whose calls get these answers.
  template <typename Sends>
  void Run(std::vector<std::optional<int>> answers, Sends sends,
           uint32_t number = __NR_sendmmsg) {
    std::promise<int> listener;
    std::thread thread([&] {
      const int fd = InterceptCall(number);
      listener.set_value(fd);
      if (fd >= 0) sends();
    });
    const int fd = listener.get_future().get();
    if (fd >= 0) {
      Answer(fd, std::move(answers));
      ::close(fd);
    }
    thread.join();
    if (fd < 0) GTEST_SKIP() << "no seccomp listener here";
  }

  // A burst of packets that are numbered from `first` on.
  void QueueNumbers(const transport::Flow& flow, uint8_t first,
                    size_t packets = 1) {
    Queue(flow, std::vector<size_t>(packets, 1000), first, 1);
  }

  // The numbers of the next `count` packets.
  std::vector<int> ReceiveNumbers(size_t count) {
    std::vector<int> numbers;
    for (const Packet& packet : Receive(count)) {
      numbers.push_back(packet.bytes[0]);
    }
    return numbers;
  }

  transport::AddressVector other_av_;
};

// The first of three is accepted (and lost), then the buffer is full. The
// others wait in order, although there may be space a moment later.
TEST_F(PortBlockedTest, BlockedBurstsKeepTheirOrder) {
  for (const int error : {EAGAIN, ENOBUFS}) {
    SCOPED_TRACE(error);
    const uint64_t calls = port_->counters().tx_calls;
    const uint64_t blocked = port_->counters().tx_blocked;
    const transport::Flow flow(av_);
    Run({1, -error, std::nullopt}, [&] {
      for (uint8_t i = 1; i <= 3; ++i) QueueNumbers(flow, i);
      port_->Flush();
      EXPECT_TRUE(port_->blocked());
      EXPECT_EQ(port_->Begin(flow), nullptr);
      EXPECT_EQ(port_->counters().tx_calls, calls + 2);
      EXPECT_EQ(port_->counters().tx_blocked, blocked + 1);
      port_->Flush();
      EXPECT_FALSE(port_->blocked());
      EXPECT_NE(port_->Begin(flow), nullptr);
      EXPECT_EQ(port_->counters().tx_calls, calls + 3);
    });
    if (IsSkipped()) return;
    EXPECT_EQ(ReceiveNumbers(2), (std::vector<int>{2, 3}));
  }
  EXPECT_EQ(port_->counters().tx_errors, 0u);
}

// One socket's full buffer delays only its own packets.
TEST_F(PortBlockedTest, AnotherSocketIsNotDelayed) {
  const transport::Flow flow(av_);
  const transport::Flow other(other_av_);
  Run({-EAGAIN, std::nullopt, std::nullopt}, [&] {
    QueueNumbers(flow, 1);
    QueueNumbers(flow, 2);
    QueueNumbers(other, 3);
    port_->Flush();
    EXPECT_TRUE(port_->blocked());
    EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{3});
    port_->Flush();
    EXPECT_FALSE(port_->blocked());
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(2), (std::vector<int>{1, 2}));
}

// A send is retried however often the buffer is full.
TEST_F(PortBlockedTest, RetriesUntilThereIsSpace) {
  const transport::Flow flow(av_);
  Run({-EAGAIN, -EAGAIN, -EAGAIN, std::nullopt}, [&] {
    QueueNumbers(flow, 1);
    for (int i = 0; i < 3; ++i) {
      port_->Flush();
      EXPECT_TRUE(port_->blocked());
    }
    port_->Flush();
    EXPECT_FALSE(port_->blocked());
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{1});
  EXPECT_EQ(port_->counters().tx_blocked, 3u);
}

// To a destination that refuses segmented sends, packets are sent one by one.
// They keep their order, both when that is found out and afterwards.
TEST_F(PortBlockedTest, PartsKeepTheirOrder) {
  const transport::Flow flow(av_);
  Run({1, -EIO}, [&] {
    QueueNumbers(flow, 1);  // accepted, and lost
    QueueNumbers(flow, 2, 3);
    QueueNumbers(flow, 5);
    port_->Flush();
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(4), (std::vector<int>{2, 3, 4, 5}));

  QueueNumbers(flow, 6);
  QueueNumbers(flow, 7, 3);
  QueueNumbers(flow, 10);
  port_->Flush();
  EXPECT_EQ(ReceiveNumbers(5), (std::vector<int>{6, 7, 8, 9, 10}));
  EXPECT_EQ(port_->counters().tx_split, 1u);
  EXPECT_EQ(port_->counters().tx_errors, 0u);
}

// Without memory to record that, these packets are lost, and nothing else.
TEST_F(PortBlockedTest, WithoutMemoryASendIsLost) {
  const transport::Flow flow(av_);
  transport::refuse_allocation = [] { return no_memory.load(); };
  Run({-EIO}, [&] {
    QueueNumbers(flow, 1, 3);
    QueueNumbers(flow, 4);
    no_memory = true;
    port_->Flush();
    no_memory = false;
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{4});
  EXPECT_EQ(port_->counters().tx_errors, 1u);
  EXPECT_NE(port_->Begin(flow), nullptr);
}

// No part is lost when the buffer fills up in between.
TEST_F(PortBlockedTest, BlockedPartsKeepTheirOrder) {
  const transport::Flow flow(av_);
  const std::optional<int> sent = std::nullopt;
  Run({-EIO, sent, -EAGAIN, -EAGAIN, sent, sent, sent}, [&] {
    QueueNumbers(flow, 1, 3);
    QueueNumbers(flow, 4);
    port_->Flush();
    EXPECT_TRUE(port_->blocked());
    port_->Flush();
    EXPECT_TRUE(port_->blocked());
    port_->Flush();
    EXPECT_FALSE(port_->blocked());
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(4), (std::vector<int>{1, 2, 3, 4}));
  EXPECT_EQ(port_->counters().tx_split, 1u);
  EXPECT_EQ(port_->counters().tx_blocked, 2u);
  EXPECT_EQ(port_->counters().tx_errors, 0u);
}

// A send that the system refuses is lost, and counted by its reason. Others are
// not delayed.
TEST_F(PortBlockedTest, OnlyTheRefusedSendIsLost) {
  const transport::Flow flow(av_);
  const PortCounters& counters = port_->counters();
  const struct {
    int error;
    const uint64_t& count;
  } kCases[] = {
      {EPERM, counters.tx_errors},  // a packet filter
      {ECONNREFUSED, counters.tx_errors},
      {EINVAL, counters.tx_errors},  // the source address is gone
      {ENETDOWN, counters.tx_unreachable},
      {ENETUNREACH, counters.tx_unreachable},
      {EHOSTUNREACH, counters.tx_unreachable},
      {EADDRNOTAVAIL, counters.tx_unreachable},
      {EMSGSIZE, counters.tx_too_long},
  };
  for (const auto& each : kCases) {
    SCOPED_TRACE(each.error);
    const uint64_t before = each.count;
    Run({-each.error, std::nullopt}, [&] {
      QueueNumbers(flow, 1);
      QueueNumbers(flow, 2);
      port_->Flush();
      EXPECT_FALSE(port_->blocked());
    });
    if (IsSkipped()) return;
    EXPECT_EQ(each.count, before + 1);
    EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{2});
  }
  EXPECT_EQ(counters.tx_errors + counters.tx_unreachable + counters.tx_too_long,
            std::size(kCases));
}

// A destination that refused segmented sends for a while accepts them again.
// (The interface had another MTU, say, or the source address was gone.)
TEST_F(PortBlockedTest, SegmentedSendsAreRetried) {
  const transport::Flow flow(av_);
  Run({-EINVAL, -EINVAL, -EINVAL, -EINVAL}, [&] {
    QueueNumbers(flow, 1, 3);
    port_->Flush();
  });
  if (IsSkipped()) return;
  EXPECT_EQ(port_->counters().tx_errors, 3u);
  EXPECT_EQ(port_->Begin(flow)->Room(1000), 1u);
  int packets = 0;
  for (; port_->Begin(flow)->Room(1000) == 1 && packets < 10'000; ++packets) {
    QueueNumbers(flow, 7);
    port_->Flush();
    ASSERT_EQ(ReceiveNumbers(1), std::vector<int>{7});
  }
  EXPECT_LT(packets, 1000);

  // Refused: the next try is later.
  Run({-EMSGSIZE}, [&] {
    QueueNumbers(flow, 1, 3);
    port_->Flush();
  });
  EXPECT_EQ(ReceiveNumbers(3), (std::vector<int>{1, 2, 3}));
  const int before = packets;
  for (packets = 0; port_->Begin(flow)->Room(1000) == 1 && packets < 10'000;
       ++packets) {
    QueueNumbers(flow, 7);
    port_->Flush();
    ASSERT_EQ(ReceiveNumbers(1), std::vector<int>{7});
  }
  EXPECT_GT(packets, before);
  EXPECT_LT(packets, 10'000);

  // Accepted.
  EXPECT_EQ(port_->counters().tx_split, 2u);
  for (int i = 0; i < 2; ++i) {
    QueueNumbers(flow, 1, 3);
    port_->Flush();
    EXPECT_EQ(ReceiveNumbers(3), (std::vector<int>{1, 2, 3}));
    EXPECT_GT(port_->Begin(flow)->Room(1000), 1u);
  }
  EXPECT_EQ(port_->counters().tx_split, 2u);
}

// Kernels before 6.9 return EINVAL for more than 64 segments; all return it for
// a blackhole route. If the parts fail as well, the kernel is not old.
TEST_F(PortBlockedTest, ABlackholeIsNotAnOldKernel) {
  constexpr size_t kPackets = 100;
  constexpr size_t kBytes = 100;
  const transport::Flow flow(av_);
  transport::AddressVector elsewhere_av = av_;
  elsewhere_av.destination = *wire::IpAddress::Parse("127.0.0.2");
  const transport::Flow elsewhere(elsewhere_av);
  ASSERT_EQ(port_->Begin(elsewhere)->Room(kBytes), 128u);
  Run(std::vector<std::optional<int>>(kPackets + 2, -EINVAL), [&] {
    Queue(flow, std::vector<size_t>(kPackets, kBytes), 1, 1);
    port_->Flush();
  });
  if (IsSkipped()) return;
  EXPECT_EQ(port_->counters().tx_errors, kPackets);
  EXPECT_EQ(port_->Begin(flow)->Room(kBytes), 1u);
  EXPECT_EQ(port_->Begin(elsewhere)->Room(kBytes), 128u);
  // Neither another error nor an error of a single part shows an old kernel.
  Run({-EINVAL, -ENETUNREACH, -EIO}, [&] {
    Queue(elsewhere, std::vector<size_t>(kPackets, kBytes), 1, 1);
    port_->Flush();
  });
  EXPECT_EQ(port_->counters().tx_unreachable, 1u);
  EXPECT_EQ(port_->Begin(elsewhere)->Room(kBytes), 1u);
  transport::AddressVector third_av = av_;
  third_av.destination = *wire::IpAddress::Parse("127.0.0.3");
  const transport::Flow third(third_av);
  EXPECT_EQ(port_->Begin(third)->Room(kBytes), 128u);
}

// Without memory to record that, the part is lost, and the next one is sent.
TEST_F(PortBlockedTest, WithoutMemoryAPartIsLost) {
  const transport::Flow flow(av_);
  transport::refuse_allocation = [] { return no_memory.load(); };
  Run({-EINVAL, -EINVAL}, [&] {
    Queue(flow, std::vector<size_t>(100, 100), 1, 1);
    no_memory = true;
    port_->Flush();
    no_memory = false;
  });
  if (IsSkipped()) return;
  EXPECT_EQ(ReceiveNumbers(36).front(), 65);
  EXPECT_EQ(port_->counters().tx_errors, 1u);
}

TEST_F(PortBlockedTest, AnOldKernelIsFoundOnce) {
  constexpr size_t kPackets = 100;
  constexpr size_t kBytes = 100;
  const transport::Flow flow(av_);
  Run({-EINVAL}, [&] {
    Queue(flow, std::vector<size_t>(kPackets, kBytes), 1, 1);
    port_->Flush();
  });
  if (IsSkipped()) return;
  EXPECT_EQ(Receive(kPackets).size(), kPackets);
  EXPECT_EQ(port_->counters().tx_split, 1u);
  EXPECT_EQ(port_->Begin(flow)->Room(kBytes), 64u);
  Queue(flow, std::vector<size_t>(64, kBytes), 1, 1);
  port_->Flush();
  EXPECT_EQ(Receive(64).size(), 64u);
  EXPECT_EQ(port_->counters().tx_split, 1u);
  EXPECT_EQ(port_->counters().tx_errors, 0u);
}

// A receive error may be queued before datagrams.
TEST_F(PortBlockedTest, DatagramsBehindAReceiveErrorAreReceived) {
  for (const int error : {ENOBUFS, ENOMEM, ENETDOWN, ECONNREFUSED}) {
    SCOPED_TRACE(error);
    QueueNumbers(transport::Flow(av_), 1);
    port_->Flush();
    const uint64_t before = port_->counters().rx_errors;
    size_t received = 0;
    Run(
        {-error}, [&] { received = port_->Receive(true).size(); },
        __NR_recvmsg);
    if (IsSkipped()) return;
    EXPECT_EQ(received, 1u);
    EXPECT_EQ(port_->counters().rx_errors, before + 1);
    EXPECT_EQ(port_->Receive(true).size(), 0u);
  }
}

// A socket that returns only errors is read twice each time, and does not delay
// other sockets.
TEST_F(PortBlockedTest, APermanentReceiveErrorDoesNotDelayOtherSockets) {
  LocalAddress local;
  local.address = *wire::IpAddress::Parse("127.0.0.2");
  ASSERT_TRUE(port_->AddReceiver(local, Bind(local)).ok());
  const std::vector<int> sockets = port_->ReceiveDescriptors();
  transport::AddressVector av = av_;
  av.destination = local.address;
  bool refused = false;
  std::thread thread([&] {
    refused = RefuseReceives(sockets[0], ENETDOWN);
    for (int i = 0; refused && i < 20; ++i) {
      QueueNumbers(transport::Flow(av), 1);
      port_->Flush();
      pollfd arrival = {sockets[1], POLLIN, 0};
      ASSERT_EQ(::poll(&arrival, 1, 10'000), 1);
      const uint64_t calls = port_->counters().rx_calls;
      ASSERT_EQ(port_->Receive(true).size(), 1u);
      ASSERT_LE(port_->counters().rx_calls - calls, 3u);
      // Without other sockets it does not loop either.
      ASSERT_EQ(port_->Receive(true).size(), 0u);
      ASSERT_LE(port_->counters().rx_calls - calls, 6u);
    }
  });
  thread.join();
  if (!refused) GTEST_SKIP() << "no seccomp filter here";
  // This thread does not get the error.
  QueueNumbers(transport::Flow(av_), 7);
  port_->Flush();
  EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{7});
}

}  // namespace
}  // namespace rxe_user
