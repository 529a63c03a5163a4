// ibv_wr_*: manual page ibv_wr_post(3).
#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint64_t kRcOps =
    IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
    IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
    IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_SEND_WITH_INV;

class WorkBuilderTest : public PairTest {
 protected:
  WorkBuilderTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    QpOptions options;
    options.send_ops = kRcOps;
    options.cap.max_send_wr = 16;
    MakeSide(&a_, options);
    MakeSide(&b_);
    Connect(&a_, &b_);
    qpx_ = ibv_qp_to_qp_ex(a_.qp);
    ASSERT_NE(qpx_, nullptr);
  }
  // Expects that nothing was posted: a request posted now completes first, and
  // nothing has arrived at the peer before it.
  void ExpectNothingPosted() {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 999, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(1024), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, 999);
    ExpectNothing(b_.cq);
  }

  ibv_qp_ex* qpx_ = nullptr;
};

TEST_F(WorkBuilderTest, OnlyForQueuePairsThatAskedForIt) {
  EXPECT_EQ(ibv_qp_to_qp_ex(b_.qp), nullptr);
}

TEST_F(WorkBuilderTest, EveryOperation) {
  FillPattern(a_.memory.data(), 4096, 1);
  for (uint64_t i = 0; i < 3; ++i) ASSERT_EQ(Receive(b_, i, 65536, 4096), 0);
  auto* counter = reinterpret_cast<uint64_t*>(b_.memory.data() + 32768);
  *counter = 5;

  ibv_wr_start(qpx_);
  qpx_->wr_flags = IBV_SEND_SIGNALED;
  qpx_->wr_id = 1;
  ibv_wr_rdma_write(qpx_, b_.mr->rkey, b_.address());
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 4096);
  qpx_->wr_id = 2;
  ibv_wr_rdma_write_imm(qpx_, b_.mr->rkey, b_.address(8192), 42);
  const ibv_sge list[2] = {a_.Sge(0, 100), a_.Sge(100, 900)};
  ibv_wr_set_sge_list(qpx_, 2, list);
  qpx_->wr_id = 3;
  ibv_wr_send(qpx_);
  char word[] = "inline data";
  ibv_wr_set_inline_data(qpx_, word, sizeof(word));
  qpx_->wr_id = 4;
  ibv_wr_send_imm(qpx_, 43);
  const ibv_data_buf buffers[2] = {{word, 7}, {word + 7, 5}};
  ibv_wr_set_inline_data_list(qpx_, 2, buffers);
  qpx_->wr_id = 5;
  ibv_wr_rdma_read(qpx_, b_.mr->rkey, b_.address());
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(16384), 4096);
  qpx_->wr_id = 6;
  ibv_wr_atomic_fetch_add(qpx_, b_.mr->rkey, b_.address(32768), 3);
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(32768), 8);
  qpx_->wr_id = 7;
  ibv_wr_atomic_cmp_swp(qpx_, b_.mr->rkey, b_.address(32768), 8, 100);
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(32776), 8);
  ASSERT_EQ(ibv_wr_complete(qpx_), 0);
  std::memset(word, 0, sizeof(word));

  for (uint64_t id = 1; id <= 7; ++id) ExpectSuccess(a_.cq, id);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 4096, 1));
  EXPECT_TRUE(HasPattern(b_.memory.data() + 8192, 1000, 1));
  const ibv_wc written = ExpectSuccess(b_.cq, 0);
  EXPECT_EQ(written.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(written.imm_data, 42u);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).imm_data, 43u);
  EXPECT_STREQ(reinterpret_cast<char*>(b_.memory.data() + 65536),
               "inline data");
  EXPECT_TRUE(HasPattern(a_.memory.data() + 16384, 4096, 1));
  uint64_t originals[2];
  std::memcpy(originals, a_.memory.data() + 32768, sizeof(originals));
  EXPECT_EQ(originals[0], 5u);
  EXPECT_EQ(originals[1], 8u);
  EXPECT_EQ(*counter, 100u);
}

TEST_F(WorkBuilderTest, NothingIsVisibleBeforeComplete) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ibv_wr_start(qpx_);
  qpx_->wr_id = 9;
  qpx_->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qpx_);
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 8);
  ExpectNothingPosted();
  ASSERT_EQ(ibv_wr_complete(qpx_), 0);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 9);
}

TEST_F(WorkBuilderTest, AbortDiscards) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ibv_wr_start(qpx_);
  ibv_wr_send(qpx_);
  ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 8);
  ibv_wr_abort(qpx_);
  ExpectNothingPosted();
  ibv_wr_start(qpx_);
  EXPECT_EQ(ibv_wr_complete(qpx_), 0);  // without requests
  ExpectNothingPosted();
}

TEST_F(WorkBuilderTest, AnyMistakePostsNothing) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  const auto try_with = [this](auto&& mistake) {
    ibv_wr_start(qpx_);
    qpx_->wr_flags = 0;
    ibv_wr_send(qpx_);
    ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 8);
    mistake();
    ibv_wr_send(qpx_);
    ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 8);
    return ibv_wr_complete(qpx_);
  };
  std::vector<uint8_t> big(10'000);
  EXPECT_NE(try_with([&] {  // longer than max_inline_data
              ibv_wr_send(qpx_);
              ibv_wr_set_inline_data(qpx_, big.data(), big.size());
            }),
            0);
  EXPECT_NE(try_with([&] {  // inline on a read
              ibv_wr_rdma_read(qpx_, 1, 1);
              ibv_wr_set_inline_data(qpx_, big.data(), 8);
            }),
            0);
  EXPECT_NE(try_with([&] {  // too many
              std::vector<ibv_sge> sges(40, a_.Sge(0, 1));
              ibv_wr_send(qpx_);
              ibv_wr_set_sge_list(qpx_, sges.size(), sges.data());
            }),
            0);
  EXPECT_NE(try_with([&] { ibv_wr_set_sge(qpx_, 1, 1, 1); }), 0);  // set twice
  EXPECT_NE(try_with([&] { ibv_wr_local_inv(qpx_, 1); }), 0);
  EXPECT_NE(try_with([&] { ibv_wr_bind_mw(qpx_, nullptr, 1, nullptr); }), 0);
  EXPECT_NE(try_with([&] { ibv_wr_send_tso(qpx_, nullptr, 0, 0); }), 0);
  EXPECT_NE(try_with([&] { ibv_wr_set_ud_addr(qpx_, nullptr, 0, 0); }), 0);
  EXPECT_NE(try_with([&] { ibv_wr_atomic_write(qpx_, 0, 0, nullptr); }), 0);
  EXPECT_NE(try_with([&] {  // an unknown flag
              qpx_->wr_flags = 0x1000;
              ibv_wr_send(qpx_);
              qpx_->wr_flags = 0;
            }),
            0);
  EXPECT_EQ(try_with([&] {  // more than the queue holds
              for (int i = 0; i < 100; ++i) ibv_wr_send(qpx_);
            }),
            ENOMEM);
  ExpectNothingPosted();
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
  // The queue pair is not affected.
  EXPECT_EQ(Send(a_, IBV_WR_SEND, 3, 0, 8), 0);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 3);
}

TEST_F(WorkBuilderTest, CompleteWithoutStart) {
  EXPECT_NE(ibv_wr_complete(qpx_), 0);
  ibv_wr_abort(qpx_);
  ibv_wr_start(qpx_);
  EXPECT_EQ(ibv_wr_complete(qpx_), 0);
}

// The same error as ibv_post_send.
TEST_F(WorkBuilderTest, NothingIsPostedWhenTheContextHasClosed) {
  EXPECT_EQ(ibv_close_device(context_), 0);
  context_ = nullptr;
  uint8_t bytes[8] = {};
  ibv_wr_start(qpx_);
  ibv_wr_send(qpx_);
  ibv_wr_set_ud_addr(qpx_, nullptr, 1, 1);
  ibv_wr_set_sge(qpx_, 1, a_.address(), 8);
  ibv_wr_set_inline_data(qpx_, bytes, sizeof(bytes));
  EXPECT_EQ(ibv_wr_complete(qpx_), EINVAL);
  ibv_wr_start(qpx_);
  ibv_wr_abort(qpx_);
}

TEST_F(WorkBuilderTest, TheCriticalRegionIsOneThreads) {
  std::atomic<int> inside{0}, worst{0};
  std::atomic<uint64_t> next_id{0};
  for (uint64_t i = 0; i < 60; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  const auto work = [&] {
    for (int i = 0; i < 20; ++i) {
      for (;;) {
        ibv_wr_start(qpx_);
        worst = std::max<int>(worst, ++inside);
        std::this_thread::yield();  // for a thread that is not excluded
        qpx_->wr_id = next_id;
        qpx_->wr_flags = IBV_SEND_SIGNALED;
        ibv_wr_send(qpx_);
        ibv_wr_set_sge(qpx_, a_.mr->lkey, a_.address(), 8);
        --inside;
        if (ibv_wr_complete(qpx_) == 0) break;
        ibv_wc wc;  // empty the full queue
        (void)ibv_poll_cq(a_.cq, 1, &wc);
      }
    }
  };
  std::thread threads[3] = {std::thread(work), std::thread(work),
                            std::thread(work)};
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worst, 1);
  for (uint64_t i = 0; i < 60; ++i) ExpectSuccess(b_.cq, i);
}

TEST_F(WorkBuilderTest, CreationRefusesUnsupportedOperations) {
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = attr.recv_cq = a_.cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_;
  for (const uint64_t op : {uint64_t{IBV_QP_EX_WITH_TSO}, uint64_t{1} << 40}) {
    attr.send_ops_flags = op | IBV_QP_EX_WITH_SEND;
    errno = 0;
    EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
  attr.comp_mask |= 1 << 30;
  EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace conformance
