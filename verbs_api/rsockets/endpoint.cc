#include "verbs_api/rsockets/endpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace rsockets {
namespace {

constexpr size_t kCacheLine = 64;
// Receives beyond the credits, for control messages, credits and mappings.
// These must not wait for an application that does not read.
constexpr uint32_t kSpareReceives = 16;
constexpr int kRemoteWrite = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// The ID of a work request: its kind, and the bytes of the send ring that it
// uses.
uint64_t WorkId(Op op, uint32_t ring_bytes) {
  return uint64_t{static_cast<uint8_t>(op)} << 32 | ring_bytes;
}
// Credit messages use the slots of control messages.
constexpr uint64_t kReceive = ~uint64_t{0};

ibv_send_wr Request(Op op, const Buffer& to) {
  ibv_send_wr wr = {};
  wr.wr_id = WorkId(op, 0);
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.wr.rdma.remote_addr = to.address;
  wr.wr.rdma.rkey = to.key;
  return wr;
}

void SetMessage(ibv_send_wr* wr, Message message) {
  wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  wr->imm_data = htobe32(Encode(message));
}

}  // namespace

RegisteredMemory::~RegisteredMemory() {
  if (mr_ != nullptr) ibv_dereg_mr(mr_);
  std::free(data_);
}

int RegisteredMemory::Allocate(ibv_pd* pd, size_t size, int access) {
  const size_t rounded = (size + kCacheLine - 1) / kCacheLine * kCacheLine;
  data_ = static_cast<uint8_t*>(std::aligned_alloc(kCacheLine, rounded));
  if (data_ == nullptr) return ENOMEM;
  std::memset(data_, 0, rounded);
  mr_ = ibv_reg_mr(pd, data_, rounded, access);
  return mr_ != nullptr ? 0 : errno;
}

Endpoint::Endpoint(rdma_cm_id* id, const Settings& settings)
    : id_(id),
      send_(settings.send_buffer, static_cast<uint16_t>(settings.send_queue)),
      receive_(settings.receive_buffer,
               static_cast<uint16_t>(settings.receive_queue)),
      credits_(static_cast<uint16_t>(settings.receive_queue)),
      iomap_entries_(settings.iomap_entries) {}

int Endpoint::Create(rdma_cm_id* id, Settings* settings,
                     std::unique_ptr<Endpoint>* out) {
  ibv_device_attr device;
  if (id->verbs == nullptr) return ENODEV;
  if (const int error = ibv_query_device(id->verbs, &device)) return error;
  const auto max_requests =
      std::max(static_cast<uint32_t>(device.max_qp_wr), Settings::kMinQueue);
  settings->send_queue = std::min(settings->send_queue, max_requests);
  settings->receive_queue =
      std::min(settings->receive_queue,
               std::max(max_requests - kSpareReceives, Settings::kMinQueue));
  std::unique_ptr<Endpoint> endpoint(new Endpoint(id, *settings));
  int error = endpoint->CreateQueues(settings);
  if (error == 0) error = endpoint->AllocateMemory(*settings);
  if (error == 0) {
    error = endpoint->PostReceives(settings->receive_queue + kSpareReceives);
  }
  if (error == 0) *out = std::move(endpoint);
  return error;
}

int Endpoint::CreateQueues(Settings* settings) {
  channel_ = ibv_create_comp_channel(id_->verbs);
  if (channel_ == nullptr) return errno;
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return errno;
  const uint32_t receives = settings->receive_queue + kSpareReceives;
  cq_ = ibv_create_cq(id_->verbs,
                      static_cast<int>(settings->send_queue + receives),
                      nullptr, channel_, 0);
  if (cq_ == nullptr) return errno;
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = cq_;
  attr.qp_type = IBV_QPT_RC;
  attr.sq_sig_all = 1;
  attr.cap.max_send_wr = settings->send_queue;
  attr.cap.max_recv_wr = receives;
  attr.cap.max_send_sge = 2;
  attr.cap.max_recv_sge = 1;
  // Entries of the peer's target list are always sent inline.
  attr.cap.max_inline_data =
      std::max<uint32_t>(settings->inline_data, kBufferSize);
  if (rdma_create_qp(id_, nullptr, &attr) != 0) return errno;
  inline_data_ = std::min(settings->inline_data, attr.cap.max_inline_data);
  return 0;
}

int Endpoint::AllocateMemory(const Settings& settings) {
  ibv_pd* const pd = id_->qp->pd;
  if (const int error = send_memory_.Allocate(pd, settings.send_buffer, 0)) {
    return error;
  }
  if (const int error =
          receive_memory_.Allocate(pd, settings.receive_buffer, kRemoteWrite)) {
    return error;
  }
  const size_t size =
      kBufferSize * TargetList::kEntries + kIomapSize * settings.iomap_entries;
  if (const int error = targets_memory_.Allocate(pd, size, kRemoteWrite)) {
    return error;
  }
  targets_ = std::make_unique<TargetList>(targets_memory_.data());
  return 0;
}

Endpoint::~Endpoint() {
  // No other call of the application is running.
  if (cq_ != nullptr && unacknowledged_ > 0) {
    ibv_ack_cq_events(cq_, unacknowledged_);
  }
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  if (cq_ != nullptr) ibv_destroy_cq(cq_);
  if (channel_ != nullptr) ibv_destroy_comp_channel(channel_);
}

ConnectionData Endpoint::Describe() const {
  ConnectionData data;
  data.big_endian = std::endian::native == std::endian::big;
  data.credits = credits_;
  data.iomap_entries = iomap_entries_;
  data.target_list = {targets_memory_.address(), targets_memory_.rkey(),
                      TargetList::kEntries};
  data.data = {receive_memory_.address(), receive_memory_.rkey(),
               receive_.half()};
  return data;
}

void Endpoint::Begin(const ConnectionData& peer) {
  swap_ = peer.big_endian != (std::endian::native == std::endian::big);
  peer_targets_ = peer.target_list;
  // A list of one entry starts again at its first entry.
  peer_entry_ = 1 % peer.target_list.length;
  peer_iomap_entries_ = peer.iomap_entries;
  send_.Begin(peer.data, peer.credits);
}

int Endpoint::PostReceives(uint32_t count) {
  ibv_recv_wr wr = {}, *bad = nullptr;
  wr.wr_id = kReceive;
  for (uint32_t i = 0; i < count; ++i) {
    if (const int error = ibv_post_recv(id_->qp, &wr, &bad)) return error;
  }
  return 0;
}

void Endpoint::OnReceived(uint32_t immediate, std::vector<Message>* messages) {
  const Message message = Decode(immediate);
  switch (message.op) {
    case Op::kData:
      if (!receive_.OnData(message.data)) violated_ = true;
      return;
    case Op::kCredits:
      send_.OnCredits(message.data);
      return;
    case Op::kIomap:
      return;  // the peer has already written the entry
    case Op::kControl:
      messages->push_back(message);
      return;
    default:
      violated_ = true;
  }
}

void Endpoint::OnSent(const ibv_wc& wc) {
  switch (static_cast<Op>(wc.wr_id >> 32)) {
    case Op::kCredits:
    case Op::kControl:
      send_.OnControlSent();
      break;
    default:
      send_.OnSent(static_cast<uint32_t>(wc.wr_id));
  }
  if (wc.status != IBV_WC_SUCCESS && failure_ == IBV_WC_SUCCESS) {
    failure_ = wc.status;
  }
}

bool Endpoint::Poll(std::vector<Message>* messages) {
  constexpr int kBatch = 32;
  ibv_wc wcs[kBatch];
  bool any = false;
  for (int n; (n = ibv_poll_cq(cq_, kBatch, wcs)) > 0;) {
    any = true;
    uint32_t receives = 0;
    for (const ibv_wc* wc = wcs; wc != wcs + n; ++wc) {
      if (wc->wr_id != kReceive) {
        OnSent(*wc);
      } else if (wc->status == IBV_WC_SUCCESS) {
        ++receives;
        heard_ = true;
        // Any other message violates the protocol.
        if ((wc->wc_flags & IBV_WC_WITH_IMM) == 0) violated_ = true;
        OnReceived(be32toh(wc->imm_data), messages);
      }
    }
    // A failing queue pair needs no receives.
    if (PostReceives(receives) != 0) break;
    if (n < kBatch) break;
  }
  return any;
}

void Endpoint::Arm() {
  if (armed_) return;
  armed_ = ibv_req_notify_cq(cq_, 0) == 0;
}

bool Endpoint::Drain() {
  constexpr unsigned kMaxUnacknowledged = 64;
  bool any = false;
  ibv_cq* cq;
  void* context;
  while (ibv_get_cq_event(channel_, &cq, &context) == 0) {
    armed_ = false;
    ++unacknowledged_;
    any = true;
  }
  if (unacknowledged_ >= kMaxUnacknowledged) {
    ibv_ack_cq_events(cq_, unacknowledged_);
    unacknowledged_ = 0;
  }
  return any;
}

int Endpoint::Post(ibv_send_wr* wr) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(id_->qp, wr, &bad);
}

uint32_t Endpoint::SendRoom() {
  if (send_.wants_target()) send_.SetTarget(targets_->Take());
  return send_.Room();
}

int Endpoint::PostBytes(IovCursor& data, uint32_t length, ibv_send_wr* wr) {
  constexpr uint32_t kMaxInline = 256;
  uint8_t bytes[kMaxInline];
  ibv_sge sges[2];
  wr->sg_list = sges;
  if (length <= std::min(inline_data_, kMaxInline)) {
    data.CopyTo(bytes, length);
    sges[0] = {.addr = reinterpret_cast<uintptr_t>(bytes),
               .length = length,
               .lkey = 0};
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_INLINE;
    return Post(wr);
  }
  const RingPiece piece = send_.TakeRing(length);
  data.CopyTo(send_memory_.data() + piece.offset, piece.first);
  data.CopyTo(send_memory_.data(), piece.second);
  sges[0] = {.addr = send_memory_.address() + piece.offset,
             .length = piece.first,
             .lkey = send_memory_.lkey()};
  sges[1] = {.addr = send_memory_.address(),
             .length = piece.second,
             .lkey = send_memory_.lkey()};
  wr->num_sge = piece.second > 0 ? 2 : 1;
  wr->wr_id |= length;
  return Post(wr);
}

int Endpoint::SendData(IovCursor& data, uint32_t length) {
  ibv_send_wr wr = Request(Op::kData, send_.TakeTarget(length));
  SetMessage(&wr, {Op::kData, length});
  return PostBytes(data, length, &wr);
}

int Endpoint::SendControl(Control control) {
  ibv_send_wr wr = Request(Op::kControl, {});
  SetMessage(&wr, {Op::kControl, static_cast<uint32_t>(control)});
  send_.TakeControlSlot();
  return Post(&wr);
}

int Endpoint::SendKeepalive() {
  // The control messages in flight probe the peer as well.
  if (!send_.CanSendControl()) return 0;
  // Without immediate data: it consumes no receive of the peer.
  ibv_send_wr wr = Request(Op::kControl, {});
  send_.TakeControlSlot();
  return Post(&wr);
}

int Endpoint::SendCredits() {
  if (!receive_.CreditsDue() || !send_.CanSendControl()) return 0;
  const ReceiveWindow::Grant grant = receive_.TakeGrant();
  Buffer to;
  std::array<uint8_t, kBufferSize> entry;
  ibv_sge sge;
  if (grant.half.has_value()) {
    entry = EncodeBuffer({receive_memory_.address() + *grant.half,
                          receive_memory_.rkey(), receive_.half()},
                         swap_);
    to = {peer_targets_.address + peer_entry_ * kBufferSize, peer_targets_.key,
          kBufferSize};
    peer_entry_ = (peer_entry_ + 1) % peer_targets_.length;
    sge = {.addr = reinterpret_cast<uintptr_t>(entry.data()),
           .length = kBufferSize,
           .lkey = 0};
  }
  ibv_send_wr wr = Request(Op::kCredits, to);
  SetMessage(&wr, {Op::kCredits, grant.credits});
  if (grant.half.has_value()) {
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_INLINE;
  }
  send_.TakeControlSlot();
  return Post(&wr);
}

const Iomap* Endpoint::iomaps() const {
  static_assert(sizeof(Iomap) == kIomapSize);
  return reinterpret_cast<const Iomap*>(targets_memory_.data() +
                                        kBufferSize * TargetList::kEntries);
}

int Endpoint::WriteIomap(uint32_t index, const Iomap& iomap) {
  const Buffer to = {peer_targets_.address +
                         uint64_t{kBufferSize} * peer_targets_.length +
                         uint64_t{kIomapSize} * index,
                     peer_targets_.key, kIomapSize};
  std::array<uint8_t, kIomapSize> entry = EncodeIomap(iomap, swap_);
  const iovec iov = {.iov_base = entry.data(), .iov_len = entry.size()};
  IovCursor data(&iov, 1);
  ibv_send_wr wr = Request(Op::kIomap, to);
  SetMessage(&wr, {Op::kIomap, index});
  send_.TakeSlot();
  return PostBytes(data, kIomapSize, &wr);
}

const Iomap* Endpoint::FindIomap(uint64_t offset) const {
  for (const Iomap* i = iomaps(); i != iomaps() + iomap_entries_; ++i) {
    if (offset - i->offset < i->buffer.length) return i;
  }
  return nullptr;
}

int Endpoint::WriteDirect(IovCursor& data, uint32_t length, const Buffer& to) {
  ibv_send_wr wr = Request(Op::kWrite, to);
  send_.TakeSlot();
  return PostBytes(data, length, &wr);
}

}  // namespace rsockets
