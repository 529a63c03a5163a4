// Several threads at once: posting, polling, waiting, creating and destroying.
#include <atomic>
#include <cerrno>
#include <iterator>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ThreadTest : public PairTest {};

TEST_F(ThreadTest, OnePostsAnotherPolls) {
  constexpr uint64_t kCount = 3000;
  std::atomic<uint64_t> done{0};
  std::thread poster([&] {
    for (uint64_t i = 0; i < kCount;) {
      if (i - done < 60 &&
          Send(a_, IBV_WR_RDMA_WRITE, i, 0, 512, IBV_SEND_SIGNALED,
               b_.address(), b_.mr->rkey) == 0) {
        ++i;
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (uint64_t i = 0; i < kCount; ++i) {
    ExpectSuccess(a_.cq, i);
    ++done;
  }
  poster.join();
}

TEST_F(ThreadTest, EachThreadItsOwnPair) {
  constexpr int kThreads = 4;
  std::vector<std::thread> threads;
  std::vector<Side> as(kThreads), bs(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    MakeSide(&as[t], {}, 256, nullptr, 65536);
    MakeSide(&bs[t], {}, 256, nullptr, 65536);
    Connect(&as[t], &bs[t]);
  }
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Side &a = as[t], &b = bs[t];
      for (uint32_t i = 0; i < 200; ++i) {
        FillPattern(a.memory.data(), 3000, i + static_cast<uint32_t>(t));
        ASSERT_EQ(Receive(b, i, 0, 65536), 0);
        ASSERT_EQ(Send(a, IBV_WR_SEND, i, 0, 3000), 0);
        ExpectSuccess(b.cq, i);
        ASSERT_TRUE(
            HasPattern(b.memory.data(), 3000, i + static_cast<uint32_t>(t)));
        ExpectSuccess(a.cq, i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int t = 0; t < kThreads; ++t) {
    DestroySide(&as[t]);
    DestroySide(&bs[t]);
  }
}

TEST_F(ThreadTest, RegisteringAndDestroyingUnderTraffic) {
  std::atomic<bool> stop{false};
  std::atomic<int> churned{0};
  std::thread churn([&] {
    std::vector<uint8_t> memory(1 << 16);
    while (!stop) {
      ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(),
                              static_cast<unsigned>(kAllAccess));
      ASSERT_NE(mr, nullptr);
      ASSERT_EQ(ibv_dereg_mr(mr), 0);
      Side side;
      MakeSide(&side, {}, 16, nullptr, 4096);
      ASSERT_EQ(ToRts(side.qp, side.qp->qp_num), 0);
      DestroySide(&side);
      ++churned;
    }
  });
  for (uint32_t i = 0; i < 300 || (churned < 20 && !HasFailure()); ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 20000, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, i);
  }
  stop = true;
  churn.join();
}

// A region is deregistered while a peer writes to it: the memory is not
// accessed after ibv_dereg_mr has returned.
TEST_F(ThreadTest, DeregisteringEndsAllAccess) {
  int cut_short = 0;
  for (int round = 0; round < 20 || (cut_short == 0 && round < 5000); ++round) {
    Side c, d;
    MakeSide(&c);
    MakeSide(&d);
    Connect(&c, &d);
    for (uint64_t i = 0; i < 8; ++i) {
      ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, i, 0, 1 << 18, IBV_SEND_SIGNALED,
                     d.address(), d.mr->rkey),
                0);
    }
    std::fill(c.memory.begin(), c.memory.end(), 0xff);
    ASSERT_EQ(ibv_dereg_mr(d.mr), 0);
    d.mr = nullptr;
    const std::vector<uint8_t> snapshot = d.memory;
    // Some completed, one error, and the rest flushed.
    bool failed = false;
    for (int i = 0; i < 8; ++i) failed |= Next(c.cq).status != IBV_WC_SUCCESS;
    cut_short += failed ? 1 : 0;
    EXPECT_EQ(d.memory, snapshot);
    DestroySide(&c);
    DestroySide(&d);
  }
  EXPECT_GE(cut_short, 1);
}

// A program that changes its lists during posting gets the old or the new
// values, and harms only itself.
TEST_F(ThreadTest, ListsThatChangeWhileTheyArePosted) {
  std::vector<uint8_t> data(1 << 16, 0x5a);
  // Many entries, so that time passes between the check of the last one and the
  // copy.
  constexpr int kSges = 32;
  ibv_sge sges[kSges];
  for (ibv_sge& sge : sges) {
    sge = {reinterpret_cast<uint64_t>(data.data()), 4, 0};
  }
  std::atomic<bool> stop{false};
  std::thread changer([&] {
    const std::atomic_ref<uint32_t> length(sges[kSges - 1].length);
    while (!stop) {
      length.store(static_cast<uint32_t>(data.size()));
      length.store(4);
    }
  });
  uint64_t posted = 0;
  uint64_t refused = 0;
  const int64_t until = NowMs() + kTimeoutMs;
  for (uint64_t i = 0; (posted < 2000 || refused < 2000) && NowMs() < until;
       ++i) {
    ibv_send_wr wr = {};
    wr.wr_id = posted;
    wr.sg_list = sges;
    wr.num_sge = kSges;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = b_.address();
    wr.wr.rdma.rkey = b_.mr->rkey;
    ibv_send_wr* bad;
    const int error = ibv_post_send(a_.qp, &wr, &bad);
    if (error != 0) {
      ASSERT_EQ(error, EINVAL);
      ++refused;
      continue;
    }
    ExpectSuccess(a_.cq, posted++);
  }
  stop = true;
  changer.join();
  EXPECT_GE(posted, 1u);
  EXPECT_GE(refused, 1u);
  // Exactly the bytes of the entries have arrived.
  EXPECT_EQ(b_.memory[4 * kSges - 1], 0x5a);
  EXPECT_EQ(b_.memory[4 * kSges], 0);
}

// Importing walks all contexts, which other threads may close.
TEST_F(ThreadTest, ImportingAContextBesideOthersThatAreClosed) {
  std::atomic<bool> stop{false};
  std::thread opens([&] {
    ibv_context* others[16] = {};
    for (size_t i = 0; !stop; ++i) {
      ibv_context*& other = others[i % std::size(others)];
      if (other != nullptr) {
        ASSERT_EQ(ibv_close_device(other), 0);
      }
      other = ibv_open_device(context_->device);
      ASSERT_NE(other, nullptr);
    }
    for (ibv_context* const other : others) {
      if (other != nullptr) {
        EXPECT_EQ(ibv_close_device(other), 0);
      }
    }
  });
  for (int i = 0; i < 1000; ++i) {
    ibv_context* const context = ibv_import_device(context_->cmd_fd);
    EXPECT_NE(context, nullptr);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  stop = true;
  opens.join();
}

}  // namespace
}  // namespace conformance
