// Creating and destroying: order, limits, invalid arguments.
#include <cstring>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class ObjectTest : public PairTest {
 protected:
  ObjectTest() { make_pair_ = false; }
};

// --- Order.

TEST_F(ObjectTest, ObjectsInUseAreBusy) {
  MakeSide(&a_);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(a_.cq), EBUSY);
  DestroyQp(&a_);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);  // the region uses it
  EXPECT_EQ(ibv_dereg_mr(a_.mr), 0);
  a_.mr = nullptr;
  ibv_srq_init_attr init = {};
  init.attr = {4, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_ah_attr ah_attr = {};
  ah_attr.is_global = 1;
  ah_attr.port_num = 1;
  ah_attr.grh.dgid = gid_;
  ah_attr.grh.sgid_index = gid_index_;
  ibv_ah* ah = ibv_create_ah(pd_, &ah_attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(pd_), EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  pd_ = nullptr;
}

// Programs check the result or errno: the system's library, whose calls end in
// an ioctl, sets both.
TEST_F(ObjectTest, RefusalsSetErrno) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  MakeSide(&a_, {}, 16, channel);
  const auto refused = [](int wanted, auto&& call) {
    errno = 0;
    const int error = call();
    EXPECT_EQ(error, wanted);
    EXPECT_EQ(errno, wanted);
  };
  refused(EBUSY, [&] { return ibv_dealloc_pd(pd_); });
  refused(EBUSY, [&] { return ibv_destroy_cq(a_.cq); });
  refused(EBUSY, [&] { return ibv_destroy_comp_channel(channel); });
  refused(EINVAL, [] { return ibv_dealloc_pd(nullptr); });
  refused(EINVAL, [] { return ibv_dereg_mr(nullptr); });
  refused(EINVAL, [] { return ibv_destroy_cq(nullptr); });
  refused(EINVAL, [] { return ibv_destroy_qp(nullptr); });
  refused(EINVAL, [] { return ibv_destroy_srq(nullptr); });
  refused(EINVAL, [] { return ibv_destroy_ah(nullptr); });
  refused(EINVAL, [&] { return ibv_modify_qp(a_.qp, nullptr, 0); });
  refused(EINVAL, [&] { return ibv_resize_cq(a_.cq, 0); });
  DestroySide(&a_);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

// Programs destroy objects after a failure and read errno afterwards.
TEST_F(ObjectTest, CallsThatSucceedLeaveErrno) {
  constexpr int kBefore = ENOTEMPTY;
  const auto expect = [&](const char* what, auto call) {
    errno = kBefore;
    const auto result = call();
    const int after = errno;
    if constexpr (std::is_pointer_v<decltype(result)>) {
      EXPECT_NE(result, nullptr) << what << ": " << std::strerror(after);
    } else {
      EXPECT_EQ(result, 0) << what;
    }
    EXPECT_EQ(after, kBefore) << what << ": " << std::strerror(after);
    return result;
  };
  ibv_device** const devices =
      expect("list", [] { return ibv_get_device_list(nullptr); });
  ibv_context* const context =
      expect("open", [&] { return ibv_open_device(devices[0]); });
  ibv_free_device_list(devices);
  ibv_pd* const pd = expect("pd", [&] { return ibv_alloc_pd(context); });
  std::vector<uint8_t> memory(4096);
  ibv_mr* const mr = expect("mr", [&] {
    return ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  });
  ibv_comp_channel* const channel =
      expect("channel", [&] { return ibv_create_comp_channel(context); });
  ibv_cq* const cq = expect(
      "cq", [&] { return ibv_create_cq(context, 4, nullptr, channel, 0); });
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_UD;
  init.cap = {4, 4, 1, 1, 0};
  ibv_qp* const qp = expect("qp", [&] { return ibv_create_qp(pd, &init); });
  ibv_srq_init_attr srq_init = {};
  srq_init.attr.max_wr = srq_init.attr.max_sge = 1;
  ibv_srq* const srq =
      expect("srq", [&] { return ibv_create_srq(pd, &srq_init); });
  ibv_ah_attr to = {};
  to.is_global = 1;
  to.port_num = 1;
  ASSERT_EQ(ibv_query_gid(context, 1, 0, &to.grh.dgid), 0);
  ibv_ah* const ah = expect("ah", [&] { return ibv_create_ah(pd, &to); });
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  expect("modify", [&] {
    return ibv_modify_qp(
        qp, &attr,
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  });
  expect("destroy_ah", [&] { return ibv_destroy_ah(ah); });
  expect("destroy_srq", [&] { return ibv_destroy_srq(srq); });
  expect("destroy_qp", [&] { return ibv_destroy_qp(qp); });
  expect("destroy_cq", [&] { return ibv_destroy_cq(cq); });
  expect("destroy_comp_channel",
         [&] { return ibv_destroy_comp_channel(channel); });
  expect("dereg_mr", [&] { return ibv_dereg_mr(mr); });
  expect("dealloc_pd", [&] { return ibv_dealloc_pd(pd); });
  expect("close", [&] { return ibv_close_device(context); });
}

TEST_F(ObjectTest, ObjectsOfAClosedContextCanBeDestroyed) {
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  EXPECT_EQ(ibv_close_device(context_), 0);
  context_ = nullptr;
  ibv_send_wr* bad;
  ibv_send_wr wr = {};
  EXPECT_EQ(ibv_post_send(a_.qp, &wr, &bad), EINVAL);
  DestroySide(&a_);
  DestroySide(&b_);
}

// --- Limits.

TEST_F(ObjectTest, CreationKeepsToTheLimits) {
  ibv_device_attr device;
  ASSERT_EQ(ibv_query_device(context_, &device), 0);
  const auto cq = [this](int cqe, int vector = 0) {
    errno = 0;
    ibv_cq* made = ibv_create_cq(context_, cqe, nullptr, nullptr, vector);
    if (made == nullptr) return errno;
    EXPECT_GE(made->cqe, cqe);
    EXPECT_EQ(ibv_destroy_cq(made), 0);
    return 0;
  };
  EXPECT_EQ(cq(0), EINVAL);
  EXPECT_EQ(cq(-1), EINVAL);
  EXPECT_EQ(cq(1), 0);
  EXPECT_EQ(cq(device.max_cqe), 0);
  EXPECT_EQ(cq(device.max_cqe + 1), EINVAL);
  EXPECT_EQ(cq(1, context_->num_comp_vectors), EINVAL);
  EXPECT_EQ(cq(1, -1), EINVAL);

  ibv_cq* queue = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
  ASSERT_NE(queue, nullptr);
  const auto qp = [&](auto&& change) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = queue;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    change(attr);
    const ibv_qp_cap wanted = attr.cap;
    errno = 0;
    ibv_qp* made = ibv_create_qp(pd_, &attr);
    if (made == nullptr) return errno;
    EXPECT_GE(attr.cap.max_send_wr, wanted.max_send_wr);
    EXPECT_GE(attr.cap.max_recv_wr, wanted.max_recv_wr);
    EXPECT_GE(attr.cap.max_send_sge, wanted.max_send_sge);
    EXPECT_GE(attr.cap.max_recv_sge, wanted.max_recv_sge);
    EXPECT_GE(attr.cap.max_inline_data, wanted.max_inline_data);
    EXPECT_EQ(ibv_destroy_qp(made), 0);
    return 0;
  };
  const auto wr = static_cast<uint32_t>(device.max_qp_wr);
  const auto sge = static_cast<uint32_t>(device.max_sge);
  EXPECT_EQ(qp([](auto&) {}), 0);
  EXPECT_EQ(qp([&](auto& a) { a.cap = {wr, wr, sge, sge, 0}; }), 0);
  EXPECT_EQ(qp([&](auto& a) { a.cap.max_send_wr = wr + 1; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.cap.max_recv_wr = wr + 1; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.cap.max_send_sge = sge + 1; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.cap.max_recv_sge = sge + 1; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.cap.max_inline_data = 1 << 20; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.send_cq = nullptr; }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.qp_type = ibv_qp_type(77); }), EINVAL);
  EXPECT_EQ(qp([&](auto& a) { a.qp_type = IBV_QPT_DRIVER; }), EOPNOTSUPP);
  EXPECT_EQ(ibv_destroy_cq(queue), 0);

  ibv_srq_init_attr init = {};
  init.attr = {static_cast<uint32_t>(device.max_srq_wr),
               static_cast<uint32_t>(device.max_srq_sge), 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  init.attr.max_wr += 1;
  EXPECT_EQ(ibv_create_srq(pd_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(ObjectTest, ResizingACq) {
  MakeSide(&a_, {}, 50);
  MakeSide(&b_);
  Connect(&a_, &b_);
  a_.memory[0] = 1;
  for (uint64_t i = 0; i < 40; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(8 * i), b_.mr->rkey),
              0);
  }
  AwaitUnpolled(a_, &b_.memory[8 * 39]);
  ExpectSuccess(a_.cq, 0);
  EXPECT_EQ(ibv_resize_cq(a_.cq, 0), EINVAL);
  EXPECT_EQ(ibv_resize_cq(a_.cq, -5), EINVAL);
  EXPECT_EQ(ibv_resize_cq(a_.cq, 2), EINVAL);  // it holds 39
  EXPECT_EQ(ibv_resize_cq(a_.cq, 38), EINVAL);
  EXPECT_EQ(ibv_resize_cq(a_.cq, 100), 0);
  EXPECT_GE(a_.cq->cqe, 100);
  for (uint64_t i = 40; i < 60; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, i, 0, 8, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
  }
  for (uint64_t i = 1; i < 60; ++i) ExpectSuccess(a_.cq, i);
  EXPECT_EQ(ibv_resize_cq(a_.cq, 4), 0);
}

TEST_F(ObjectTest, SrqOverflow) {
  ibv_srq_init_attr init = {};
  init.attr = {4, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  std::vector<ibv_recv_wr> wrs(init.attr.max_wr + 1);
  for (size_t i = 0; i < wrs.size(); ++i) {
    wrs[i] = {i, i + 1 < wrs.size() ? &wrs[i + 1] : nullptr, nullptr, 0};
  }
  ibv_recv_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_srq_recv(srq, wrs.data(), &bad), ENOMEM);
  EXPECT_EQ(bad, &wrs.back());
  ibv_srq_attr attr = {2, 0, 0};
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), EINVAL);
  attr.max_wr = 8;
  EXPECT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR), 0);
  EXPECT_EQ(ibv_post_srq_recv(srq, &wrs.back(), &bad), 0);
  ibv_recv_wr wrong = {1, nullptr, nullptr, -1};
  EXPECT_EQ(ibv_post_srq_recv(srq, &wrong, &bad), EINVAL);
  EXPECT_EQ(bad, &wrong);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// --- Invalid arguments.

TEST_F(ObjectTest, ForeignPointersAreRefused) {
  MakeSide(&a_);
  EXPECT_EQ(ibv_dealloc_pd(nullptr), EINVAL);
  EXPECT_EQ(ibv_dereg_mr(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_cq(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_qp(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_srq(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_ah(nullptr), EINVAL);
  EXPECT_EQ(ibv_destroy_comp_channel(nullptr), EINVAL);
  EXPECT_EQ(ibv_close_device(nullptr), -1);
  // A copy of an object is not the object.
  ibv_qp qp = *a_.qp;
  EXPECT_EQ(ibv_destroy_qp(&qp), EINVAL);
  ibv_send_wr* bad;
  ibv_send_wr wr = {};
  EXPECT_EQ(ibv_post_send(&qp, &wr, &bad), EINVAL);
  EXPECT_EQ(bad, &wr);
  ibv_cq cq = *a_.cq;
  ibv_wc wc;
  EXPECT_LT(ibv_poll_cq(&cq, 1, &wc), 0);
  EXPECT_EQ(ibv_req_notify_cq(&cq, 0), EINVAL);
  // A modified handle.
  const uint32_t handle = a_.mr->handle;
  a_.mr->handle = handle ^ 0x00100000;
  EXPECT_EQ(ibv_dereg_mr(a_.mr), ENOENT);
  a_.mr->handle = 0xffffffff;
  EXPECT_EQ(ibv_dereg_mr(a_.mr), ENOENT);
  a_.mr->handle = handle;
  EXPECT_LT(ibv_poll_cq(a_.cq, -1, &wc), 0);
  EXPECT_EQ(ibv_poll_cq(a_.cq, 0, nullptr), 0);
}

// A pointer below 64 KiB, where the system maps nothing, is invalid.
TEST_F(ObjectTest, SmallNumbersAreNotPointers) {
  MakeSide(&a_);
  for (const uintptr_t number : {uintptr_t{1}, uintptr_t{0x10}, uintptr_t{8},
                                 uintptr_t{0x1000}, uintptr_t{0xffff}}) {
    const auto bad = [number]<typename T>(T* /*kind*/) {
      return reinterpret_cast<T*>(number);
    };
    ibv_pd* const pd = bad(pd_);
    ibv_qp* const qp = bad(a_.qp);
    ibv_cq* const cq = bad(a_.cq);
    ibv_mr* const mr = bad(a_.mr);
    ibv_srq* const srq = bad(static_cast<ibv_srq*>(nullptr));
    ibv_context* const context = bad(context_);
    ibv_comp_channel* const channel =
        bad(static_cast<ibv_comp_channel*>(nullptr));
    EXPECT_EQ(ibv_dealloc_pd(pd), EINVAL);
    EXPECT_EQ(ibv_dereg_mr(mr), EINVAL);
    EXPECT_EQ(ibv_destroy_cq(cq), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), EINVAL);
    EXPECT_EQ(ibv_destroy_srq(srq), EINVAL);
    EXPECT_EQ(ibv_destroy_ah(bad(static_cast<ibv_ah*>(nullptr))), EINVAL);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EINVAL);
    EXPECT_EQ(ibv_close_device(context), -1);
    EXPECT_EQ(ibv_open_device(bad(context_->device)), nullptr);
    EXPECT_EQ(ibv_get_device_name(bad(context_->device)), nullptr);
    EXPECT_EQ(ibv_get_device_index(bad(context_->device)), -1);
    EXPECT_EQ(ibv_get_device_guid(bad(context_->device)), 0u);
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init = {};
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
    EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);
    EXPECT_EQ(ibv_resize_cq(cq, 10), EINVAL);
    ibv_ack_cq_events(cq, 1);
    ibv_srq_attr srq_attr = {};
    EXPECT_EQ(ibv_query_srq(srq, &srq_attr), EINVAL);
    EXPECT_EQ(ibv_modify_srq(srq, &srq_attr, IBV_SRQ_LIMIT), EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_reg_mr(pd, a_.memory.data(), 64, 0u), nullptr);
    EXPECT_EQ(errno, EINVAL);
    errno = 0;
    EXPECT_EQ(ibv_create_qp(pd, &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    errno = 0;
    EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
    EXPECT_EQ(errno, EINVAL);
    ibv_mw* const mw = bad(static_cast<ibv_mw*>(nullptr));
    EXPECT_EQ(context_->ops.dealloc_mw(mw), EINVAL);
    EXPECT_EQ(context_->ops.alloc_mw(pd, IBV_MW_TYPE_1), nullptr);
    ibv_mw_bind mw_bind = {};
    EXPECT_EQ(context_->ops.bind_mw(a_.qp, mw, &mw_bind), EINVAL);
    ibv_dm* const dm = bad(static_cast<ibv_dm*>(nullptr));
    const verbs_context* const verbs = verbs_get_ctx(context_);
    EXPECT_EQ(verbs->free_dm(dm), EINVAL);
    EXPECT_EQ(verbs->reg_dm_mr(pd_, dm, 0, 4, IBV_ACCESS_ZERO_BASED), nullptr);
    EXPECT_EQ(verbs->alloc_null_mr(pd), nullptr);
    EXPECT_EQ(
        verbs->advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, nullptr, 0),
        EINVAL);
    ibv_ah_attr ah_attr = {};
    EXPECT_EQ(ibv_create_ah(pd, &ah_attr), nullptr);
    ibv_wc wc = {};
    EXPECT_EQ(ibv_create_ah_from_wc(pd, &wc, nullptr, 1), nullptr);
  }
}

// The application can overwrite the pointers between its objects.
TEST_F(ObjectTest, ADomainThatNamesAnotherContext) {
  ibv_context* other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  MakeSide(&a_);
  pd_->context = other;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = a_.cq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  errno = 0;
  EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp_init_attr_ex extended = {};
  extended.send_cq = extended.recv_cq = a_.cq;
  extended.cap = {4, 4, 1, 1, 0};
  extended.qp_type = IBV_QPT_RC;
  extended.comp_mask = IBV_QP_INIT_ATTR_PD;
  extended.pd = pd_;
  errno = 0;
  EXPECT_EQ(ibv_create_qp_ex(other, &extended), nullptr);
  EXPECT_EQ(errno, EINVAL);
  pd_->context = context_;
  EXPECT_EQ(ibv_close_device(other), 0);
}

// Objects of two contexts of one device cannot be combined.
TEST_F(ObjectTest, ObjectsOfAnotherContext) {
  ibv_context* other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  ASSERT_NE(pd, nullptr);
  ibv_cq* cq = ibv_create_cq(other, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_srq_init_attr srq_init = {};
  srq_init.attr = {4, 1, 0};
  ibv_srq* srq = ibv_create_srq(pd, &srq_init);
  ASSERT_NE(srq, nullptr);
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  const auto create = [](ibv_pd* of, ibv_cq* send, ibv_cq* receive,
                         ibv_srq* shared) {
    ibv_qp_init_attr init = {};
    init.send_cq = send;
    init.recv_cq = receive;
    init.srq = shared;
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    errno = 0;
    ibv_qp* qp = ibv_create_qp(of, &init);
    if (qp == nullptr) return errno;
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    return 0;
  };
  EXPECT_EQ(create(pd, a_.cq, a_.cq, nullptr), EINVAL);
  EXPECT_EQ(create(pd_, cq, a_.cq, nullptr), EINVAL);
  EXPECT_EQ(create(pd_, a_.cq, cq, nullptr), EINVAL);
  EXPECT_EQ(create(pd_, a_.cq, a_.cq, srq), EINVAL);
  EXPECT_EQ(create(pd, cq, cq, srq), 0);
  EXPECT_EQ(ibv_rereg_mr(a_.mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  // Keys of the other context are not valid here.
  ibv_mr* mr = ibv_reg_mr(pd, a_.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ibv_mr* const mine = std::exchange(a_.mr, mr);
  EXPECT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  a_.mr = mine;
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_close_device(other), 0);
}

// --- Missing features.

TEST_F(ObjectTest, UnsupportedCallsFail) {
  errno = 0;
  EXPECT_EQ(ibv_reg_dmabuf_mr(pd_, 0, 4096, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  ibv_srq_init_attr_ex srq = {};
  srq.attr = {4, 1, 0};
  srq.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
  srq.srq_type = IBV_SRQT_TM;
  srq.pd = pd_;
  EXPECT_EQ(ibv_create_srq_ex(context_, &srq), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  MakeSide(&a_);
  ibv_ece ece = {};
  errno = 0;
  EXPECT_EQ(ibv_query_ece(a_.qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(ibv_set_ece(a_.qp, &ece), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_qp_rate_limit_attr rate = {};
  errno = 0;
  EXPECT_EQ(ibv_modify_qp_rate_limit(a_.qp, &rate), EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(ibv_query_qp_data_in_order(a_.qp, IBV_WR_RDMA_WRITE, 0), 0);
  ibv_flow_action_esp_attr esp = {};
  EXPECT_EQ(ibv_create_flow_action_esp(context_, &esp), nullptr);
}

// Exactly as many at once as the device reports.
TEST_F(ObjectTest, AsManyQueuePairsAsPromised) {
  ibv_device_attr device;
  ASSERT_EQ(ibv_query_device(context_, &device), 0);
  ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  const auto create = [&] {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    return ibv_create_qp(pd_, &attr);
  };
  std::vector<ibv_qp*> qps;
  for (int i = 0; i < device.max_qp; ++i) {
    qps.push_back(create());
    ASSERT_NE(qps.back(), nullptr) << i << ": " << strerror(errno);
  }
  errno = 0;
  EXPECT_EQ(create(), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  // The last one works, and destroying it makes room for another.
  ASSERT_EQ(ToRts(qps.back(), qps.back()->qp_num), 0);
  EXPECT_EQ(ibv_destroy_qp(qps.back()), 0);
  qps.back() = create();
  EXPECT_NE(qps.back(), nullptr);
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

// A thousand connections, one after the other.
TEST_F(ObjectTest, ManyConnections) {
  std::set<uint32_t> numbers;
  ibv_cq* cq = ibv_create_cq(context_, 16, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  uint32_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(qp, nullptr) << i;
    EXPECT_NE(qp->qp_num, last);
    last = qp->qp_num;
    ASSERT_EQ(ToRts(qp, qp->qp_num), 0);
    ASSERT_EQ(ibv_destroy_qp(qp), 0);
  }
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
}

}  // namespace
}  // namespace conformance
