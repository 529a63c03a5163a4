// Which descriptors of a process are io_uring rings.
#ifndef RXE_USER_TESTING_RING_DESCRIPTORS_H_
#define RXE_USER_TESTING_RING_DESCRIPTORS_H_

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "rxe_user/base/high_fd.h"

namespace rxe_user {

// Whether the file /proc/PID/fd/N is a ring, or the pipe of an arrival bell.
inline bool IsOfRing(const std::filesystem::path& descriptor) {
  std::error_code gone;
  const std::string file =
      std::filesystem::read_symlink(descriptor, gone).string();
  return file == "anon_inode:[io_uring]" ||
         (file.starts_with("pipe:") &&
          std::stoi(descriptor.filename()) >= kFirstHighFd);
}

// Those of this process.
inline std::vector<int> RingDescriptors() {
  std::vector<int> rings;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (std::filesystem::read_symlink(entry.path(), error) ==
        "anon_inode:[io_uring]") {
      rings.push_back(std::stoi(entry.path().filename()));
    }
  }
  return rings;
}

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_RING_DESCRIPTORS_H_
