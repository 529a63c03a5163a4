// Memory that two processes share: an anonymous file that cannot change its
// size, mapped by both.
#ifndef RXE_USER_PORTS_SHARED_MEMORY_H_
#define RXE_USER_PORTS_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// A mapping, unmapped by the destructor. Children of fork do not have it.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : bytes_(std::exchange(other.bytes_, {})) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~SharedMemory();

  // Creates a file of `bytes` zeros and allocates all its memory, so that no
  // access can fail later. `*file` is for the other process; its size is
  // sealed. Errors: no memory, no descriptors.
  static absl::StatusOr<SharedMemory> Create(size_t bytes, UniqueFd* file);
  // Maps a file from another process. Error: its size is not `bytes`, or is not
  // sealed: if it changed, accesses would fail (SIGBUS).
  static absl::StatusOr<SharedMemory> Map(int file, size_t bytes);

  std::span<uint8_t> bytes() const { return bytes_; }
  // In a child of fork: forgets the mapping, which the child does not have.
  void Release() { bytes_ = {}; }

 private:
  std::span<uint8_t> bytes_;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_SHARED_MEMORY_H_
