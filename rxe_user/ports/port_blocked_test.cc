// What the port does when the system does not take what it sends: a socket's
// send buffer is full behind a slow link, or the way takes no segmented sends;
// and when it gives errors in place of what has come. Loopback never does; here
// a seccomp listener does in the kernel's place, call by call.
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
#include "transport/testing/scarce_memory.h"
#include "wire/headers.h"

namespace rxe_user {
namespace {

std::atomic<bool> no_memory = false;

// Has system call `number` of the calling thread answered by whoever listens to
// the descriptor that this returns; -1 where that is not allowed. For good.
int Intercept(uint32_t number) {
  sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_USER_NOTIF},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const sock_fprog program = {4, code};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  return static_cast<int>(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                    SECCOMP_FILTER_FLAG_NEW_LISTENER,
                                    &program));
}

// Has each recvmsg(2) of the calling thread from `fd` fail. For good.
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

// Answers the calls that `listener` tells of, as in `answers`: a number of
// messages sent, a negative errno, or nothing to let the kernel do it, as it
// does all that come after them. Ends when the thread that calls has ended.
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

  // Calls `sends` in a thread whose calls are answered so.
  template <typename Sends>
  void Run(std::vector<std::optional<int>> answers, Sends sends,
           uint32_t number = __NR_sendmmsg) {
    std::promise<int> listener;
    std::thread thread([&] {
      const int fd = Intercept(number);
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

// The first of three is taken (and lost), then the buffer is full: what is left
// waits, in order, though there might be room again a moment later.
TEST_F(PortBlockedTest, WhatIsLeftWaitsInOrder) {
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

// One socket's full buffer holds up its own packets only.
TEST_F(PortBlockedTest, AnotherSocketIsNotHeldUp) {
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

// As often as it takes.
TEST_F(PortBlockedTest, WaitsAgainAndAgain) {
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

// To a destination that takes no segmented sends, packets go one by one. They
// keep their place between those before and behind them: both when that is
// found out and from then on.
TEST_F(PortBlockedTest, PartsKeepTheirPlace) {
  const transport::Flow flow(av_);
  Run({1, -EIO}, [&] {
    QueueNumbers(flow, 1);  // taken, and lost
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

// Where there is no memory to note that, packets are lost, and nothing else.
TEST_F(PortBlockedTest, LosesWhatItHasNoMemoryFor) {
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

// Nor is any of them lost where the buffer is full in the middle.
TEST_F(PortBlockedTest, PartsWaitInOrder) {
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

// What the system refuses is lost, as on the way, and is told by its reason. It
// holds up nothing.
TEST_F(PortBlockedTest, WhatIsRefusedIsLostAlone) {
  const transport::Flow flow(av_);
  const PortCounters& counters = port_->counters();
  const struct {
    int error;
    const uint64_t& count;
  } kCases[] = {
      {EPERM, counters.tx_errors},  // a packet filter
      {ECONNREFUSED, counters.tx_errors},
      {EINVAL, counters.tx_errors},  // the source address has gone
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

// A destination that took no segmented sends for a while, since the interface
// had another MTU, say, or the source address had gone, takes them again.
TEST_F(PortBlockedTest, SegmentsAreTriedAgain) {
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

  // They do not go yet: it takes longer until the next try.
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

  // They do.
  EXPECT_EQ(port_->counters().tx_split, 2u);
  for (int i = 0; i < 2; ++i) {
    QueueNumbers(flow, 1, 3);
    port_->Flush();
    EXPECT_EQ(ReceiveNumbers(3), (std::vector<int>{1, 2, 3}));
    EXPECT_GT(port_->Begin(flow)->Room(1000), 1u);
  }
  EXPECT_EQ(port_->counters().tx_split, 2u);
}

// Kernels before 6.9 say EINVAL of more than 64 segments; all say it of a
// blackhole. What fails in parts as well does not show that the kernel is old.
TEST_F(PortBlockedTest, ABlackholeIsNoOldKernel) {
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
  // Nor does another error, or one of a single part.
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

// Without memory to note that, the part is lost, and the next one goes.
TEST_F(PortBlockedTest, APartThatCannotBeNotedIsLost) {
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

// An error that a receive tells of may have been in the way of what has come.
TEST_F(PortBlockedTest, WhatIsBehindAReceiveErrorIsReceived) {
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

// A socket that gives nothing but errors is asked twice each time, and stands
// in the way of no other one.
TEST_F(PortBlockedTest, AReceiveErrorThatLastsHoldsUpNoOtherSocket) {
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
      // Alone it is not asked for ever, either.
      ASSERT_EQ(port_->Receive(true).size(), 0u);
      ASSERT_LE(port_->counters().rx_calls - calls, 6u);
    }
  });
  thread.join();
  if (!refused) GTEST_SKIP() << "no seccomp filter here";
  // To this thread the error has gone.
  QueueNumbers(transport::Flow(av_), 7);
  port_->Flush();
  EXPECT_EQ(ReceiveNumbers(1), std::vector<int>{7});
}

}  // namespace
}  // namespace rxe_user
