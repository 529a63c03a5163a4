#include "tests/kernel_peer/verbs_pair/rig.h"

#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace verbs_pair {
namespace {

uint8_t PatternByte(size_t i, uint32_t seed) {
  return static_cast<uint8_t>((i * 2654435761u + seed * 40503u) >> 11);
}

}  // namespace

int64_t NowMs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

void FillPattern(uint8_t* bytes, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; ++i) bytes[i] = PatternByte(i, seed);
}

bool HoldsPattern(const uint8_t* bytes, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != PatternByte(i, seed)) return false;
  }
  return true;
}

void CheckPattern(const uint8_t* bytes, size_t size, uint32_t seed,
                  const char* what) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != PatternByte(i, seed)) {
      Fail("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, i, size, bytes[i],
           PatternByte(i, seed));
    }
  }
}

void CheckBytes(const uint8_t* bytes, size_t size, uint8_t value,
                const char* what) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != value) {
      Fail("%s: byte %zu of %zu is 0x%02x, not 0x%02x", what, i, size, bytes[i],
           value);
    }
  }
}

void CheckReceived(const ibv_wc& wc, ibv_wc_opcode opcode, size_t length,
                   unsigned flags) {
  if (wc.opcode != opcode || wc.byte_len != length ||
      (wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) != flags) {
    Fail("received opcode %d, %u bytes, flags 0x%x; not %d, %zu, 0x%x",
         wc.opcode, wc.byte_len, wc.wc_flags, opcode, length, flags);
  }
}

Link::Link(const Rig& rig, const Options& options)
    : rig_(rig), options_(options) {
  pd_ = options.pd != nullptr ? options.pd : ibv_alloc_pd(rig.context);
  if (pd_ == nullptr) Fail("ibv_alloc_pd: %s", std::strerror(errno));
  memory_ = std::make_unique<uint8_t[]>(options.memory);
  mr_ = ibv_reg_mr(pd_, memory_.get(), options.memory,
                   static_cast<unsigned>(options.mr_access));
  if (mr_ == nullptr) Fail("ibv_reg_mr: %s", std::strerror(errno));
  if (options.channel) {
    channel_ = ibv_create_comp_channel(rig.context);
    if (channel_ == nullptr) {
      Fail("ibv_create_comp_channel: %s", std::strerror(errno));
    }
    fcntl(channel_->fd, F_SETFL, fcntl(channel_->fd, F_GETFL) | O_NONBLOCK);
  }
  cq_ = ibv_create_cq(rig.context, static_cast<int>(2 * options.depth), nullptr,
                      channel_, 0);
  if (cq_ == nullptr) Fail("ibv_create_cq: %s", std::strerror(errno));
  if (options.srq) {
    ibv_srq_init_attr attr = {};
    attr.attr.max_wr = options.depth;
    attr.attr.max_sge = options.sges;
    srq_ = ibv_create_srq(pd_, &attr);
    if (srq_ == nullptr) Fail("ibv_create_srq: %s", std::strerror(errno));
  }
  CreateQp();
  Connect();
}

Link::~Link() {
  if (qp_ != nullptr) ibv_destroy_qp(qp_);
  if (srq_ != nullptr) ibv_destroy_srq(srq_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (pd_ != nullptr && options_.pd == nullptr) ibv_dealloc_pd(pd_);
}

void Link::CreateQp() {
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = cq_;
  attr.recv_cq = cq_;
  attr.srq = srq_;
  attr.qp_type = options_.type;
  attr.cap.max_send_wr = options_.depth;
  attr.cap.max_recv_wr = srq_ != nullptr ? 0 : options_.depth;
  attr.cap.max_send_sge = options_.sges;
  attr.cap.max_recv_sge = srq_ != nullptr ? 0 : options_.sges;
  attr.cap.max_inline_data = options_.inline_data;
  if (options_.send_ops != 0) {
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = options_.send_ops;
    qp_ = ibv_create_qp_ex(pd_->context, &attr);
  } else {  // the extended structure begins with the members of the plain one
    qp_ = ibv_create_qp(pd_, reinterpret_cast<ibv_qp_init_attr*>(&attr));
  }
  if (qp_ == nullptr) Fail("ibv_create_qp: %s", std::strerror(errno));
}

int Link::Masked(int mask) const {
  constexpr int kReliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER |
                            IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                            IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  return options_.type == IBV_QPT_RC ? mask : mask & ~kReliable;
}

void Link::Connect() {
  ibv_port_attr port;
  if (int error = ibv_query_port(rig_.context, 1, &port); error != 0) {
    Fail("ibv_query_port: %s", std::strerror(error));
  }
  Address mine = {};
  mine.address = reinterpret_cast<uintptr_t>(memory());
  mine.rkey = mr_->rkey;
  mine.qpn = qp_->qp_num;
  if (ibv_query_gid(rig_.context, 1, rig_.gid_index, &mine.gid) != 0) {
    Fail("ibv_query_gid: %s", std::strerror(errno));
  }
  const std::string theirs = rig_.wire_up->Exchange(
      std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)));
  if (theirs.size() != sizeof(remote_)) Fail("not an address");
  std::memcpy(&remote_, theirs.data(), sizeof(remote_));

  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = options_.qp_access;
  int error = ibv_modify_qp(
      qp_, &attr,
      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  if (error != 0) Fail("to INIT: %s", std::strerror(error));

  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = port.active_mtu;
  attr.dest_qp_num = remote_.qpn;
  attr.rq_psn = options_.sq_psn;
  attr.max_dest_rd_atomic = 8;
  attr.min_rnr_timer = options_.min_rnr_timer;
  attr.ah_attr.is_global = 1;
  attr.ah_attr.port_num = 1;
  attr.ah_attr.grh.dgid = remote_.gid;
  attr.ah_attr.grh.sgid_index = static_cast<uint8_t>(rig_.gid_index);
  attr.ah_attr.grh.hop_limit = options_.hop_limit;
  attr.ah_attr.grh.traffic_class = options_.traffic_class;
  attr.ah_attr.grh.flow_label = options_.flow_label;
  error = ibv_modify_qp(
      qp_, &attr,
      Masked(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
  if (error != 0) Fail("to RTR: %s", std::strerror(error));

  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = options_.sq_psn;
  attr.timeout = options_.timeout;
  attr.retry_cnt = options_.retry_cnt;
  attr.rnr_retry = options_.rnr_retry;
  attr.max_rd_atomic = 8;
  error = ibv_modify_qp(
      qp_, &attr,
      Masked(IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
             IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC));
  if (error != 0) Fail("to RTS: %s", std::strerror(error));
  rig_.wire_up->Barrier();
}

void Link::Reconnect(uint32_t sq_psn) {
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_RESET;
  if (int error = ibv_modify_qp(qp_, &attr, IBV_QP_STATE); error != 0) {
    Fail("to RESET: %s", std::strerror(error));
  }
  options_.sq_psn = sq_psn;
  Connect();
}

void Link::DestroyQp() {
  if (int error = ibv_destroy_qp(qp_); error != 0) {
    Fail("ibv_destroy_qp: %s", std::strerror(error));
  }
  qp_ = nullptr;
}

ibv_sge Link::Piece(size_t offset, size_t length) const {
  return {.addr = reinterpret_cast<uintptr_t>(memory_.get()) + offset,
          .length = static_cast<uint32_t>(length),
          .lkey = mr_->lkey};
}

void Link::Post(ibv_send_wr* wr) {
  ibv_send_wr* bad = nullptr;
  if (int error = ibv_post_send(qp_, wr, &bad); error != 0) {
    Fail("ibv_post_send: %s", std::strerror(error));
  }
}

void Link::PostRecv(uint64_t id, std::vector<ibv_sge> pieces) {
  ibv_recv_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  ibv_recv_wr* bad = nullptr;
  const int error = srq_ != nullptr ? ibv_post_srq_recv(srq_, &wr, &bad)
                                    : ibv_post_recv(qp_, &wr, &bad);
  if (error != 0) Fail("posting a receive: %s", std::strerror(error));
}

void Link::Send(uint64_t id, std::vector<ibv_sge> pieces, unsigned flags) {
  ibv_send_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  Post(&wr);
}

void Link::Rdma(ibv_wr_opcode opcode, uint64_t id, std::vector<ibv_sge> pieces,
                uint64_t remote_offset, uint32_t immediate, unsigned flags) {
  ibv_send_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED | flags;
  wr.imm_data = immediate;
  wr.wr.rdma.remote_addr = remote_.address + remote_offset;
  wr.wr.rdma.rkey = remote_.rkey;
  Post(&wr);
}

void Link::RdmaAt(ibv_wr_opcode opcode, uint64_t id,
                  std::vector<ibv_sge> pieces, uint64_t address, uint32_t key) {
  ibv_send_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = pieces.data();
  wr.num_sge = static_cast<int>(pieces.size());
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = key;
  Post(&wr);
}

void Link::Atomic(ibv_wr_opcode opcode, uint64_t id, size_t offset,
                  uint64_t remote_address, uint32_t key, uint64_t compare_add,
                  uint64_t swap) {
  ibv_sge piece = Piece(offset, 8);
  ibv_send_wr wr = {};
  wr.wr_id = id;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic.remote_addr = remote_address;
  wr.wr.atomic.rkey = key;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  Post(&wr);
}

bool Link::Poll(ibv_wc* wc, int limit_ms) {
  const int64_t end = NowMs() + limit_ms;
  do {
    const int n = ibv_poll_cq(cq_, 1, wc);
    if (n < 0) Fail("ibv_poll_cq failed");
    if (n == 1) return true;
  } while (NowMs() < end);
  return false;
}

ibv_wc Link::Next(int limit_ms) {
  ibv_wc wc;
  if (!Poll(&wc, limit_ms)) Fail("no completion within %d ms", limit_ms);
  return wc;
}

ibv_wc Link::Expect(uint64_t id, ibv_wc_status status) {
  const ibv_wc wc = Next();
  if (wc.status != status || wc.wr_id != id) {
    Fail(
        "work request %llu completed with '%s' (vendor 0x%x), not %llu with "
        "'%s'",
        static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status),
        wc.vendor_err, static_cast<unsigned long long>(id),
        ibv_wc_status_str(status));
  }
  return wc;
}

void Link::ExpectNone(int ms) {
  ibv_wc wc;
  if (Poll(&wc, ms)) {
    Fail("a completion where none was to come: '%s'",
         ibv_wc_status_str(wc.status));
  }
}

void Link::ExpectState(ibv_qp_state state) {
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  // rxe completes the work request first and changes the state afterwards.
  const int64_t end = NowMs() + (rig_.rxe ? kLimitMs : 0);
  do {
    if (int error = ibv_query_qp(qp_, &attr, IBV_QP_STATE, &init); error != 0) {
      Fail("ibv_query_qp: %s", std::strerror(error));
    }
    if (attr.qp_state == state) return;
  } while (NowMs() < end);
  Fail("the QP's state is %d, not %d", attr.qp_state, state);
}

bool Link::NextEvent(ibv_async_event* event, int limit_ms) {
  const int64_t end = NowMs() + limit_ms;
  for (;;) {
    pollfd fd = {.fd = rig_.context->async_fd, .events = POLLIN, .revents = 0};
    const int64_t left = end - NowMs();
    if (poll(&fd, 1, left > 0 ? static_cast<int>(left) : 0) <= 0) return false;
    if (ibv_get_async_event(rig_.context, event) != 0) return false;
    ibv_ack_async_event(event);
    if (event->event_type != IBV_EVENT_COMM_EST) return true;
  }
}

void Link::ExpectEvent(ibv_event_type type) {
  ibv_async_event event;
  if (!NextEvent(&event, kLimitMs)) {
    Fail("no '%s' event", ibv_event_type_str(type));
  }
  if (event.event_type != type || event.element.qp != qp_) {
    Fail("event '%s', not '%s' of the QP", ibv_event_type_str(event.event_type),
         ibv_event_type_str(type));
  }
}

void Link::ExpectNoEvent() {
  ibv_async_event event;
  if (NextEvent(&event, 0)) {
    Fail("an event where none was to come: '%s'",
         ibv_event_type_str(event.event_type));
  }
}

}  // namespace verbs_pair
