// Thread domains and parent domains (manual pages ibv_alloc_td(3),
// ibv_alloc_parent_domain(3)).
#include <cerrno>
#include <cstring>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ParentDomainTest : public PairTest {
 protected:
  ParentDomainTest() { make_pair_ = false; }

  ibv_td* MakeTd() {
    ibv_td_init_attr attr = {};
    return ibv_alloc_td(context_, &attr);
  }
  ibv_pd* MakeParent(ibv_pd* pd, ibv_td* td, uint32_t comp_mask = 0) {
    ibv_parent_domain_init_attr attr = {};
    attr.pd = pd;
    attr.td = td;
    attr.comp_mask = comp_mask;
    attr.alloc = [](ibv_pd*, void*, size_t, size_t, uint64_t) {
      return IBV_ALLOCATOR_USE_DEFAULT;
    };
    attr.free = [](ibv_pd*, void*, void*, uint64_t) {};
    errno = 0;
    return ibv_alloc_parent_domain(context_, &attr);
  }
};

// "A parent domain is completely interchangeable with the struct ibv_pd used
// to create it."
TEST_F(ParentDomainTest, IsTheProtectionDomainThatItWasMadeOf) {
  for (const bool with_td : {false, true}) {
    ibv_td* td = with_td ? MakeTd() : nullptr;
    ASSERT_EQ(td != nullptr, with_td);
    ibv_pd* const pd = pd_;
    ibv_pd* parent = MakeParent(pd, td);
    ASSERT_NE(parent, nullptr) << std::strerror(errno);
    // Queue pairs of the one, regions of the other.
    pd_ = parent;
    MakeSide(&a_);
    MakeSide(&b_);
    Connect(&a_, &b_);
    for (Side* side : {&a_, &b_}) {
      ASSERT_EQ(ibv_dereg_mr(side->mr), 0);
      side->mr = ibv_reg_mr(pd, side->memory.data(), kMemory, kAllAccess);
      ASSERT_NE(side->mr, nullptr);
    }
    pd_ = pd;
    ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 64), 0);
    ExpectSuccess(a_.cq, 2);
    ExpectSuccess(b_.cq, 1);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 3, 0, 64, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, 3);
    DestroySide(&a_);
    DestroySide(&b_);
    EXPECT_EQ(ibv_dealloc_pd(parent), 0);
    if (td != nullptr) {
      EXPECT_EQ(ibv_dealloc_td(td), 0);
    }
  }
}

TEST_F(ParentDomainTest, StaysAsLongAsItIsUsed) {
  ibv_td* td = MakeTd();
  ASSERT_NE(td, nullptr);
  ibv_pd* parent = MakeParent(pd_, td);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  uint8_t memory[64];
  ibv_mr* mr = ibv_reg_mr(parent, memory, sizeof(memory), 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  // What was made with the protection domain itself does not hold it.
  mr = ibv_reg_mr(pd_, memory, sizeof(memory), 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(ParentDomainTest, AnAddressOfTheOneIsGoodForTheOther) {
  ibv_pd* parent = MakeParent(pd_, nullptr);
  ASSERT_NE(parent, nullptr);
  MakeSide(&a_, {.type = IBV_QPT_UD});
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  ASSERT_EQ(ibv_modify_qp(
                a_.qp, &attr,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
  ibv_ah_attr to = RtrAttributes(0).ah_attr;
  ibv_ah* ah = ibv_create_ah(parent, &to);
  ASSERT_NE(ah, nullptr);
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = {};
  wr.wr_id = 5;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.ud.ah = ah;
  wr.wr.ud.remote_qpn = a_.qp->qp_num;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectSuccess(a_.cq, 5);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
}

TEST_F(ParentDomainTest, CompletionQueues) {
  ibv_td* td = MakeTd();
  ASSERT_NE(td, nullptr);
  ibv_pd* parent = MakeParent(pd_, td);
  ASSERT_NE(parent, nullptr);
  ibv_cq_init_attr_ex attr = {};
  attr.cqe = 16;
  attr.wc_flags = IBV_WC_STANDARD_FLAGS;
  attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
  attr.parent_domain = pd_;  // is none
  errno = 0;
  EXPECT_EQ(ibv_create_cq_ex(context_, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.parent_domain = parent;
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &attr);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), EBUSY);
  ibv_poll_cq_attr poll = {};
  EXPECT_EQ(ibv_start_poll(cq, &poll), ENOENT);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST_F(ParentDomainTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(MakeParent(nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_td none = {context_};
  EXPECT_EQ(MakeParent(pd_, &none), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(MakeParent(pd_, nullptr, 1u << 31), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // There is no memory that a device would read, and so nothing to allocate.
  EXPECT_EQ(MakeParent(pd_, nullptr, IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS),
            nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  // The allocators' context alone says nothing.
  ibv_pd* parent =
      MakeParent(pd_, nullptr, IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT);
  ASSERT_NE(parent, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(parent), 0);
  ibv_td_init_attr attr = {};
  attr.comp_mask = 1;
  EXPECT_EQ(ibv_alloc_td(context_, &attr), nullptr);
  EXPECT_EQ(ibv_dealloc_td(&none), EINVAL);
}

}  // namespace
}  // namespace conformance
