#include "rxe_user/memory/mappings.h"

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace rxe_user {

int CheckMappings(uintptr_t begin, uintptr_t end,
                  const std::function<bool(const Mapping&)>& accepted) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(
      std::fopen("/proc/self/maps", "re"), std::fclose);
  if (maps == nullptr) return 0;  // a later access will detect it
  char* line = nullptr;
  size_t size = 0;
  // Lines are in ascending order; `begin` is the first byte not covered yet.
  int error = 0;
  while (begin < end && error == 0 && getline(&line, &size, maps.get()) > 0) {
    uintptr_t low, high;
    char read, write, execute, shared;
    int path = 0;
    Mapping mapping;
    if (std::sscanf(line,
                    "%" SCNxPTR "-%" SCNxPTR " %c%c%c%c %*x %x:%*x %" SCNu64
                    " %n",
                    &low, &high, &read, &write, &execute, &shared,
                    &mapping.device_major, &mapping.inode, &path) != 8 ||
        high <= begin) {
      continue;
    }
    mapping.readable = read == 'r';
    mapping.writable = write == 'w';
    mapping.shared = shared == 's';
    mapping.path = line + path;
    if (!mapping.path.empty() && mapping.path.back() == '\n') {
      mapping.path.pop_back();
    }
    if (low > begin || !accepted(mapping)) error = EFAULT;
    begin = high;
  }
  std::free(line);
  return begin < end ? EFAULT : error;
}

}  // namespace rxe_user
