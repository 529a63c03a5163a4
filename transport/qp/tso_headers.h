// Headers of work requests with segmentation (IBV_WR_TSO), copied on posting: a
// ring parallel to the send queue.
#ifndef TRANSPORT_QP_TSO_HEADERS_H_
#define TRANSPORT_QP_TSO_HEADERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/work.h"

namespace transport {

// Guarded like the send queue.
class TsoHeaders {
 public:
  // `max_bytes` of header for each of `max_send_wr` requests. 0: TSO is not
  // possible and nothing is allocated.
  TsoHeaders(uint32_t max_send_wr, uint32_t max_bytes);

  // 0, or EINVAL for an invalid kTso request (ibv_wr_post(3)): no header,
  // header or segment size out of range, inline data.
  int Check(const SendRequest& request) const;
  // Stores header and segment size of a checked request, queued as `index`.
  void Put(uint64_t index, const SendRequest& request);

  // Segment size and header of queued request `index`.
  uint16_t mss(uint64_t index) const { return sizes_[index & mask_].mss; }
  std::span<const uint8_t> header(uint64_t index) const {
    return {bytes_.get() + (index & mask_) * max_bytes_,
            sizes_[index & mask_].header};
  }
  // Number of segments for `length` bytes of data, at least one.
  uint64_t CountSegments(uint64_t index, uint64_t length) const {
    return std::max<uint64_t>((length + mss(index) - 1) / mss(index), 1);
  }

 private:
  struct Sizes {  // bytes
    uint16_t mss;
    uint16_t header;
  };

  const uint64_t mask_;
  const uint32_t max_bytes_;
  // Untouched until used, so a large ring takes no memory.
  std::unique_ptr<Sizes[]> sizes_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_TSO_HEADERS_H_
