#include "rxe_user/ports/mapped_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"

namespace rxe_user {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

MappedMemory::~MappedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

MappedMemory MappedMemory::Prefaulted(size_t bytes) {
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (p == MAP_FAILED) return {};
  (void)::madvise(p, bytes, MADV_DONTFORK);
  return {p, bytes};
}

absl::StatusOr<MappedMemory> MappedMemory::CreateShared(size_t bytes,
                                                        UniqueFd* file) {
  file->Reset(MoveHigh(
      ::memfd_create("rxe_user-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING)));
  if (!file->valid()) return ErrnoStatus(errno, "memfd_create");
  if (::fallocate(file->get(), 0, 0, static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(file->get(), F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "shared memory");
  }
  return MapShared(file->get(), bytes);
}

absl::StatusOr<MappedMemory> MappedMemory::MapShared(int file, size_t bytes) {
  const int seals = ::fcntl(file, F_GET_SEALS);
  struct stat status {};
  if (seals < 0 || (seals & kSizeSeals) != kSizeSeals ||
      ::fstat(file, &status) != 0 ||
      status.st_size != static_cast<off_t>(bytes)) {
    return absl::InvalidArgumentError("not a sealed file of the right size");
  }
  void* const p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_POPULATE, file, 0);
  if (p == MAP_FAILED) return ErrnoStatus(errno, "shared memory");
  MappedMemory memory(p, bytes);
  if (::madvise(p, bytes, MADV_DONTFORK) != 0) {
    return ErrnoStatus(errno, "shared memory");
  }
  return memory;
}

}  // namespace rxe_user
