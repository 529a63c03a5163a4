// `fail` rules of RXE_USER_FAULTS: calls that fail on command, and nothing
// else.
#include <cerrno>
#include <cstdlib>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class FailingCallsTest : public DeviceTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_FAULTS",
           "fail ibv_reg_mr ENOMEM nth=2; fail ibv_create_cq EMFILE nth=1; "
           "fail ibv_create_qp EAGAIN nth=1; fail ibv_modify_qp ETIMEDOUT "
           "nth=2; fail ibv_destroy_qp EBUSY nth=1; fail ibv_create_cq_ex "
           "ENOSYS; fail ibv_create_qp_ex EIO; fail ibv_alloc_td EPERM",
           1);
    DeviceTest::SetUp();
  }
  void TearDown() override {
    DeviceTest::TearDown();
    unsetenv("RXE_USER_FAULTS");
  }
};

TEST_F(FailingCallsTest, EachFailsAsNamedAndChangesNothing) {
  char buffer[64] = {};
  ibv_pd* const pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  ibv_mr* const first = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
  ASSERT_NE(first, nullptr);
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd, buffer, sizeof(buffer), 0), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  ibv_mr* const third = ibv_reg_mr(pd, buffer, sizeof(buffer), 0);
  ASSERT_NE(third, nullptr);

  EXPECT_EQ(ibv_create_cq(context_, 4, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(errno, EMFILE);
  ibv_cq* const cq = ibv_create_cq(context_, 4, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_cq_init_attr_ex cq_attr = {};
  cq_attr.cqe = 4;
  EXPECT_EQ(ibv_create_cq_ex(context_, &cq_attr), nullptr);
  EXPECT_EQ(errno, ENOSYS);

  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq;
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {.max_send_wr = 1,
              .max_recv_wr = 1,
              .max_send_sge = 1,
              .max_recv_sge = 1,
              .max_inline_data = 0};
  EXPECT_EQ(ibv_create_qp(pd, &attr), nullptr);
  EXPECT_EQ(errno, EAGAIN);
  ibv_qp* const qp = ibv_create_qp(pd, &attr);
  ASSERT_NE(qp, nullptr);
  ibv_qp_init_attr_ex extended = {};
  // With a PD alone the header calls ibv_create_qp.
  extended.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  extended.send_ops_flags = IBV_QP_EX_WITH_SEND;
  extended.pd = pd;
  extended.qp_type = IBV_QPT_RC;
  extended.send_cq = extended.recv_cq = cq;
  EXPECT_EQ(ibv_create_qp_ex(context_, &extended), nullptr);
  EXPECT_EQ(errno, EIO);

  ibv_qp_attr to = {};
  to.qp_state = IBV_QPS_INIT;
  to.port_num = 1;
  const int mask =
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  EXPECT_EQ(ibv_modify_qp(qp, &to, mask), 0);
  to.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), ETIMEDOUT);
  ibv_qp_attr now;
  ibv_qp_init_attr init;
  EXPECT_EQ(ibv_query_qp(qp, &now, IBV_QP_STATE, &init), 0);
  EXPECT_EQ(now.qp_state, IBV_QPS_INIT);
  EXPECT_EQ(ibv_modify_qp(qp, &to, IBV_QP_STATE), 0);

  ibv_td_init_attr td = {};
  EXPECT_EQ(ibv_alloc_td(context_, &td), nullptr);
  EXPECT_EQ(errno, EPERM);

  EXPECT_EQ(ibv_destroy_qp(qp), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dereg_mr(first), 0);
  EXPECT_EQ(ibv_dereg_mr(third), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

}  // namespace
}  // namespace conformance
