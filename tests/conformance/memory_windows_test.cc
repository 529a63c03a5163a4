// Memory windows: ibv_alloc_mw(3), ibv_bind_mw(3), IBV_WR_BIND_MW,
// IBV_WR_LOCAL_INV, IBV_WR_SEND_WITH_INV.
#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr int kRegionAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
constexpr unsigned kWindowAccess =
    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Peers may use `b_`'s region only through windows; `a_` is the peer.
class WindowTest : public PairTest {
 protected:
  WindowTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    if (!HasFatalFailure()) Make(IBV_QPT_RC);
  }
  void Make(ibv_qp_type type) {
    QpOptions options;
    options.type = type;
    options.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV |
                       IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
    MakeSide(&a_, options);
    MakeSide(&b_, options, 256, nullptr, kMemory, kRegionAccess);
    Connect(&a_, &b_);
  }
  void Again(ibv_qp_type type) {
    DestroySide(&a_);
    DestroySide(&b_);
    Make(type);
  }

  ibv_mw_bind_info Info(uint64_t offset, uint64_t length,
                        unsigned access = kWindowAccess) const {
    return {b_.mr, b_.address(offset), length, access};
  }
  // For type 1.
  int Bind(ibv_mw* mw, const ibv_mw_bind_info& info, uint64_t wr_id = 1) {
    ibv_mw_bind bind = {wr_id, IBV_SEND_SIGNALED, info};
    return ibv_bind_mw(b_.qp, mw, &bind);
  }
  // For type 2.
  static int PostBind(ibv_qp* qp, ibv_mw* mw, uint32_t rkey,
                      const ibv_mw_bind_info& info, uint64_t wr_id = 1) {
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.opcode = IBV_WR_BIND_MW;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.bind_mw.mw = mw;
    wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = info;
    ibv_send_wr* bad;
    return ibv_post_send(qp, &wr, &bad);
  }
  static int Invalidate(const Side& side, ibv_wr_opcode opcode, uint32_t rkey,
                        uint64_t wr_id = 2) {
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.invalidate_rkey = rkey;
    ibv_send_wr* bad;
    return ibv_post_send(side.qp, &wr, &bad);
  }
  // WRITEs 100 bytes of `from` and returns the status.
  ibv_wc_status Write(Side& from, uint64_t remote_addr, uint32_t rkey) {
    FillPattern(from.memory.data(), 100, 1);
    EXPECT_EQ(Send(from, IBV_WR_RDMA_WRITE, 9, 0, 100, IBV_SEND_SIGNALED,
                   remote_addr, rkey),
              0);
    return Next(from.cq).status;
  }
};

TEST_F(WindowTest, Type1) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  EXPECT_EQ(mw->pd, pd_);
  EXPECT_EQ(mw->type, IBV_MW_TYPE_1);
  const uint32_t first = mw->rkey;
  ASSERT_EQ(Bind(mw, Info(4096, 4096)), 0);
  EXPECT_NE(mw->rkey, first);
  EXPECT_EQ(mw->rkey >> 8, first >> 8);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).opcode, IBV_WC_BIND_MW);
  EXPECT_EQ(Write(a_, b_.address(4096), mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(a_, b_.address(8092), mw->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 8092, 100, 1));
  EXPECT_EQ(ibv_dereg_mr(b_.mr), EBUSY);
  EXPECT_EQ(ibv_rereg_mr(b_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         kAllAccess),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EBUSY);
  // Rebound to another range with another key.
  const uint32_t old = mw->rkey;
  ASSERT_EQ(Bind(mw, Info(65536, 100)), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(Write(a_, b_.address(65536), mw->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(a_, b_.address(65536), old), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WindowTest, Type1IsUnboundByZeroLength) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ASSERT_EQ(Bind(mw, Info(0, 4096)), 0);
  ExpectSuccess(b_.cq, 1);
  const uint32_t bound = mw->rkey;
  ASSERT_EQ(Bind(mw, {nullptr, 0, 0, 0}), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(Write(a_, b_.address(), bound), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WindowTest, BoundsRightsAndDomain) {
  struct Case {
    uint64_t offset;
    unsigned access;
    ibv_wr_opcode opcode;
    bool other_domain;
  };
  for (const Case& c :
       {Case{4095, kWindowAccess, IBV_WR_RDMA_WRITE, false},
        Case{4096 + 4096 - 99, kWindowAccess, IBV_WR_RDMA_WRITE, false},
        Case{4096, IBV_ACCESS_REMOTE_READ, IBV_WR_RDMA_WRITE, false},
        Case{4096, IBV_ACCESS_REMOTE_WRITE, IBV_WR_RDMA_READ, false},
        Case{4096, kWindowAccess, IBV_WR_RDMA_READ, true}}) {
    ibv_pd* pd = c.other_domain ? ibv_alloc_pd(context_) : pd_;
    ibv_mr* mr = c.other_domain
                     ? ibv_reg_mr(pd, b_.memory.data(), kMemory,
                                  static_cast<unsigned>(kRegionAccess))
                     : b_.mr;
    ibv_mw* mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    ASSERT_NE(mw, nullptr);
    const ibv_mw_bind_info info = {mr, b_.address(4096), 4096, c.access};
    ASSERT_EQ(Bind(mw, info), 0);
    if (c.other_domain) {
      ExpectStatus(b_.cq, 1, IBV_WC_MW_BIND_ERR);
    } else {
      ExpectSuccess(b_.cq, 1);
      ASSERT_EQ(Send(a_, c.opcode, 2, 0, 100, IBV_SEND_SIGNALED,
                     b_.address(c.offset), mw->rkey),
                0);
      ExpectStatus(a_.cq, 2, IBV_WC_REM_ACCESS_ERR);
    }
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    if (c.other_domain) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
      EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    }
    Again(IBV_QPT_RC);
  }
}

TEST_F(WindowTest, ZeroBased) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    ibv_mw* mw = ibv_alloc_mw(pd_, type);
    ASSERT_NE(mw, nullptr);
    const auto info = Info(8192, 200, kWindowAccess | IBV_ACCESS_ZERO_BASED);
    uint32_t rkey = ibv_inc_rkey(mw->rkey);
    if (type == IBV_MW_TYPE_1) {
      ASSERT_EQ(Bind(mw, info), 0);
      rkey = mw->rkey;
    } else {
      ASSERT_EQ(PostBind(b_.qp, mw, rkey, info), 0);
    }
    ExpectSuccess(b_.cq, 1);
    EXPECT_EQ(Write(a_, 100, rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(HasPattern(b_.memory.data() + 8292, 100, 1));
    EXPECT_EQ(Write(a_, 101, rkey), IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
    Again(IBV_QPT_RC);
  }
}

// A later SEND must not reach the peer before the binding is valid.
TEST_F(WindowTest, BoundInTheOrderOfTheQueue) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  uint32_t rkey = mw->rkey;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Receive(a_, 3, 0, 64), 0);
    rkey = ibv_inc_rkey(rkey);
    ASSERT_EQ(PostBind(b_.qp, mw, rkey, Info(4096, 100)), 0);
    EXPECT_EQ(mw->rkey, rkey);
    ASSERT_EQ(Send(b_, IBV_WR_SEND, 4, 0, 8), 0);
    ExpectSuccess(a_.cq, 3);
    ASSERT_EQ(Write(a_, b_.address(4096), rkey), IBV_WC_SUCCESS);
    ExpectSuccess(b_.cq, 1);
    ExpectSuccess(b_.cq, 4);
    ASSERT_EQ(Invalidate(b_, IBV_WR_LOCAL_INV, rkey), 0);
    ASSERT_EQ(ExpectSuccess(b_.cq, 2).opcode, IBV_WC_LOCAL_INV);
  }
  EXPECT_EQ(Write(a_, b_.address(4096), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WindowTest, InvalidatedFromAfar) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    if (type == IBV_QPT_UC) Again(type);
    ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
    ASSERT_NE(mw, nullptr);
    const uint32_t rkey = ibv_inc_rkey(mw->rkey);
    ASSERT_EQ(PostBind(b_.qp, mw, rkey, Info(0, 4096)), 0);
    ExpectSuccess(b_.cq, 1);
    EXPECT_EQ(ibv_dereg_mr(b_.mr), EBUSY);
    ASSERT_EQ(Receive(b_, 3, 0, 64), 0);
    ASSERT_EQ(Invalidate(a_, IBV_WR_SEND_WITH_INV, rkey), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 2).opcode, IBV_WC_SEND);
    const ibv_wc wc = ExpectSuccess(b_.cq, 3);
    EXPECT_EQ(wc.wc_flags, static_cast<unsigned>(IBV_WC_WITH_INV));
    EXPECT_EQ(wc.invalidated_rkey, rkey);
    // The window can be bound again.
    ASSERT_EQ(PostBind(b_.qp, mw, ibv_inc_rkey(rkey), Info(0, 4096)), 0);
    ExpectSuccess(b_.cq, 1);
    EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  }
}

TEST_F(WindowTest, Type2IsOneQueuePairs) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d);
  Connect(&c, &d);
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  ASSERT_EQ(PostBind(b_.qp, mw, mw->rkey, Info(0, 4096)), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(Write(a_, b_.address(), mw->rkey), IBV_WC_SUCCESS);
  // A queue pair of the same domain can neither use nor invalidate it.
  EXPECT_EQ(Write(c, b_.address(), mw->rkey), IBV_WC_REM_ACCESS_ERR);
  Side e;
  MakeSide(&e);
  ASSERT_EQ(ToRts(e.qp, e.qp->qp_num), 0);
  ASSERT_EQ(Invalidate(e, IBV_WR_LOCAL_INV, mw->rkey), 0);
  ExpectStatus(e.cq, 2, IBV_WC_MW_BIND_ERR);
  EXPECT_EQ(Write(a_, b_.address(), mw->rkey), IBV_WC_SUCCESS);
  // Windows end with their queue pair.
  DestroyQp(&b_);
  EXPECT_EQ(ibv_dereg_mr(b_.mr), 0);
  b_.mr = nullptr;
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  DestroySide(&c);
  DestroySide(&d);
  DestroySide(&e);
}

TEST_F(WindowTest, DeallocatingUnbinds) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const uint32_t rkey = mw->rkey;
  ASSERT_EQ(PostBind(b_.qp, mw, rkey, Info(0, 4096)), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(Write(a_, b_.address(), rkey), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(b_.mr), 0);
  b_.mr = nullptr;
}

TEST_F(WindowTest, InvalidBindings) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ibv_mw* other = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ibv_mr* null = ibv_alloc_null_mr(pd_);
  ASSERT_NE(mw, nullptr);
  ASSERT_NE(other, nullptr);
  // Detected when posting.
  ibv_mw_bind bind = {1, IBV_SEND_SIGNALED, Info(0, 64)};
  EXPECT_EQ(ibv_bind_mw(b_.qp, mw, &bind), EINVAL);
  EXPECT_EQ(PostBind(b_.qp, other, other->rkey, Info(0, 64)), EINVAL);
  EXPECT_EQ(PostBind(b_.qp, mw, mw->rkey, {null, 0, 64, 0}), EINVAL);
  errno = 0;
  EXPECT_EQ(ibv_alloc_mw(pd_, static_cast<ibv_mw_type>(3)), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  // Detected when the request is executed.
  const auto fails = [this](ibv_mw* window, const ibv_mw_bind_info& info) {
    ASSERT_EQ(PostBind(b_.qp, window, window->rkey, info), 0);
    ExpectStatus(b_.cq, 1, IBV_WC_MW_BIND_ERR);
    EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
    DestroyQp(&a_);
    DestroyQp(&b_);
    Side a, b;
    std::swap(a, a_);
    std::swap(b, b_);
    Make(IBV_QPT_RC);
    DestroySide(&a);
    DestroySide(&b);
  };
  fails(mw, Info(0, kMemory + 1));
  fails(mw, Info(0, 0));
  fails(mw, {a_.mr, a_.address(), 64, kWindowAccess});  // no IBV_ACCESS_MW_BIND
  ASSERT_EQ(PostBind(b_.qp, mw, mw->rkey, Info(0, 64)), 0);
  ExpectSuccess(b_.cq, 1);
  fails(mw, Info(0, 64));  // already bound
  EXPECT_EQ(ibv_dereg_mr(null), 0);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
  EXPECT_EQ(ibv_dealloc_mw(other), 0);
}

// The consumer chooses the lower 8 bits of a key, the device the others. The
// window shows its new key.
TEST_F(WindowTest, OnlyTheLowerBitsOfAKeyAreAskedFor) {
  ibv_mw* first = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ibv_mw* second = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  const uint32_t full = ibv_inc_rkey(first->rkey);
  ASSERT_EQ(PostBind(b_.qp, first, full, Info(0, 4096)), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(first->rkey, full);
  const uint32_t index = second->rkey & ~0xffu;
  const uint32_t low = (full ^ 2) & 0xff;
  ASSERT_EQ(PostBind(b_.qp, second, low, Info(4096, 4096)), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(second->rkey, index | low);
  EXPECT_EQ(Write(a_, b_.address(0), full), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(a_, b_.address(4096), second->rkey), IBV_WC_SUCCESS);
  ASSERT_EQ(Invalidate(b_, IBV_WR_LOCAL_INV, second->rkey), 0);
  ExpectSuccess(b_.cq, 2);
  ibv_qp_ex* b = ibv_qp_to_qp_ex(b_.qp);
  const ibv_mw_bind_info info = Info(4096, 4096);
  ibv_wr_start(b);
  b->wr_id = 3;
  b->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_bind_mw(b, second, full ^ 1, &info);
  ASSERT_EQ(ibv_wr_complete(b), 0);
  ExpectSuccess(b_.cq, 3);
  EXPECT_EQ(second->rkey, index | ((full ^ 1) & 0xff));
  EXPECT_EQ(Write(a_, b_.address(4096), second->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(Write(a_, b_.address(4096), index | low), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(first), 0);
  EXPECT_EQ(ibv_dealloc_mw(second), 0);
}

// The window's key changes only when a bind was posted.
TEST_F(WindowTest, NothingPostedChangesNoKey) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const uint32_t before = mw->rkey;
  const uint32_t rkey = ibv_inc_rkey(before);
  const ibv_mw_bind_info info = Info(0, 4096);
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = 1u << 20;  // an unknown flag
  wr.bind_mw.mw = mw;
  wr.bind_mw.rkey = rkey;
  wr.bind_mw.bind_info = info;
  EXPECT_EQ(ibv_post_send(b_.qp, &wr, &bad), EINVAL);
  EXPECT_EQ(mw->rkey, before);

  ibv_qp_ex* b = ibv_qp_to_qp_ex(b_.qp);
  ibv_wr_start(b);
  ibv_wr_bind_mw(b, mw, rkey, &info);
  ibv_wr_abort(b);
  EXPECT_EQ(mw->rkey, before);
  // All requests are posted or none.
  ibv_wr_start(b);
  ibv_wr_bind_mw(b, mw, rkey, &info);
  ibv_wr_bind_mw(b, nullptr, rkey, &info);
  EXPECT_EQ(ibv_wr_complete(b), EINVAL);
  EXPECT_EQ(mw->rkey, before);

  ibv_qp_attr reset = {};
  reset.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(b_.qp, &reset, IBV_QP_STATE), 0);
  EXPECT_EQ(PostBind(b_.qp, mw, rkey, info), EINVAL);
  EXPECT_EQ(mw->rkey, before);
  ibv_wr_start(b);
  ibv_wr_bind_mw(b, mw, rkey, &info);
  EXPECT_EQ(ibv_wr_complete(b), EINVAL);
  EXPECT_EQ(mw->rkey, before);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST_F(WindowTest, ByTheExtendedInterface) {
  ibv_mw* mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const uint32_t rkey = ibv_inc_rkey(mw->rkey);
  ibv_qp_ex* b = ibv_qp_to_qp_ex(b_.qp);
  ibv_qp_ex* a = ibv_qp_to_qp_ex(a_.qp);
  const ibv_mw_bind_info info = Info(0, 4096);
  ibv_wr_start(b);
  b->wr_id = 1;
  b->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_bind_mw(b, mw, rkey, &info);
  ASSERT_EQ(ibv_wr_complete(b), 0);
  ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(Write(a_, b_.address(), rkey), IBV_WC_SUCCESS);
  ibv_wr_start(b);
  b->wr_id = 2;
  ibv_wr_local_inv(b, rkey);
  b->wr_id = 3;
  ibv_wr_bind_mw(b, mw, rkey ^ 1, &info);
  ASSERT_EQ(ibv_wr_complete(b), 0);
  ExpectSuccess(b_.cq, 2);
  ExpectSuccess(b_.cq, 3);
  ASSERT_EQ(Receive(b_, 4, 0, 64), 0);
  ibv_wr_start(a);
  a->wr_id = 5;
  a->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_inv(a, rkey ^ 1);
  ibv_wr_set_sge(a, a_.mr->lkey, a_.address(), 8);
  ASSERT_EQ(ibv_wr_complete(a), 0);
  ExpectSuccess(a_.cq, 5);
  EXPECT_EQ(ExpectSuccess(b_.cq, 4).invalidated_rkey, rkey ^ 1);
  // None of these operations has data.
  ibv_wr_start(b);
  ibv_wr_local_inv(b, rkey);
  ibv_wr_set_sge(b, b_.mr->lkey, b_.address(), 8);
  EXPECT_EQ(ibv_wr_complete(b), EINVAL);
  ibv_wr_start(b);
  ibv_wr_bind_mw(b, nullptr, rkey, &info);
  EXPECT_EQ(ibv_wr_complete(b), EINVAL);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

}  // namespace
}  // namespace conformance
