// Memory whose pages are mapped from the start, since a page fault costs more
// than a packet.
#ifndef RXE_USER_PORTS_PREFAULTED_BUFFER_H_
#define RXE_USER_PORTS_PREFAULTED_BUFFER_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rxe_user {

class PrefaultedBuffer {
 public:
  PrefaultedBuffer() = default;
  // Empty if there is no memory. Not inherited by children of fork.
  explicit PrefaultedBuffer(size_t bytes) {
    void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) return;
    (void)::madvise(p, bytes, MADV_DONTFORK);
    bytes_ = {static_cast<uint8_t*>(p), bytes};
  }
  PrefaultedBuffer(PrefaultedBuffer&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})) {}
  PrefaultedBuffer& operator=(PrefaultedBuffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PrefaultedBuffer() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }

  std::span<uint8_t> bytes() const { return bytes_; }
  // Gives up ownership without unmapping.
  void Release() { bytes_ = {}; }

 private:
  std::span<uint8_t> bytes_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_PREFAULTED_BUFFER_H_
