// Builds the packets of send work requests in a burst: BTH, extended headers,
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

// Lives for one transmit turn. For each packet, or run of MIDDLE packets:
// Begin, Fill, Commit. A packet that is not committed has no effect.
class Packetizer {
 public:
  // Both outlive it. `burst` has been begun for the peer's flow.
  Packetizer(QpCore& core, Burst* burst)
      : core_(core),
        burst_(burst),
        dest_qpn_(core.attributes.dest_qpn),
        buffer_(*core.config.memory, core.config.pd, core.config.qpn,
                kAccessLocalRead) {}

  // UD: destination queue pair and Q_Key of the following packets.
  void SetDestination(uint32_t qpn, uint32_t qkey) {
    dest_qpn_ = qpn;
    qkey_ = qkey;
  }

  // Selects packet `position` of work request `index`, whose `packets` is set.
  // `count`: number of response packets that a READ requests, else 1. False
  // when it does not fit the burst.
  bool Begin(uint64_t index, uint64_t position, uint32_t count, uint32_t psn);
  // UD: begins a segment (kTso) of work request `index`, a message of `bytes`.
  // Followed by FillSegment instead of Fill.
  bool BeginSegment(uint64_t index, size_t bytes, bool is_last, uint32_t psn);
  size_t size() const { return size_; }        // bytes, BTH to ICRC
  size_t payload() const { return payload_; }  // bytes
  // A MIDDLE packet: its neighbors differ in PSN and payload only.
  bool middle() const { return middle_; }
  // How many such packets fit the burst.
  size_t room() const { return burst_->Room(size_); }
  // Bytes that a READ requests.
  uint32_t read_length() const { return reth_length_; }

  // Writes the packet and the `packets` - 1 after it (more than one only for
  // MIDDLE packets), and commits all but the last. `carry_icrc`: the last one's
  // header will not change, so its ICRC can be computed while its payload is
  // copied.
  MemoryStatus Fill(uint32_t packets, bool carry_icrc);
  // Writes the segment: `header`, then data of the work request from `offset`
  // on.
  MemoryStatus FillSegment(std::span<const uint8_t> header, uint64_t offset);
  // The segment's bytes, which may be changed until Commit.
  std::span<uint8_t> segment() { return {out_ + header_, payload_}; }
  // Number of packets written before Fill failed.
  uint32_t filled() const { return filled_; }
  void SetAckReq() { Mark(wire::kAckReqBit); }
  void SetUcReportRequest() { Mark(wire::kUcReportRequest); }
  void Commit() { burst_->Commit(icrc_); }

 private:
  static constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();

  void Mark(uint8_t bits) {
    out_[wire::kBthAckReqOffset] |= bits;
    icrc_.reset();
  }
  // Reserves the current packet of payload_ bytes; `last` of its message.
  bool Reserve(const SendWqe& wqe, wire::Operation operation, bool last,
               uint32_t psn);
  void EmitHeaders();
  // The extended headers other than RETH and the service's own.
  [[gnu::noinline]] void EmitOtherHeaders();
  // The headers of the packet before, with the next PSN.
  void RepeatHeaders();
  // `icrc`: null, or extended over the copied bytes.
  MemoryStatus CopyPayload(uint64_t offset, uint8_t* to, size_t bytes,
                           uint32_t* icrc);

  QpCore& core_;
  Burst* const burst_;
  uint32_t dest_qpn_;
  uint32_t qkey_ = 0;

  // --- The current packet. Set by Begin or BeginSegment.
  const SendWqe* wqe_;
  uint64_t index_;   // of `wqe_`
  uint64_t offset_;  // of its payload in the message, in bytes
  uint32_t psn_;
  uint8_t opcode_;
  bool solicited_;
  bool middle_;
  uint32_t reth_length_;
  // --- Bytes.
  uint8_t pad_;
  size_t header_;
  size_t payload_;
  size_t size_;

  uint32_t filled_;  // packets
  uint8_t* out_;
  std::optional<uint32_t> icrc_;

  // Position after the last payload, so that the next packet needs no seek.
  LocalBuffer buffer_;
  uint64_t buffer_index_ = kNone;
  uint64_t buffer_offset_ = 0;  // bytes
};

}  // namespace transport

#endif  // TRANSPORT_QP_PACKETIZER_H_
