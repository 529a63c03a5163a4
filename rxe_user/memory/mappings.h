// This process's memory mappings (/proc/self/maps, proc(5)).
#ifndef RXE_USER_MEMORY_MAPPINGS_H_
#define RXE_USER_MEMORY_MAPPINGS_H_

#include <cstdint>
#include <functional>
#include <string>

namespace rxe_user {

struct Mapping {
  bool readable = false;
  bool writable = false;
  bool shared = false;
  unsigned device_major = 0;
  uint64_t inode = 0;  // 0: no file
  std::string path;    // as it was when the file was opened
};

// 0 if every byte of [begin, end) is in a mapping that `accepted` returns true
// for; else EFAULT. 0 as well if there is no /proc.
int CheckMappings(uintptr_t begin, uintptr_t end,
                  const std::function<bool(const Mapping&)>& accepted);

}  // namespace rxe_user

#endif  // RXE_USER_MEMORY_MAPPINGS_H_
