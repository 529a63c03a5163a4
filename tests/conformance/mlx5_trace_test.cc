// RXE_USER_TRACE of a program that posts by functions of mlx5dv: its work
// requests are recorded as those of ibv_wr_*.
#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kKey = 0x1122334455667788;

class Mlx5TraceTest : public PairTest {
 protected:
  Mlx5TraceTest() { make_pair_ = false; }
  void SetUp() override {
    char name[] = "/tmp/rxe_user_trace_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RXE_USER_TRACE", recording().c_str(), 1);
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    for (Side* side : {&a_, &b_}) {
      side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
      ASSERT_NE(side->cq, nullptr);
      side->memory.assign(kMemory, 0);
      side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
      ASSERT_NE(side->mr, nullptr);
    }
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_TRACE");
    std::filesystem::remove_all(folder_);
  }
  std::string recording() const { return folder_ + "/a.pcapng"; }

  ibv_qp_init_attr_ex Attributes(ibv_qp_type type) {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = type;
    attr.send_cq = attr.recv_cq = a_.cq;
    attr.cap = {16, 0, 1, 0, 64};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    return attr;
  }

  // The events of the recording, as soon as it has `polled` polled ones.
  std::vector<Json> Await(size_t polled) {
    std::vector<Json> events;
    const int64_t until = NowMs() + kTimeoutMs;
    size_t found = 0;
    do {
      events.clear();
      found = 0;
      for (Json& json : RunToolForJson("trace --json " + recording())) {
        if (json["type"] != "event") continue;
        found += json["name"] == "polled";
        events.push_back(std::move(json));
      }
    } while (found < polled && NowMs() < until);
    return events;
  }
  // The one event of that name with this wr_id.
  static Json Find(const std::vector<Json>& events, const std::string& name,
                   const std::string& wr_id) {
    std::vector<Json> found;
    std::copy_if(events.begin(), events.end(), std::back_inserter(found),
                 [&](const Json& event) {
                   return event["name"] == name && event["wr_id"] == wr_id;
                 });
    EXPECT_EQ(found.size(), 1u) << name << " " << wr_id;
    return found.size() == 1 ? found[0] : Json::object();
  }

  std::string folder_;
};

TEST_F(Mlx5TraceTest, TheRequestsOfADcInitiator) {
  ibv_ah_attr address = {};
  address.is_global = 1;
  address.port_num = 1;
  address.grh.dgid = gid_;
  address.grh.sgid_index = gid_index_;
  address.grh.hop_limit = 64;
  ibv_ah* const ah = ibv_create_ah(pd_, &address);
  ASSERT_NE(ah, nullptr);

  ibv_qp_init_attr_ex attr = Attributes(IBV_QPT_DRIVER);
  attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
  mlx5dv_qp_init_attr mlx5 = {};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  a_.qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(a_.qp, nullptr) << std::strerror(errno);
  const auto to_init_and_rtr = [&](ibv_qp* qp, int mask) {
    ibv_qp_attr init = {};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    int all = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    if (qp != a_.qp) {
      init.qp_access_flags = kAllAccess;
      all |= IBV_QP_ACCESS_FLAGS;
    }
    ASSERT_EQ(ibv_modify_qp(qp, &init, all), 0);
    ibv_qp_attr rtr = RtrAttributes(0);
    rtr.ah_attr.grh.dgid = {};
    ASSERT_EQ(ibv_modify_qp(qp, &rtr, IBV_QP_STATE | mask), 0);
  };
  to_init_and_rtr(a_.qp, IBV_QP_PATH_MTU | IBV_QP_AV);
  ibv_qp_attr rts = {};
  rts.qp_state = IBV_QPS_RTS;
  rts.timeout = 14;
  rts.retry_cnt = rts.rnr_retry = 7;
  rts.max_rd_atomic = 1;
  rts.sq_psn = 1000;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &rts,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                              IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                              IBV_QP_SQ_PSN),
            0);

  ibv_srq_init_attr receives = {};
  receives.attr = {4, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &receives);
  ASSERT_NE(srq, nullptr);
  attr = Attributes(IBV_QPT_DRIVER);
  attr.send_cq = attr.recv_cq = b_.cq;
  attr.cap = {};
  attr.srq = srq;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
  mlx5.dc_init_attr.dct_access_key = kKey;
  b_.qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(b_.qp, nullptr) << std::strerror(errno);
  to_init_and_rtr(b_.qp, IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);

  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  for (const uint64_t id : {0x41, 0x42}) {
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(qp, b_.mr->rkey, b_.address());
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah, b_.qp->qp_num,
                          kKey);
    ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 3000);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    ExpectSuccess(a_.cq, id);
  }

  const std::vector<Json> events = Await(2);
  for (const char* id : {"0x41", "0x42"}) {
    const Json post = Find(events, "posted", id);
    EXPECT_EQ(post["opcode"], "RDMA_WRITE");
    EXPECT_EQ(post["bytes"], 3000);
    EXPECT_EQ(post["sges"], 1);
    EXPECT_EQ(post["qpn"], a_.qp->qp_num);
    EXPECT_EQ(post["error"], 0);
    const Json begun = Find(events, "begun", id);
    EXPECT_EQ(begun["cause"], post["id"]);
    EXPECT_EQ(begun["last_psn"].get<int>() - begun["first_psn"].get<int>(), 2);
    const Json done = Find(events, "completed", id);
    EXPECT_EQ(done["posted"], post["id"]);
    EXPECT_EQ(Find(events, "polled", id)["cause"], done["id"]);
  }
  DestroyQp(&a_);
  DestroyQp(&b_);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
}

TEST_F(Mlx5TraceTest, CopiesOfMemory) {
  ibv_qp_init_attr_ex attr = Attributes(IBV_QPT_RC);
  mlx5dv_qp_init_attr mlx5 = {};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  mlx5.send_ops_flags = MLX5DV_QP_EX_WITH_MEMCPY;
  a_.qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  ASSERT_NE(a_.qp, nullptr) << std::strerror(errno);
  ASSERT_EQ(ToRts(a_.qp, a_.qp->qp_num), 0);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  ibv_wr_start(qp);
  qp->wr_id = 0x77;
  qp->wr_flags = IBV_SEND_SIGNALED;
  mlx5dv_wr_memcpy(mlx5dv_qp_ex_from_ibv_qp_ex(qp), a_.mr->lkey, a_.address(),
                   b_.mr->lkey, b_.address(), 4097);
  ASSERT_EQ(ibv_wr_complete(qp), 0);
  ExpectSuccess(a_.cq, 0x77);
  const std::vector<Json> events = Await(1);
  const Json post = Find(events, "posted", "0x77");
  EXPECT_EQ(post["opcode"], "MEMCPY");
  EXPECT_EQ(post["bytes"], 4097);
  EXPECT_EQ(Find(events, "completed", "0x77")["posted"], post["id"]);
}

}  // namespace
}  // namespace conformance
