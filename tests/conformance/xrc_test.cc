// Extended reliable connections: domains, SRQs, both kinds of queue pairs,
// every operation (manual pages ibv_open_xrcd(3), ibv_create_srq_ex(3),
// ibv_get_srq_num(3), ibv_create_qp_ex(3), ibv_open_qp(3), ibv_wr_post(3),
// ibv_post_send(3)).
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// `a_` sends. `b_` has the target memory; its queue pair is an XRC target, and
// its CQ is that of its first SRQ.
class XrcTest : public PairTest {
 protected:
  XrcTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    MakeSide(&a_, {.type = IBV_QPT_XRC_SEND});
    MakeSide(&b_);
    DestroyQp(&b_);
    xrcd_ = Open(-1, O_CREAT);
    ASSERT_NE(xrcd_, nullptr) << std::strerror(errno);
    srq_ = MakeSrq(b_.cq);
    ASSERT_NE(srq_, nullptr) << std::strerror(errno);
    b_.qp = MakeTarget(xrcd_);
    ASSERT_NE(b_.qp, nullptr) << std::strerror(errno);
    Connect(&a_, &b_);
  }
  void TearDown() override {
    DestroyQp(&b_);
    if (srq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    }
    if (xrcd_ != nullptr) {
      EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
    }
    PairTest::TearDown();
  }

  ibv_xrcd* Open(int fd, int oflags) {
    ibv_xrcd_init_attr attr = {};
    attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    attr.fd = fd;
    attr.oflags = oflags;
    errno = 0;
    return ibv_open_xrcd(context_, &attr);
  }
  ibv_srq* MakeSrq(ibv_cq* cq, ibv_pd* pd = nullptr) {
    ibv_srq_init_attr_ex attr = {};
    attr.attr = {64, 4, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd != nullptr ? pd : pd_;
    attr.xrcd = xrcd_;
    attr.cq = cq;
    return ibv_create_srq_ex(context_, &attr);
  }
  ibv_qp* MakeTarget(ibv_xrcd* xrcd) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_XRC_RECV;
    attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
    attr.xrcd = xrcd;
    return ibv_create_qp_ex(context_, &attr);
  }
  ibv_qp* OpenQp(uint32_t number, ibv_xrcd* xrcd,
                 ibv_qp_type type = IBV_QPT_XRC_RECV) {
    ibv_qp_open_attr attr = {};
    attr.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD |
                     IBV_QP_OPEN_ATTR_CONTEXT | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = number;
    attr.xrcd = xrcd;
    attr.qp_context = &attr;
    attr.qp_type = type;
    errno = 0;
    ibv_qp* qp = ibv_open_qp(context_, &attr);
    if (qp != nullptr) {
      EXPECT_EQ(qp->qp_context, &attr);
    }
    return qp;
  }
  static uint32_t NumberOf(ibv_srq* srq) {
    uint32_t number = 0;
    EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
    return number;
  }
  int PostTo(ibv_srq* srq, uint64_t wr_id, size_t offset, uint32_t length) {
    ibv_sge sge = b_.Sge(offset, length);
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = length == 0 ? 0 : 1;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }
  // A request of `a_` for `srqn`, with the start of `b_`'s memory as remote
  // address.
  ibv_send_wr Request(ibv_wr_opcode opcode, uint64_t wr_id, uint32_t srqn) {
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.opcode = opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = b_.address();
    wr.wr.rdma.rkey = b_.mr->rkey;
    wr.qp_type.xrc.remote_srqn = srqn;
    return wr;
  }
  int Post(ibv_send_wr wr, uint32_t length) {
    ibv_sge sge = a_.Sge(0, length);
    wr.sg_list = &sge;
    wr.num_sge = length == 0 ? 0 : 1;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(a_.qp, &wr, &bad);
  }
  int Post(ibv_wr_opcode opcode, uint64_t wr_id, uint32_t length,
           ibv_srq* srq) {
    return Post(Request(opcode, wr_id, NumberOf(srq)), length);
  }
  ibv_async_event NextAsync() {
    pollfd p = {context_->async_fd, POLLIN, 0};
    ibv_async_event event = {};
    if (poll(&p, 1, kTimeoutMs) != 1) {
      ADD_FAILURE() << "no event";
      return event;
    }
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event;
  }

  static constexpr size_t kReceives = 1 << 19;  // offset of receives
  static constexpr uint32_t kSizes[] = {1, 7, 1023, 1024, 1025, 4096, 20001};

  ibv_xrcd* xrcd_ = nullptr;
  ibv_srq* srq_ = nullptr;
};

// --- Operations.

TEST_F(XrcTest, SendArrives) {
  for (const ibv_wr_opcode opcode : {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM}) {
    for (const uint32_t size : kSizes) {
      FillPattern(a_.memory.data(), size, size + opcode);
      ASSERT_EQ(PostTo(srq_, size, kReceives, 65536), 0);
      ibv_send_wr wr = Request(opcode, 1, NumberOf(srq_));
      wr.imm_data = 0x01020300 + size;
      ASSERT_EQ(Post(wr, size), 0);
      EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_SEND);
      const ibv_wc wc = ExpectSuccess(b_.cq, size);
      EXPECT_EQ(wc.opcode, IBV_WC_RECV);
      EXPECT_EQ(wc.byte_len, size);
      EXPECT_EQ(wc.qp_num, b_.qp->qp_num);
      if (opcode == IBV_WR_SEND_WITH_IMM) {
        EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_WITH_IMM});
        EXPECT_EQ(wc.imm_data, wr.imm_data);
      }
      EXPECT_TRUE(
          HasPattern(b_.memory.data() + kReceives, size, size + opcode));
    }
  }
}

TEST_F(XrcTest, WriteAndReadArrive) {
  for (const uint32_t size : kSizes) {
    FillPattern(a_.memory.data(), size, size);
    ASSERT_EQ(PostTo(srq_, 5, 0, 0), 0);
    ibv_send_wr wr = Request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, NumberOf(srq_));
    wr.imm_data = size;
    ASSERT_EQ(Post(wr, size), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_RDMA_WRITE);
    const ibv_wc wc = ExpectSuccess(b_.cq, 5);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
    EXPECT_EQ(wc.imm_data, size);
    EXPECT_TRUE(HasPattern(b_.memory.data(), size, size)) << size;
    ASSERT_EQ(Post(IBV_WR_RDMA_WRITE, 2, 1, srq_), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 2).opcode, IBV_WC_RDMA_WRITE);
    FillPattern(b_.memory.data(), size, size + 1);
    ASSERT_EQ(Post(IBV_WR_RDMA_READ, 3, size, srq_), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 3).opcode, IBV_WC_RDMA_READ);
    EXPECT_TRUE(HasPattern(a_.memory.data(), size, size + 1)) << size;
  }
}

TEST_F(XrcTest, AtomicsAreExecuted) {
  const uint64_t before = 40;
  std::memcpy(b_.memory.data(), &before, sizeof(before));
  ibv_send_wr add = Request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, NumberOf(srq_));
  add.wr.atomic.remote_addr = b_.address();
  add.wr.atomic.rkey = b_.mr->rkey;
  add.wr.atomic.compare_add = 2;
  ASSERT_EQ(Post(add, 8), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_FETCH_ADD);
  uint64_t found;
  std::memcpy(&found, a_.memory.data(), sizeof(found));
  EXPECT_EQ(found, 40u);
  ibv_send_wr swap = add;
  swap.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
  swap.wr.atomic.compare_add = 42;
  swap.wr.atomic.swap = 7;
  ASSERT_EQ(Post(swap, 8), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_COMP_SWAP);
  std::memcpy(&found, b_.memory.data(), sizeof(found));
  EXPECT_EQ(found, 7u);
}

TEST_F(XrcTest, WorkBuilderNamesTheSrq) {
  DestroyQp(&a_);
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = a_.cq;
  attr.cap = {16, 0, 4, 0, 64};
  attr.qp_type = IBV_QPT_XRC_SEND;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_;
  attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  a_.qp = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(a_.qp, nullptr);
  DestroyQp(&b_);
  b_.qp = MakeTarget(xrcd_);
  ASSERT_NE(b_.qp, nullptr);
  Connect(&a_, &b_);
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a_.qp);
  ASSERT_EQ(PostTo(srq_, 1, kReceives, 64), 0);
  FillPattern(a_.memory.data(), 64, 3);
  ibv_wr_start(ex);
  ex->wr_id = 11;
  ex->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(ex);
  ibv_wr_set_xrc_srqn(ex, NumberOf(srq_));
  ibv_wr_set_sge(ex, a_.mr->lkey, a_.address(), 64);
  ex->wr_id = 12;
  ibv_wr_rdma_read(ex, b_.mr->rkey, b_.address(kReceives));
  ibv_wr_set_xrc_srqn(ex, NumberOf(srq_));
  ibv_wr_set_sge(ex, a_.mr->lkey, a_.address(1000), 64);
  ASSERT_EQ(ibv_wr_complete(ex), 0);
  ExpectSuccess(a_.cq, 11);
  ExpectSuccess(a_.cq, 12);
  ExpectSuccess(b_.cq, 1);
  EXPECT_TRUE(HasPattern(a_.memory.data() + 1000, 64, 3));
  // "ibv_wr_set_xrc_srqn() must be called".
  ibv_wr_start(ex);
  ibv_wr_send(ex);
  ibv_wr_set_sge(ex, a_.mr->lkey, a_.address(), 64);
  EXPECT_EQ(ibv_wr_complete(ex), EINVAL);
}

// --- SRQs.

TEST_F(XrcTest, EachSrqHasAProtectionDomainAndCompletionsOfItsOwn) {
  ibv_pd* pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_srq* other = MakeSrq(cq, pd);
  ASSERT_NE(other, nullptr);
  EXPECT_NE(NumberOf(other), NumberOf(srq_));
  EXPECT_EQ(ibv_destroy_cq(cq), EBUSY);
  ibv_mr* const mine = b_.mr;
  b_.mr = ibv_reg_mr(pd, b_.memory.data(), kMemory, kAllAccess);
  ASSERT_NE(b_.mr, nullptr);
  ASSERT_EQ(PostTo(other, 7, kReceives, 100), 0);
  ASSERT_EQ(Post(IBV_WR_SEND, 1, 30, other), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ExpectSuccess(cq, 7).byte_len, 30u);
  ExpectNothing(b_.cq);
  // The R_Key is valid with this SRQ only.
  ASSERT_EQ(Post(IBV_WR_RDMA_WRITE, 2, 30, other), 0);
  ExpectSuccess(a_.cq, 2);
  ASSERT_EQ(Post(IBV_WR_RDMA_WRITE, 3, 30, srq_), 0);
  ExpectStatus(a_.cq, 3, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(b_.mr), 0);
  b_.mr = mine;
  EXPECT_EQ(ibv_destroy_srq(other), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(XrcTest, AnSrqThatIsGoneIsAnInvalidRequest) {
  ibv_srq* other = MakeSrq(b_.cq);
  ASSERT_NE(other, nullptr);
  const uint32_t number = NumberOf(other);
  EXPECT_EQ(ibv_destroy_srq(other), 0);
  ASSERT_EQ(Post(Request(IBV_WR_SEND, 1, number), 8), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(NextAsync().event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
  EXPECT_EQ(NextAsync().event_type, IBV_EVENT_QP_REQ_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
}

// A receive is outstanding until its completion has been polled. Its SRQ may be
// destroyed before that.
TEST_F(XrcTest, AReceiveHoldsItsPlaceUntilItIsPolled) {
  ibv_srq* other = MakeSrq(b_.cq);
  ASSERT_NE(other, nullptr);
  const auto fill = [&](ibv_srq* srq) {
    int posted = 0;
    while (PostTo(srq, 50, kReceives, 64) == 0) ++posted;
    return posted;
  };
  ASSERT_EQ(fill(srq_), 64);
  ASSERT_EQ(PostTo(other, 51, kReceives, 64), 0);
  for (ibv_srq* srq : {srq_, other}) {
    ASSERT_EQ(Post(IBV_WR_SEND, 1, 8, srq), 0);
    ExpectSuccess(a_.cq, 1);
  }
  EXPECT_EQ(fill(srq_), 0);
  EXPECT_EQ(ibv_destroy_srq(other), 0);
  ExpectSuccess(b_.cq, 50);
  EXPECT_EQ(fill(srq_), 1);
  ExpectSuccess(b_.cq, 51);
  EXPECT_EQ(fill(srq_), 0);
  // Completions of a target can be polled after it was destroyed.
  ASSERT_EQ(Post(IBV_WR_SEND, 1, 8, srq_), 0);
  ExpectSuccess(a_.cq, 1);
  DestroyQp(&b_);
  EXPECT_EQ(fill(srq_), 0);
  ExpectSuccess(b_.cq, 50);
  EXPECT_EQ(fill(srq_), 1);
}

TEST_F(XrcTest, LimitEvent) {
  ASSERT_EQ(PostTo(srq_, 1, kReceives, 64), 0);
  ASSERT_EQ(PostTo(srq_, 2, kReceives, 64), 0);
  ibv_srq_attr limit = {};
  limit.srq_limit = 2;
  ASSERT_EQ(ibv_modify_srq(srq_, &limit, IBV_SRQ_LIMIT), 0);
  ASSERT_EQ(Post(IBV_WR_SEND, 1, 8, srq_), 0);
  ExpectSuccess(b_.cq, 1);
  const ibv_async_event event = NextAsync();
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq_);
  ExpectSuccess(a_.cq, 1);
}

TEST_F(XrcTest, WrongSrqsAreRefused) {
  ibv_srq_init_attr_ex attr = {};
  attr.attr = {4, 1, 0};
  attr.srq_type = IBV_SRQT_XRC;
  attr.pd = pd_;
  attr.xrcd = xrcd_;
  attr.cq = b_.cq;
  constexpr uint32_t kAll = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                            IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  for (const uint32_t without :
       {IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_XRCD, IBV_SRQ_INIT_ATTR_CQ}) {
    attr.comp_mask = kAll & ~without;
    errno = 0;
    EXPECT_EQ(ibv_create_srq_ex(context_, &attr), nullptr) << without;
    EXPECT_EQ(errno, EINVAL);
  }
  // A basic SRQ has no number and cannot be used with XRC.
  ibv_srq_init_attr basic = {};
  basic.attr = {4, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &basic);
  ASSERT_NE(srq, nullptr);
  uint32_t number;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  // An XRC SRQ cannot be used with RC.
  ibv_qp_init_attr rc = {};
  rc.send_cq = rc.recv_cq = a_.cq;
  rc.srq = srq_;
  rc.qp_type = IBV_QPT_RC;
  EXPECT_EQ(ibv_create_qp(pd_, &rc), nullptr);
}

// --- Domains.

TEST_F(XrcTest, ADomainStaysAsLongAsItIsUsed) {
  EXPECT_EQ(ibv_close_xrcd(xrcd_), EBUSY);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_close_xrcd(xrcd_), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(srq_), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd_), 0);
  srq_ = nullptr;
  xrcd_ = nullptr;
}

TEST_F(XrcTest, InvalidDomainsAreRefused) {
  ibv_xrcd none = {context_};
  EXPECT_EQ(ibv_close_xrcd(&none), EINVAL);
  EXPECT_EQ(MakeTarget(&none), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, DomainsByFile) {
  char name[] = "/tmp/xrcd.XXXXXX";
  const int file = mkstemp(name);
  ASSERT_GE(file, 0);
  const int same = open(name, O_RDONLY | O_CLOEXEC);
  unlink(name);
  EXPECT_EQ(Open(-1, 0), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Open(same, 0), nullptr);  // it does not exist yet
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(Open(12345, O_CREAT), nullptr);
  EXPECT_EQ(errno, EBADF);
  EXPECT_EQ(Open(file, O_RDWR | O_CREAT), nullptr);  // an invalid flag
  EXPECT_EQ(errno, EINVAL);
  ibv_xrcd* first = Open(file, O_CREAT | O_EXCL);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Open(same, O_CREAT | O_EXCL), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_xrcd* second = Open(same, 0);
  ASSERT_NE(second, nullptr);
  // Both handles are of one domain: objects created through one of them are
  // found through the other.
  ibv_qp* qp = MakeTarget(first);
  ASSERT_NE(qp, nullptr);
  ibv_qp* opened = OpenQp(qp->qp_num, second);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(ibv_close_xrcd(second), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(opened), 0);
  EXPECT_EQ(ibv_close_xrcd(second), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_close_xrcd(first), 0);
  // The domain ends with its last handle.
  EXPECT_EQ(Open(same, 0), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  close(file);
  close(same);
}

// A second context of the same device that opens the domain of a file and has
// an SRQ in it, like another user of the domain.
struct OtherUser {
  OtherUser(ibv_device* device, int file) : memory(4096) {
    context = ibv_open_device(device);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    static_cast<unsigned>(kAllAccess));
    ibv_xrcd_init_attr domain = {};
    domain.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    domain.fd = file;
    xrcd = ibv_open_xrcd(context, &domain);
    if (xrcd == nullptr) return;
    ibv_srq_init_attr_ex attr = {};
    attr.attr = {16, 1, 0};
    attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
                     IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    attr.srq_type = IBV_SRQT_XRC;
    attr.pd = pd;
    attr.xrcd = xrcd;
    attr.cq = cq;
    srq = ibv_create_srq_ex(context, &attr);
  }
  ~OtherUser() {
    if (qp != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(qp), 0);
    }
    if (srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq), 0);
    }
    if (xrcd != nullptr) {
      EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
    }
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  void Open(uint32_t qpn) {
    ibv_qp_open_attr attr = {};
    attr.comp_mask =
        IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
    attr.qp_num = qpn;
    attr.xrcd = xrcd;
    attr.qp_type = IBV_QPT_XRC_RECV;
    qp = ibv_open_qp(context, &attr);
  }
  int Receive(uint64_t wr_id) {
    ibv_sge sge = {reinterpret_cast<uint64_t>(memory.data()), 1024, mr->lkey};
    ibv_recv_wr wr = {wr_id, nullptr, &sge, 1};
    ibv_recv_wr* bad = nullptr;
    return ibv_post_srq_recv(srq, &wr, &bad);
  }

  std::vector<uint8_t> memory;
  ibv_context* context;
  ibv_pd* pd;
  ibv_cq* cq;
  ibv_mr* mr;
  ibv_xrcd* xrcd = nullptr;
  ibv_srq* srq = nullptr;
  ibv_qp* qp = nullptr;
};

TEST_F(XrcTest, OneDomainInSeveralContexts) {
  char name[] = "/tmp/xrcd.XXXXXX";
  const int file = mkstemp(name);
  ASSERT_GE(file, 0);
  unlink(name);
  ibv_xrcd* const here = Open(file, O_CREAT);
  ASSERT_NE(here, nullptr);
  OtherUser other(context_->device, file);
  ASSERT_NE(other.xrcd, nullptr) << std::strerror(errno);
  ASSERT_NE(other.srq, nullptr) << std::strerror(errno);
  // Another connection, whose target is created here.
  DestroyQp(&b_);
  DestroySide(&a_);
  MakeSide(&a_, {.type = IBV_QPT_XRC_SEND});
  b_.qp = MakeTarget(here);
  ASSERT_NE(b_.qp, nullptr);
  Connect(&a_, &b_);

  const auto send_to_other = [&](uint32_t seed) {
    FillPattern(a_.memory.data(), 1000, seed);
    ASSERT_EQ(other.Receive(seed), 0);
    ASSERT_EQ(Post(IBV_WR_SEND, seed, 1000, other.srq), 0);
    ExpectSuccess(a_.cq, seed);
    const ibv_wc wc = ExpectSuccess(other.cq, seed);
    EXPECT_EQ(wc.byte_len, 1000u);
    EXPECT_TRUE(HasPattern(other.memory.data(), 1000, seed));
  };
  send_to_other(1);
  ibv_send_wr write = Request(IBV_WR_RDMA_WRITE, 2, NumberOf(other.srq));
  write.wr.rdma.remote_addr =
      reinterpret_cast<uint64_t>(other.memory.data()) + 2048;
  write.wr.rdma.rkey = other.mr->rkey;
  ASSERT_EQ(Post(write, 1000), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(other.memory.data() + 2048, 1000, 1));

  // The connection continues after the creator of domain and target has closed
  // both.
  other.Open(b_.qp->qp_num);
  ASSERT_NE(other.qp, nullptr) << std::strerror(errno);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_close_xrcd(here), 0);
  send_to_other(3);

  // Only keys of the SRQ's protection domain are valid.
  write.wr.rdma.remote_addr = b_.address();
  write.wr.rdma.rkey = b_.mr->rkey;
  write.wr_id = 4;
  ASSERT_EQ(Post(write, 8), 0);
  ExpectStatus(a_.cq, 4, IBV_WC_REM_ACCESS_ERR);
  close(file);
}

// --- Queue pairs.

TEST_F(XrcTest, AnOpenedQueuePairIsTheSame) {
  ibv_qp* opened = OpenQp(b_.qp->qp_num, xrcd_);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->qp_num, b_.qp->qp_num);
  EXPECT_EQ(opened->state, IBV_QPS_RTS);
  EXPECT_EQ(opened->qp_type, IBV_QPT_XRC_RECV);
  EXPECT_EQ(StateOf(opened), IBV_QPS_RTS);
  // The target continues after its first handle was destroyed.
  DestroyQp(&b_);
  ASSERT_EQ(PostTo(srq_, 1, kReceives, 64), 0);
  ASSERT_EQ(Post(IBV_WR_SEND, 1, 8, srq_), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 1);
  const uint32_t number = opened->qp_num;
  EXPECT_EQ(ibv_destroy_qp(opened), 0);
  EXPECT_EQ(OpenQp(number, xrcd_), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(XrcTest, OpeningFindsNothingElse) {
  EXPECT_EQ(OpenQp(a_.qp->qp_num, xrcd_), nullptr);
  EXPECT_EQ(OpenQp(b_.qp->qp_num, xrcd_, IBV_QPT_XRC_SEND), nullptr);
  ibv_xrcd* other = Open(-1, O_CREAT);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(OpenQp(b_.qp->qp_num, other), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_xrcd(other), 0);
}

TEST_F(XrcTest, EventsGoToEachHandle) {
  ibv_qp* opened = OpenQp(b_.qp->qp_num, xrcd_);
  ASSERT_NE(opened, nullptr);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(opened, &attr, IBV_QP_STATE), 0);
  ibv_qp* told[2];
  for (ibv_qp*& qp : told) {
    const ibv_async_event event = NextAsync();
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    qp = event.element.qp;
  }
  EXPECT_EQ(told[0], b_.qp);
  EXPECT_EQ(told[1], opened);
  EXPECT_EQ(ibv_destroy_qp(opened), 0);
}

TEST_F(XrcTest, UnsupportedOperationsOfATypeAreRefused) {
  ibv_recv_wr receive = {};
  ibv_recv_wr* bad_receive = nullptr;
  EXPECT_EQ(ibv_post_recv(a_.qp, &receive, &bad_receive), EINVAL);
  EXPECT_EQ(ibv_post_recv(b_.qp, &receive, &bad_receive), EINVAL);
  ibv_send_wr send = {};
  send.opcode = IBV_WR_SEND;
  ibv_send_wr* bad_send = nullptr;
  EXPECT_EQ(ibv_post_send(b_.qp, &send, &bad_send), EINVAL);
  // A target needs an XRC domain, an initiator a PD.
  ibv_qp_init_attr plain = {};
  plain.send_cq = plain.recv_cq = a_.cq;
  plain.qp_type = IBV_QPT_XRC_RECV;
  EXPECT_EQ(ibv_create_qp(pd_, &plain), nullptr);
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = a_.cq;
  attr.qp_type = IBV_QPT_XRC_SEND;
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = xrcd_;
  EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
}

TEST_F(XrcTest, TheDeviceSaysSo) {
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_XRC, 0u);
}

TEST_F(XrcTest, ManyMessagesBothWays) {
  Side c = {};
  MakeSide(&c, {.type = IBV_QPT_XRC_SEND});
  ibv_qp* target = MakeTarget(xrcd_);
  ASSERT_NE(target, nullptr);
  ASSERT_EQ(ToRts(c.qp, target->qp_num), 0);
  ASSERT_EQ(ToRts(target, c.qp->qp_num), 0);
  constexpr uint64_t kRounds = 200;
  for (uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_EQ(PostTo(srq_, 2 * i, kReceives, 8192), 0);
    ASSERT_EQ(PostTo(srq_, 2 * i + 1, kReceives, 8192), 0);
    ASSERT_EQ(Post(IBV_WR_SEND, i, 3000, srq_), 0);
    std::swap(a_.qp, c.qp);
    ASSERT_EQ(Post(IBV_WR_SEND, i, 100, srq_), 0);
    std::swap(a_.qp, c.qp);
    ExpectSuccess(a_.cq, i);
    ExpectSuccess(c.cq, i);
    // The messages are from two queue pairs, in any order.
    const ibv_wc one = Next(b_.cq);
    const ibv_wc other = Next(b_.cq);
    EXPECT_EQ(one.status, IBV_WC_SUCCESS);
    EXPECT_EQ(other.status, IBV_WC_SUCCESS);
    EXPECT_EQ(one.wr_id + other.wr_id, 4 * i + 1);
    EXPECT_EQ(one.byte_len + other.byte_len, 3100u);
    EXPECT_NE(one.qp_num, other.qp_num);
  }
  EXPECT_EQ(ibv_destroy_qp(target), 0);
  DestroySide(&c);
}

}  // namespace
}  // namespace conformance
