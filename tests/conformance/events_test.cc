// Completion channels, asynchronous events, and calls that wait for their
// acknowledgement.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using namespace std::chrono_literals;

// Whether an event arrives within `ms`. An event is there as soon as its
// completion is, so 0 suffices after the completion was seen.
bool Readable(int fd, int ms) {
  pollfd p = {fd, POLLIN, 0};
  return poll(&p, 1, ms) == 1 && (p.revents & POLLIN) != 0;
}

class EventTest : public PairTest {
 protected:
  EventTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    channel_ = ibv_create_comp_channel(context_);
    ASSERT_NE(channel_, nullptr);
    MakeSide(&a_);
    MakeSide(&b_, {}, 256, channel_);
    Connect(&a_, &b_);
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    if (channel_ != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    }
    PairTest::TearDown();
  }

  void ExpectEvent(ibv_cq* wanted) {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    EXPECT_EQ(cq, wanted);
    EXPECT_EQ(cq_context, wanted->cq_context);
    ibv_ack_cq_events(cq, 1);
  }

  // Waits for the next asynchronous event and acknowledges it.
  ibv_async_event NextAsync() {
    ibv_async_event event = {};
    EXPECT_TRUE(Readable(context_->async_fd, kTimeoutMs));
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event;
  }

  ibv_comp_channel* channel_ = nullptr;
};

TEST_F(EventTest, NoEventUnlessArmed) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 1);
  EXPECT_FALSE(Readable(channel_->fd, 0));
}

TEST_F(EventTest, OneEventForEachArming) {
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
    ExpectSuccess(a_.cq, 1);
    ExpectSuccess(b_.cq, 1);
  }
  ExpectEvent(b_.cq);
  EXPECT_FALSE(Readable(channel_->fd, 0));
}

TEST_F(EventTest, ArmingIsForLaterCompletions) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  // B's event is there: it precedes the acknowledgement.
  ExpectSuccess(a_.cq, 1);
  ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  EXPECT_FALSE(Readable(channel_->fd, 0));
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 8), 0);
  ExpectEvent(b_.cq);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(b_.cq, 2);
}

TEST_F(EventTest, SolicitedOnly) {
  for (uint64_t i = 0; i < 2; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 1), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 0);
  EXPECT_FALSE(Readable(channel_->fd, 0));
  ASSERT_EQ(
      Send(a_, IBV_WR_SEND, 2, 0, 8, IBV_SEND_SIGNALED | IBV_SEND_SOLICITED),
      0);
  ExpectEvent(b_.cq);
  ExpectSuccess(b_.cq, 1);
}

TEST_F(EventTest, AFailureIsAlwaysSolicited) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 1), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(b_.qp, &attr, IBV_QP_STATE), 0);
  ExpectEvent(b_.cq);
  ExpectStatus(b_.cq, 1, IBV_WC_WR_FLUSH_ERR);
}

TEST_F(EventTest, NonBlockingChannel) {
  ASSERT_EQ(
      fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK),
      0);
  ibv_cq* cq;
  void* cq_context;
  errno = 0;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(fcntl(context_->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event;
  EXPECT_EQ(ibv_get_async_event(context_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

// The application waits in its own poll(); the helper thread makes progress.
TEST_F(EventTest, PollOnTheDescriptor) {
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  EXPECT_TRUE(Readable(channel_->fd, kTimeoutMs));
  ExpectEvent(b_.cq);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 1);
}

// The thread blocks in ibv_get_cq_event and makes progress itself.
TEST_F(EventTest, BlockingGetWaits) {
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  const int self = gettid();
  std::thread sender([this, self] {
    EXPECT_TRUE(rxe_user::AwaitSleep(self));
    EXPECT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  });
  ExpectEvent(b_.cq);
  sender.join();
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 1);
}

std::atomic<int> signals{0};

TEST_F(EventTest, ASignalInterrupts) {
  struct sigaction action = {}, before;
  action.sa_handler = [](int) { ++signals; };
  ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
  std::atomic<bool> done{false};
  const pthread_t self = pthread_self();
  std::thread nudger([&] {
    while (!done) {
      std::this_thread::sleep_for(5ms);
      pthread_kill(self, SIGUSR1);
    }
  });
  ibv_cq* cq;
  void* cq_context;
  EXPECT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EINTR);
  done = true;
  nudger.join();
  sigaction(SIGUSR1, &before, nullptr);
}

// As with read(): signal() installs handlers with SA_RESTART.
TEST_F(EventTest, ASignalThatRestartsDoesNotInterrupt) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer installs handlers of its own";
#endif
  const auto before = signal(SIGUSR1, [](int) { ++signals; });
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  const pthread_t self = pthread_self();
  const int tid = gettid();
  std::thread nudger([&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(rxe_user::AwaitSleep(tid));
      const int before = signals;
      pthread_kill(self, SIGUSR1);
      while (signals == before) std::this_thread::yield();
    }
    EXPECT_TRUE(rxe_user::AwaitSleep(tid));
    EXPECT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  });
  ExpectEvent(b_.cq);
  nudger.join();
  signal(SIGUSR1, before);
  ExpectSuccess(b_.cq, 1);
}

// A waiting thread may be cancelled, and its channel may be destroyed.
TEST_F(EventTest, CancelledWaiters) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the sanitizer does not see atomics while a cancelled thread "
                  "unwinds out of a blocking call";
#endif
  rxe_user::WatchedThread waiter([this] {
    ibv_cq* cq;
    void* cq_context;
    ibv_get_cq_event(channel_, &cq, &cq_context);
  });
  rxe_user::WatchedThread async([this] {
    ibv_async_event event;
    ibv_get_async_event(context_, &event);
  });
  EXPECT_TRUE(waiter.AwaitSleep());
  EXPECT_TRUE(async.AwaitSleep());
  ASSERT_EQ(pthread_cancel(waiter.native_handle()), 0);
  ASSERT_EQ(pthread_cancel(async.native_handle()), 0);
  waiter.join();
  async.join();
  // Nothing is lost and no lock is held.
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ExpectEvent(b_.cq);
  ExpectSuccess(b_.cq, 1);
}

TEST_F(EventTest, DestroyingACqWaitsForAcks) {
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ibv_cq* cq;
  void* cq_context;
  ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
  EXPECT_EQ(ibv_destroy_cq(b_.cq), EBUSY);  // a queue pair uses it
  DestroyQp(&b_);
  rxe_user::WatchedThread destroyer(
      [&] { EXPECT_EQ(ibv_destroy_cq(b_.cq), 0); });
  EXPECT_TRUE(destroyer.AwaitSleep()) << "it has not waited";
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
  b_.cq = nullptr;
}

TEST_F(EventTest, UntakenEventsDoNotDelayDestroying) {
  ASSERT_EQ(ibv_req_notify_cq(b_.cq, 0), 0);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ASSERT_TRUE(Readable(channel_->fd, kTimeoutMs));
  DestroySide(&b_);
  EXPECT_FALSE(Readable(channel_->fd, 0));
}

// Destroying does not wait.
TEST_F(EventTest, MoreAcksThanEventsAreForgiven) {
  ibv_ack_cq_events(b_.cq, 5);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_cq(b_.cq), 0);
  b_.cq = nullptr;
}

TEST_F(EventTest, AChannelWithQueuesIsBusy) {
  EXPECT_EQ(ibv_destroy_comp_channel(channel_), EBUSY);
}

// --- Asynchronous events.

class OverrunBySendsTest : public EventTest,
                           public testing::WithParamInterface<ibv_qp_type> {};
INSTANTIATE_TEST_SUITE_P(, OverrunBySendsTest,
                         testing::Values(IBV_QPT_RC, IBV_QPT_UC));

TEST_P(OverrunBySendsTest, EndsTheQueuePair) {
  QpOptions options;
  options.type = GetParam();
  Side c, d;
  MakeSide(&c, options, /*cqe=*/4);
  MakeSide(&d, options);
  Connect(&c, &d);
  const int capacity = c.cq->cqe;
  for (int i = 0; i <= capacity; ++i) {
    ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, static_cast<uint64_t>(i), 0, 8,
                   IBV_SEND_SIGNALED, d.address(), d.mr->rkey),
              0);
  }
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, c.cq);
  const ibv_async_event fatal = NextAsync();
  EXPECT_EQ(fatal.event_type, IBV_EVENT_QP_FATAL);
  EXPECT_EQ(fatal.element.qp, c.qp);
  EXPECT_EQ(StateOf(c.qp), IBV_QPS_ERR);
  for (int i = 0; i < capacity; ++i) {
    ExpectSuccess(c.cq, static_cast<uint64_t>(i));
  }
  ExpectNothing(c.cq);
  EXPECT_FALSE(Readable(context_->async_fd, 0));
  DestroySide(&c);
  DestroySide(&d);
}

TEST_F(EventTest, OverrunEndsTheQueuePairs) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d, {}, /*cqe=*/4);
  Connect(&c, &d);
  Side other;  // uses the same CQ, and is idle
  MakeSide(&other);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = d.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  ibv_qp* idle = ibv_create_qp(pd_, &init);
  ASSERT_NE(idle, nullptr);
  ASSERT_EQ(ToRts(idle, other.qp->qp_num), 0);
  const int capacity = d.cq->cqe;
  for (int i = 0; i <= capacity; ++i) {
    ASSERT_EQ(Receive(d, static_cast<uint64_t>(i), 0, 64), 0);
    ASSERT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), 0);
  }
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, d.cq);
  EXPECT_EQ(StateOf(d.qp), IBV_QPS_ERR);
  EXPECT_EQ(StateOf(idle), IBV_QPS_ERR);
  // Each queue pair of the completion queue is reported, too.
  std::set<ibv_qp*> told;
  for (int i = 0; i < 2; ++i) {
    const ibv_async_event fatal = NextAsync();
    EXPECT_EQ(fatal.event_type, IBV_EVENT_QP_FATAL);
    told.insert(fatal.element.qp);
  }
  EXPECT_EQ(told, (std::set<ibv_qp*>{d.qp, idle}));
  // Nothing in the ring was overwritten.
  for (int i = 0; i < capacity; ++i) {
    ExpectSuccess(d.cq, static_cast<uint64_t>(i));
  }
  ibv_wc wc;
  EXPECT_EQ(ibv_poll_cq(d.cq, 1, &wc), 0);
  EXPECT_EQ(ibv_destroy_qp(idle), 0);
  DestroySide(&c);
  DestroySide(&d);
  DestroySide(&other);
}

// perftest with events creates a send CQ of one entry and takes one completion
// for each event, of either CQ. It may therefore fall behind by a completion.
TEST_F(EventTest, ACqHasSomeInReserve) {
  Side c, d;
  MakeSide(&c, {}, /*cqe=*/1);
  MakeSide(&d);
  Connect(&c, &d);
  EXPECT_GE(c.cq->cqe, 1);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   d.address(), d.mr->rkey),
              0);
  }
  for (uint64_t i = 0; i < 4; ++i) ExpectSuccess(c.cq, i);
  DestroySide(&c);
  DestroySide(&d);
}

TEST_F(EventTest, SrqLimit) {
  ibv_srq_init_attr init = {};
  init.attr = {16, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  QpOptions options;
  options.srq = srq;
  Side c, d;
  MakeSide(&c);
  MakeSide(&d, options);
  Connect(&c, &d);
  for (uint64_t i = 0; i < 8; ++i) {
    ibv_sge sge = d.Sge(0, 64);
    ibv_recv_wr wr = {i, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ibv_srq_attr attr = {0, 0, 1000};
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
  EXPECT_EQ(ibv_modify_srq(srq, &attr, 1 << 9), EINVAL);
  attr.srq_limit = 7;
  ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 7u);
  ASSERT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), 0);
  ExpectSuccess(c.cq, 1);
  EXPECT_FALSE(Readable(context_->async_fd, 0));  // 7 are left
  ASSERT_EQ(Send(c, IBV_WR_SEND, 2, 0, 8), 0);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq);
  ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
  EXPECT_EQ(attr.srq_limit, 0u);
  DestroySide(&c);
  DestroySide(&d);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, LastWqeReached) {
  ibv_srq_init_attr init = {};
  init.attr = {16, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  QpOptions options;
  options.srq = srq;
  Side d;
  MakeSide(&d, options);
  ASSERT_EQ(ToRts(d.qp, 0x123), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(d.qp, &attr, IBV_QP_STATE), 0);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(event.element.qp, d.qp);
  DestroySide(&d);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(EventTest, AccessErrorAtTheResponder) {
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey + 1),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_EQ(event.element.qp, b_.qp);
}

TEST_F(EventTest, RequestErrorAtTheResponder) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d);
  Connect(&c, &d, {.access = IBV_ACCESS_LOCAL_WRITE});
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED, d.address(),
                 d.mr->rkey),
            0);
  ExpectStatus(c.cq, 1, IBV_WC_REM_INV_REQ_ERR);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(event.element.qp, d.qp);
  DestroySide(&c);
  DestroySide(&d);
}

// "Communication established": the first packet in RTR, before the application
// has moved the queue pair to RTS.
TEST_F(EventTest, CommunicationEstablished) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d);
  ASSERT_EQ(ToRts(c.qp, d.qp->qp_num), 0);
  ToInit(d.qp);
  ibv_qp_attr attr = RtrAttributes(c.qp->qp_num);
  ASSERT_EQ(ibv_modify_qp(d.qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                              IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
            0);
  ASSERT_EQ(Receive(d, 1, 0, 64), 0);
  ASSERT_EQ(Send(c, IBV_WR_SEND, 2, 0, 8), 0);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_COMM_EST);
  EXPECT_EQ(event.element.qp, d.qp);
  ExpectSuccess(d.cq, 1);
  ExpectSuccess(c.cq, 2);
  DestroySide(&c);
  DestroySide(&d);
}

TEST_F(EventTest, DestroyingAQueuePairWaitsForAcks) {
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey + 1),
            0);
  ASSERT_TRUE(Readable(context_->async_fd, kTimeoutMs));
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  ASSERT_EQ(event.element.qp, b_.qp);
  rxe_user::WatchedThread destroyer([&] { DestroyQp(&b_); });
  EXPECT_TRUE(destroyer.AwaitSleep()) << "it has not waited";
  ibv_ack_async_event(&event);
  destroyer.join();
}

}  // namespace
}  // namespace conformance
