#include "verbs_api/rsockets/datagram_qp.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/grh.h"

namespace rsockets {
namespace {

constexpr uint32_t kMaxSlots = 384;
// A received message follows a GRH of 40 bytes.
constexpr uint32_t kGrh = 40;
constexpr uint32_t kReceiveSlot = DatagramQp::kSlot + 64;
constexpr uint32_t kGrhOffset = 64 - kGrh;
constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint8_t kHopLimit = 64;

}  // namespace

DatagramQp::DatagramQp(const DatagramAddress& local, const Settings& settings)
    : local_(local),
      header_(EncodeSource(local)),
      receives_(std::min(settings.receive_queue, kMaxSlots)),
      sends_(std::min(settings.send_queue, kMaxSlots)) {}

int DatagramQp::Create(const DatagramAddress& local, const Settings& settings,
                       std::unique_ptr<DatagramQp>* out) {
  std::unique_ptr<DatagramQp> qp(new DatagramQp(local, settings));
  if (const int error = qp->Open()) return error;
  *out = std::move(qp);
  return 0;
}

int DatagramQp::Open() {
  events_ = rdma_create_event_channel();
  if (events_ == nullptr) return errno;
  if (rdma_create_id(events_, &id_, nullptr, RDMA_PS_UDP) != 0) return errno;
  // Binds to any port: the port number belongs to the UDP socket, not to the
  // connection manager.
  DatagramAddress address = local_;
  address.port = 0;
  static constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0,    0,
                                                      0, 0, 0, 0, 0xff, 0xff};
  if (std::equal(kMapped.begin(), kMapped.end(), address.bytes.begin()) &&
      address.family == AF_INET6) {
    address.family = AF_INET;
    std::copy_n(local_.bytes.begin() + 12, 4, address.bytes.begin());
  }
  sockaddr_storage storage;
  address.Fill(&storage);
  if (rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&storage)) != 0) {
    return errno;
  }
  if (id_->verbs == nullptr) return ENODEV;
  if (const int error = FindGid()) return error;
  channel_ = ibv_create_comp_channel(id_->verbs);
  if (channel_ == nullptr) return errno;
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return errno;
  cq_ = ibv_create_cq(id_->verbs, static_cast<int>(sends_ + receives_), nullptr,
                      channel_, 0);
  if (cq_ == nullptr) return errno;
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_UD;
  attr.sq_sig_all = 1;
  attr.cap.max_send_wr = sends_;
  attr.cap.max_recv_wr = receives_;
  attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
  if (rdma_create_qp(id_, nullptr, &attr) != 0) return errno;
  ibv_pd* const pd = id_->qp->pd;
  if (const int error = receive_memory_.Allocate(pd, receives_ * kReceiveSlot,
                                                 IBV_ACCESS_LOCAL_WRITE)) {
    return error;
  }
  if (const int error = send_memory_.Allocate(pd, sends_ * kSlot, 0)) {
    return error;
  }
  for (uint32_t slot = 0; slot < sends_; ++slot) free_slots_.push_back(slot);
  for (uint32_t slot = 0; slot < receives_; ++slot) {
    if (const int error = PostReceive(slot)) return error;
  }
  return 0;
}

// Finds the GID index of the local address, and the largest message.
int DatagramQp::FindGid() {
  ibv_port_attr port;
  if (const int error = ibv_query_port(id_->verbs, id_->port_num, &port)) {
    return error;
  }
  max_message_ = std::min(kSlot, uint32_t{128} << port.active_mtu);
  const auto wanted = local_.Gid();
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid_entry entry;
    if (ibv_query_gid_ex(id_->verbs, id_->port_num, static_cast<uint32_t>(i),
                         &entry, 0) != 0) {
      continue;
    }
    if (entry.gid_type == IBV_GID_TYPE_ROCE_V2 &&
        std::equal(wanted.begin(), wanted.end(), entry.gid.raw)) {
      gid_index_ = static_cast<uint8_t>(i);
      return 0;
    }
  }
  return EADDRNOTAVAIL;
}

DatagramQp::~DatagramQp() {
  if (cq_ != nullptr && unacknowledged_ > 0) {
    ibv_ack_cq_events(cq_, unacknowledged_);
  }
  if (id_ != nullptr && id_->qp != nullptr) rdma_destroy_qp(id_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (events_ != nullptr) rdma_destroy_event_channel(events_);
}

ibv_ah* DatagramQp::CreatePath(const DatagramAddress& to) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  const auto gid = to.Gid();
  std::copy(gid.begin(), gid.end(), attr.grh.dgid.raw);
  attr.grh.sgid_index = gid_index_;
  attr.grh.hop_limit = kHopLimit;
  attr.port_num = id_->port_num;
  return ibv_create_ah(id_->qp->pd, &attr);
}

int DatagramQp::Send(IovCursor data, ibv_ah* path, uint32_t qpn) {
  const uint32_t slot = free_slots_.back();
  uint8_t* const to = send_memory_.data() + slot * kSlot;
  const auto length = static_cast<uint32_t>(header_.length + data.left());
  std::memcpy(to, header_.bytes.data(), header_.length);
  data.CopyTo(to + header_.length, data.left());
  ibv_sge sge = {.addr = reinterpret_cast<uintptr_t>(to),
                 .length = length,
                 .lkey = send_memory_.lkey()};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.wr_id = slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  wr.wr.ud.ah = path;
  wr.wr.ud.remote_qpn = qpn;
  wr.wr.ud.remote_qkey = RDMA_UDP_QKEY;
  const int error = ibv_post_send(id_->qp, &wr, &bad);
  if (error == 0) free_slots_.pop_back();
  return error;
}

int DatagramQp::PostReceive(uint32_t slot) {
  ibv_sge sge = {
      .addr = receive_memory_.address() + slot * kReceiveSlot + kGrhOffset,
      .length = kReceiveSlot - kGrhOffset,
      .lkey = receive_memory_.lkey()};
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.wr_id = kReceive | slot;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  return ibv_post_recv(id_->qp, &wr, &bad);
}

const uint8_t* DatagramQp::Message(uint32_t slot) const {
  return receive_memory_.data() + slot * kReceiveSlot + kGrhOffset + kGrh;
}

bool DatagramQp::CameFrom(uint32_t slot, const DatagramAddress& address) const {
  wire::Grh grh;
  return wire::ParseGrh(Message(slot) - wire::kGrhSize, &grh) &&
         grh.source.bytes == address.Gid();
}

bool DatagramQp::Poll(std::vector<Received>* received) {
  constexpr int kBatch = 32;
  ibv_wc wcs[kBatch];
  bool any = false;
  for (int n; (n = ibv_poll_cq(cq_, kBatch, wcs)) > 0;) {
    any = true;
    for (const ibv_wc* wc = wcs; wc != wcs + n; ++wc) {
      const auto slot = static_cast<uint32_t>(wc->wr_id);
      if ((wc->wr_id & kReceive) == 0) {
        free_slots_.push_back(slot);
      } else if (wc->status == IBV_WC_SUCCESS && wc->byte_len >= kGrh) {
        received->push_back({slot, wc->byte_len - kGrh});
      } else if (wc->status != IBV_WC_WR_FLUSH_ERR) {
        PostReceive(slot);  // the datagram is dropped
      }
    }
    if (n < kBatch) break;
  }
  return any;
}

void DatagramQp::Arm() {
  if (!armed_) armed_ = ibv_req_notify_cq(cq_, 0) == 0;
}

bool DatagramQp::Drain() {
  bool any = false;
  ibv_cq* cq;
  void* context;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    armed_ = false;
    ++unacknowledged_;
    any = true;
  }
  return any;
}

}  // namespace rsockets
