// How long a work request keeps its slot in its queue. ibv_create_qp(3) limits
// outstanding requests, and by IBA vol. 1, 10.8.6 a request is outstanding
// until its completion, or that of a later request of its queue, has been
// polled.
#include <atomic>
#include <cerrno>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr int kRequests = 8;  // slots of a queue

class OutstandingTest : public PairTest {
 protected:
  OutstandingTest() { make_pair_ = false; }

  static QpOptions Small(ibv_qp_type type = IBV_QPT_RC) {
    QpOptions options;
    options.type = type;
    options.cap = {kRequests, kRequests, 1, 1, 0};
    return options;
  }
  void MakePair(const QpOptions& options = Small(), int cqe = 256) {
    MakeSide(&a_, options, cqe);
    MakeSide(&b_, options, cqe);
    Connect(&a_, &b_);
  }
  // Replaces the queue pair of `side` by one with the caller's completion
  // queues.
  void Remake(Side* side, ibv_cq* send_cq, ibv_cq* recv_cq,
              const QpOptions& options = Small()) {
    DestroyQp(side);
    ibv_qp_init_attr attr = {};
    attr.send_cq = send_cq;
    attr.recv_cq = recv_cq;
    attr.cap = options.cap;
    attr.qp_type = options.type;
    attr.srq = options.srq;
    side->qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(side->qp, nullptr);
  }

  int Write(uint64_t wr_id, unsigned flags = IBV_SEND_SIGNALED) {
    return Send(a_, IBV_WR_RDMA_WRITE, wr_id, 0, 8, flags, b_.address(),
                b_.mr->rkey);
  }
  // Completes `count` WRITEs without polling.
  void CompleteWrites(int count, unsigned flags = IBV_SEND_SIGNALED) {
    a_.memory[7] = 1;
    b_.memory[7] = 0;
    for (int i = 0; i < count; ++i) ASSERT_EQ(Write(i, flags), 0);
    AwaitUnpolled(a_, &b_.memory[7]);
  }
  // Polls `count` successes, starting with `first`.
  void Take(ibv_cq* cq, uint64_t first, int count) {
    for (int i = 0; i < count; ++i) ExpectSuccess(cq, first + i);
  }

  ibv_srq* MakeSrq() {
    ibv_srq_init_attr attr = {};
    attr.attr = {kRequests, 1, 0};
    return ibv_create_srq(pd_, &attr);
  }
  int PostToSrq(ibv_srq* srq, uint64_t wr_id) {
    ibv_sge sge = b_.Sge(0, 64);
    ibv_recv_wr wr = {}, *bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  // Posts receives until `srq` is full.
  int Fill(ibv_srq* srq) {
    int posted = 0;
    while (PostToSrq(srq, posted) == 0) ++posted;
    return posted;
  }
};

TEST_F(OutstandingTest, ASendUntilItsCompletionIsPolled) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    SCOPED_TRACE(type);
    MakePair(Small(type));
    CompleteWrites(kRequests);
    EXPECT_EQ(Write(99), ENOMEM);
    Take(a_.cq, 0, 1);
    EXPECT_EQ(Write(kRequests), 0);
    EXPECT_EQ(Write(99), ENOMEM);
    Take(a_.cq, 1, kRequests);
    CompleteWrites(kRequests);
    EXPECT_EQ(Write(99), ENOMEM);
    Take(a_.cq, 0, kRequests);
    DestroySide(&a_);
    DestroySide(&b_);
  }
}

TEST_F(OutstandingTest, UnsignaledOnesUntilALaterOneIsPolled) {
  MakePair();
  CompleteWrites(kRequests - 1, 0);
  ASSERT_EQ(Write(7), 0);
  EXPECT_EQ(Write(99), ENOMEM);
  Take(a_.cq, 7, 1);
  // No completion will ever free these.
  CompleteWrites(kRequests, 0);
  ExpectNothing(a_.cq);
  EXPECT_EQ(Write(99), ENOMEM);
  EXPECT_EQ(Write(99, 0), ENOMEM);
}

TEST_F(OutstandingTest, TheWorkBuilderCountsThemToo) {
  QpOptions options = Small();
  options.send_ops = IBV_QP_EX_WITH_RDMA_WRITE;
  MakePair(options);
  CompleteWrites(kRequests - 1);
  ibv_qp_ex* qp = ibv_qp_to_qp_ex(a_.qp);
  const auto write = [&](int count) {
    ibv_wr_start(qp);
    for (int i = 0; i < count; ++i) {
      qp->wr_id = 50;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_rdma_write(qp, b_.mr->rkey, b_.address());
      ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 8);
    }
    return ibv_wr_complete(qp);
  };
  EXPECT_EQ(write(2), ENOMEM);
  EXPECT_EQ(write(1), 0);
  EXPECT_EQ(write(1), ENOMEM);
  Take(a_.cq, 0, 2);
  EXPECT_EQ(write(2), 0);
}

// Back-pressure by ENOMEM: a completion queue as long as the send queue
// suffices, however late it is polled.
TEST_F(OutstandingTest, PostingUntilFullOverrunsNoQueue) {
  constexpr int kWrites = 5000;
  QpOptions options = Small();
  MakeSide(&a_, options, 4);
  MakeSide(&b_, options);
  options.cap.max_send_wr = a_.cq->cqe;
  Remake(&a_, a_.cq, b_.cq, options);
  Connect(&a_, &b_);
  int posted = 0, completed = 0;
  while (completed < kWrites) {
    if (posted < kWrites) {
      const int error = Write(posted);
      if (error == 0) {
        ++posted;
        ASSERT_LE(posted - completed, a_.cq->cqe);
        continue;
      }
      ASSERT_EQ(error, ENOMEM);
    }
    ExpectSuccess(a_.cq, completed++);
    ASSERT_FALSE(HasFailure());
  }
}

TEST_F(OutstandingTest, SeveralThreadsPoll) {
  constexpr int kWrites = 5000;
  QpOptions options = Small();
  MakeSide(&a_, options, 4);
  MakeSide(&b_, options);
  options.cap.max_send_wr = a_.cq->cqe;
  Remake(&a_, a_.cq, b_.cq, options);
  Connect(&a_, &b_);
  std::atomic<int> completed{0}, failed{0};
  const int64_t end = NowMs() + kTimeoutMs;
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      ibv_wc wc[4];
      while (completed < kWrites && failed == 0 && NowMs() < end) {
        const int n = ibv_poll_cq(a_.cq, 4, wc);
        for (int j = 0; j < n; ++j) failed += wc[j].status != IBV_WC_SUCCESS;
        if (n > 0) completed += n;
        if (n == 0) std::this_thread::yield();
      }
    });
  }
  int posted = 0;
  while (posted < kWrites && failed == 0 && NowMs() < end) {
    const int error = Write(posted);
    if (error == 0) {
      ++posted;
    } else {
      if (error != ENOMEM) ++failed;
      std::this_thread::yield();
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(completed, kWrites);
}

TEST_F(OutstandingTest, AReceiveUntilItsCompletionIsPolled) {
  MakePair();
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 8), 0);
    ExpectSuccess(a_.cq, i);  // it was received, too
  }
  EXPECT_EQ(Receive(b_, 99, 0, 64), ENOMEM);
  Take(b_.cq, 0, 2);
  EXPECT_EQ(Receive(b_, 8, 0, 64), 0);
  EXPECT_EQ(Receive(b_, 9, 0, 64), 0);
  EXPECT_EQ(Receive(b_, 99, 0, 64), ENOMEM);
}

TEST_F(OutstandingTest, AReceiveOfAnSrqToo) {
  ibv_srq* srq = MakeSrq();
  ASSERT_NE(srq, nullptr);
  QpOptions options = Small();
  options.srq = srq;
  MakePair(options);
  ASSERT_EQ(Fill(srq), kRequests);
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 8), 0);
    ExpectSuccess(a_.cq, i);
  }
  EXPECT_EQ(Fill(srq), 0);
  ibv_srq_attr smaller = {kRequests - 1, 1, 0};
  EXPECT_EQ(ibv_modify_srq(srq, &smaller, IBV_SRQ_MAX_WR), EINVAL);
  Take(b_.cq, 0, 1);
  EXPECT_EQ(Fill(srq), 1);
  // Completions that can no longer be polled hold no slots.
  DestroyQp(&b_);
  EXPECT_EQ(Fill(srq), 3);
  DestroyQp(&a_);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// A message that has begun has taken a receive of the SRQ.
TEST_F(OutstandingTest, AReceiveThatIsGivenUpHoldsNothing) {
  ibv_srq* srq = MakeSrq();
  ASSERT_NE(srq, nullptr);
  QpOptions options = Small();
  options.srq = srq;
  MakePair(options);
  ASSERT_EQ(Fill(srq), kRequests);
  // The message does not fit: the receive in use fails, and the queue pair with
  // it.
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 4096), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(Fill(srq), 0);
  ibv_qp_attr reset = {};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(b_.qp, &reset, IBV_QP_STATE), 0);
  EXPECT_EQ(Fill(srq), 1);
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(OutstandingTest, FlushedRequestsHoldSlotsUntilPolled) {
  MakePair();
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(Receive(a_, 100 + i, 0, 64), 0);
  ibv_qp_attr error = {};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &error, IBV_QP_STATE), 0);
  EXPECT_EQ(Receive(a_, 99, 0, 64), ENOMEM);
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(Write(i, 0), 0);
  EXPECT_EQ(Write(99), ENOMEM);
  for (int i = 0; i < kRequests; ++i) {
    ExpectStatus(a_.cq, 100 + i, IBV_WC_WR_FLUSH_ERR);
  }
  EXPECT_EQ(Receive(a_, 108, 0, 64), 0);
  EXPECT_EQ(Write(99), ENOMEM);
  ExpectStatus(a_.cq, 0, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Write(8, 0), 0);
  EXPECT_EQ(Write(99), ENOMEM);
}

TEST_F(OutstandingTest, ResetEndsAll) {
  MakePair();
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < kRequests; ++i) ASSERT_EQ(Receive(a_, i, 0, 64), 0);
    CompleteWrites(round == 1 ? kRequests / 2 : kRequests);
    if (round == 2) Take(a_.cq, 0, 3);
    if (round == 1) CompleteWrites(kRequests / 2);
    for (Side* side : {&a_, &b_}) {
      ibv_qp_attr reset = {};
      reset.qp_state = IBV_QPS_RESET;
      ASSERT_EQ(ibv_modify_qp(side->qp, &reset, IBV_QP_STATE), 0);
    }
    ExpectNothing(a_.cq);
    Connect(&a_, &b_);
  }
  CompleteWrites(1);
  CompleteWrites(kRequests - 1);
  EXPECT_EQ(Write(99), ENOMEM);
}

TEST_F(OutstandingTest, ResizingTheQueueChangesNothing) {
  MakePair();
  CompleteWrites(kRequests);
  ASSERT_EQ(ibv_resize_cq(a_.cq, 1000), 0);
  EXPECT_EQ(Write(99), ENOMEM);
  Take(a_.cq, 0, 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Write(8 + i), 0);
  EXPECT_EQ(Write(99), ENOMEM);
  Take(a_.cq, 3, kRequests);
}

TEST_F(OutstandingTest, TheIteratorRetrieves) {
  for (const uint32_t flags :
       {0u, uint32_t{IBV_CREATE_CQ_ATTR_SINGLE_THREADED}}) {
    MakeSide(&a_, Small());
    MakeSide(&b_, Small());
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = 64;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    attr.flags = flags;
    ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
    ASSERT_NE(cq, nullptr);
    Remake(&a_, ibv_cq_ex_to_cq(cq), b_.cq);
    Connect(&a_, &b_);
    CompleteWrites(kRequests);
    EXPECT_EQ(Write(99), ENOMEM);
    ibv_poll_cq_attr poll = {};
    ASSERT_EQ(ibv_start_poll(cq, &poll), 0);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    ASSERT_EQ(ibv_next_poll(cq), 0);
    ibv_end_poll(cq);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Write(8 + i), 0);
    EXPECT_EQ(Write(99), ENOMEM);
    DestroyQp(&a_);
    EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
    DestroySide(&a_);
    DestroySide(&b_);
  }
}

// A completion that another one has overwritten is never polled.
TEST_F(OutstandingTest, ADisplacedCompletionHoldsNothing) {
  MakeSide(&a_, Small());
  MakeSide(&b_, Small());
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 7;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
  attr.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
  ASSERT_NE(cq, nullptr);
  ASSERT_EQ(ibv_cq_ex_to_cq(cq)->cqe, 7);
  Remake(&a_, ibv_cq_ex_to_cq(cq), ibv_cq_ex_to_cq(cq));
  Connect(&a_, &b_);
  CompleteWrites(kRequests);  // the first one was overwritten
  EXPECT_EQ(Write(8), 0);
  // The completions of the receives overwrite the others.
  ibv_qp_attr error = {};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &error, IBV_QP_STATE), 0);
  for (int i = 0; i < 7; ++i) ASSERT_EQ(Receive(a_, i, 0, 64), 0);
  for (int i = 0; i < kRequests; ++i) ASSERT_EQ(Write(i), 0) << i;
  DestroyQp(&a_);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// An overrun queue reports nothing more. Requests whose completions were lost
// hold no slots once the remaining completions have been polled.
TEST_F(OutstandingTest, ALostCompletionHoldsNothing) {
  MakeSide(&a_, Small(), 4);
  MakeSide(&b_, Small());
  ASSERT_EQ(a_.cq->cqe, 7);
  Connect(&a_, &b_);
  for (int i = 0; i < 6; ++i) ASSERT_EQ(Receive(a_, 50 + i, 0, 64), 0);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(Write(i), 0);
  ibv_qp_attr error = {};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &error, IBV_QP_STATE), 0);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  ibv_ack_async_event(&event);
  ibv_wc wc[7];
  ASSERT_EQ(ibv_poll_cq(a_.cq, 7, wc), 7);
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(Receive(a_, i, 0, 64), 0) << i;
    ASSERT_EQ(Write(i), 0) << i;
  }
}

}  // namespace
}  // namespace conformance
