// The headers of work requests whose data is segmented (IBV_WR_TSO), copied
// when they are posted: a ring beside the send queue.
#ifndef TRANSPORT_QP_TSO_HEADERS_H_
#define TRANSPORT_QP_TSO_HEADERS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/work.h"

namespace transport {

// Used as the send queue is, under the same lock.
class TsoHeaders {
 public:
  // As many as a send queue of `max_send_wr` has work requests, of `max_bytes`
  // each; 0: no request can have one, and there is no ring.
  TsoHeaders(uint32_t max_send_wr, uint32_t max_bytes);

  // 0, or EINVAL for a request of kTso whose header or segment size cannot be
  // (ibv_wr_post(3)): none, too long; inline data.
  int Check(const SendRequest& request) const;
  // Keeps those of a request that was checked and queued as `index`.
  void Put(uint64_t index, const SendRequest& request);

  // Of queued request `index`.
  uint16_t mss(uint64_t index) const { return sizes_[index & mask_].mss; }
  std::span<const uint8_t> header(uint64_t index) const {
    return {bytes_.get() + (index & mask_) * max_bytes_,
            sizes_[index & mask_].header};
  }
  // How many segments `length` bytes of data take: at least one.
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
  // Not touched before it is used: a large ring costs nothing.
  std::unique_ptr<Sizes[]> sizes_;
  std::unique_ptr<uint8_t[]> bytes_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_TSO_HEADERS_H_
