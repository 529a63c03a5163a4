#include "tests/conformance/fixture.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cstring>

namespace conformance {

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void FillPattern(uint8_t* bytes, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 11);
  }
}

bool HasPattern(const uint8_t* bytes, size_t size, uint32_t seed) {
  std::vector<uint8_t> wanted(size);
  FillPattern(wanted.data(), size, seed);
  return size == 0 || std::memcmp(bytes, wanted.data(), size) == 0;
}

void DeviceTest::SetUp() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  const uint8_t loopback[16] = {0, 0, 0,    0,    0,   0, 0, 0,
                                0, 0, 0xff, 0xff, 127, 0, 0, 1};
  for (int i = 0; i < count && context_ == nullptr; ++i) {
    ibv_context* context = ibv_open_device(list[i]);
    ASSERT_NE(context, nullptr);
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(context, 1, &port), 0);
    for (int g = 0; g < port.gid_tbl_len; ++g) {
      ibv_gid gid;
      ASSERT_EQ(ibv_query_gid(context, 1, g, &gid), 0);
      if (std::memcmp(gid.raw, loopback, sizeof(loopback)) == 0) {
        context_ = context;
        gid_index_ = static_cast<uint8_t>(g);
        gid_ = gid;
        break;
      }
    }
    if (context_ == nullptr) {
      ASSERT_EQ(ibv_close_device(context), 0);
    }
  }
  ibv_free_device_list(list);
  ASSERT_NE(context_, nullptr) << "no device has the address 127.0.0.1";
  pd_ = ibv_alloc_pd(context_);
  ASSERT_NE(pd_, nullptr);
}

void DeviceTest::TearDown() {
  if (pd_ != nullptr) {
    EXPECT_EQ(ibv_dealloc_pd(pd_), 0);
  }
  if (context_ != nullptr) {
    EXPECT_EQ(ibv_close_device(context_), 0);
  }
}

void PairTest::SetUp() {
  DeviceTest::SetUp();
  if (HasFatalFailure() || !make_pair_) return;
  MakeSide(&a_);
  MakeSide(&b_);
  if (HasFatalFailure()) return;
  Connect(&a_, &b_);
}

void PairTest::TearDown() {
  DestroySide(&a_);
  DestroySide(&b_);
  DeviceTest::TearDown();
}

void PairTest::MakeSide(Side* side, const QpOptions& options, int cqe,
                        ibv_comp_channel* channel, size_t memory, int access) {
  side->cq = ibv_create_cq(context_, cqe, side, channel, 0);
  ASSERT_NE(side->cq, nullptr);
  if (options.send_ops != 0) {
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = side->cq;
    attr.recv_cq = side->cq;
    attr.srq = options.srq;
    attr.cap = options.cap;
    attr.qp_type = options.type;
    attr.sq_sig_all = options.signal_all;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = options.send_ops;
    if (options.create_flags != 0) {
      attr.comp_mask |= IBV_QP_INIT_ATTR_CREATE_FLAGS;
      attr.create_flags = options.create_flags;
    }
    if (options.max_tso_header != 0) {
      attr.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
      attr.max_tso_header = options.max_tso_header;
    }
    side->qp = ibv_create_qp_ex(context_, &attr);
  } else {
    ibv_qp_init_attr attr = {};
    attr.send_cq = side->cq;
    attr.recv_cq = side->cq;
    attr.srq = options.srq;
    attr.cap = options.cap;
    attr.qp_type = options.type;
    attr.sq_sig_all = options.signal_all;
    side->qp = ibv_create_qp(pd_, &attr);
  }
  ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
  side->memory.assign(memory, 0);
  side->mr = ibv_reg_mr(pd_, side->memory.data(), memory,
                        static_cast<unsigned>(access));
  ASSERT_NE(side->mr, nullptr) << std::strerror(errno);
}

void PairTest::DestroyQp(Side* side) {
  if (side->qp != nullptr) {
    EXPECT_EQ(ibv_destroy_qp(side->qp), 0);
  }
  side->qp = nullptr;
}

void PairTest::DestroySide(Side* side) {
  DestroyQp(side);
  if (side->mr != nullptr) {
    EXPECT_EQ(ibv_dereg_mr(side->mr), 0);
  }
  if (side->cq != nullptr) {
    EXPECT_EQ(ibv_destroy_cq(side->cq), 0);
  }
  *side = Side();
}

void PairTest::ToInit(ibv_qp* qp, const ConnectOptions& options) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = static_cast<unsigned>(options.access);
  ASSERT_EQ(ibv_modify_qp(qp, &attr,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                              IBV_QP_ACCESS_FLAGS),
            0);
}

ibv_qp_attr PairTest::RtrAttributes(uint32_t peer,
                                    const ConnectOptions& options) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = options.mtu;
  attr.dest_qp_num = peer;
  attr.rq_psn = 0x123456;
  attr.max_dest_rd_atomic = options.max_rd_atomic;
  attr.min_rnr_timer = options.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = gid_;
  attr.ah_attr.grh.sgid_index = gid_index_;
  attr.ah_attr.grh.hop_limit = 1;
  return attr;
}

int PairTest::ToRts(ibv_qp* qp, uint32_t peer, const ConnectOptions& options) {
  ToInit(qp, options);
  int to_rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
               IBV_QP_RQ_PSN;
  int to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;
  // XRC ignores attributes that only the other half has.
  if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND ||
      qp->qp_type == IBV_QPT_XRC_RECV) {
    to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
              IBV_QP_MAX_QP_RD_ATOMIC;
  }
  ibv_qp_attr attr = RtrAttributes(peer, options);
  const int error = ibv_modify_qp(qp, &attr, to_rtr);
  if (error != 0) return error;
  attr = {};
  attr.qp_state = IBV_QPS_RTS;
  attr.timeout = options.timeout;
  attr.retry_cnt = options.retry_cnt;
  attr.rnr_retry = options.rnr_retry;
  attr.sq_psn = 0x123456;
  attr.max_rd_atomic = options.max_rd_atomic;
  return ibv_modify_qp(qp, &attr, to_rts);
}

void PairTest::ToRtsAsUd(ibv_qp* qp, uint32_t qkey) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qkey = qkey;
  ASSERT_EQ(ibv_modify_qp(
                qp, &attr,
                IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY),
            0);
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN), 0);
}

void PairTest::Connect(Side* a, Side* b, const ConnectOptions& options) {
  ASSERT_EQ(ToRts(a->qp, b->qp->qp_num, options), 0);
  ASSERT_EQ(ToRts(b->qp, a->qp->qp_num, options), 0);
}

std::optional<ibv_wc> PairTest::Within(ibv_cq* cq, int ms) {
  const int64_t until = NowMs() + ms;
  do {
    ibv_wc wc;
    const int got = ibv_poll_cq(cq, 1, &wc);
    EXPECT_GE(got, 0);
    if (got == 1) return wc;
    if (got < 0) return std::nullopt;
  } while (NowMs() < until);
  return std::nullopt;
}

ibv_wc PairTest::Next(ibv_cq* cq) {
  std::optional<ibv_wc> wc = Within(cq, kTimeoutMs);
  EXPECT_TRUE(wc.has_value()) << "no completion";
  return wc.value_or(ibv_wc{});
}

ibv_wc PairTest::ExpectSuccess(ibv_cq* cq, uint64_t wr_id) {
  const ibv_wc wc = Next(cq);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
  EXPECT_EQ(wc.wr_id, wr_id);
  return wc;
}

void PairTest::ExpectStatus(ibv_cq* cq, uint64_t wr_id, ibv_wc_status status) {
  const ibv_wc wc = Next(cq);
  EXPECT_EQ(wc.status, status) << ibv_wc_status_str(wc.status) << " instead of "
                               << ibv_wc_status_str(status);
  EXPECT_EQ(wc.wr_id, wr_id);
}

int PairTest::Send(Side& side, ibv_wr_opcode opcode, uint64_t wr_id,
                   size_t offset, uint32_t length, unsigned flags,
                   uint64_t remote_addr, uint32_t rkey) {
  ibv_sge sge = side.Sge(offset, length);
  ibv_send_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  wr.opcode = opcode;
  wr.send_flags = flags;
  wr.wr.rdma.remote_addr = remote_addr;
  wr.wr.rdma.rkey = rkey;
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(side.qp, &wr, &bad);
}

int PairTest::Receive(Side& side, uint64_t wr_id, size_t offset,
                      uint32_t length) {
  ibv_sge sge = side.Sge(offset, length);
  ibv_recv_wr wr = {};
  wr.wr_id = wr_id;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(side.qp, &wr, &bad);
}

void PairTest::ExpectNothing(ibv_cq* cq) {
  ibv_wc wc = {};
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0) << "wr_id " << wc.wr_id;
}

void PairTest::AwaitUnpolled(Side& side, const uint8_t* last) {
  // When the last byte has arrived, everything was sent ...
  const volatile uint8_t* byte = last;
  const int64_t limit = NowMs() + kTimeoutMs;
  while (*byte == 0 && NowMs() < limit) std::this_thread::yield();
  ASSERT_NE(*byte, 0);
  // ... and it is complete when the send queue has drained.
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  ASSERT_EQ(
      ibv_modify_qp(side.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY),
      0);
  pollfd p = {context_->async_fd, POLLIN, 0};
  ASSERT_EQ(poll(&p, 1, kTimeoutMs), 1);
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  ibv_ack_async_event(&event);
  ASSERT_EQ(event.event_type, IBV_EVENT_SQ_DRAINED);
  ASSERT_EQ(event.element.qp, side.qp);
  attr.qp_state = IBV_QPS_RTS;
  ASSERT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
}

ibv_qp_state PairTest::StateOf(ibv_qp* qp) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

}  // namespace conformance
