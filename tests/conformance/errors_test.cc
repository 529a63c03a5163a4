// Failures and how they are reported: errno, bad_wr, completion status.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ErrorTest : public PairTest {
 protected:
  // Makes a new connection, because an error ends one.
  void Again(const ConnectOptions& options = {}) {
    DestroySide(&a_);
    DestroySide(&b_);
    MakeSide(&a_);
    MakeSide(&b_);
    Connect(&a_, &b_, options);
  }
  // Maps pages far below the addresses that the system chooses, so that they
  // stay unmapped once they are unmapped.
  static void* MapLow(size_t bytes) {
    const auto low = reinterpret_cast<void*>(uintptr_t{0x20000000});
    void* const memory = mmap(low, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return memory;
  }
};

// --- Keys, bounds and rights at the remote end.

TEST_F(ErrorTest, UnknownRemoteKey) {
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey + 1),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
}

TEST_F(ErrorTest, BeyondTheRegion) {
  struct {
    int64_t offset;
    uint32_t length;
  } const cases[] = {
      {int64_t{kMemory} - 63, 64}, {-1, 1}, {int64_t{kMemory}, 1}, {-64, 128}};
  for (const auto& c : cases) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, c.length, IBV_SEND_SIGNALED,
                   b_.address() + static_cast<uint64_t>(c.offset), b_.mr->rkey),
              0);
    ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
    Again();
  }
  // An address that wraps around.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED,
                 UINT64_MAX - 10, b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(ErrorTest, RegionGrantsNoRight) {
  struct {
    int access;
    ibv_wr_opcode opcode;
  } const cases[] = {
      {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE},
      {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ},
      {IBV_ACCESS_LOCAL_WRITE, IBV_WR_RDMA_READ},
  };
  for (const auto& c : cases) {
    ibv_mr* mr = ibv_reg_mr(pd_, b_.memory.data(), 4096,
                            static_cast<unsigned>(c.access));
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(
        Send(a_, c.opcode, 1, 0, 64, IBV_SEND_SIGNALED, b_.address(), mr->rkey),
        0);
    ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    Again();
  }
}

TEST_F(ErrorTest, RegionOfAnotherDomain) {
  ibv_pd* other = ibv_alloc_pd(context_);
  ibv_mr* mr = ibv_reg_mr(other, b_.memory.data(), 4096,
                          static_cast<unsigned>(kAllAccess));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

TEST_F(ErrorTest, QueuePairGrantsNoRight) {
  ConnectOptions options;
  options.access = IBV_ACCESS_LOCAL_WRITE;
  Again(options);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_TRUE(wc.status == IBV_WC_REM_ACCESS_ERR ||
              wc.status == IBV_WC_REM_INV_REQ_ERR)
      << ibv_wc_status_str(wc.status);
}

// The member `state` is the state of the last modify or query, not the current
// one: UCX reads it.
TEST_F(ErrorTest, TheStateIsShownWhenItIsAskedFor) {
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey + 1),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a_.qp, &attr, IBV_QP_AV, &init), 0);
  EXPECT_EQ(a_.qp->state, IBV_QPS_RTS);
  ASSERT_EQ(ibv_query_qp(a_.qp, &attr, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_ERR);
  EXPECT_EQ(a_.qp->state, IBV_QPS_ERR);
}

TEST_F(ErrorTest, MisalignedAtomic) {
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 5;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic = {b_.address(4), 1, 0, b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.wr_id, 5u);
  EXPECT_TRUE(wc.status == IBV_WC_REM_INV_REQ_ERR ||
              wc.status == IBV_WC_REM_ACCESS_ERR)
      << ibv_wc_status_str(wc.status);
}

// Only windows of type 2 can be invalidated remotely. The message is neither
// acknowledged nor refused; its receive reports that the invalidation failed
// (IBA vol. 1, 9.9.3, class J).
TEST_F(ErrorTest, InvalidatingARegion) {
  const auto invalidate = [this](uint32_t rkey) {
    ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
    ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
    ibv_sge sge = a_.Sge(0, 8);
    ibv_send_wr wr = {};
    wr.wr_id = 3;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND_WITH_INV;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = rkey;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
    ExpectStatus(b_.cq, 1, IBV_WC_MW_BIND_ERR);
    ExpectStatus(b_.cq, 2, IBV_WC_WR_FLUSH_ERR);
    ExpectStatus(a_.cq, 3, IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
    EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
  };
  invalidate(b_.mr->rkey);
  // The region still works.
  Side c;
  MakeSide(&c);
  DestroyQp(&a_);
  DestroyQp(&b_);
  ASSERT_EQ(ToRts(c.qp, c.qp->qp_num), 0);
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 4, 0, 8, IBV_SEND_SIGNALED, b_.address(),
                 b_.mr->rkey),
            0);
  ExpectSuccess(c.cq, 4);
  DestroySide(&c);
  Again();
  invalidate(b_.mr->rkey + 1);  // of no region
}

// The receive that the immediate data takes is completed with an error if it
// arrived with the refused packet (IBA vol. 1, 11.6.2, "local access error").
TEST_F(ErrorTest, WriteWithImmediateThatIsRefused) {
  for (const uint32_t length : {8u, 5000u}) {
    Again();
    ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
    ASSERT_EQ(Receive(b_, 2, 0, 64), 0);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE_WITH_IMM, 3, 0, length,
                   IBV_SEND_SIGNALED, b_.address(), b_.mr->rkey + 1),
              0);
    ExpectStatus(a_.cq, 3, IBV_WC_REM_ACCESS_ERR);
    ExpectStatus(b_.cq, 1,
                 length == 8 ? IBV_WC_LOC_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
    ExpectStatus(b_.cq, 2, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
  }
}

TEST_F(ErrorTest, DeregisteredRegion) {
  const uint32_t rkey = b_.mr->rkey;
  ASSERT_EQ(ibv_dereg_mr(b_.mr), 0);
  b_.mr = nullptr;
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
}

// --- At the local end.

TEST_F(ErrorTest, UnknownLocalKey) {
  ASSERT_EQ(Receive(b_, 9, 0, 64), 0);
  ibv_sge sge = a_.Sge(0, 64);
  sge.lkey += 1;
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);  // reported although unsignaled
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_ERR);
}

TEST_F(ErrorTest, ReceiveWithoutLocalWrite) {
  ibv_mr* mr = ibv_reg_mr(pd_, b_.memory.data(), 4096, 0u);
  ASSERT_NE(mr, nullptr);
  ibv_sge sge = {b_.address(), 64, mr->lkey};
  ibv_recv_wr receive = {3, nullptr, &sge, 1};
  ibv_recv_wr* bad;
  ASSERT_EQ(ibv_post_recv(b_.qp, &receive, &bad), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 64), 0);
  ExpectStatus(b_.cq, 3, IBV_WC_LOC_PROT_ERR);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ErrorTest, MessageLongerThanTheReceive) {
  ASSERT_EQ(Receive(b_, 3, 0, 63), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 64), 0);
  ExpectStatus(b_.cq, 3, IBV_WC_LOC_LEN_ERR);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(ErrorTest, NoReceiveAndOneRnrRetry) {
  ConnectOptions options;
  options.rnr_retry = 1;
  Again(options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 64), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_F(ErrorTest, PeerIsGone) {
  ConnectOptions options;
  options.timeout = 10;  // 4 ms
  options.retry_cnt = 2;
  Again(options);
  DestroyQp(&b_);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 64, 0, b_.address(), b_.mr->rkey),
            0);
  ASSERT_EQ(Receive(a_, 3, 0, 64), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_RETRY_EXC_ERR);
  bool send = false, receive = false;
  for (int i = 0; i < 2; ++i) {
    const ibv_wc wc = Next(a_.cq);
    EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
    (wc.wr_id == 3 ? receive : send) = true;
  }
  EXPECT_TRUE(send);
  EXPECT_TRUE(receive);
}

// --- Unmapped memory.

TEST_F(ErrorTest, RemoteMemoryUnmapped) {
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    constexpr size_t kSize = 4 * 4096;
    void* const memory = MapLow(kSize);
    ibv_mr* mr =
        ibv_reg_mr(pd_, memory, kSize, static_cast<unsigned>(kAllAccess));
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(munmap(memory, kSize), 0);
    ASSERT_EQ(Send(a_, opcode, 1, 0, kSize, IBV_SEND_SIGNALED,
                   reinterpret_cast<uint64_t>(memory), mr->rkey),
              0);
    const ibv_wc wc = Next(a_.cq);
    EXPECT_TRUE(wc.status == IBV_WC_REM_ACCESS_ERR ||
                wc.status == IBV_WC_REM_OP_ERR)
        << ibv_wc_status_str(wc.status);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    Again();
  }
}

TEST_F(ErrorTest, RemoteMemoryBecameReadOnly) {
  constexpr size_t kSize = 4096;
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ibv_mr* mr =
      ibv_reg_mr(pd_, memory, kSize, static_cast<unsigned>(kAllAccess));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(mprotect(memory, kSize, PROT_READ), 0);
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic = {reinterpret_cast<uint64_t>(memory), 1, 0, mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_TRUE(wc.status == IBV_WC_REM_ACCESS_ERR ||
              wc.status == IBV_WC_REM_OP_ERR)
      << ibv_wc_status_str(wc.status);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  munmap(memory, kSize);
}

TEST_F(ErrorTest, LocalMemoryUnmapped) {
  constexpr size_t kSize = 4 * 4096;
  void* const memory = MapLow(kSize);
  ibv_mr* mr =
      ibv_reg_mr(pd_, memory, kSize, static_cast<unsigned>(kAllAccess));
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(munmap(memory, kSize), 0);
  ibv_sge sge = {reinterpret_cast<uint64_t>(memory), kSize, mr->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma = {b_.address(), b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// --- Posting.

TEST_F(ErrorTest, SendQueueOverflowNamesTheFirstThatFailed) {
  DestroySide(&a_);
  QpOptions options;
  options.cap.max_send_wr = 4;
  MakeSide(&a_, options);
  // Connected to a peer that does not answer: everything stays queued.
  ASSERT_EQ(ToRts(a_.qp, 0xabcdef), 0);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a_.qp, &attr, IBV_QP_CAP, &init), 0);
  const uint32_t capacity = init.cap.max_send_wr;
  ASSERT_GE(capacity, 4u);
  std::vector<ibv_send_wr> wrs(capacity + 2);
  ibv_sge sge = a_.Sge(0, 8);
  for (size_t i = 0; i < wrs.size(); ++i) {
    wrs[i] = {};
    wrs[i].wr_id = i;
    wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &sge;
    wrs[i].num_sge = 1;
    wrs[i].opcode = IBV_WR_SEND;
  }
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_.qp, wrs.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs[capacity]);
}

TEST_F(ErrorTest, ReceiveQueueOverflowNamesTheFirstThatFailed) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(b_.qp, &attr, IBV_QP_CAP, &init), 0);
  std::vector<ibv_recv_wr> wrs(init.cap.max_recv_wr + 1);
  ibv_sge sge = b_.Sge(0, 8);
  for (size_t i = 0; i < wrs.size(); ++i) {
    wrs[i] = {i, i + 1 < wrs.size() ? &wrs[i + 1] : nullptr, &sge, 1};
  }
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_recv(b_.qp, wrs.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs.back());
}

TEST_F(ErrorTest, NonsenseInWorkRequests) {
  const auto post = [this](auto&& change) {
    ibv_sge sges[8];
    for (ibv_sge& sge : sges) sge = a_.Sge(0, 8);
    ibv_send_wr second = {};
    second.opcode = IBV_WR_SEND;
    ibv_send_wr wr = {};
    wr.sg_list = sges;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.next = &second;
    change(wr);
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(a_.qp, &wr, &bad);
    EXPECT_EQ(bad, &wr);
    return error;
  };
  EXPECT_EQ(post([](ibv_send_wr& wr) {
              wr.opcode = static_cast<ibv_wr_opcode>(1000);
            }),
            EINVAL);
  EXPECT_EQ(
      post([](ibv_send_wr& wr) { wr.opcode = static_cast<ibv_wr_opcode>(-1); }),
      EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.opcode = IBV_WR_TSO; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.opcode = IBV_WR_BIND_MW; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.num_sge = -1; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.num_sge = 5; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.sg_list = nullptr; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) { wr.send_flags = 0x40; }), EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) {
              wr.opcode = IBV_WR_RDMA_READ;
              wr.send_flags |= IBV_SEND_INLINE;
            }),
            EINVAL);
  EXPECT_EQ(post([](ibv_send_wr& wr) {
              wr.send_flags |= IBV_SEND_INLINE;
              wr.sg_list->length = 5000;
            }),
            EINVAL);
  // Nothing was posted, neither those requests nor later ones of the list. This
  // one completes and arrives first.
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 77, 0, 24), 0);
  ExpectSuccess(a_.cq, 77);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, 24u);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
}

// Programs read bad_wr after posting a list: it must only change on failure.
TEST_F(ErrorTest, SuccessLeavesTheBadRequestAsItWas) {
  ibv_send_wr sends[3] = {};
  ibv_recv_wr receives[3] = {};
  ibv_sge sge = b_.Sge(0, 8);
  for (size_t i = 0; i < 3; ++i) {
    sends[i].wr_id = i;
    sends[i].next = i < 2 ? &sends[i + 1] : nullptr;
    sends[i].opcode = IBV_WR_SEND;
    sends[i].send_flags = IBV_SEND_SIGNALED;
    receives[i] = {i, i < 2 ? &receives[i + 1] : nullptr, &sge, 1};
  }
  ibv_send_wr none;
  ibv_recv_wr no_receive;
  for (ibv_send_wr* const before :
       {static_cast<ibv_send_wr*>(nullptr), &none}) {
    ibv_recv_wr* bad_receive = &no_receive;
    ASSERT_EQ(ibv_post_recv(b_.qp, receives, &bad_receive), 0);
    EXPECT_EQ(bad_receive, &no_receive);
    ibv_send_wr* bad = before;
    ASSERT_EQ(ibv_post_send(a_.qp, sends, &bad), 0);
    EXPECT_EQ(bad, before);
    for (uint64_t i = 0; i < 3; ++i) {
      ExpectSuccess(a_.cq, i);
      ExpectSuccess(b_.cq, i);
    }
  }
  // A failure in the middle of a list is reported, too.
  sends[1].num_sge = -1;
  ibv_send_wr* bad = &none;
  EXPECT_EQ(ibv_post_send(a_.qp, sends, &bad), EINVAL);
  EXPECT_EQ(bad, &sends[1]);
}

TEST_F(ErrorTest, InlineDataThatIsNotThere) {
  void* page =
      mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  ibv_sge sges[2] = {a_.Sge(0, 8), {reinterpret_cast<uint64_t>(page), 8, 0}};
  ibv_send_wr request = {};
  request.sg_list = sges;
  request.num_sge = 2;
  request.opcode = IBV_WR_SEND;
  request.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_.qp, &request, &bad), EFAULT);
  EXPECT_EQ(bad, &request);
  EXPECT_EQ(munmap(page, 4096), 0);
  // The queue pair is not affected.
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 8, IBV_SEND_INLINE | IBV_SEND_SIGNALED),
            0);
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(b_.cq, 1);
}

TEST_F(ErrorTest, StatesDecideWhatMayBePosted) {
  Side c;
  MakeSide(&c);
  EXPECT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), EINVAL);
  EXPECT_EQ(Receive(c, 1, 0, 8), EINVAL);
  ToInit(c.qp);
  EXPECT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), EINVAL);
  EXPECT_EQ(Receive(c, 1, 0, 8), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(c.qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(c.qp->state, IBV_QPS_ERR);
  ExpectStatus(c.cq, 1, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Send(c, IBV_WR_SEND, 2, 0, 8), 0);
  ExpectStatus(c.cq, 2, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(Receive(c, 3, 0, 8), 0);
  ExpectStatus(c.cq, 3, IBV_WC_WR_FLUSH_ERR);
  // Unpolled completions are removed by the reset.
  EXPECT_EQ(Receive(c, 4, 0, 8), 0);
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(c.qp, &attr, IBV_QP_STATE), 0);
  ExpectNothing(c.cq);
  // The queue pair can be used again.
  DestroyQp(&b_);
  DestroyQp(&a_);
  ASSERT_EQ(ToRts(c.qp, c.qp->qp_num), 0);
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 5, 0, 8, IBV_SEND_SIGNALED,
                 c.address(64), c.mr->rkey),
            0);
  ExpectSuccess(c.cq, 5);
  DestroySide(&c);
}

// --- ibv_modify_qp.

constexpr int kRtrMask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                         IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                         IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

TEST_F(ErrorTest, RtrWantsAGrh) {
  Side c;
  MakeSide(&c);
  ToInit(c.qp);
  const auto modify = [&](auto&& change, int mask = kRtrMask) {
    ibv_qp_attr attr = RtrAttributes(1);
    change(attr);
    const int error = ibv_modify_qp(c.qp, &attr, mask);
    EXPECT_EQ(StateOf(c.qp), error != 0 ? IBV_QPS_INIT : IBV_QPS_RTR);
    return error;
  };
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.ah_attr.is_global = 0; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.ah_attr.port_num = 2; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.ah_attr.grh.sgid_index = 200; }),
            EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.ah_attr.grh.dgid = {}; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) {  // IPv6 from an IPv4 address
              a.ah_attr.grh.dgid.raw[0] = 0xfd;
            }),
            EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.path_mtu = ibv_mtu(0); }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.path_mtu = ibv_mtu(77); }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.max_dest_rd_atomic = 255; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.min_rnr_timer = 32; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr&) {}, kRtrMask & ~IBV_QP_AV), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr&) {}, kRtrMask | IBV_QP_QKEY), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr&) {}, kRtrMask | (1 << 30)), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.qp_state = IBV_QPS_RTS; }), EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr& a) { a.qp_state = ibv_qp_state(99); }),
            EINVAL);
  EXPECT_EQ(modify([](ibv_qp_attr&) {}), 0);
  EXPECT_EQ(ibv_modify_qp(c.qp, nullptr, kRtrMask), EINVAL);
  DestroySide(&c);
}

TEST_F(ErrorTest, QueryReturnsTheAttributesSet) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(a_.qp, &attr, 0, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(a_.qp->state, IBV_QPS_RTS);
  EXPECT_EQ(attr.dest_qp_num, b_.qp->qp_num);
  EXPECT_EQ(attr.path_mtu, IBV_MTU_1024);
  EXPECT_EQ(attr.timeout, 14);
  EXPECT_EQ(attr.retry_cnt, 7);
  EXPECT_EQ(attr.rnr_retry, 7);
  EXPECT_EQ(attr.max_rd_atomic, 4);
  EXPECT_EQ(attr.port_num, 1);
  EXPECT_EQ(attr.ah_attr.is_global, 1);
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, gid_index_);
  EXPECT_EQ(std::memcmp(attr.ah_attr.grh.dgid.raw, gid_.raw, 16), 0);
  EXPECT_EQ(attr.qp_access_flags, static_cast<unsigned>(kAllAccess));
  EXPECT_EQ(init.send_cq, a_.cq);
  EXPECT_EQ(init.qp_type, IBV_QPT_RC);
  EXPECT_GE(init.cap.max_send_wr, 64u);
  EXPECT_GE(attr.cap.max_inline_data, 128u);
}

}  // namespace
}  // namespace conformance
