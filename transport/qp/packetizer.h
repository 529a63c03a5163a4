// Makes the packets of send work requests in a burst: BTH, extended headers,
// payload, pad and ICRC (IBA vol. 1, 9.2 to 9.4; 7.8 for the ICRC).
#ifndef TRANSPORT_QP_PACKETIZER_H_
#define TRANSPORT_QP_PACKETIZER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "transport/base/burst.h"
#include "transport/base/local_buffer.h"
#include "transport/qp/qp_core.h"
#include "wire/headers.h"
#include "wire/opcode.h"

namespace transport {

// Lives for one turn to transmit. For each packet, or run of packets in the
// middle of a message: Begin, Fill, Commit. What is begun and not committed
// leaves nothing behind.
class Packetizer {
 public:
  // Both outlive it. `burst` has been begun.
  Packetizer(QpCore& core, Burst* burst)
      : core_(core),
        burst_(burst),
        dest_qpn_(core.attributes.dest_qpn),
        buffer_(*core.config.memory, core.config.pd, core.config.qpn,
                kAccessLocalRead) {}

  // UD: the queue pair that the next ones go to, and its Q_Key.
  void SetDestination(uint32_t qpn, uint32_t qkey) {
    dest_qpn_ = qpn;
    qkey_ = qkey;
  }

  // Which packet: `position` counts those of work request `index`, whose
  // `packets` has been set. `count`: how many response packets a READ asks for,
  // else 1. False when the burst has no room.
  bool Begin(uint64_t index, uint64_t position, uint32_t count, uint32_t psn);
  // UD: a segment of work request `index` (kTso), a message of `bytes`. Instead
  // of Fill: FillSegment.
  bool BeginSegment(uint64_t index, size_t bytes, bool is_last, uint32_t psn);
  size_t size() const { return size_; }        // bytes, BTH to ICRC
  size_t payload() const { return payload_; }  // bytes
  // It is in the middle of a message, and those beside it differ from it in PSN
  // and payload alone (XRC's do not: they have more headers).
  bool middle() const { return middle_; }
  // How many packets like it fit.
  size_t room() const { return burst_->Room(size_); }
  // Bytes that a READ asks for.
  uint32_t read_length() const { return reth_length_; }

  // Writes it, and `packets` - 1 that follow (of those in the middle only), of
  // which all but the last are committed. `carry_icrc`: the last one's header
  // stays as it is, so that its ICRC can be computed as its payload is copied.
  MemoryStatus Fill(uint32_t packets, bool carry_icrc);
  // Writes the segment: `header`, then data of the work request from `offset`
  // on.
  MemoryStatus FillSegment(std::span<const uint8_t> header, uint64_t offset);
  // Those bytes, which may be changed until they are committed.
  std::span<uint8_t> segment() { return {out_ + header_, payload_}; }
  // Packets written when Fill failed.
  uint32_t filled() const { return filled_; }
  void SetAckReq() { Mark(wire::kAckReqBit); }
  void SetUcAsks() { Mark(wire::kUcAsks); }
  void Commit() { burst_->Commit(icrc_); }

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  void Mark(uint8_t bits) {
    out_[wire::kBthAckReqOffset] |= bits;
    icrc_.reset();
  }
  // The packet that was begun has payload_ bytes; `last` of its message.
  bool Reserve(const SendWqe& wqe, wire::Operation operation, bool last,
               uint32_t psn);
  void EmitHeaders();
  // `icrc`: null, or continued over what was copied.
  MemoryStatus CopyPayload(uint64_t offset, uint8_t* to, size_t bytes,
                           uint32_t* icrc);

  QpCore& core_;
  Burst* const burst_;
  uint32_t dest_qpn_;
  uint32_t qkey_ = 0;

  // --- The packet that was begun.
  uint64_t index_ = 0;
  uint64_t offset_ = 0;  // of its payload in the message
  wire::Bth bth_;
  uint32_t reth_length_ = 0;
  bool middle_ = false;
  size_t header_ = 0;  // bytes
  size_t payload_ = 0;
  size_t size_ = 0;
  uint32_t filled_ = 0;
  uint8_t* out_ = nullptr;
  std::optional<uint32_t> icrc_;

  // Where the last packet's payload ended, so that the next need not seek.
  LocalBuffer buffer_;
  uint64_t buffer_index_ = kNone;
  uint64_t buffer_offset_ = 0;  // bytes
};

}  // namespace transport

#endif  // TRANSPORT_QP_PACKETIZER_H_
