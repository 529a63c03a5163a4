// A burst: packets of one flow in one buffer, sent by one UDP_SEGMENT call. All
// have one length; the last may be shorter (docs/design/transport.md,
// "Bursts").
#ifndef TRANSPORT_BASE_BURST_H_
#define TRANSPORT_BASE_BURST_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "transport/base/flow.h"
#include "wire/opcode.h"

namespace transport {

// Collects the packets of one send. A BurstSink provides the buffer; queue
// pairs fill it by Reserve and Commit.
class Burst {
 public:
  // `buffer` outlives the burst. With `max_segments` 1 every packet is sent
  // alone and has IP ID 0. The packets never exceed `buffer.size()` bytes in
  // total.
  Burst(std::span<uint8_t> buffer, int max_segments);
  // A burst for a medium that needs no ICRC: the packets have 0 in its place.
  static Burst WithoutIcrc(std::span<uint8_t> buffer, int max_segments);

  // Starts an empty burst for `flow`. Null: not begun.
  void Begin(const Flow* flow) {
    flow_ = flow;
    used_ = reserved_ = kept_ = segment_size_ = 0;
    segments_ = 0;
    longest_ = kAny;
  }

  // Reserves space for a packet of `bytes` (BTH to ICRC). Null when it does not
  // fit: longer than the first packet, after a shorter one, or full. The caller
  // writes the packet and calls Commit; a reservation without Commit has no
  // effect.
  uint8_t* Reserve(size_t bytes) {
    assert(flow_ != nullptr && bytes >= kShortest);
    if (bytes > longest_ || segments_ >= max_segments_ ||
        bytes > buffer_.size() - used_) {
      return nullptr;
    }
    if (kept_ != 0 && !LeavesRoom(bytes)) return nullptr;
    reserved_ = bytes;
    return buffer_.data() + used_;
  }
  // How many more packets of `bytes` fit.
  size_t Room(size_t bytes) const;
  // Until FreeRoom, keeps space for a packet of `bytes` at the end: Reserve
  // refuses packets that would leave no space for it.
  void KeepRoom(size_t bytes) { kept_ = bytes; }
  void FreeRoom() { kept_ = 0; }
  // Finishes the packet of the last Reserve: writes its ICRC into its last 4
  // bytes. The IP ID is the packet's index in the burst. `icrc`: the result of
  // BeginIcrc, extended to the end of the pad; computed here if absent and
  // needed.
  void Commit(std::optional<uint32_t> icrc = std::nullopt);

  // The ICRC over the first `header_bytes` (at least a BTH) of the reserved
  // packet, which must have been written. Cheap if only the PSN differs from
  // the previous packet.
  uint32_t BeginIcrc(size_t header_bytes);
  // Whether to compute the ICRC of a packet with this payload during the copy
  // (BeginIcrc, Memory::CopyFromWithIcrc): if the burst needs one, and the
  // payload has at least kMinCarriedIcrc bytes. A shorter payload is still in
  // the first-level cache, and a second pass takes no longer.
  static constexpr size_t kMinCarriedIcrc = 512;
  bool CarriesIcrc(size_t payload) const { return payload >= min_carried_; }
  // Whether its packets get ICRCs (WithoutIcrc). Without, nothing reads a
  // payload before it has left.
  bool has_icrc() const { return min_carried_ != kAny; }

  // How far the hop limit of its packets is below that of the flow: a mark that
  // tells equal packets of different bursts apart in captures. The ICRC does
  // not cover it. 0 unless a port sets it, after Begin.
  void set_hop_mark(uint8_t mark) { hop_mark_ = mark; }
  uint8_t hop_mark() const { return hop_mark_; }

  bool empty() const { return segments_ == 0; }
  // No further packet of any length can be added.
  bool closed() const {
    return longest_ == 0 || segments_ >= max_segments_ ||
           buffer_.size() - used_ < kShortest;
  }
  const Flow* flow() const { return flow_; }
  std::span<const uint8_t> bytes() const { return buffer_.first(used_); }
  size_t segment_size() const { return segment_size_; }  // bytes of the first
  int segments() const { return segments_; }

 private:
  static constexpr size_t kShortest = wire::kBthSize + wire::kIcrcSize;
  static constexpr size_t kAny = std::numeric_limits<size_t>::max();

  // Whether the packet of KeepRoom still fits after one of `bytes`.
  bool LeavesRoom(size_t bytes) const;

  std::span<uint8_t> buffer_;
  int max_segments_;
  const Flow* flow_ = nullptr;
  size_t used_ = 0;
  size_t reserved_ = 0;
  size_t kept_ = 0;  // bytes, by KeepRoom; 0: none
  size_t segment_size_ = 0;
  int segments_ = 0;
  uint8_t hop_mark_ = 0;
  // The longest packet that may follow, in bytes: kAny in an empty burst, 0
  // after one that is shorter than the first.
  size_t longest_ = kAny;
  size_t min_carried_ = kMinCarriedIcrc;  // kAny: without ICRC
  // ICRC to the end of BTH: of the last packet for which BeginIcrc was called,
  // and of the last one committed.
  uint32_t begun_icrc_ = 0;
  uint32_t last_icrc_ = 0;
};

// Takes bursts: a port, or a simulated network. It may choose the medium by the
// flow's destination.
class BurstSink {
 public:
  // An empty burst, begun for `flow`; null: nothing can be sent now. Valid
  // until the next call of the sink. It need not be filled.
  virtual Burst* Begin(const Flow& flow) = 0;
  // Whether the last null of Begin concerns that flow alone: others may still
  // send, and Endpoint::OnRoom is called when it may again.
  virtual bool only_that_flow() const { return false; }

 protected:
  ~BurstSink() = default;
};

// A sink of a single burst; the caller sends it before the next Begin.
class OneBurst final : public BurstSink {
 public:
  OneBurst(std::span<uint8_t> buffer, int max_segments)
      : burst_(buffer, max_segments) {}
  Burst* Begin(const Flow& flow) override {
    burst_.Begin(&flow);
    return &burst_;
  }

 private:
  Burst burst_;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_BURST_H_
