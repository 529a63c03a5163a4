#include "transport/qp/packetizer.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/packet.h"
#include "wire/psn.h"

namespace transport {

bool Packetizer::Begin(uint64_t index, uint64_t position, uint32_t count,
                       uint32_t psn) {
  const SendWqe& wqe = core_.send_queue.at(index);
  wqe_ = &wqe;
  const SendOperation& operation = wqe.operation();
  const uint32_t mtu = core_.attributes.path_mtu;
  const bool first = position == 0;
  const bool last = position + count == wqe.packets;
  index_ = index;
  offset_ = position * mtu;
  payload_ = operation.sends_payload
                 ? std::min<uint64_t>(wqe.length - offset_, mtu)
                 : 0;
  reth_length_ = operation.kind == SendKind::kRead
                     ? static_cast<uint32_t>(std::min<uint64_t>(
                           wqe.length - offset_, uint64_t{count} * mtu))
                     : wqe.length;
  const wire::Operation of_position =
      first ? (last ? operation.only : operation.first)
            : (last ? operation.last : operation.middle);
  const bool reserved = Reserve(wqe, of_position, last, psn);
  middle_ = !first && !last && operation.sends_payload;
  return reserved;
}

bool Packetizer::BeginSegment(uint64_t index, size_t bytes, bool is_last,
                              uint32_t psn) {
  wqe_ = &core_.send_queue.at(index);
  index_ = index;
  offset_ = 0;
  reth_length_ = 0;
  payload_ = bytes;
  middle_ = false;
  return Reserve(*wqe_, wqe_->operation().only, is_last, psn);
}

bool Packetizer::Reserve(const SendWqe& wqe, wire::Operation operation,
                         bool last, uint32_t psn) {
  psn_ = psn;
  opcode_ = wire::MakeOpcode(core_.transport, operation);
  solicited_ = last && wqe.operation().takes_receive &&
               (wqe.flags & kSendSolicited) != 0;
  pad_ = wire::PadCount(payload_);
  header_ = wire::GetOpcodeInfo(opcode_).header_length;
  size_ = header_ + payload_ + pad_ + wire::kIcrcSize;
  filled_ = 0;
  icrc_.reset();
  out_ = burst_->Reserve(size_);
  return out_ != nullptr;
}

inline void Packetizer::EmitHeaders() {
  wire::EmitBth({.opcode = opcode_,
                 .solicited = solicited_,
                 .pad_count = pad_,
                 .dest_qpn = dest_qpn_,
                 .psn = psn_},
                out_);
  if (header_ == wire::kBthSize) return;
  const wire::OpcodeInfo& info = wire::GetOpcodeInfo(opcode_);
  if ((info.extended & ~(wire::kReth | wire::kDcEth)) != 0) EmitOtherHeaders();
  if (info.Has(wire::kReth)) {
    const uint64_t offset =
        wqe_->operation().kind == SendKind::kRead ? offset_ : 0;
    const uint32_t length = info.Has(wire::kFeth)
                                ? static_cast<uint32_t>(wqe_->compare_add)
                                : reth_length_;
    wire::EmitReth({.va = wqe_->remote_addr + offset,
                    .rkey = wqe_->rkey,
                    .length = length},
                   out_ + info.reth_offset);
  }
  core_.EmitFront(opcode_, out_);
}

void Packetizer::EmitOtherHeaders() {
  const SendWqe& wqe = *wqe_;
  const wire::OpcodeInfo& info = wire::GetOpcodeInfo(opcode_);
  if (info.Has(wire::kXrcEth)) {
    wire::EmitXrcEth(wqe.remote_srqn, out_ + info.xrceth_offset);
  }
  if (info.Has(wire::kDeth)) {
    wire::EmitDeth({.qkey = qkey_, .src_qpn = core_.config.qpn},
                   out_ + info.deth_offset);
  }
  if (info.Has(wire::kFeth)) {
    wire::EmitFeth(FethOf(wqe.swap), out_ + info.feth_offset);
  }
  if (info.Has(wire::kAtomicEth)) {
    const bool swaps = wqe.opcode == SendOpcode::kCompareSwap;
    wire::EmitAtomicEth({.va = wqe.remote_addr,
                         .rkey = wqe.rkey,
                         .swap_or_add = swaps ? wqe.swap : wqe.compare_add,
                         .compare = swaps ? wqe.compare_add : 0},
                        out_ + info.atomiceth_offset);
  }
  if (info.Has(wire::kImmDt)) {
    wire::EmitImmDt(wqe.imm_be_or_rkey, out_ + info.immdt_offset);
  }
  if (info.Has(wire::kIeth)) {
    wire::EmitIeth(wqe.imm_be_or_rkey, out_ + info.ieth_offset);
  }
}

// AckReq is set in the last packet of a run only, so the word with the PSN has
// no other bits.
inline void Packetizer::RepeatHeaders() {
  const uint8_t* const last = out_ - size_;
  std::memcpy(out_, last, wire::kBthAckReqOffset);
  psn_ = wire::PsnAdd(psn_, 1);
  wire::StoreBe32(out_ + wire::kBthAckReqOffset, psn_);
  if (header_ == wire::kBthSize) return;
  std::memcpy(out_ + wire::kBthSize, last + wire::kBthSize,
              header_ - wire::kBthSize);
}

inline MemoryStatus Packetizer::CopyPayload(uint64_t offset, uint8_t* to,
                                            size_t bytes, uint32_t* icrc) {
  if ((wqe_->flags & kSendInline) != 0) {
    std::memcpy(to, core_.send_queue.inline_data(index_) + offset, bytes);
    if (icrc != nullptr) *icrc = wire::IcrcFlow::Extend(*icrc, {to, bytes});
    return MemoryStatus::kOk;
  }
  if (buffer_index_ != index_ || buffer_offset_ != offset) {
    buffer_.Seek(core_.send_queue.sges(index_), offset);
  }
  buffer_index_ = index_;
  buffer_offset_ = offset + bytes;
  return buffer_.Read(to, bytes, icrc, !burst_->has_icrc());
}

MemoryStatus Packetizer::Fill(uint32_t packets, bool carry_icrc) {
  EmitHeaders();
  if (payload_ == 0) return MemoryStatus::kOk;
  carry_icrc = carry_icrc && burst_->CarriesIcrc(payload_);
  for (;;) {
    if (carry_icrc) icrc_ = burst_->BeginIcrc(header_);
    const MemoryStatus status =
        CopyPayload(offset_ + filled_ * payload_, out_ + header_, payload_,
                    icrc_ ? &*icrc_ : nullptr);
    if (status != MemoryStatus::kOk) return status;
    if (++filled_ == packets) break;
    burst_->Commit(icrc_);
    out_ = burst_->Reserve(size_);
    assert(out_ != nullptr);
    RepeatHeaders();
  }
  uint8_t* const pad = out_ + header_ + payload_;
  std::memset(pad, 0, pad_);
  if (icrc_) icrc_ = wire::IcrcFlow::Extend(*icrc_, {pad, pad_});
  return MemoryStatus::kOk;
}

MemoryStatus Packetizer::FillSegment(std::span<const uint8_t> header,
                                     uint64_t offset) {
  EmitHeaders();
  uint8_t* const to = out_ + header_;
  std::memcpy(to, header.data(), header.size());
  std::memset(to + payload_, 0, pad_);
  if (payload_ == header.size()) return MemoryStatus::kOk;
  return CopyPayload(offset, to + header.size(), payload_ - header.size(),
                     nullptr);
}

}  // namespace transport
