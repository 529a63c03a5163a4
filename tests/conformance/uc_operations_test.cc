// Unreliable connections: every operation with its content checked, and packets
// that are dropped silently (IBA vol. 1, 9.8; manual pages ibv_post_send(3),
// ibv_create_qp_ex(3)). Both ends are in one thread and a message fits the
// socket's buffer, so nothing is lost.
#include <atomic>
#include <cerrno>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class UcTest : public PairTest {
 protected:
  UcTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    Make({.type = IBV_QPT_UC}, {});
  }
  void Make(const QpOptions& options, const ConnectOptions& connect) {
    DestroySide(&a_);
    DestroySide(&b_);
    MakeSide(&a_, options);
    MakeSide(&b_, {.type = IBV_QPT_UC});
    Connect(&a_, &b_, connect);
  }

  // Expects that the posted receive `wr_id` of `b_` is unused: a SEND takes it.
  void ExpectReceiveUnused(uint64_t wr_id) {
    FillPattern(a_.memory.data(), 100, 77);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 900, 0, 100), 0);
    ExpectSuccess(a_.cq, 900);
    EXPECT_EQ(ExpectSuccess(b_.cq, wr_id).byte_len, 100u);
    EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives, 100, 77));
    EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
    EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
  }

  static constexpr size_t kReceives = 1 << 19;  // offset of receives
  static constexpr uint32_t kSizes[] = {1, 7, 1023, 1024, 1025, 4096, 20001};
};

TEST_F(UcTest, SendArrives) {
  for (const uint32_t size : kSizes) {
    FillPattern(a_.memory.data(), size, size);
    ASSERT_EQ(Receive(b_, size, kReceives, 65536), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, size), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_SEND);
    const ibv_wc wc = ExpectSuccess(b_.cq, size);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, size);
    EXPECT_EQ(wc.qp_num, b_.qp->qp_num);
    EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives, size, size)) << size;
  }
}

TEST_F(UcTest, WriteArrives) {
  for (const uint32_t size : kSizes) {
    FillPattern(a_.memory.data(), size, size);
    ASSERT_EQ(Receive(b_, 1, kReceives, 0), 0);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, size, IBV_SEND_SIGNALED,
                   b_.address(3), b_.mr->rkey),
              0);
    // Shows that the WRITE has arrived.
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 0), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_RDMA_WRITE);
    ExpectSuccess(a_.cq, 2);
    ExpectSuccess(b_.cq, 1);
    EXPECT_TRUE(HasPattern(b_.memory.data() + 3, size, size)) << size;
  }
}

TEST_F(UcTest, ImmediateIsDelivered) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM}) {
    for (const uint32_t size : kSizes) {
      const bool writes = opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
      FillPattern(a_.memory.data(), size, size + opcode);
      ASSERT_EQ(Receive(b_, 5, kReceives, writes ? 0 : 65536), 0);
      ibv_sge sge = a_.Sge(0, size);
      ibv_send_wr wr = {};
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.imm_data = 0x01020300 + size;
      wr.wr.rdma.remote_addr = b_.address();
      wr.wr.rdma.rkey = b_.mr->rkey;
      ibv_send_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
      ExpectSuccess(a_.cq, 0);
      const ibv_wc wc = ExpectSuccess(b_.cq, 5);
      EXPECT_EQ(wc.opcode, writes ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV);
      EXPECT_NE(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
      EXPECT_EQ(wc.imm_data, 0x01020300 + size);
      EXPECT_EQ(wc.byte_len, size);
      EXPECT_TRUE(HasPattern(b_.memory.data() + (writes ? 0 : kReceives), size,
                             size + opcode));
    }
  }
}

TEST_F(UcTest, EveryOperationOfTheWorkBuilder) {
  Make({.type = IBV_QPT_UC,
        .send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                    IBV_QP_EX_WITH_RDMA_WRITE |
                    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM},
       {});
  ibv_qp_ex* qpx = ibv_qp_to_qp_ex(a_.qp);
  ASSERT_NE(qpx, nullptr);
  FillPattern(a_.memory.data(), 3000, 5);
  for (uint64_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(Receive(b_, i, kReceives + 4096 * i, 4096), 0);
  }
  ibv_wr_start(qpx);
  qpx->wr_flags = IBV_SEND_SIGNALED;
  qpx->wr_id = 1;
  ibv_wr_rdma_write(qpx, b_.mr->rkey, b_.address());
  ibv_wr_set_sge(qpx, a_.mr->lkey, a_.address(), 3000);
  qpx->wr_id = 2;
  ibv_wr_rdma_write_imm(qpx, b_.mr->rkey, b_.address(8192), 42);
  ibv_wr_set_sge(qpx, a_.mr->lkey, a_.address(), 3000);
  qpx->wr_id = 3;
  ibv_wr_send(qpx);
  ibv_wr_set_sge(qpx, a_.mr->lkey, a_.address(), 3000);
  qpx->wr_id = 4;
  ibv_wr_send_imm(qpx, 43);
  ibv_wr_set_inline_data(qpx, a_.memory.data(), 64);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  for (uint64_t i = 1; i <= 4; ++i) ExpectSuccess(a_.cq, i);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).imm_data, 42u);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).byte_len, 3000u);
  EXPECT_EQ(ExpectSuccess(b_.cq, 3).imm_data, 43u);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 3000, 5));
  EXPECT_TRUE(HasPattern(b_.memory.data() + 8192, 3000, 5));
  EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives + 4096 * 2, 3000, 5));
  EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives + 4096 * 3, 64, 5));
}

TEST_F(UcTest, ReadsAndAtomicsAreRefused) {
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    EXPECT_EQ(
        Send(a_, opcode, 1, 0, 8, IBV_SEND_SIGNALED, b_.address(), b_.mr->rkey),
        EINVAL)
        << opcode;
  }
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = attr.recv_cq = a_.cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_UC;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_;
  for (const uint64_t operation :
       {IBV_QP_EX_WITH_RDMA_READ, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD}) {
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | operation;
    EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr) << operation;
  }
}

// Manual page ibv_modify_qp(3): these attributes are for reliable connections.
TEST_F(UcTest, AttributesOfReliableConnectionsAreRefused) {
  Side side;
  MakeSide(&side, {.type = IBV_QPT_UC});
  ToInit(side.qp);
  const int required = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                       IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  ibv_qp_attr attr = RtrAttributes(b_.qp->qp_num);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, required | IBV_QP_MIN_RNR_TIMER),
            EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, required | IBV_QP_MAX_DEST_RD_ATOMIC),
            EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, required), 0);
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr,
                          IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT),
            EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  DestroySide(&side);
}

TEST_F(UcTest, SendWithoutReceiveIsDropped) {
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 3000), 0);
  ExpectSuccess(a_.cq, 1);
  // A later message has arrived, so this one was dropped before.
  a_.memory[0] = 1;
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 3, 0, 1, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 3);
  const std::atomic_ref<uint8_t> arrived(b_.memory[0]);
  const int64_t until = NowMs() + kTimeoutMs;
  while (arrived == 0 && NowMs() < until) ExpectNothing(b_.cq);
  ASSERT_EQ(arrived, 1);
  ASSERT_EQ(Receive(b_, 2, kReceives, 4096), 0);
  ExpectReceiveUnused(2);
}

TEST_F(UcTest, SendLongerThanItsReceiveIsDropped) {
  ASSERT_EQ(Receive(b_, 2, kReceives, 2000), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 2001), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectReceiveUnused(2);
}

TEST_F(UcTest, WriteThatMayNotBeIsDropped) {
  ASSERT_EQ(Receive(b_, 2, kReceives, 4096), 0);
  FillPattern(a_.memory.data(), 3000, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey ^ 0x100),
            0);
  ExpectSuccess(a_.cq, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 3000, IBV_SEND_SIGNALED,
                 b_.address(kMemory - 2999), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  ExpectReceiveUnused(2);
  EXPECT_EQ(b_.memory[0], 0);
  EXPECT_EQ(b_.memory[kMemory - 1], 0);
}

TEST_F(UcTest, WriteWithoutTheQueuePairsRightIsDropped) {
  Make({.type = IBV_QPT_UC}, {.access = IBV_ACCESS_LOCAL_WRITE});
  ASSERT_EQ(Receive(b_, 2, kReceives, 4096), 0);
  FillPattern(a_.memory.data(), 8, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  ExpectReceiveUnused(2);
  EXPECT_EQ(b_.memory[0], 0);
}

// IBA vol. 1, 10.3.1.6: an error of a send request stops only the send queue.
TEST_F(UcTest, BadLocalKeyStopsTheSendQueue) {
  ibv_sge sge = {a_.address(), 8, a_.mr->lkey ^ 0x100};
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_SQE);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 8), 0);
  ExpectStatus(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(Receive(b_, 2, kReceives, 4096), 0);
  ExpectReceiveUnused(2);
}

}  // namespace
}  // namespace conformance
