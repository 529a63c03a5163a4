// What the io_uring port has beyond the UDP port (port_test.cc).
#include "rxe_user/ports/uring_port.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/uring_port_fixture.h"
#include "rxe_user/testing/refused_calls.h"
#include "rxe_user/testing/ring_descriptors.h"
#include "rxe_user/testing/watched_thread.h"

namespace rxe_user {
namespace {

constexpr int kNoFilter = 77;  // the status of a child without seccomp filters

// One call sends and also receives the datagrams that have arrived. The next
// Receive returns them without a call; until then the ring is readable.
TEST_F(UringPortTest, ASendAlsoReceives) {
  const transport::Flow flow(av_);
  Queue(flow, {64}, 1);
  port_->Flush();
  ASSERT_TRUE(RingIsReadable());
  EXPECT_EQ(port_->counters().tx_calls, 1u);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{1});
  EXPECT_TRUE(port_->more());  // the socket has not been asked
  EXPECT_EQ(port_->counters().rx_calls, 0u);
  EXPECT_FALSE(RingIsReadable());
  EXPECT_EQ(ReceiveOnce(), std::vector<int>());
  EXPECT_FALSE(port_->more());
  EXPECT_EQ(port_->counters().rx_calls, 1u);
}

// A receive ends because the socket is empty, so no further call is needed to
// find that out.
TEST_F(UringPortTest, AReceiveSeesTheEnd) {
  for (uint8_t i = 0; i < 3; ++i) {
    SendFromElsewhere(local_.address, 100, i);
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
    EXPECT_FALSE(port_->more());
    EXPECT_EQ(port_->counters().rx_calls, i + 1u);
  }
}

TEST_F(UringPortTest, OneCallAsksSeveralSockets) {
  std::vector<wire::IpAddress> addresses = {local_.address};
  for (const char* const text : {"127.0.0.2", "127.0.0.3"}) {
    LocalAddress local;
    local.address = *wire::IpAddress::Parse(text);
    ASSERT_TRUE(port_->AddReceiver(local, Bind(local)).ok());
    addresses.push_back(local.address);
  }
  EXPECT_EQ(ReceiveOnce(), std::vector<int>());
  EXPECT_EQ(port_->counters().rx_calls, 1u);
  // Each socket's datagrams are received, even if one socket takes all buffers.
  for (int round = 0; round < 5; ++round) {
    for (uint8_t i = 0; i < 3; ++i) {
      for (int j = 0; j <= round; ++j) {
        SendFromElsewhere(addresses[i], 100u + j, i);  // no merging
      }
    }
    std::vector<int> counts(3);
    for (int calls = 0; calls < 20; ++calls) {
      for (const transport::GroBatch& batch : port_->Receive(true)) {
        ASSERT_EQ(batch.destination, addresses[batch.bytes[0]]);
        ASSERT_EQ(batch.bytes.size(), 100u + counts[batch.bytes[0]]++);
      }
    }
    EXPECT_EQ(counts, std::vector<int>(3, round + 1));
  }
}

TEST_F(UringPortTest, ManySocketsAreAskedByMoreCalls) {
  const wire::IpAddress last = AddSockets(18);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>());
  EXPECT_EQ(port_->counters().rx_calls, 3u);
  SendFromElsewhere(last, 100, 7);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{7});
  EXPECT_EQ(port_->counters().rx_calls, 6u);
  SendFromElsewhere(last, 100, 8);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{8});
  EXPECT_EQ(port_->counters().rx_calls, 7u);  // `last` is asked first
}

// A ring that was readable without a datagram would wake threads for nothing.
TEST_F(UringPortTest, ASendThatFindsNothingLeavesNoResults) {
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("127.0.0.9");
  const transport::Flow elsewhere(av);
  for (int i = 0; i < 100; ++i) {
    Queue(elsewhere, {64});
    port_->Flush();
    ASSERT_FALSE(RingIsReadable());
  }
}

// While threads may wait on the ring, sends do not receive, so the ring is not
// readable even for a moment.
TEST_F(UringPortTest, ASendWakesNoThread) {
  port_->SetWaitedOn(true);
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event watch{};
  watch.events = EPOLLIN | EPOLLET;
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, ring(), &watch), 0);
  const auto woken = [&] {
    epoll_event got;
    return ::epoll_wait(epoll.get(), &got, 1, 0);
  };
  Queue(transport::Flow(av_), {64}, 1);
  port_->Flush();
  EXPECT_EQ(woken(), 0);
  EXPECT_FALSE(RingIsReadable());
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{1});
  port_->SetWaitedOn(false);
  Queue(transport::Flow(av_), {64}, 2);
  port_->Flush();
  EXPECT_EQ(woken(), 1);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{2});
}

// A poll right after a send that received nothing makes no call, since no
// answer arrives so soon.
TEST_F(UringPortTest, APollAfterASendThatFoundNothingMakesNoCall) {
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("127.0.0.9");
  const transport::Flow elsewhere(av);
  const auto calls = [&] { return port_->counters().rx_calls; };
  bool quiet = false;
  // This thread may be preempted in between.
  for (int i = 0; i < 1000 && !quiet; ++i) {
    Queue(elsewhere, {64});
    port_->Flush();
    const uint64_t before = calls();
    EXPECT_EQ(ReceiveOnce(false), std::vector<int>());
    quiet = calls() == before;
    EXPECT_EQ(ReceiveOnce(false), std::vector<int>());
    EXPECT_GT(calls(), before);
  }
  EXPECT_TRUE(quiet);
}

// A later poll asks the sockets, and so does a thread that is about to sleep.
TEST_F(UringPortTest, ALaterPollAsksAgain) {
  using Clock = std::chrono::steady_clock;
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("127.0.0.9");
  for (const bool thorough : {false, true}) {
    Queue(transport::Flow(av), {64});
    port_->Flush();
    SendFromElsewhere(local_.address, 100, 5);
    const auto sent = Clock::now();
    while (!thorough && Clock::now() - sent < std::chrono::microseconds(2)) {
    }
    EXPECT_EQ(ReceiveOnce(thorough), std::vector<int>{5});
  }
}

// A send that finds nothing does not change how many datagrams a receive takes.
TEST_F(UringPortTest, ASendThatFindsNothingDoesNotShortenReceives) {
  const auto receives = [&](size_t count) {
    // Sizes differ: no merging.
    for (size_t i = 0; i < count; ++i) {
      SendFromElsewhere(local_.address, 100 + i);
    }
    return port_->Receive(true).size();
  };
  // One more than the last time, or twice as many after two that were full.
  for (const size_t count : {2, 3, 7, 8}) ASSERT_EQ(receives(count), count);
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("127.0.0.9");
  Queue(transport::Flow(av), {64});
  port_->Flush();
  // Twice: the first receive may still have the buffers that were provided for
  // the send.
  EXPECT_EQ(receives(8), 8u);
  EXPECT_EQ(receives(8), 8u);
}

// The result of a failed send stays in the ring after a datagram's. When there
// is no more room for results, sends wait for a Receive.
TEST_F(UringPortTest, EachFailedSendIsSeen) {
  constexpr uint64_t kSends = 200;
  Queue(transport::Flow(av_), {64}, 1);
  port_->Flush();
  ASSERT_TRUE(RingIsReadable());
  transport::AddressVector everybody = av_;  // SO_BROADCAST is not set: EACCES
  everybody.destination = *wire::IpAddress::Parse("255.255.255.255");
  std::vector<int> received;
  for (uint64_t i = 0; i < kSends; ++i) {
    Queue(transport::Flow(everybody), {64});
    port_->Flush();
    if (!port_->blocked()) continue;
    for (const int number : ReceiveOnce()) received.push_back(number);
    port_->Flush();
    ASSERT_FALSE(port_->blocked());
  }
  EXPECT_EQ(port_->counters().tx_errors, kSends);
  EXPECT_EQ(received, std::vector<int>{1});
}

// Datagrams that a later call receives do not overtake those that a send has
// received.
TEST_F(UringPortTest, DatagramsKeepTheirOrder) {
  const transport::Flow flow(av_);
  std::vector<int> sent;
  std::vector<int> received;
  for (uint8_t i = 1; i < 200; ++i) {
    // Sizes differ: no merging.
    Queue(flow, {100u + i}, i);
    port_->Flush();
    sent.push_back(i);
    if (i % 5 != 0) continue;
    while (received.size() < sent.size()) {
      const std::vector<int> numbers = ReceiveOnce();
      ASSERT_FALSE(numbers.empty());
      received.insert(received.end(), numbers.begin(), numbers.end());
    }
  }
  EXPECT_EQ(received.size() + 4, 199u);
  sent.resize(received.size());
  EXPECT_EQ(received, sent);
}

// Each send also receives from the busy socket, so each Receive has a datagram.
// Even so, one Receive in eight asks the other sockets.
TEST_F(UringPortTest, ABusySocketDoesNotStarveOthers) {
  LocalAddress quiet;
  quiet.address = *wire::IpAddress::Parse("127.0.0.2");
  ASSERT_TRUE(port_->AddReceiver(quiet, Bind(quiet)).ok());
  transport::AddressVector av = av_;
  av.destination = *wire::IpAddress::Parse("127.0.0.9");
  const transport::Flow elsewhere(av);
  constexpr int kOfBusy = 1;
  constexpr int kOfQuiet = 2;
  const auto round = [&] {
    SendFromElsewhere(local_.address, 100, kOfBusy);
    Queue(elsewhere, {64});
    port_->Flush();
    return ReceiveOnce(false);
  };
  for (int i = 0; i < 20; ++i) round();
  for (int i = 0; i < 5; ++i) {
    SendFromElsewhere(quiet.address, 100, kOfQuiet);
    int rounds = 1;
    while (!std::ranges::count(round(), kOfQuiet)) ASSERT_LE(++rounds, 8);
  }
}

// Bytes of a batch stay until the next Receive, however much is sent.
TEST_F(UringPortTest, SendsDoNotOverwriteBatches) {
  const transport::Flow flow(av_);
  Queue(flow, {1000}, 1);
  port_->Flush();
  const auto batches = port_->Receive(true);
  ASSERT_EQ(batches.size(), 1u);
  for (uint8_t i = 2; i < 30; ++i) {
    Queue(flow, {1000u + i}, i);
    port_->Flush();
  }
  EXPECT_EQ(batches[0].bytes[0], 1);
  EXPECT_EQ(batches[0].bytes[500], 1);
}

// If a socket is removed while its datagrams wait in the ring, these are not
// taken for datagrams of the next socket.
TEST_F(UringPortTest, ARemovedSocketsDatagramsAreDropped) {
  Queue(transport::Flow(av_), {64});
  port_->Flush();
  ASSERT_TRUE(RingIsReadable());
  port_->RemoveReceiver(local_.address);
  LocalAddress other;
  other.address = *wire::IpAddress::Parse("127.0.0.2");
  ASSERT_TRUE(port_->AddReceiver(other, Bind(other)).ok());
  EXPECT_EQ(ReceiveOnce(), std::vector<int>());
  transport::AddressVector av = av_;
  av.destination = other.address;
  // The buffer of the dropped datagram is free again.
  for (uint8_t i = 0; i < 3 * Uring::kBuffers; ++i) {
    Queue(transport::Flow(av), {64}, i);
    port_->Flush();
    const auto batches = port_->Receive(true);
    ASSERT_EQ(batches.size(), 1u);
    EXPECT_EQ(batches[0].destination, other.address);
    EXPECT_EQ(batches[0].bytes[0], i);
  }
}

// Any thread may drive the ring, also after the one that opened it has ended.
TEST_F(UringPortTest, ThreadsTakeTurns) {
  const transport::Flow flow(av_);
  for (uint8_t i = 1; i < 20; ++i) {
    std::thread([&] {
      Queue(flow, {64}, i);
      port_->Flush();
    }).join();
    std::vector<int> numbers;
    std::thread([&] { numbers = ReceiveOnce(); }).join();
    EXPECT_EQ(numbers, std::vector<int>{i});
  }
}

// A thread that has sent by a ring continues to sleep when the port is
// destroyed.
TEST_F(UringPortTest, ItsEndInterruptsNoThread) {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  const UniqueFd event(::eventfd(0, EFD_CLOEXEC));
  epoll_event watch{};
  watch.events = EPOLLIN;
  ASSERT_EQ(::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &watch), 0);
  std::atomic<int> woken_by = -1;  // epoll_wait's result, or errno
  WatchedThread thread([&] {
    Queue(transport::Flow(av_), {64});
    port_->Flush();
    ReceiveOnce();
    epoll_event got;
    const int count = ::epoll_wait(epoll.get(), &got, 1, -1);
    woken_by = count >= 0 ? count : errno;
  });
  ASSERT_TRUE(thread.AwaitSleep());
  port_.reset();
  // The system ends a ring some time after close(2), and does not report it.
  for (int i = 0; i < 50 && woken_by < 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const uint64_t one = 1;
  ASSERT_EQ(::write(event.get(), &one, sizeof(one)),
            static_cast<ssize_t>(sizeof(one)));
  thread.join();
  EXPECT_EQ(woken_by, 1);
}

// The next port has the descriptor of the last one, and none of its datagrams.
TEST_F(UringPortTest, ItsRingServesTheNextOne) {
  const int before = ring();
  Queue(transport::Flow(av_), {64}, 1);
  port_->Flush();
  ASSERT_TRUE(RingIsReadable());
  port_.reset();
  Open("127.0.0.1", CreateUring);
  EXPECT_EQ(ring(), before);
  EXPECT_FALSE(RingIsReadable());
  for (uint8_t i = 2; i < 3 * Uring::kBuffers; ++i) {
    Queue(transport::Flow(av_), {64}, i);
    port_->Flush();
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
  }
}

TEST_F(UringPortTest, ItsDescriptorIsHighAndClosedByExec) {
  EXPECT_GE(ring(), kFirstHighFd);
  EXPECT_EQ(::fcntl(ring(), F_GETFD), FD_CLOEXEC);
}

// The child closes its copy; the parent's ring continues to work.
TEST_F(UringPortTest, AChildOfForkAbandonsIt) {
  const transport::Flow flow(av_);
  Queue(flow, {64}, 1);
  port_->Flush();
  const std::vector<int> descriptors = port_->ReceiveDescriptors();
  const pid_t child = ::fork();
  if (child == 0) {
    port_->AbandonInChild();
    int open = 0;
    for (const int fd : descriptors) open += ::fcntl(fd, F_GETFD) >= 0;
    port_.reset();
    ::_exit(open);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{1});
  Queue(flow, {64}, 2);
  port_->Flush();
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{2});
}

// The child used to close the idle ring's descriptor with its first ring; by
// then the program may have a file with that number.
TEST_F(UringPortTest, AChildOfForkHasNoIdleRing) {
  port_.reset();
  ASSERT_FALSE(RingDescriptors().empty());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(RingDescriptors().size()));
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A program closes the ring's descriptor, and has another file with its number.
TEST_F(UringPortTest, WithoutItsDescriptorPlainCallsContinue) {
  const int closed = ring();
  const UniqueFd other(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::dup3(other.get(), closed, O_CLOEXEC), closed);
  for (uint8_t i = 1; i < 4; ++i) {
    Queue(transport::Flow(av_), {64}, i);
    port_->Flush();
    EXPECT_FALSE(port_->blocked());
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
  }
  port_.reset();
  EXPECT_EQ(::fcntl(closed, F_GETFD), FD_CLOEXEC);  // the other's is open
  ::close(closed);
}

// The number belongs to another ring, which takes none of the requests.
TEST_F(UringPortTest, WithAnotherRingForItsDescriptorPlainCallsContinue) {
  io_uring other{};
  ASSERT_EQ(::io_uring_queue_init(1, &other, 0), 0);
  const int closed = ring();
  ASSERT_EQ(::dup3(other.ring_fd, closed, O_CLOEXEC), closed);
  Queue(transport::Flow(av_), {64}, 5);
  port_->Flush();
  EXPECT_FALSE(port_->blocked());
  EXPECT_EQ(ReceiveOnce(), std::vector<int>{5});
  port_.reset();
  ::io_uring_queue_exit(&other);
}

TEST_F(UringPortTest, ARefusedReceiveIsMadeByPlainCalls) {
  std::thread([&] {
    if (!RefuseCall(__NR_io_uring_enter, EPERM)) {
      GTEST_SKIP() << "no seccomp filter here";
    }
    SendFromElsewhere(local_.address, 100, 4);
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{4});
  }).join();
}

// As with Docker's seccomp profile, and on systems without it. In a child,
// since a process keeps its rings.
TEST(UringPortRefusalTest, TheReasonIsSaid) {
  for (const int error : {EPERM, ENOSYS}) {
    const pid_t child = ::fork();
    if (child == 0) {
      if (!RefuseCall(__NR_io_uring_setup, error)) ::_exit(kNoFilter);
      const auto port = UringPort::Create(Uring::Requests::kByCaller);
      ::_exit(!port.ok() && ErrnoOf(port.status()) == error &&
                      port.status().message().find("io_uring_setup: ") == 0 &&
                      UringPort::Available(Uring::Requests::kByCaller) ==
                          port.status()
                  ? 0
                  : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WEXITSTATUS(status) == kNoFilter) GTEST_SKIP() << "no seccomp filter";
    EXPECT_EQ(status, 0) << error;
  }
}

}  // namespace
}  // namespace rxe_user
