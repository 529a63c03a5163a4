// More threads than cores, with little work at a time, while queue pairs are
// created and destroyed. A thread that waits here depends on one that is not
// scheduled yet.
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ChurnTest : public PairTest {
 protected:
  ChurnTest() { make_pair_ = false; }

  static constexpr int kThreads = 4;

  ibv_qp* CreateQp(ibv_cq* cq, ibv_srq* srq = nullptr) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {16, srq == nullptr ? 16u : 0u, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    EXPECT_NE(qp, nullptr) << std::strerror(errno);
    return qp;
  }

  static void Join(std::vector<std::thread>& threads) {
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};

// One thread at each end; each message waits for the one before it.
TEST_F(ChurnTest, OneOutstandingInEachOfManyThreads) {
  constexpr uint64_t kMessages = 500;
  std::vector<Side> as(kThreads), bs(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    MakeSide(&as[t], {}, 64, nullptr, 4096);
    MakeSide(&bs[t], {}, 64, nullptr, 4096);
    Connect(&as[t], &bs[t]);
    for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(Receive(bs[t], i, 0, 64), 0);
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kMessages && !HasFailure(); ++i) {
        ASSERT_EQ(Send(as[t], IBV_WR_SEND, i, 0, 64), 0);
        ExpectSuccess(as[t].cq, i);
      }
    });
    threads.emplace_back([&, t] {
      for (uint64_t i = 0; i < kMessages && !HasFailure(); ++i) {
        ExpectSuccess(bs[t].cq, i % 16);
        ASSERT_EQ(Receive(bs[t], i % 16, 0, 64), 0);
      }
    });
  }
  Join(threads);
  for (int t = 0; t < kThreads; ++t) {
    DestroySide(&as[t]);
    DestroySide(&bs[t]);
  }
}

// Several receivers, each with a shared receive queue that several senders use.
TEST_F(ChurnTest, SeveralSharedReceiveQueues) {
  constexpr int kSenders = 2;  // of each receiver
  constexpr uint64_t kMessages = 300;
  struct Receiver {
    Side side;
    ibv_srq* srq = nullptr;
    std::vector<ibv_qp*> qps;
    std::vector<Side> senders{kSenders};
  };
  std::vector<Receiver> receivers(kThreads);
  const auto post = [](Receiver& receiver, uint64_t wr_id) {
    ibv_sge sge = receiver.side.Sge(0, 64);
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    return ibv_post_srq_recv(receiver.srq, &wr, &bad);
  };
  for (Receiver& receiver : receivers) {
    ibv_srq_init_attr init = {};
    init.attr = {16, 1, 0};
    receiver.srq = ibv_create_srq(pd_, &init);
    ASSERT_NE(receiver.srq, nullptr);
    MakeSide(&receiver.side, {}, 64, nullptr, 4096);
    for (Side& sender : receiver.senders) {
      MakeSide(&sender, {}, 64, nullptr, 4096);
      ibv_qp* qp = CreateQp(receiver.side.cq, receiver.srq);
      ASSERT_NE(qp, nullptr);
      receiver.qps.push_back(qp);
      ASSERT_EQ(ToRts(qp, sender.qp->qp_num), 0);
      ASSERT_EQ(ToRts(sender.qp, qp->qp_num), 0);
    }
    for (uint64_t i = 0; i < 16; ++i) ASSERT_EQ(post(receiver, i), 0);
  }
  std::vector<std::thread> threads;
  for (Receiver& receiver : receivers) {
    threads.emplace_back([&] {
      for (uint64_t i = 0; i < kSenders * kMessages && !HasFailure(); ++i) {
        const ibv_wc wc = Next(receiver.side.cq);
        ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
        ASSERT_EQ(post(receiver, wc.wr_id), 0);
      }
    });
    for (Side& sender : receiver.senders) {
      threads.emplace_back([&] {
        uint64_t posted = 0;
        for (uint64_t done = 0; done < kMessages && !HasFailure(); ++done) {
          for (; posted < kMessages && posted < done + 8; ++posted) {
            ASSERT_EQ(Send(sender, IBV_WR_SEND, posted, 0, 64), 0);
          }
          ExpectSuccess(sender.cq, done);
        }
      });
    }
  }
  Join(threads);
  for (Receiver& receiver : receivers) {
    for (Side& sender : receiver.senders) DestroySide(&sender);
    for (ibv_qp* qp : receiver.qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    DestroySide(&receiver.side);
    EXPECT_EQ(ibv_destroy_srq(receiver.srq), 0);
  }
}

// Every sender gets its error after its own time-out and not later, and the
// other connections are not delayed.
TEST_F(ChurnTest, DestroyedWhilePeersSend) {
  constexpr int kPairs = 16;
  constexpr int kSends = 8;
  ConnectOptions options;
  options.timeout = 12;  // 17 ms
  options.retry_cnt = 2;
  std::vector<Side> senders(kPairs), receivers(kPairs);
  for (int p = 0; p < kPairs; ++p) {
    MakeSide(&senders[p], {}, 64, nullptr, 4096);
    MakeSide(&receivers[p], {}, 64, nullptr, 4096);
    Connect(&senders[p], &receivers[p], options);
  }
  Side a, b;
  MakeSide(&a);
  MakeSide(&b);
  Connect(&a, &b);
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> went_on{0};
  std::thread others([&] {
    for (; !stop && !HasFailure(); ++went_on) {
      ASSERT_EQ(Send(a, IBV_WR_RDMA_WRITE, went_on, 0, 512, IBV_SEND_SIGNALED,
                     b.address(), b.mr->rkey),
                0);
      ExpectSuccess(a.cq, went_on);
    }
  });
  std::vector<std::thread> threads;
  for (int p = 0; p < kPairs; ++p) {
    threads.emplace_back([&, p] {
      Side& sender = senders[p];
      Side& receiver = receivers[p];
      for (uint64_t i = 0; i < kSends; ++i) {
        ASSERT_EQ(Send(sender, IBV_WR_RDMA_WRITE, i, 0, 2000, IBV_SEND_SIGNALED,
                       receiver.address(), receiver.mr->rkey),
                  0);
        if (i == kSends / 2) {
          // The receiver's memory stays registered: packets in flight may still
          // arrive.
          ASSERT_EQ(ibv_destroy_qp(receiver.qp), 0);
          receiver.qp = nullptr;
        }
      }
      bool failed = false;
      for (uint64_t i = 0; i < kSends; ++i) {
        const ibv_wc wc = Next(sender.cq);
        ASSERT_EQ(wc.wr_id, i);
        if (failed) {
          ASSERT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
        } else if (wc.status != IBV_WC_SUCCESS) {
          ASSERT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
          failed = true;
        }
      }
      ASSERT_TRUE(failed);
    });
  }
  Join(threads);
  const uint64_t before = went_on;
  while (went_on < before + 10 && !HasFailure()) std::this_thread::yield();
  stop = true;
  others.join();
  for (int p = 0; p < kPairs; ++p) {
    DestroySide(&senders[p]);
    DestroySide(&receivers[p]);
  }
  DestroySide(&a);
  DestroySide(&b);
}

TEST_F(ChurnTest, CreatingAndDestroyingInManyThreads) {
  constexpr int kMaking = 8;
  std::vector<std::thread> threads;
  for (int t = 0; t < kMaking; ++t) {
    threads.emplace_back([&] {
      Side side;
      for (int i = 0; i < 50 && !HasFailure(); ++i) {
        MakeSide(&side, {}, 16, nullptr, 4096);
        ASSERT_FALSE(HasFailure());
        ASSERT_EQ(ToRts(side.qp, side.qp->qp_num), 0);
        ASSERT_EQ(Send(side, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED,
                       side.address(64), side.mr->rkey),
                  0);
        ExpectSuccess(side.cq, 1);
        DestroySide(&side);
      }
    });
  }
  Join(threads);
}

}  // namespace
}  // namespace conformance
