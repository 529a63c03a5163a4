// Mapped memory: buffers of this process, and files that two processes share.
#ifndef RXE_USER_PORTS_MAPPED_MEMORY_H_
#define RXE_USER_PORTS_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Unmapped by the destructor. Children of fork do not have it.
class MappedMemory {
 public:
  MappedMemory() = default;
  // Memory whose pages are mapped from the start, since a page fault costs more
  // than a packet. Empty if there is no memory.
  static MappedMemory Prefaulted(size_t bytes);
  // Creates an anonymous file of `bytes` zeros and allocates all its memory, so
  // that no access can fail later. `*file` is for the other process; its size
  // is sealed. Errors: no memory, no descriptors.
  static absl::StatusOr<MappedMemory> CreateShared(size_t bytes,
                                                   UniqueFd* file);
  // Maps a file from another process. Error: its size is not `bytes`, or is not
  // sealed: if it changed, accesses would fail (SIGBUS).
  static absl::StatusOr<MappedMemory> MapShared(int file, size_t bytes);

  MappedMemory(MappedMemory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})) {}
  MappedMemory& operator=(MappedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~MappedMemory();

  std::span<uint8_t> bytes() const { return bytes_; }
  // In a child of fork: forgets the mapping, which the child does not have.
  void Release() { bytes_ = {}; }

 private:
  MappedMemory(void* memory, size_t bytes)
      : bytes_(static_cast<uint8_t*>(memory), bytes) {}

  std::span<uint8_t> bytes_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_MAPPED_MEMORY_H_
