#include "transport/qp/tso_headers.h"

#include <bit>
#include <cerrno>
#include <cstring>

namespace transport {

TsoHeaders::TsoHeaders(uint32_t max_send_wr, uint32_t max_bytes)
    : mask_(std::bit_ceil(std::max(max_send_wr, 1u)) - 1),
      max_bytes_(max_bytes) {
  if (max_bytes == 0) return;
  sizes_ = std::make_unique_for_overwrite<Sizes[]>(mask_ + 1);
  bytes_ = std::make_unique_for_overwrite<uint8_t[]>((mask_ + 1) * max_bytes);
}

int TsoHeaders::Check(const SendRequest& request) const {
  return (request.flags & kSendInline) == 0 && request.tso_mss != 0 &&
                 !request.tso_header.empty() &&
                 request.tso_header.size() <= max_bytes_
             ? 0
             : EINVAL;
}

void TsoHeaders::Put(uint64_t index, const SendRequest& request) {
  const std::span<const uint8_t> header = request.tso_header;
  sizes_[index & mask_] = {request.tso_mss,
                           static_cast<uint16_t>(header.size())};
  std::memcpy(bytes_.get() + (index & mask_) * max_bytes_, header.data(),
              header.size());
}

}  // namespace transport
