// fork and sysfs: ibv_fork_init(3), ibv_is_fork_initialized(3).
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "rxe_user/base/environment.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"

namespace verbs_api {

// Registered pages are not pinned, so copy-on-write after fork does not affect
// the parent's regions. Handlers that are registered later with
// pthread_atfork(3) run outside ours.
VERBS_EXPORT int ibv_fork_init() {
  WatchForks();
  return 0;
}
VERBS_EXPORT ibv_fork_status ibv_is_fork_initialized() {
  return IBV_FORK_UNNEEDED;
}
VERBS_EXPORT int ibv_dontfork_range(void* /*base*/, size_t /*size*/) {
  return 0;
}
VERBS_EXPORT int ibv_dofork_range(void* /*base*/, size_t /*size*/) { return 0; }

VERBS_EXPORT const char* ibv_get_sysfs_path() {
  static const std::string* const path = [] {
    const char* wish = rxe_user::Environment("SYSFS_PATH");
    auto* text = new std::string(wish != nullptr ? wish : "/sys");
    while (text->size() > 1 && text->back() == '/') text->pop_back();
    return text;
  }();
  return path->c_str();
}

// Reads the first `size` bytes of a file, without a trailing newline. Returns
// the number of bytes or -1.
VERBS_EXPORT int ibv_read_sysfs_file(const char* directory, const char* file,
                                     char* buffer, size_t size) {
  const NoCancellation no_cancellation;
  if (directory == nullptr || file == nullptr || buffer == nullptr ||
      size == 0) {
    return FailMinusOne(EINVAL);
  }
  char path[4096];
  const int length =
      std::snprintf(path, sizeof(path), "%s/%s", directory, file);
  if (length < 0 || static_cast<size_t>(length) >= sizeof(path)) {
    return FailMinusOne(ENAMETOOLONG);
  }
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  ssize_t got = read(fd, buffer, size);
  close(fd);
  if (got < 0) return -1;
  if (got > 0 && buffer[got - 1] == '\n') {
    buffer[--got] = '\0';
  } else if (static_cast<size_t>(got) < size) {
    buffer[got] = '\0';
  } else {
    buffer[--got] = '\0';
  }
  return static_cast<int>(got);
}

}  // namespace verbs_api
