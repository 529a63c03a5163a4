// A burst: packets of one flow in one buffer, as one UDP_SEGMENT send takes
// them: all of one length, the last perhaps shorter (docs/design/transport.md,
// "Transmit scheduler").
#ifndef TRANSPORT_BASE_BURST_H_
#define TRANSPORT_BASE_BURST_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/flow.h"
#include "wire/opcode.h"

namespace transport {

// Collects the packets of one send. A BurstSink gives the buffer; queue pairs
// fill it through Reserve and Commit.
class Burst {
 public:
  // `buffer` outlives the burst. `max_segments` of 1 sends every packet alone
  // (so each carries IP ID 0). Datagrams never pass `buffer.size()` bytes in
  // sum.
  Burst(std::span<uint8_t> buffer, int max_segments);

  // Begins a burst for `flow`; forgets what was there. Null: not begun.
  void Begin(const Flow* flow);

  // Room for a packet of `bytes` (BTH to ICRC), or null when it does not fit
  // this burst: longer than the first, after a shorter one, or full. The
  // packet's bytes are written there and Commit called, or the reservation is
  // simply dropped.
  uint8_t* Reserve(size_t bytes) {
    assert(flow_ != nullptr && bytes >= kShortest);
    if (closed() || bytes > buffer_.size() - used_) return nullptr;
    if (segments_ > 0 && bytes > segment_size_) return nullptr;
    if (kept_ != 0 && !LeavesRoom(bytes)) return nullptr;
    reserved_ = bytes;
    return buffer_.data() + used_;
  }
  // How many packets of `bytes` still fit, one behind the other.
  size_t Room(size_t bytes) const;
  // From here to FreeRoom, a packet of `bytes` fits behind those that are
  // added: others do not fit.
  void KeepRoom(size_t bytes) { kept_ = bytes; }
  void FreeRoom() { kept_ = 0; }
  // Finishes the packet of the last Reserve: stores its ICRC, for the IP ID
  // that its place in the burst gives it, in its last 4 bytes. The ICRC is
  // computed, or what BeginIcrc gave, continued to the end of the pad.
  void Commit(std::optional<uint32_t> icrc = std::nullopt);

  // The ICRC up to the first `header_bytes` (at least a BTH) of the reserved
  // packet, which have been written. Quick if the packet before it
  // differs in the PSN alone.
  uint32_t BeginIcrc(size_t header_bytes);
  // Bytes of payload from which on carrying the ICRC through the copy
  // (BeginIcrc, Memory::CopyFromWithIcrc) pays: what is shorter is still in the
  // first cache, and a second pass takes as long.
  static constexpr size_t kMinCarriedIcrc = 512;

  bool empty() const { return segments_ == 0; }
  // No further packet of any length can be added.
  bool closed() const {
    return short_last_ || segments_ >= max_segments_ ||
           buffer_.size() - used_ < kShortest;
  }
  const Flow* flow() const { return flow_; }
  std::span<const uint8_t> bytes() const { return buffer_.first(used_); }
  size_t segment_size() const { return segment_size_; }  // bytes of the first
  int segments() const { return segments_; }

 private:
  static constexpr size_t kShortest = wire::kBthSize + wire::kIcrcSize;

  // Whether what is kept fits behind a packet of `bytes` that fits.
  bool LeavesRoom(size_t bytes) const;

  std::span<uint8_t> buffer_;
  int max_segments_;
  const Flow* flow_ = nullptr;
  size_t used_ = 0;
  size_t reserved_ = 0;
  size_t kept_ = 0;  // 0: nothing
  size_t segment_size_ = 0;
  int segments_ = 0;
  bool short_last_ = false;
  // The ICRC to the end of BTH: of the packet that BeginIcrc was called for
  // last, and of the last one committed.
  uint32_t begun_icrc_ = 0;
  uint32_t last_icrc_ = 0;
};

// Where bursts go: a port, a simulated network. It is asked when the
// destination of a burst is known, so it may choose the medium by that.
class BurstSink {
 public:
  // An empty burst that was begun for `flow`; null: nothing can be sent now. It
  // stays valid until the next call of the sink, and need not be filled.
  virtual Burst* Begin(const Flow& flow) = 0;

 protected:
  ~BurstSink() = default;
};

// A sink of one burst, for those who take it away at once.
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
