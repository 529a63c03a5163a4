// A cursor over the buffers of readv(2) and writev(2).
#ifndef VERBS_API_RSOCKETS_IOV_CURSOR_H_
#define VERBS_API_RSOCKETS_IOV_CURSOR_H_

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rsockets {

class IovCursor {
 public:
  IovCursor(const iovec* iov, size_t count) : iov_(iov), count_(count) {
    for (size_t i = 0; i < count; ++i) left_ += iov[i].iov_len;
  }

  size_t left() const { return left_; }

  // Copies the next `length` (<= left()) bytes out of, or into, the buffers.
  void CopyTo(void* to, size_t length) {
    Walk(length, [&](uint8_t* at, size_t part) {
      std::memcpy(to, at, part);
      to = static_cast<uint8_t*>(to) + part;
    });
  }
  void CopyFrom(const void* from, size_t length) {
    Walk(length, [&](uint8_t* at, size_t part) {
      std::memcpy(at, from, part);
      from = static_cast<const uint8_t*>(from) + part;
    });
  }

 private:
  template <typename Copy>
  void Walk(size_t length, Copy copy) {
    left_ -= length;
    while (length > 0) {
      const size_t part = std::min(length, iov_->iov_len - skip_);
      if (part > 0) copy(static_cast<uint8_t*>(iov_->iov_base) + skip_, part);
      skip_ += part;
      length -= part;
      if (skip_ == iov_->iov_len && count_ > 1) {
        ++iov_;
        --count_;
        skip_ = 0;
      }
    }
  }

  const iovec* iov_;
  size_t count_;
  size_t skip_ = 0;  // bytes of the first buffer already copied
  size_t left_ = 0;  // bytes
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_IOV_CURSOR_H_
