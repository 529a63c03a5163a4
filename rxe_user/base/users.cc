#include "rxe_user/base/users.h"

#include <unistd.h>

#include <cstdint>
#include <fstream>

namespace rxe_user {
namespace {

// The kernel's default.
constexpr uid_t kDefaultOverflow = 65534;
// (uid_t)-1 is no user.
constexpr uint64_t kAllUsers = 4294967295;

uid_t OverflowUser() {
  uid_t uid = kDefaultOverflow;
  std::ifstream("/proc/sys/kernel/overflowuid") >> uid;
  return uid;
}

bool EveryUserIsMapped() {
  std::ifstream map("/proc/self/uid_map");
  uint64_t first, outside, count;
  uint64_t mapped = 0;
  while (map >> first >> outside >> count) mapped += count;
  return mapped == kAllUsers;
}

}  // namespace

bool NamesOneUser(uid_t uid) {
  return uid != OverflowUser() || EveryUserIsMapped();
}

bool IsOwnUser(uid_t uid) { return uid == geteuid() && NamesOneUser(uid); }

bool IsRootOfTheMachine() { return geteuid() == 0 && EveryUserIsMapped(); }

}  // namespace rxe_user
