// The io_uring port whose requests a kernel thread takes (IORING_SETUP_SQPOLL).
// port_test.cc has what all ports do.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <thread>
#include <vector>

#include "rxe_user/ports/uring.h"
#include "rxe_user/ports/uring_port_fixture.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user {
namespace {

class SqpollTest : public UringPortTest {
 protected:
  void SetUp() override { Open("127.0.0.1", CreateSqpoll); }
};

TEST_F(SqpollTest, OneFailedSendDoesNotHideOthers) {
  transport::AddressVector everybody = av_;  // SO_BROADCAST is not set: EACCES
  everybody.destination = *wire::IpAddress::Parse("255.255.255.255");
  for (uint8_t i = 0; i < 20; ++i) {
    Queue(transport::Flow(av_), {64}, i);
    Queue(transport::Flow(everybody), {64});
    Queue(transport::Flow(av_), {65}, i);
    port_->Flush();
    EXPECT_EQ(port_->counters().tx_errors, i + 1u);
    std::vector<int> received;
    while (received.size() < 2) {
      for (const int number : ReceiveOnce()) received.push_back(number);
    }
    EXPECT_EQ(received, (std::vector<int>{i, i}));
  }
}

// The kernel thread shows results before it moves the head of the submission
// queue. A call made in between used to wait for the last call's requests, for
// ever. Caller and kernel thread need a core each for that to happen, hence the
// priority, where it is allowed. The kernel thread inherits the priority and
// would serve later rings of this process, hence the child.
TEST_F(SqpollTest, EachCallEnds) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (std::thread::hardware_concurrency() > 1) {
      const sched_param lowest = {::sched_get_priority_min(SCHED_FIFO)};
      (void)::sched_setscheduler(0, SCHED_FIFO, &lowest);
    }
    Uring ring;
    if (!ring.Open(Uring::Requests::kByKernelThread).ok()) ::_exit(1);
    for (int i = 0; i < 20'000; ++i) {
      ring.Provide(1);
      ring.PrepareReceive(foreign_.get(), 0);
      if (ring.Submit() != 1 || ring.results() != 1) ::_exit(2);
      const Uring::Result result = ring.Take();
      if (result.error != EAGAIN) ::_exit(3);
      if (result.buffer) ring.Release(*result.buffer);  // on Linux 6.1
    }
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// The kernel thread sleeps after a while without requests, and cannot be woken
// without the descriptor. The requests that it does not take fill the queue.
TEST_F(SqpollTest, WithoutItsDescriptorNothingIsSentOrReceived) {
  ::close(ring());
  while (!HasFailure() && port_->counters().rx_errors < 100) {
    (void)ReceiveOnce();
  }
  Queue(transport::Flow(av_), {64});
  port_->Flush();
  EXPECT_TRUE(port_->blocked());
  // So that the port closes no descriptor of another owner.
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int ring_fd = ring();
  ASSERT_EQ(::dup3(other, ring_fd, O_CLOEXEC), ring_fd);
  ::close(other);
}

TEST_F(SqpollTest, ItMakesNoPlainCalls) {
  std::thread([&] {
    Queue(transport::Flow(av_), {64}, 1);
    port_->Flush();
    if (!RefuseCall(__NR_sendmmsg, EPERM) || !RefuseCall(__NR_recvmsg, EPERM)) {
      GTEST_SKIP() << "no seccomp filter here";
    }
    EXPECT_EQ(ReceiveOnce(), std::vector<int>{1});
    for (uint8_t i = 2; i < 100; ++i) {
      Queue(transport::Flow(av_), {64}, i);
      port_->Flush();
      EXPECT_EQ(ReceiveOnce(), std::vector<int>{i});
    }
  }).join();
}

}  // namespace
}  // namespace rxe_user
