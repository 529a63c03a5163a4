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
  payload_ = bytes;
  middle_ = false;
  return Reserve(*wqe_, wqe_->operation().only, is_last, psn);
}

bool Packetizer::Reserve(const SendWqe& wqe, wire::Operation operation,
                         bool last, uint32_t psn) {
  const size_t pad = wire::PadCount(payload_);
  bth_.opcode = wire::MakeOpcode(core_.transport, operation);
  bth_.psn = psn;
  bth_.pad_count = static_cast<uint8_t>(pad);
  bth_.solicited = last && wqe.operation().takes_receive &&
                   (wqe.flags & kSendSolicited) != 0;
  header_ = wire::GetOpcodeInfo(bth_.opcode).header_length;
  size_ = header_ + payload_ + pad + wire::kIcrcSize;
  filled_ = 0;
  icrc_.reset();
  out_ = burst_->Reserve(size_);
  return out_ != nullptr;
}

void Packetizer::EmitHeaders() {
  const uint16_t extended = wire::GetOpcodeInfo(bth_.opcode).extended;
  if (extended != 0 && extended != wire::kReth) {
    EmitOtherHeaders();
    return;
  }
  wire::EmitBth(bth_, out_);
  if (extended != 0) wire::EmitReth(MakeReth(), out_ + wire::kBthSize);
}

wire::Reth Packetizer::MakeReth() const {
  const uint64_t offset =
      wqe_->operation().kind == SendKind::kRead ? offset_ : 0;
  return {.va = wqe_->remote_addr + offset,
          .rkey = wqe_->rkey,
          .length = reth_length_};
}

void Packetizer::EmitOtherHeaders() {
  const SendWqe& wqe = *wqe_;
  const bool swaps = wqe.opcode == SendOpcode::kCompareSwap;
  wire::Headers headers;
  headers.bth = bth_;
  headers.deth = {.qkey = qkey_, .src_qpn = core_.config.qpn};
  headers.xrc_srqn = wqe.remote_srqn;
  headers.imm_be = wqe.imm_be_or_rkey;
  headers.invalidate_rkey = wqe.imm_be_or_rkey;
  headers.reth = MakeReth();
  headers.atomic = {.va = wqe.remote_addr,
                    .rkey = wqe.rkey,
                    .swap_or_add = swaps ? wqe.swap : wqe.compare_add,
                    .compare = swaps ? wqe.compare_add : 0};
  if (wqe.opcode == SendOpcode::kFlush) {
    headers.reth.length = static_cast<uint32_t>(wqe.compare_add);
    headers.feth = FethOf(wqe.swap);
  }
  core_.EmitHeaders(headers, out_);
}

void Packetizer::RepeatHeaders() {
  std::memcpy(out_ + wire::kBthSize, out_ + wire::kBthSize - size_,
              header_ - wire::kBthSize);
}

MemoryStatus Packetizer::Fill(uint32_t packets, bool carry_icrc) {
  EmitHeaders();
  if (payload_ == 0) return MemoryStatus::kOk;
  carry_icrc = carry_icrc && burst_->CarriesIcrc(payload_);
  if (carry_icrc) icrc_ = burst_->BeginIcrc(header_);
  // The usual run takes one branch for each packet.
  const bool bth_and_icrc = carry_icrc && header_ == wire::kBthSize;
  for (;;) {
    const MemoryStatus status =
        CopyPayload(offset_ + filled_ * payload_, out_ + header_, payload_,
                    icrc_ ? &*icrc_ : nullptr);
    if (status != MemoryStatus::kOk) return status;
    if (++filled_ == packets) break;
    burst_->Commit(icrc_);
    out_ = burst_->Reserve(size_);
    assert(out_ != nullptr);
    bth_.psn = wire::PsnAdd(bth_.psn, 1);
    wire::EmitBth(bth_, out_);
    if (bth_and_icrc) {
      icrc_ = burst_->BeginIcrc(header_);
      continue;
    }
    if (header_ != wire::kBthSize) RepeatHeaders();
    if (carry_icrc) icrc_ = burst_->BeginIcrc(header_);
  }
  uint8_t* const pad = out_ + header_ + payload_;
  std::memset(pad, 0, bth_.pad_count);
  if (icrc_) icrc_ = wire::IcrcFlow::Extend(*icrc_, {pad, bth_.pad_count});
  return MemoryStatus::kOk;
}

MemoryStatus Packetizer::FillSegment(std::span<const uint8_t> header,
                                     uint64_t offset) {
  EmitHeaders();
  uint8_t* const to = out_ + header_;
  std::memcpy(to, header.data(), header.size());
  std::memset(to + payload_, 0, bth_.pad_count);
  if (payload_ == header.size()) return MemoryStatus::kOk;
  return CopyPayload(offset, to + header.size(), payload_ - header.size(),
                     nullptr);
}

MemoryStatus Packetizer::CopyPayload(uint64_t offset, uint8_t* to, size_t bytes,
                                     uint32_t* icrc) {
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

}  // namespace transport
