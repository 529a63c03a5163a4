// Invalid handles, and objects that are destroyed in the wrong order.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class HandleTest : public PairTest {};

template <typename T>
T* Garbage(uintptr_t number) {
  return reinterpret_cast<T*>(number);
}

// Nothing outside the passed object is read (AddressSanitizer checks it). The
// bytes at another kind's handle offset may or may not be a valid handle.
TEST_F(HandleTest, ObjectsOfAnotherKindAreRefused) {
  const auto refused = [](int error) {
    EXPECT_TRUE(error == EINVAL || error == ENOENT) << error;
  };
  const auto as_others = [&](void* object) {
    refused(ibv_destroy_qp(static_cast<ibv_qp*>(object)));
    refused(ibv_destroy_srq(static_cast<ibv_srq*>(object)));
    refused(ibv_destroy_ah(static_cast<ibv_ah*>(object)));
  };
  as_others(pd_);
  as_others(a_.mr);
  as_others(a_.cq);
  refused(ibv_dealloc_pd(reinterpret_cast<ibv_pd*>(a_.qp)));
  refused(ibv_dereg_mr(reinterpret_cast<ibv_mr*>(pd_)));
  refused(ibv_destroy_cq(reinterpret_cast<ibv_cq*>(pd_)));
}

// As in the kernel: an unknown handle is ENOENT, the handle of another object
// EINVAL, and a handle of another context is unknown.
TEST_F(HandleTest, HandlesOfNothing) {
  ibv_context* const other = ibv_open_device(context_->device);
  ASSERT_NE(other, nullptr);
  ibv_srq_init_attr srq_init = {};
  srq_init.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &srq_init);
  ASSERT_NE(srq, nullptr);
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = gid_;
  address.grh.sgid_index = gid_index_;
  ibv_ah* const ah = ibv_create_ah(pd_, &address);
  ASSERT_NE(ah, nullptr);
  ibv_mw* const mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  ibv_pd* const pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  ibv_cq* const cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_alloc_dm_attr dm_attr = {64, 0, 0};
  ibv_dm* const dm = ibv_alloc_dm(context_, &dm_attr);
  ASSERT_NE(dm, nullptr);
  const auto check = [&](auto* object, auto&& destroy) {
    const uint32_t handle = object->handle;
    for (const uint32_t none : {handle ^ 0xdeadbeefu, ~0u, 0u}) {
      object->handle = none;
      errno = 0;
      EXPECT_EQ(destroy(object), ENOENT);
      EXPECT_EQ(errno, ENOENT);
    }
    object->handle = pd_->handle;  // may be valid for the object's kind
    EXPECT_EQ(destroy(object), EINVAL);
    object->handle = handle;
    object->context = other;
    EXPECT_EQ(destroy(object), ENOENT);
    object->context = context_;
    EXPECT_EQ(destroy(object), 0);
  };
  check(a_.mr, ibv_dereg_mr);
  a_.mr = nullptr;
  check(srq, ibv_destroy_srq);
  check(ah, ibv_destroy_ah);
  check(mw, [](ibv_mw* window) { return ibv_dealloc_mw(window); });
  check(pd, ibv_dealloc_pd);
  check(cq, ibv_destroy_cq);
  check(dm, [](ibv_dm* memory) { return ibv_free_dm(memory); });
  ibv_send_wr send = {};
  ibv_send_wr* bad_send = nullptr;
  ibv_recv_wr receive = {};
  ibv_recv_wr* bad_receive = nullptr;
  const uint32_t handle = a_.qp->handle;
  a_.qp->handle ^= 0xdeadbeef;
  EXPECT_EQ(ibv_post_send(a_.qp, &send, &bad_send), ENOENT);
  EXPECT_EQ(ibv_post_recv(a_.qp, &receive, &bad_receive), ENOENT);
  a_.qp->handle = handle;
  check(a_.qp, ibv_destroy_qp);
  a_.qp = nullptr;
  EXPECT_EQ(ibv_close_device(other), 0);
}

TEST_F(HandleTest, SmallNumbersAreRefused) {
  for (const uintptr_t number : {0, 1, 8, 100, 4095, 4096, 65535}) {
    SCOPED_TRACE(number);
    auto* const context = Garbage<ibv_context>(number);
    auto* const pd = Garbage<ibv_pd>(number);
    auto* const mr = Garbage<ibv_mr>(number);
    auto* const cq = Garbage<ibv_cq>(number);
    auto* const qp = Garbage<ibv_qp>(number);
    auto* const srq = Garbage<ibv_srq>(number);
    auto* const ah = Garbage<ibv_ah>(number);
    auto* const channel = Garbage<ibv_comp_channel>(number);
    auto* const device = Garbage<ibv_device>(number);
    EXPECT_EQ(ibv_open_device(device), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_get_device_name(device), nullptr);
    EXPECT_EQ(ibv_get_device_guid(device), 0u);
    EXPECT_EQ(ibv_close_device(context), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_alloc_pd(context), nullptr);
    EXPECT_EQ(ibv_create_comp_channel(context), nullptr);
    EXPECT_EQ(ibv_create_cq(context, 4, nullptr, nullptr, 0), nullptr);
    ibv_device_attr device_attr;
    EXPECT_EQ(ibv_query_device(context, &device_attr), EINVAL);
    ibv_gid gid;
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), -1);
    ibv_async_event event = {};
    EXPECT_EQ(ibv_get_async_event(context, &event), -1);
    EXPECT_EQ(ibv_import_pd(context, 1), nullptr);

    EXPECT_EQ(ibv_dealloc_pd(pd), EINVAL);
    ibv_unimport_pd(pd);
    ibv_unimport_mr(mr);
    EXPECT_EQ(ibv_reg_mr_iova2(pd, a_.memory.data(), 64, 0, 0), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_import_mr(pd, 1), nullptr);
    EXPECT_EQ(ibv_dereg_mr(mr), EINVAL);
    EXPECT_NE(
        ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0),
        0);
    EXPECT_EQ(ibv_rereg_mr(a_.mr, IBV_REREG_MR_CHANGE_PD, pd, nullptr, 0, 0),
              IBV_REREG_MR_ERR_INPUT);

    EXPECT_EQ(ibv_destroy_cq(cq), EINVAL);
    EXPECT_EQ(ibv_resize_cq(cq, 4), EINVAL);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), EINVAL);
    ibv_cq* cq_out;
    void* cq_context;
    EXPECT_EQ(ibv_get_cq_event(channel, &cq_out, &cq_context), -1);
    if (number != 0) {
      EXPECT_EQ(ibv_create_cq(context_, 4, nullptr, channel, 0), nullptr);
    }

    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = a_.cq;
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    EXPECT_EQ(ibv_create_qp(pd, &init), nullptr);
    init.send_cq = cq;
    EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
    init.send_cq = a_.cq;
    init.recv_cq = cq;
    EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
    if (number != 0) {
      init.recv_cq = a_.cq;
      init.srq = srq;
      EXPECT_EQ(ibv_create_qp(pd_, &init), nullptr);
    }
    ibv_qp_attr attr = {};
    EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(qp), EINVAL);
    EXPECT_EQ(ibv_qp_to_qp_ex(qp), nullptr);

    ibv_srq_init_attr srq_init = {};
    srq_init.attr = {4, 1, 0};
    EXPECT_EQ(ibv_create_srq(pd, &srq_init), nullptr);
    EXPECT_EQ(ibv_modify_srq(srq, &srq_init.attr, IBV_SRQ_LIMIT), EINVAL);
    EXPECT_EQ(ibv_query_srq(srq, &srq_init.attr), EINVAL);
    EXPECT_EQ(ibv_destroy_srq(srq), EINVAL);

    ibv_ah_attr address = {};
    EXPECT_EQ(ibv_create_ah(pd, &address), nullptr);
    EXPECT_EQ(ibv_destroy_ah(ah), EINVAL);

    // Functions that the header calls through pointers in the context.
    ibv_send_wr send = {};
    ibv_send_wr* bad_send = nullptr;
    EXPECT_EQ(context_->ops.post_send(qp, &send, &bad_send), EINVAL);
    EXPECT_EQ(bad_send, &send);
    ibv_recv_wr receive = {};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(context_->ops.post_recv(qp, &receive, &bad_receive), EINVAL);
    EXPECT_EQ(context_->ops.post_srq_recv(srq, &receive, &bad_receive), EINVAL);
    ibv_wc wc;
    EXPECT_LT(context_->ops.poll_cq(cq, 1, &wc), 0);
    EXPECT_EQ(context_->ops.req_notify_cq(cq, 0), EINVAL);
  }
}

// The domain has an address handle, a region and a queue pair, so its last
// handle, the imported one, stays.
TEST_F(HandleTest, TheLastHandleOfADomainInUseStays) {
  ibv_context* context = ibv_import_device(context_->cmd_fd);
  ASSERT_NE(context, nullptr);
  ibv_pd* first = ibv_alloc_pd(context_);
  ASSERT_NE(first, nullptr);
  ibv_pd* second = ibv_import_pd(context, first->handle);
  ASSERT_NE(second, nullptr);
  ibv_mr* mr = ibv_reg_mr(second, a_.memory.data(), 64, 0);
  ASSERT_NE(mr, nullptr);
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = gid_;
  address.grh.sgid_index = gid_index_;
  ibv_ah* ah = ibv_create_ah(second, &address);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(first), EBUSY);
  ibv_unimport_pd(first);
  ibv_unimport_pd(second);
  EXPECT_EQ(errno, EBUSY);
  // Nothing is lost: it can be used, and destroyed in the right order.
  ibv_mr* another = ibv_reg_mr(second, a_.memory.data(), 64, 0);
  ASSERT_NE(another, nullptr);
  EXPECT_EQ(ibv_dereg_mr(another), 0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  ibv_unimport_pd(second);
  EXPECT_EQ(errno, EBUSY);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(second), 0);
  EXPECT_EQ(ibv_close_device(context), 0);
}

// The warning about an overrun is written with the lane's lock held.
TEST_F(HandleTest, AFullStderrDoesNotBlock) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const std::string much(4096, 'x');
  while (write(ends[1], much.data(), much.size()) > 0) {
  }
  while (write(ends[1], much.data(), 1) > 0) {
  }
  ASSERT_EQ(fcntl(ends[1], F_SETFL, 0), 0);
  const int before = dup(STDERR_FILENO);
  dup2(ends[1], STDERR_FILENO);
  Side c, d;
  MakeSide(&c);
  MakeSide(&d, {}, /*cqe=*/8);
  Connect(&c, &d);
  for (int i = 0; i <= d.cq->cqe; ++i) {
    ASSERT_EQ(Receive(d, static_cast<uint64_t>(i), 0, 64), 0);
    ASSERT_EQ(Send(c, IBV_WR_SEND, 1, 0, 8), 0);
  }
  // Another pair of the same lane continues.
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 8), 0);
  ExpectSuccess(b_.cq, 1);
  ExpectSuccess(a_.cq, 1);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  ibv_ack_async_event(&event);
  dup2(before, STDERR_FILENO);
  for (const int fd : {before, ends[0], ends[1]}) close(fd);
  DestroySide(&c);
  DestroySide(&d);
}

}  // namespace
}  // namespace conformance
