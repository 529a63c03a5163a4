// Thread domains and parent domains (manual pages ibv_alloc_td(3),
// ibv_alloc_parent_domain(3)).
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

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
    // Queue pairs of one domain with regions of the other.
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
  // Objects of the protection domain itself do not keep the parent domain in
  // use.
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
  ToRtsAsUd(a_.qp, 0);
  ASSERT_FALSE(HasFailure());
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
  attr.parent_domain = pd_;  // not a parent domain
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

// An allocator that counts its memory.
struct Allocator {
  enum class Way { kGives, kDefault, kNothing, kCrooked };

  static void* Allocate(ibv_pd* pd, void* context, size_t size,
                        size_t alignment, uint64_t type) {
    auto* self = static_cast<Allocator*>(context);
    EXPECT_EQ(pd, self->pd);
    EXPECT_GT(size, 0u);
    EXPECT_TRUE(std::has_single_bit(alignment));
    ++self->asked;
    switch (self->way) {
      case Way::kDefault:
        return IBV_ALLOCATOR_USE_DEFAULT;
      case Way::kNothing:
        return nullptr;
      case Way::kGives:
      case Way::kCrooked:
        break;
    }
    void* memory = nullptr;
    EXPECT_EQ(posix_memalign(&memory, alignment, size + 1), 0);
    std::memset(memory, 0xa5, size + 1);  // its memory need not be zero
    if (self->way == Way::kCrooked) memory = static_cast<char*>(memory) + 1;
    self->given[memory] = {size, type};
    return memory;
  }
  static void Free(ibv_pd* pd, void* context, void* memory, uint64_t type) {
    auto* self = static_cast<Allocator*>(context);
    EXPECT_EQ(pd, self->pd);
    const auto found = self->given.find(memory);
    ASSERT_NE(found, self->given.end());
    EXPECT_EQ(found->second.type, type);
    self->given.erase(found);
    if (self->way == Way::kCrooked) memory = static_cast<char*>(memory) - 1;
    free(memory);
  }
  bool Holds(uint64_t type) const {
    return std::any_of(given.begin(), given.end(), [type](const auto& entry) {
      return entry.second.type == type;
    });
  }

  struct Given {
    size_t size;
    uint64_t type;
  };
  ibv_pd* pd = nullptr;
  Way way = Way::kGives;
  int asked = 0;
  std::map<void*, Given> given;
};

// Resource types: docs/verbs.md.
constexpr uint64_t kOfQueuePair = 1;
constexpr uint64_t kOfCompletionQueue = 2;
constexpr uint64_t kOfSrq = 3;

class AllocatorTest : public ParentDomainTest {
 protected:
  void SetUp() override {
    ParentDomainTest::SetUp();
    ibv_parent_domain_init_attr attr = {};
    attr.pd = pd_;
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS |
                     IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    attr.alloc = Allocator::Allocate;
    attr.free = Allocator::Free;
    attr.pd_context = &allocator_;
    parent_ = ibv_alloc_parent_domain(context_, &attr);
    ASSERT_NE(parent_, nullptr) << std::strerror(errno);
    allocator_.pd = parent_;
    of_ = std::exchange(pd_, parent_);  // the domain for the sides
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    EXPECT_TRUE(allocator_.given.empty());
    EXPECT_EQ(ibv_dealloc_pd(parent_), 0);
    pd_ = of_;
    ParentDomainTest::TearDown();
  }
  // Uses each slot of the rings more than once.
  void ExpectTraffic(ibv_srq* srq = nullptr) {
    for (uint64_t i = 0; i < 200; ++i) {
      FillPattern(a_.memory.data(), 100, static_cast<uint32_t>(i));
      if (srq == nullptr) {
        ASSERT_EQ(Receive(b_, i, 0, 100), 0);
      } else {
        ibv_sge sge = b_.Sge(0, 100);
        ibv_recv_wr wr = {i, nullptr, &sge, 1};
        ibv_recv_wr* bad = nullptr;
        ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
      }
      const unsigned flags = i % 2 == 0 ? IBV_SEND_INLINE : 0;
      ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 100, IBV_SEND_SIGNALED | flags), 0);
      ExpectSuccess(a_.cq, i);
      ExpectSuccess(b_.cq, i);
      ASSERT_TRUE(HasPattern(b_.memory.data(), 100, static_cast<uint32_t>(i)));
    }
  }
  ibv_cq_ex* MakeCq(uint32_t cqe) {
    ibv_cq_init_attr_ex attr = {};
    attr.cqe = cqe;
    attr.wc_flags = IBV_WC_STANDARD_FLAGS;
    attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_PD;
    attr.parent_domain = parent_;
    return ibv_create_cq_ex(context_, &attr);
  }

  Allocator allocator_;
  ibv_pd* parent_ = nullptr;
  ibv_pd* of_ = nullptr;
};

TEST_F(AllocatorTest, QueuePairsAreInItsMemory) {
  MakeSide(&a_);
  MakeSide(&b_);
  EXPECT_EQ(allocator_.given.size(), 2u);
  EXPECT_TRUE(allocator_.Holds(kOfQueuePair));
  Connect(&a_, &b_);
  ExpectTraffic();
  DestroySide(&a_);
  EXPECT_EQ(allocator_.given.size(), 1u);
}

TEST_F(AllocatorTest, EveryTypeOfQueuePair) {
  for (const ibv_qp_type type : {IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    Side side;
    MakeSide(&side, {.type = type});
    EXPECT_EQ(allocator_.given.size(), 1u) << type;
    DestroySide(&side);
    EXPECT_TRUE(allocator_.given.empty());
  }
}

TEST_F(AllocatorTest, SharedReceiveQueuesAreInItsMemory) {
  ibv_srq_init_attr attr = {nullptr, {16, 2, 0}};
  ibv_srq* srq = ibv_create_srq(parent_, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_TRUE(allocator_.Holds(kOfSrq));
  MakeSide(&a_);
  MakeSide(&b_, {.srq = srq});
  Connect(&a_, &b_);
  ExpectTraffic(srq);
  ibv_srq_attr wider = {};
  wider.max_wr = 100;
  EXPECT_EQ(ibv_modify_srq(srq, &wider, IBV_SRQ_MAX_WR), 0);
  EXPECT_EQ(allocator_.given.size(), 3u);
  ExpectTraffic(srq);
  allocator_.way = Allocator::Way::kNothing;
  EXPECT_EQ(ibv_modify_srq(srq, &wider, IBV_SRQ_MAX_WR), ENOMEM);
  DestroySide(&b_);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_FALSE(allocator_.Holds(kOfSrq));
}

TEST_F(AllocatorTest, CompletionQueuesAreInItsMemory) {
  ibv_cq_ex* const cq = MakeCq(16);
  ASSERT_NE(cq, nullptr);
  EXPECT_TRUE(allocator_.Holds(kOfCompletionQueue));
  EXPECT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 100), 0);
  EXPECT_EQ(allocator_.given.size(), 1u);
  allocator_.way = Allocator::Way::kNothing;
  EXPECT_EQ(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 200), ENOMEM);
  EXPECT_EQ(ibv_dealloc_pd(parent_), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
  EXPECT_TRUE(allocator_.given.empty());
}

TEST_F(AllocatorTest, ItMayLeaveItToTheLibrary) {
  allocator_.way = Allocator::Way::kDefault;
  MakeSide(&a_);
  MakeSide(&b_);
  EXPECT_EQ(allocator_.asked, 2);
  Connect(&a_, &b_);
  ExpectTraffic();
  ibv_cq_ex* const cq = MakeCq(16);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(AllocatorTest, WithoutMemoryNothingIsMade) {
  ibv_cq* const cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr qp = {};
  qp.send_cq = qp.recv_cq = cq;
  qp.qp_type = IBV_QPT_RC;
  qp.cap = {4, 4, 1, 1, 0};
  ibv_srq_init_attr srq = {nullptr, {16, 2, 0}};
  for (const auto way : {Allocator::Way::kNothing, Allocator::Way::kCrooked}) {
    allocator_.way = way;
    errno = 0;
    EXPECT_EQ(ibv_create_qp(parent_, &qp), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(ibv_create_srq(parent_, &srq), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(MakeCq(16), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_TRUE(allocator_.given.empty());
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

TEST_F(ParentDomainTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(MakeParent(nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_td none = {context_};
  EXPECT_EQ(MakeParent(pd_, &none), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(MakeParent(pd_, nullptr, 1u << 31), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // Both allocator functions must be given.
  ibv_parent_domain_init_attr half = {};
  half.pd = pd_;
  half.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  half.free = [](ibv_pd*, void*, void*, uint64_t) {};
  errno = 0;
  EXPECT_EQ(ibv_alloc_parent_domain(context_, &half), nullptr);
  EXPECT_EQ(errno, EINVAL);
  // A context for the allocators alone has no effect.
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
