#include "tests/kernel_peer/verbs_pair/cm.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

namespace verbs_pair {
namespace {

constexpr int kEventLimitMs = 30'000;
constexpr uint64_t kSent = 1, kReceived = 2;
constexpr size_t kMemory = 4096;
constexpr size_t kSendOffset = 2048;

void Check(int result, const char* call) {
  if (result != 0) Fail("%s: %s", call, std::strerror(errno));
}

rdma_conn_param Parameters(const std::string& private_data) {
  rdma_conn_param out = {};
  out.private_data = private_data.data();
  out.private_data_len = static_cast<uint8_t>(private_data.size());
  out.responder_resources = 4;
  out.initiator_depth = 4;
  out.retry_count = 7;
  out.rnr_retry_count = 7;
  return out;
}

}  // namespace

sockaddr_in6 CmAddressOf(const ibv_gid& gid) {
  sockaddr_in6 out = {};
  std::memcpy(&out.sin6_addr, gid.raw, sizeof(gid.raw));
  if (!IN6_IS_ADDR_V4MAPPED(&out.sin6_addr)) {
    out.sin6_family = AF_INET6;
    return out;
  }
  sockaddr_in ipv4 = {};
  ipv4.sin_family = AF_INET;
  std::memcpy(&ipv4.sin_addr, gid.raw + 12, sizeof(ipv4.sin_addr));
  out = {};
  std::memcpy(&out, &ipv4, sizeof(ipv4));
  return out;
}

sockaddr_in6 ExchangeCmAddress(const Rig& rig, uint16_t port) {
  ibv_gid gid;
  if (ibv_query_gid(rig.context, 1, rig.gid_index, &gid) != 0) {
    Fail("ibv_query_gid: %s", std::strerror(errno));
  }
  sockaddr_in6 mine = CmAddressOf(gid);
  mine.sin6_port = htons(port);  // at the same offset as in sockaddr_in
  const std::string text = rig.wire_up->Exchange(
      std::string(reinterpret_cast<const char*>(&mine), sizeof(mine)));
  sockaddr_in6 theirs;
  if (text.size() != sizeof(theirs)) Fail("not an address");
  std::memcpy(&theirs, text.data(), sizeof(theirs));
  return theirs;
}

CmEnd::CmEnd(rdma_port_space space) : channel_(rdma_create_event_channel()) {
  if (channel_ == nullptr) {
    Fail("rdma_create_event_channel: %s", std::strerror(errno));
  }
  Check(rdma_create_id(channel_, &id_, nullptr, space), "rdma_create_id");
}

CmEnd::CmEnd(rdma_cm_id* request)
    : channel_(rdma_create_event_channel()), id_(request) {
  if (channel_ == nullptr) {
    Fail("rdma_create_event_channel: %s", std::strerror(errno));
  }
  Check(rdma_migrate_id(id_, channel_), "rdma_migrate_id");
}

CmEnd::~CmEnd() {
  Destroy();
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

void CmEnd::Destroy() {
  if (id_ == nullptr) return;
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  rdma_destroy_id(id_);
  mr_ = nullptr;
  cq_ = nullptr;
  id_ = nullptr;
}

uint16_t CmEnd::Listen(const Rig& rig) {
  ibv_gid gid;
  if (ibv_query_gid(rig.context, 1, rig.gid_index, &gid) != 0) {
    Fail("ibv_query_gid: %s", std::strerror(errno));
  }
  sockaddr_in6 address = CmAddressOf(gid);
  Check(rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)),
        "rdma_bind_addr");
  Check(rdma_listen(id_, 8), "rdma_listen");
  const uint16_t port = ntohs(rdma_get_src_port(id_));
  if (port == 0) Fail("bound to port 0");
  return port;
}

void CmEnd::Resolve(const sockaddr_in6& to) {
  sockaddr_in6 address = to;
  Check(rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&address),
                          kEventLimitMs),
        "rdma_resolve_addr");
  Expect(RDMA_CM_EVENT_ADDR_RESOLVED);
  Check(rdma_resolve_route(id_, kEventLimitMs), "rdma_resolve_route");
  Expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void CmEnd::CreateQp() {
  cq_ = ibv_create_cq(id_->verbs, 8, nullptr, nullptr, 0);
  if (cq_ == nullptr) Fail("ibv_create_cq: %s", std::strerror(errno));
  ibv_qp_init_attr attr = {};
  attr.send_cq = cq_;
  attr.recv_cq = cq_;
  attr.qp_type = id_->ps == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC;
  attr.cap.max_send_wr = 2;
  attr.cap.max_recv_wr = 2;
  attr.cap.max_send_sge = 1;
  attr.cap.max_recv_sge = 1;
  Check(rdma_create_qp(id_, nullptr, &attr), "rdma_create_qp");
  memory_ = std::make_unique<uint8_t[]>(kMemory);
  mr_ = ibv_reg_mr(id_->qp->pd, memory_.get(), kMemory, IBV_ACCESS_LOCAL_WRITE);
  if (mr_ == nullptr) Fail("ibv_reg_mr: %s", std::strerror(errno));
}

void CmEnd::Connect(const std::string& private_data) {
  rdma_conn_param parameters = Parameters(private_data);
  Check(rdma_connect(id_, &parameters), "rdma_connect");
}

void CmEnd::Accept(const std::string& private_data) {
  rdma_conn_param parameters = Parameters(private_data);
  Check(rdma_accept(id_, &parameters), "rdma_accept");
}

bool CmEnd::TryAccept() {
  rdma_conn_param parameters = Parameters("");
  return rdma_accept(id_, &parameters) == 0;
}

void CmEnd::Disconnect() { Check(rdma_disconnect(id_), "rdma_disconnect"); }

CmEvent CmEnd::Next() {
  pollfd fd = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  if (poll(&fd, 1, kEventLimitMs) != 1) Fail("no event of the CM");
  rdma_cm_event* event;
  Check(rdma_get_cm_event(channel_, &event), "rdma_get_cm_event");
  CmEvent out = {};
  out.type = event->event;
  out.status = event->status;
  out.id = event->id;
  const bool datagram = event->id->ps == RDMA_PS_UDP;
  if (datagram) out.datagram = event->param.ud;
  const void* const data =
      datagram ? event->param.ud.private_data : event->param.conn.private_data;
  const size_t size = datagram ? event->param.ud.private_data_len
                               : event->param.conn.private_data_len;
  if (data != nullptr) {
    out.private_data.assign(static_cast<const char*>(data), size);
  }
  // The address handle's attributes stay valid: they do not point into the
  // event.
  Check(rdma_ack_cm_event(event), "rdma_ack_cm_event");
  return out;
}

CmEvent CmEnd::Expect(rdma_cm_event_type type) {
  CmEvent event = Next();
  if (event.type != type) {
    Fail("%s, status %d, and not %s", rdma_event_str(event.type), event.status,
         rdma_event_str(type));
  }
  return event;
}

void CmEnd::PostRecv() {
  ibv_sge piece = {.addr = reinterpret_cast<uintptr_t>(memory_.get()),
                   .length = kSendOffset,
                   .lkey = mr_->lkey};
  ibv_recv_wr wr = {};
  wr.wr_id = kReceived;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  ibv_recv_wr* bad;
  if (int error = ibv_post_recv(id_->qp, &wr, &bad); error != 0) {
    Fail("ibv_post_recv: %s", std::strerror(error));
  }
}

void CmEnd::Poll(uint64_t id) {
  const int64_t end = NowMs() + kEventLimitMs;
  while ((completed_ & (1u << id)) == 0) {
    ibv_wc wc;
    if (ibv_poll_cq(cq_, 1, &wc) == 1) {
      if (wc.status != IBV_WC_SUCCESS) {
        Fail("a message's completion: %s", ibv_wc_status_str(wc.status));
      }
      completed_ |= 1u << wc.wr_id;
    }
    if (NowMs() > end) Fail("no completion of a message");
  }
  completed_ &= ~(1u << id);
}

void CmEnd::Send(uint32_t seed, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  FillPattern(memory_.get() + kSendOffset, kMessage, seed);
  ibv_sge piece = {
      .addr = reinterpret_cast<uintptr_t>(memory_.get()) + kSendOffset,
      .length = kMessage,
      .lkey = mr_->lkey};
  ibv_send_wr wr = {};
  wr.wr_id = kSent;
  wr.sg_list = &piece;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (ah != nullptr) {
    wr.wr.ud.ah = ah;
    wr.wr.ud.remote_qpn = qpn;
    wr.wr.ud.remote_qkey = qkey;
  }
  ibv_send_wr* bad;
  if (int error = ibv_post_send(id_->qp, &wr, &bad); error != 0) {
    Fail("ibv_post_send: %s", std::strerror(error));
  }
  Poll(kSent);
}

void CmEnd::Receive(uint32_t seed, size_t skip) {
  Poll(kReceived);
  CheckPattern(memory_.get() + skip, kMessage, seed, "a message");
}

}  // namespace verbs_pair
