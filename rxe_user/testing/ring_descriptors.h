// Which descriptors of this process are io_uring rings.
#ifndef RXE_USER_TESTING_RING_DESCRIPTORS_H_
#define RXE_USER_TESTING_RING_DESCRIPTORS_H_

#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace rxe_user {

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
