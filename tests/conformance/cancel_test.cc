// Cancelled threads (pthread_cancel(3)): only calls that wait for events are
// cancellation points, and everything works afterwards.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "tests/conformance/fixture.h"

// <infiniband/driver.h>
extern "C" int ibv_read_sysfs_file(const char* directory, const char* file,
                                   char* buffer, size_t size);

namespace conformance {
namespace {

// Runs `call` in a thread that is already cancelled and ends at its first
// cancellation point. Returns false if that was in `call`.
bool Completes(const std::function<void()>& call) {
  bool completed = false;
  std::thread thread([&] {
    pthread_cancel(pthread_self());
    call();
    completed = true;
    pthread_testcancel();
    ADD_FAILURE() << "the thread was not cancelled";
  });
  thread.join();
  return completed;
}

class CancelTest : public PairTest {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "AddressSanitizer takes the stack that a cancelled thread "
                    "has left for one in use";
#endif
    PairTest::SetUp();
  }
};

TEST_F(CancelTest, ListingAndOpening) {
  ibv_device** list = nullptr;
  EXPECT_TRUE(Completes([&] { list = ibv_get_device_list(nullptr); }));
  ASSERT_NE(list, nullptr);
  ASSERT_NE(list[0], nullptr);
  ibv_context* context = nullptr;
  EXPECT_TRUE(Completes([&] { context = ibv_open_device(list[0]); }));
  EXPECT_TRUE(Completes([&] { ibv_free_device_list(list); }));
  ASSERT_NE(context, nullptr);
  ibv_device_attr device;
  EXPECT_TRUE(Completes([&] { ibv_query_device(context, &device); }));
  ibv_port_attr port;
  EXPECT_TRUE(Completes([&] { ibv_query_port(context, 1, &port); }));
  ibv_gid gid;
  EXPECT_TRUE(Completes([&] { ibv_query_gid(context, 1, 0, &gid); }));
  char text[16];
  EXPECT_TRUE(Completes(
      [&] { ibv_read_sysfs_file("/proc/self", "comm", text, sizeof(text)); }));
  ibv_context* imported = nullptr;
  EXPECT_TRUE(
      Completes([&] { imported = ibv_import_device(context->cmd_fd); }));
  ASSERT_NE(imported, nullptr);
  EXPECT_TRUE(Completes([&] { ibv_close_device(imported); }));
  EXPECT_TRUE(Completes([&] { ibv_close_device(context); }));
}

TEST_F(CancelTest, MakingAndDestroying) {
  ibv_pd* pd = nullptr;
  EXPECT_TRUE(Completes([&] { pd = ibv_alloc_pd(context_); }));
  ASSERT_NE(pd, nullptr);
  ibv_mr* mr = nullptr;
  std::vector<uint8_t> memory(4096);
  EXPECT_TRUE(Completes([&] {
    mr = ibv_reg_mr(pd, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
  }));
  ASSERT_NE(mr, nullptr);
  EXPECT_TRUE(Completes([&] {
    ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0);
  }));
  ibv_comp_channel* channel = nullptr;
  EXPECT_TRUE(Completes([&] { channel = ibv_create_comp_channel(context_); }));
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = nullptr;
  EXPECT_TRUE(Completes(
      [&] { cq = ibv_create_cq(context_, 16, nullptr, channel, 0); }));
  ASSERT_NE(cq, nullptr);
  EXPECT_TRUE(Completes([&] { ibv_resize_cq(cq, 32); }));
  ibv_srq* srq = nullptr;
  ibv_srq_init_attr srq_init = {};
  srq_init.attr = {16, 1, 0};
  EXPECT_TRUE(Completes([&] { srq = ibv_create_srq(pd, &srq_init); }));
  ASSERT_NE(srq, nullptr);
  ibv_qp* qp = nullptr;
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.srq = srq;
  init.cap = {4, 4, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  EXPECT_TRUE(Completes([&] { qp = ibv_create_qp(pd, &init); }));
  ASSERT_NE(qp, nullptr);
  int error = -1;
  EXPECT_TRUE(Completes([&] { error = ToRts(qp, qp->qp_num); }));
  EXPECT_EQ(error, 0);
  ibv_qp_attr attr;
  EXPECT_TRUE(Completes([&] { ibv_query_qp(qp, &attr, 0, &init); }));
  ibv_srq_attr limit = {16, 1, 4};
  EXPECT_TRUE(Completes([&] { ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT); }));
  EXPECT_TRUE(Completes([&] { ibv_query_srq(srq, &limit); }));
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = gid_;
  address.grh.sgid_index = gid_index_;
  ibv_ah* ah = nullptr;
  EXPECT_TRUE(Completes([&] { ah = ibv_create_ah(pd, &address); }));
  ASSERT_NE(ah, nullptr);
  EXPECT_TRUE(Completes([&] { error = ibv_destroy_ah(ah); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_destroy_qp(qp); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_destroy_srq(srq); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_destroy_cq(cq); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_destroy_comp_channel(channel); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_dereg_mr(mr); }));
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(Completes([&] { error = ibv_dealloc_pd(pd); }));
  EXPECT_EQ(error, 0);
}

// The lane is idle at each post, so the post transmits and wakes the helper
// thread.
TEST_F(CancelTest, PostingAndPolling) {
  int error = -1;
  for (uint64_t i = 1; i <= 200; ++i) {
    EXPECT_TRUE(Completes([&] { error = Receive(b_, i, 0, 64); }));
    ASSERT_EQ(error, 0);
    EXPECT_TRUE(Completes([&] { error = ibv_req_notify_cq(a_.cq, 0); }));
    ASSERT_EQ(error, 0);
    EXPECT_TRUE(Completes([&] { error = Send(a_, IBV_WR_SEND, i, 0, 8); }));
    ASSERT_EQ(error, 0);
    ibv_wc wc = {};
    while (wc.wr_id == 0) {
      EXPECT_TRUE(Completes([&] { ibv_poll_cq(b_.cq, 1, &wc); }));
    }
    EXPECT_EQ(wc.wr_id, i);
    ExpectSuccess(a_.cq, i);
  }
}

// The thread that overruns a completion queue prints a line on stderr.
TEST_F(CancelTest, PollingThatOverrunsACompletionQueue) {
  Side c, d;
  MakeSide(&c);
  MakeSide(&d, {}, /*cqe=*/4);
  Connect(&c, &d);
  for (int i = 0; i <= d.cq->cqe; ++i) {
    ASSERT_EQ(Receive(d, static_cast<uint64_t>(i), 0, 64), 0);
  }
  for (int i = 0; i <= d.cq->cqe; ++i) {
    int error = -1;
    EXPECT_TRUE(Completes([&] { error = Send(c, IBV_WR_SEND, 1, 0, 8); }));
    EXPECT_EQ(error, 0);
  }
  ibv_wc wc;
  const int64_t until = NowMs() + kTimeoutMs;
  while (StateOf(d.qp) != IBV_QPS_ERR && NowMs() < until) {
    EXPECT_TRUE(Completes([&] { ibv_poll_cq(c.cq, 1, &wc); }));
  }
  EXPECT_EQ(StateOf(d.qp), IBV_QPS_ERR);
  DestroySide(&c);
  DestroySide(&d);
}

}  // namespace
}  // namespace conformance
