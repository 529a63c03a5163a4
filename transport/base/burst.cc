#include "transport/base/burst.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "wire/bytes.h"
#include "wire/opcode.h"
#include "wire/packet.h"

namespace transport {
namespace {

// The longest UDP payload over IPv4; UDP_SEGMENT's limit on the sum.
constexpr size_t kMaxDatagram = 65507;

}  // namespace

Burst::Burst(std::span<uint8_t> buffer, int max_segments)
    : buffer_(buffer.first(std::min(buffer.size(), kMaxDatagram))),
      max_segments_(max_segments) {}

Burst Burst::WithoutIcrc(std::span<uint8_t> buffer, int max_segments) {
  Burst burst(buffer, max_segments);
  burst.min_carried_ = kAny;
  return burst;
}

bool Burst::LeavesRoom(size_t bytes) const {
  return (segments_ == 0 || bytes == segment_size_) && bytes >= kept_ &&
         segments_ + 1 < max_segments_ &&
         bytes + kept_ <= buffer_.size() - used_;
}

size_t Burst::Room(size_t bytes) const {
  if (closed() || bytes > longest_) return 0;
  if (kept_ != 0 && !LeavesRoom(bytes)) return 0;
  const int segments = max_segments_ - segments_ - (kept_ != 0 ? 1 : 0);
  const size_t fit = std::min((buffer_.size() - used_ - kept_) / bytes,
                              static_cast<size_t>(segments));
  // A shorter packet is the last one.
  return segments_ > 0 && bytes < segment_size_ ? std::min<size_t>(fit, 1)
                                                : fit;
}

uint32_t Burst::BeginIcrc(size_t header_bytes) {
  assert(reserved_ >= header_bytes + wire::kIcrcSize);
  const std::span<const uint8_t> header = buffer_.subspan(used_, header_bytes);
  const auto id = static_cast<uint16_t>(segments_);
  const uint8_t* const bth = header.data();
  const uint8_t* const last = bth - segment_size_;
  if (segments_ > 0 && reserved_ == segment_size_ &&
      std::memcmp(bth, last, wire::kBthPsnOffset) == 0) {
    // The PSN has three bytes, a load four. The byte before it is equal.
    const size_t psn = wire::kBthPsnOffset - 1;
    begun_icrc_ =
        last_icrc_ ^ flow_->icrc.Change(
                         wire::LoadBe32(bth + psn) ^ wire::LoadBe32(last + psn),
                         static_cast<uint16_t>(id ^ (id - 1)));
  } else {
    begun_icrc_ = flow_->icrc.Begin(bth, reserved_ - wire::kIcrcSize, id);
  }
  return wire::IcrcFlow::Extend(begun_icrc_, header.subspan(wire::kBthSize));
}

void Burst::Commit(std::optional<uint32_t> icrc) {
  assert(reserved_ != 0);
  if (!icrc) {
    icrc = min_carried_ == kAny ? 0 : BeginIcrc(reserved_ - wire::kIcrcSize);
  }
  wire::StoreIcrc(buffer_.data() + used_ + reserved_ - wire::kIcrcSize, *icrc);
  if (segments_ == 0) {
    segment_size_ = longest_ = reserved_;
  } else if (reserved_ < segment_size_) {
    longest_ = 0;
  }
  last_icrc_ = begun_icrc_;
  used_ += reserved_;
  reserved_ = 0;
  ++segments_;
}

}  // namespace transport
