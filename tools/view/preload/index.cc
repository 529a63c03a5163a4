#include "tools/view/preload/index.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace view {

Index::~Index() {
  if (base_ != nullptr) munmap(const_cast<char*>(base_), mapped_);
}

void Index::Open(int folder, const char* name) {
  const long fd =
      syscall(SYS_openat, folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return;
  const long size = syscall(SYS_lseek, fd, 0, SEEK_END);
  void* memory = MAP_FAILED;
  if (size >= static_cast<long>(sizeof(IndexHeader))) {
    memory = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_PRIVATE,
                  static_cast<int>(fd), 0);
  }
  syscall(SYS_close, fd);
  if (memory == MAP_FAILED) return;
  // Another version of rxe_user may have written the index.
  const auto* header = static_cast<const IndexHeader*>(memory);
  if (memcmp(header->magic, kIndexMagic, sizeof(kIndexMagic)) != 0 ||
      header->size != static_cast<size_t>(size)) {
    munmap(memory, static_cast<size_t>(size));
    return;
  }
  base_ = static_cast<const char*>(memory);
  mapped_ = static_cast<size_t>(size);
  entries_ = reinterpret_cast<const IndexEntry*>(base_ + sizeof(IndexHeader));
  count_ = header->count;
}

uint32_t Index::LowerBound(const char* path) const {
  uint32_t first = 0, end = count_;
  while (first < end) {
    const uint32_t middle = first + (end - first) / 2;
    if (strcmp(Path(middle), path) < 0) {
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  return first;
}

const IndexEntry* Index::Find(const char* path) const {
  const uint32_t i = LowerBound(path);
  return i < count_ && strcmp(Path(i), path) == 0 ? &entries_[i] : nullptr;
}

}  // namespace view
