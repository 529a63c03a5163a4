// Calls that create objects without memory, at each allocation: they return
// ENOMEM and leave nothing that keeps another object in use. Destroying does
// not allocate.
#include <infiniband/verbs.h>
#include <poll.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/scarce_malloc.h"

namespace conformance {
namespace {

size_t CountDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

class NoMemoryTest : public PairTest {
 protected:
  void SetUp() override {
    if (!MallocCanBeRefused()) GTEST_SKIP() << "malloc is the sanitizer's";
    // The process has its sockets and threads from here on.
    ASSERT_NO_FATAL_FAILURE(PairTest::SetUp());
  }
  void TearDown() override {
    if (MallocCanBeRefused()) PairTest::TearDown();
  }

  template <typename Call>
  auto Make(const char* what, Call make) {
    return UntilThereIsMemory(what, make, &refused_);
  }
  // The same for a call that returns an errno value.
  template <typename Call>
  void Do(const char* what, Call call) {
    int done = 0;
    Make(what, [&]() -> int* {
      const int error = call();
      if (error != 0) errno = error;
      return error == 0 ? &done : nullptr;
    });
  }
  // Destroys without allocating; nothing else may use `object`.
  template <typename Object>
  void Destroy(int (*destroy)(Object*), Object* object, const char* what) {
    mallocs_left = 0;
    const int error = destroy(object);
    mallocs_left = kUnlimited;
    EXPECT_EQ(error, 0) << what;
  }

  ibv_qp_init_attr_ex QpAttributes(ibv_qp_type type, ibv_cq* cq) const {
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = type;
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {16, 16, 2, 2, 64};
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    attr.pd = pd_;
    return attr;
  }

  int refused_ = 0;
};

#define DESTROY(destroy, object) Destroy(destroy, object, #destroy)

TEST_F(NoMemoryTest, Contexts) {
  const size_t descriptors = CountDescriptors();
  int count = 0;
  ibv_device** const list =
      Make("ibv_get_device_list", [&] { return ibv_get_device_list(&count); });
  ASSERT_GT(count, 0);
  ibv_context* const context =
      Make("ibv_open_device", [&] { return ibv_open_device(list[0]); });
  ibv_pd* const pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr);
  DESTROY(ibv_dealloc_pd, pd);
  DESTROY(ibv_close_device, context);
  ibv_free_device_list(list);
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, Domains) {
  ibv_pd* const pd =
      Make("ibv_alloc_pd", [&] { return ibv_alloc_pd(context_); });
  ibv_td_init_attr td_attr = {};
  ibv_td* const td =
      Make("ibv_alloc_td", [&] { return ibv_alloc_td(context_, &td_attr); });
  ibv_parent_domain_init_attr attr = {};
  attr.pd = pd;
  attr.td = td;
  attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
  attr.alloc = [](ibv_pd*, void*, size_t, size_t, uint64_t) {
    return IBV_ALLOCATOR_USE_DEFAULT;
  };
  attr.free = [](ibv_pd*, void*, void*, uint64_t) {};
  ibv_pd* const parent = Make("ibv_alloc_parent_domain", [&] {
    return ibv_alloc_parent_domain(context_, &attr);
  });
  ibv_xrcd_init_attr xrcd_attr = {};
  xrcd_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd_attr.fd = -1;
  xrcd_attr.oflags = 0100;  // O_CREAT
  ibv_xrcd* const xrcd = Make(
      "ibv_open_xrcd", [&] { return ibv_open_xrcd(context_, &xrcd_attr); });
  DESTROY(ibv_close_xrcd, xrcd);
  DESTROY(ibv_dealloc_pd, parent);
  DESTROY(ibv_dealloc_td, td);
  DESTROY(ibv_dealloc_pd, pd);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, Memory) {
  std::vector<char> bytes(64 * 1024);
  ibv_mr* const mr = Make("ibv_reg_mr", [&] {
    return ibv_reg_mr(pd_, bytes.data(), bytes.size(), kAllAccess);
  });
  Do("ibv_rereg_mr", [&] {
    const int result = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                                    nullptr, 0, IBV_ACCESS_LOCAL_WRITE);
    return result == 0 ? 0 : errno;
  });
  ibv_mr* const null_mr =
      Make("ibv_alloc_null_mr", [&] { return ibv_alloc_null_mr(pd_); });
  ibv_mr* const odp = Make("ibv_reg_mr, implicit on demand", [&] {
    return ibv_reg_mr(pd_, nullptr, SIZE_MAX,
                      IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
  });
  ibv_mw* const mw =
      Make("ibv_alloc_mw", [&] { return ibv_alloc_mw(pd_, IBV_MW_TYPE_2); });
  ibv_alloc_dm_attr dm_attr = {};
  dm_attr.length = 4096;
  ibv_dm* const dm =
      Make("ibv_alloc_dm", [&] { return ibv_alloc_dm(context_, &dm_attr); });
  ibv_mr* const dm_mr = Make("ibv_reg_dm_mr", [&] {
    return ibv_reg_dm_mr(pd_, dm, 0, 4096, IBV_ACCESS_ZERO_BASED);
  });
  DESTROY(ibv_dereg_mr, dm_mr);
  DESTROY(ibv_free_dm, dm);
  DESTROY(ibv_dealloc_mw, mw);
  DESTROY(ibv_dereg_mr, odp);
  DESTROY(ibv_dereg_mr, null_mr);
  DESTROY(ibv_dereg_mr, mr);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, Queues) {
  ibv_comp_channel* const channel = Make("ibv_create_comp_channel", [&] {
    return ibv_create_comp_channel(context_);
  });
  ibv_cq* const cq = Make("ibv_create_cq", [&] {
    return ibv_create_cq(context_, 16, nullptr, channel, 0);
  });
  Do("ibv_resize_cq", [&] { return ibv_resize_cq(cq, 64); });
  ibv_cq_init_attr_ex cq_attr = {};
  cq_attr.cqe = 16;
  ibv_cq_ex* const extended = Make(
      "ibv_create_cq_ex", [&] { return ibv_create_cq_ex(context_, &cq_attr); });
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr = {16, 2, 0};
  ibv_srq* const srq =
      Make("ibv_create_srq", [&] { return ibv_create_srq(pd_, &srq_attr); });
  ibv_srq_attr more = {.max_wr = 64, .max_sge = 0, .srq_limit = 0};
  Do("ibv_modify_srq",
     [&] { return ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR); });
  DESTROY(ibv_destroy_srq, srq);
  DESTROY(ibv_destroy_cq, ibv_cq_ex_to_cq(extended));
  DESTROY(ibv_destroy_cq, cq);
  DESTROY(ibv_destroy_comp_channel, channel);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, QueuePairs) {
  ibv_cq* const cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  for (const ibv_qp_type type :
       {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND}) {
    SCOPED_TRACE(type);
    ibv_qp_init_attr_ex attr = QpAttributes(type, cq);
    if (type == IBV_QPT_XRC_SEND) {
      attr.recv_cq = nullptr;
      attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
    }
    ibv_qp* const qp = Make("ibv_create_qp_ex",
                            [&] { return ibv_create_qp_ex(context_, &attr); });
    if (type == IBV_QPT_RC) {
      Do("ibv_modify_qp", [&] {
        ibv_qp_attr reset = {};
        reset.qp_state = IBV_QPS_RESET;
        const int error = ibv_modify_qp(qp, &reset, IBV_QP_STATE);
        return error != 0 ? error : ToRts(qp, qp->qp_num);
      });
    }
    DESTROY(ibv_destroy_qp, qp);
  }
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr = {16, 2, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &srq_attr);
  ibv_qp_init_attr_ex with_srq = QpAttributes(IBV_QPT_RC, cq);
  with_srq.srq = srq;
  ibv_qp* const qp = Make("ibv_create_qp_ex, with an SRQ", [&] {
    return ibv_create_qp_ex(context_, &with_srq);
  });
  DESTROY(ibv_destroy_qp, qp);
  DESTROY(ibv_destroy_srq, srq);
  DESTROY(ibv_destroy_cq, cq);
  EXPECT_GT(refused_, 0);
}

// A batch that lacks memory at any of its calls posts nothing.
TEST_F(NoMemoryTest, WorkBuilders) {
  Do("ibv_wr_complete", [&] {
    const int granted = std::exchange(mallocs_left, kUnlimited);
    // A new one has no memory of an earlier batch.
    Side side;
    QpOptions options;
    options.send_ops = IBV_QP_EX_WITH_RDMA_WRITE;
    MakeSide(&side, options);
    EXPECT_EQ(ToRts(side.qp, side.qp->qp_num), 0);
    ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(side.qp);
    uint64_t data = 1;
    mallocs_left = granted;
    ibv_wr_start(qpx);
    qpx->wr_flags = IBV_SEND_SIGNALED;
    for (qpx->wr_id = 1; qpx->wr_id <= 2; ++qpx->wr_id) {
      ibv_wr_rdma_write(qpx, side.mr->rkey, side.address());
      ibv_wr_set_inline_data(qpx, &data, sizeof(data));
    }
    const int error = ibv_wr_complete(qpx);
    mallocs_left = kUnlimited;
    if (error == 0) {
      ExpectSuccess(side.cq, 1);
      ExpectSuccess(side.cq, 2);
    } else {
      EXPECT_EQ(Send(side, IBV_WR_RDMA_WRITE, 3, 0, 8, IBV_SEND_SIGNALED,
                     side.address(), side.mr->rkey),
                0);
      ExpectSuccess(side.cq, 3);
    }
    DestroySide(&side);
    return error;
  });
  EXPECT_GT(refused_, 0);
}

// More handles than a chunk of their table, and than their lists, hold. A
// handle that could not be opened gets no events.
TEST_F(NoMemoryTest, OpenedTargets) {
  ibv_context* const context = ibv_open_device(context_->device);
  ASSERT_NE(context, nullptr);
  ibv_xrcd_init_attr xrcd_attr = {};
  xrcd_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd_attr.fd = -1;
  xrcd_attr.oflags = 0100;  // O_CREAT
  ibv_xrcd* const xrcd = ibv_open_xrcd(context, &xrcd_attr);
  ASSERT_NE(xrcd, nullptr);
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = xrcd;
  std::vector<ibv_qp*> handles = {Make("ibv_create_qp_ex, target", [&] {
    return ibv_create_qp_ex(context, &attr);
  })};
  ToInit(handles[0]);
  ibv_qp_open_attr open_attr = {};
  open_attr.comp_mask =
      IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  open_attr.qp_num = handles[0]->qp_num;
  open_attr.xrcd = xrcd;
  open_attr.qp_type = IBV_QPT_XRC_RECV;
  while (handles.size() < 1100) {
    handles.push_back(
        Make("ibv_open_qp", [&] { return ibv_open_qp(context, &open_attr); }));
  }
  ibv_qp_attr error = {};
  error.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(handles[0], &error, IBV_QP_STATE), 0);
  std::set<ibv_qp*> told;
  for (pollfd p = {context->async_fd, POLLIN, 0}; poll(&p, 1, 0) == 1;) {
    ibv_async_event event = {};
    ASSERT_EQ(ibv_get_async_event(context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
    EXPECT_TRUE(told.insert(event.element.qp).second);
    ibv_ack_async_event(&event);
  }
  EXPECT_EQ(told, std::set<ibv_qp*>(handles.begin(), handles.end()));
  for (ibv_qp* const qp : handles) DESTROY(ibv_destroy_qp, qp);
  DESTROY(ibv_close_xrcd, xrcd);
  DESTROY(ibv_close_device, context);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, AddressesAndGroups) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = gid_index_;
  attr.grh.hop_limit = 64;
  ibv_ah* const ah =
      Make("ibv_create_ah", [&] { return ibv_create_ah(pd_, &attr); });
  DESTROY(ibv_destroy_ah, ah);
  ibv_cq* const cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
  ibv_qp_init_attr_ex ud = QpAttributes(IBV_QPT_UD, cq);
  ibv_qp* const qp = ibv_create_qp_ex(context_, &ud);
  ASSERT_NE(qp, nullptr);
  ibv_gid group = {};
  group.raw[10] = group.raw[11] = 0xff;
  const uint8_t address[] = {239, 1, 2, 3};
  std::memcpy(&group.raw[12], address, sizeof(address));
  Do("ibv_attach_mcast", [&] { return ibv_attach_mcast(qp, &group, 0); });
  EXPECT_EQ(ibv_detach_mcast(qp, &group, 0), 0);
  // The interface has left the group.
  std::ifstream groups("/proc/self/net/igmp");
  const std::string all((std::istreambuf_iterator<char>(groups)),
                        std::istreambuf_iterator<char>());
  EXPECT_EQ(all.find("030201EF"), std::string::npos) << all;
  DESTROY(ibv_destroy_qp, qp);
  DESTROY(ibv_destroy_cq, cq);
  EXPECT_GT(refused_, 0);
}

TEST_F(NoMemoryTest, WorkQueuesAndFlows) {
  ibv_cq* const cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
  ibv_wq_init_attr wq_attr = {};
  wq_attr.wq_type = IBV_WQT_RQ;
  wq_attr.max_wr = 16;
  wq_attr.max_sge = 1;
  wq_attr.pd = pd_;
  wq_attr.cq = cq;
  ibv_wq* const wq =
      Make("ibv_create_wq", [&] { return ibv_create_wq(context_, &wq_attr); });
  ibv_rwq_ind_table_init_attr table_attr = {};
  ibv_wq* queues[] = {wq};
  table_attr.ind_tbl = queues;
  ibv_rwq_ind_table* const table = Make("ibv_create_rwq_ind_table", [&] {
    return ibv_create_rwq_ind_table(context_, &table_attr);
  });
  ibv_qp_init_attr_ex raw = QpAttributes(IBV_QPT_RAW_PACKET, cq);
  ibv_qp* const first = ibv_create_qp_ex(context_, &raw);
  if (first == nullptr && errno == EPERM) {
    DESTROY(ibv_destroy_rwq_ind_table, table);
    DESTROY(ibv_destroy_wq, wq);
    DESTROY(ibv_destroy_cq, cq);
    GTEST_SKIP() << "raw packets want CAP_NET_RAW";
  }
  ASSERT_NE(first, nullptr);
  ibv_qp* const qp = Make("ibv_create_qp_ex, raw packets",
                          [&] { return ibv_create_qp_ex(context_, &raw); });
  struct {
    ibv_flow_attr attr;
    ibv_flow_spec_eth eth;
  } rule = {};
  rule.attr.type = IBV_FLOW_ATTR_NORMAL;
  rule.attr.size = sizeof(rule);
  rule.attr.num_of_specs = 1;
  rule.attr.port = 1;
  rule.eth.type = IBV_FLOW_SPEC_ETH;
  rule.eth.size = sizeof(rule.eth);
  rule.eth.val.ether_type = 0x0008;
  rule.eth.mask.ether_type = 0xffff;
  ibv_flow* const flow =
      Make("ibv_create_flow", [&] { return ibv_create_flow(qp, &rule.attr); });
  ibv_counters_init_attr counters_attr = {};
  ibv_counters* const counters = Make("ibv_create_counters", [&] {
    return ibv_create_counters(context_, &counters_attr);
  });
  DESTROY(ibv_destroy_counters, counters);
  DESTROY(ibv_destroy_flow, flow);
  DESTROY(ibv_destroy_qp, qp);
  DESTROY(ibv_destroy_qp, first);
  DESTROY(ibv_destroy_rwq_ind_table, table);
  DESTROY(ibv_destroy_wq, wq);
  DESTROY(ibv_destroy_cq, cq);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace conformance
