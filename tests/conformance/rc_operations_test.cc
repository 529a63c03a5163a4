// Every RC operation, with its content checked.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class RcTest : public PairTest {};

TEST_F(RcTest, SendArrives) {
  for (uint32_t length : {1u, 4u, 7u, 8u, 63u, 1024u, 1025u, 4096u, 70001u}) {
    FillPattern(a_.memory.data(), length, length);
    ASSERT_EQ(Receive(b_, 10 + length, 0, kMemory), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, length, 0, length), 0);
    const ibv_wc received = ExpectSuccess(b_.cq, 10 + length);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.byte_len, length);
    EXPECT_EQ(received.qp_num, b_.qp->qp_num);
    EXPECT_EQ(received.wc_flags & IBV_WC_WITH_IMM, 0u);
    const ibv_wc sent = ExpectSuccess(a_.cq, length);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    EXPECT_EQ(sent.qp_num, a_.qp->qp_num);
    EXPECT_TRUE(HasPattern(b_.memory.data(), length, length)) << length;
  }
}

// The tests run by UDP and by shared memory (BUILD). This one checks which it
// is.
TEST_F(RcTest, PacketsGoByTheMediumOfTheTest) {
  ASSERT_EQ(Receive(b_, 1, 0, kMemory), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, kMemory), 0);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 2);
  std::ifstream maps("/proc/self/maps");
  int shared = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:rxe_user-memory") != std::string::npos) ++shared;
  }
  // Each lane has a doorbell; the others are rings.
  const int lanes = std::atoi(::getenv("RXE_USER_LANES"));
  if (::getenv("RXE_USER_TEST_RINGS") != nullptr) {
    EXPECT_GT(shared, lanes);
  } else {
    EXPECT_LE(shared, lanes);
  }
}

TEST_F(RcTest, EmptySendArrives) {
  ASSERT_EQ(Receive(b_, 1, 0, 0), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 0), 0);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 0u);
  ExpectSuccess(a_.cq, 2);
}

TEST_F(RcTest, ImmediateIsDelivered) {
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ibv_sge sge = a_.Sge(0, 16);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = 0x04030201;
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  const ibv_wc wc = ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  EXPECT_NE(wc.wc_flags & IBV_WC_WITH_IMM, 0u);
  EXPECT_EQ(wc.imm_data, 0x04030201u);
  ExpectSuccess(a_.cq, 0);
}

TEST_F(RcTest, GathersAndScatters) {
  FillPattern(a_.memory.data(), 9000, 3);
  ibv_sge from[3] = {a_.Sge(0, 1000), a_.Sge(1000, 1), a_.Sge(1001, 7999)};
  ibv_sge to[4] = {b_.Sge(0, 7), b_.Sge(7, 0), b_.Sge(7, 5000),
                   b_.Sge(5007, 9000)};
  ibv_recv_wr receive = {1, nullptr, to, 4};
  ibv_recv_wr* bad_receive;
  ASSERT_EQ(ibv_post_recv(b_.qp, &receive, &bad_receive), 0);
  ibv_send_wr wr = {};
  wr.wr_id = 2;
  wr.sg_list = from;
  wr.num_sge = 3;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 9000u);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 9000, 3));
}

TEST_F(RcTest, InlineDataIsTakenAtOnce) {
  ASSERT_EQ(Receive(b_, 1, 0, 256), 0);
  uint8_t local[100];
  FillPattern(local, sizeof(local), 9);
  ibv_sge sge = {reinterpret_cast<uint64_t>(local), sizeof(local), 0xdead};
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  std::memset(local, 0, sizeof(local));
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 0);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 100, 9));
}

TEST_F(RcTest, WriteAndReadMoveBytes) {
  for (uint32_t length : {1u, 1024u, 5000u, 300000u}) {
    FillPattern(a_.memory.data(), length, length + 1);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, length, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_RDMA_WRITE);
    EXPECT_TRUE(HasPattern(b_.memory.data(), length, length + 1));

    std::fill(a_.memory.begin(), a_.memory.end(), 0);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 2, 100, length, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    const ibv_wc wc = ExpectSuccess(a_.cq, 2);
    EXPECT_EQ(wc.opcode, IBV_WC_RDMA_READ);
    EXPECT_TRUE(HasPattern(a_.memory.data() + 100, length, length + 1));
  }
  ExpectNothing(b_.cq);  // the passive side gets no completion
}

TEST_F(RcTest, WriteWithImmediateTakesAReceive) {
  FillPattern(a_.memory.data(), 3000, 1);
  ASSERT_EQ(Receive(b_, 7, 0, 0), 0);
  ibv_sge sge = a_.Sge(0, 3000);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.imm_data = 77;
  wr.wr.rdma = {b_.address(500), b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  const ibv_wc wc = ExpectSuccess(b_.cq, 7);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 77u);
  EXPECT_EQ(wc.byte_len, 3000u);
  ExpectSuccess(a_.cq, 0);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 500, 3000, 1));
}

TEST_F(RcTest, AtomicsReturnTheOriginal) {
  auto* target = reinterpret_cast<uint64_t*>(b_.memory.data());
  auto* result = reinterpret_cast<uint64_t*>(a_.memory.data());
  *target = 40;
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.wr.atomic = {b_.address(), 2, 0, b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 0).opcode, IBV_WC_FETCH_ADD);
  EXPECT_EQ(*result, 40u);
  EXPECT_EQ(*target, 42u);

  wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  wr.wr.atomic = {b_.address(), 41, 7, b_.mr->rkey};
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 0).opcode, IBV_WC_COMP_SWAP);
  EXPECT_EQ(*result, 42u);
  EXPECT_EQ(*target, 42u);  // the compare failed

  wr.wr.atomic.compare_add = 42;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectSuccess(a_.cq, 0);
  EXPECT_EQ(*target, 7u);
}

TEST_F(RcTest, OnlySignaledRequestsComplete) {
  for (uint64_t i = 0; i < 8; ++i) ASSERT_EQ(Receive(b_, i, 0, 64), 0);
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 8, i == 7 ? IBV_SEND_SIGNALED : 0),
              0);
  }
  ExpectSuccess(a_.cq, 7);
  for (uint64_t i = 0; i < 8; ++i) ExpectSuccess(b_.cq, i);
  ASSERT_EQ(Receive(b_, 8, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 8, 0, 8), 0);
  ExpectSuccess(a_.cq, 8);  // the next one after 7
}

TEST_F(RcTest, SignalAllCompletesEach) {
  Side c, d;
  QpOptions options;
  options.signal_all = true;
  MakeSide(&c, options);
  MakeSide(&d, options);
  Connect(&c, &d);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_EQ(Receive(d, i, 0, 64), 0);
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(Send(c, IBV_WR_SEND, i, 0, 8, 0), 0);
  }
  for (uint64_t i = 0; i < 4; ++i) ExpectSuccess(c.cq, i);
  DestroySide(&c);
  DestroySide(&d);
}

TEST_F(RcTest, AQueuePairTalksToItself) {
  Side c;
  MakeSide(&c);
  ASSERT_EQ(ToRts(c.qp, c.qp->qp_num), 0);
  FillPattern(c.memory.data(), 5000, 4);
  ASSERT_EQ(Receive(c, 1, 10000, 5000), 0);
  ASSERT_EQ(Send(c, IBV_WR_SEND, 2, 0, 5000), 0);
  bool sent = false, received = false;
  while (!sent || !received) {
    const ibv_wc wc = Next(c.cq);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    (wc.opcode == IBV_WC_RECV ? received : sent) = true;
  }
  EXPECT_TRUE(HasPattern(c.memory.data() + 10000, 5000, 4));
  DestroySide(&c);
}

TEST_F(RcTest, WaitsForAReceive) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d);
  Connect(&c, &d);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 64), 0);
  // A later request on another queue pair has completed.
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 3, 0, 8, IBV_SEND_SIGNALED, d.address(),
                 d.mr->rkey),
            0);
  ExpectSuccess(c.cq, 3);
  ExpectNothing(a_.cq);
  ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
  ExpectSuccess(b_.cq, 2);
  ExpectSuccess(a_.cq, 1);
  DestroySide(&c);
  DestroySide(&d);
}

TEST_F(RcTest, ZeroLengthAccessNeedsNoKey) {
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 0, IBV_SEND_SIGNALED, 0, 0xbad),
            0);
  ExpectSuccess(a_.cq, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 2, 0, 0, IBV_SEND_SIGNALED, 0, 0xbad),
            0);
  ExpectSuccess(a_.cq, 2);
}

// The acknowledgement of a received message may wait for the program's reply,
// but not when the queue pair is reset first.
TEST_F(RcTest, ReceivedMessagesAreAcknowledgedBeforeAReset) {
  for (const ibv_qp_state state : {IBV_QPS_RESET, IBV_QPS_ERR}) {
    for (int round = 0; round < 10; ++round) {
      // Until the device knows that the program polls.
      for (uint64_t i = 0; i < 300; ++i) {
        ASSERT_EQ(Receive(b_, i, 4096, 8), 0);
        ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 8), 0);
        ExpectSuccess(b_.cq, i);
        if (i < 299) ExpectSuccess(a_.cq, i);
      }
      ibv_qp_attr attr = {};
      attr.qp_state = state;
      ASSERT_EQ(ibv_modify_qp(b_.qp, &attr, IBV_QP_STATE), 0);
      ExpectSuccess(a_.cq, 299);
      if (HasFailure()) return;
      for (const Side* side : {&a_, &b_}) {
        attr.qp_state = IBV_QPS_RESET;
        ASSERT_EQ(ibv_modify_qp(side->qp, &attr, IBV_QP_STATE), 0);
      }
      Connect(&a_, &b_);
    }
  }
}

TEST_F(RcTest, FenceAndManyOutstandingReadsKeepOrder) {
  for (uint64_t i = 0; i < 32; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, i, 4096 * i, 4096,
                   IBV_SEND_SIGNALED | (i % 3 == 0 ? IBV_SEND_FENCE : 0),
                   b_.address(4096 * i), b_.mr->rkey),
              0);
  }
  for (uint64_t i = 0; i < 32; ++i) ExpectSuccess(a_.cq, i);
}

TEST_F(RcTest, SharedReceiveQueueServesSeveral) {
  ibv_srq_init_attr init = {};
  init.attr = {64, 2, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  EXPECT_GE(init.attr.max_wr, 64u);
  QpOptions options;
  options.srq = srq;
  Side c, d, e, f;
  MakeSide(&c);
  MakeSide(&d, options);
  MakeSide(&e);
  MakeSide(&f, options);
  Connect(&c, &d);
  Connect(&e, &f);
  // A queue pair with an SRQ has no receive queue.
  EXPECT_EQ(Receive(d, 1, 0, 64), EINVAL);
  for (uint64_t i = 0; i < 4; ++i) {
    ibv_sge sge = d.Sge(i * 100, 100);
    ibv_recv_wr wr = {i, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Send(c, IBV_WR_SEND, 1, 0, 100), 0);
    ExpectSuccess(c.cq, 1);
    EXPECT_EQ(Next(d.cq).status, IBV_WC_SUCCESS);
    ASSERT_EQ(Send(e, IBV_WR_SEND, 2, 0, 100), 0);
    ExpectSuccess(e.cq, 2);
    EXPECT_EQ(Next(f.cq).status, IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
  DestroySide(&c);
  DestroySide(&d);
  DestroySide(&e);
  DestroySide(&f);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

}  // namespace
}  // namespace conformance
