#include "rxe_user/testing/user_namespace.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <string>

namespace rxe_user {
namespace {

bool WriteFile(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

std::string MapOfOne(uid_t inside, uid_t outside) {
  return std::to_string(inside) + " " + std::to_string(outside) + " 1";
}

}  // namespace

bool EnterUserNamespace(uid_t inside) {
  const uid_t uid = geteuid();
  const gid_t gid = getegid();
  // A process that has changed its user may not write its files in /proc
  // otherwise.
  return prctl(PR_SET_DUMPABLE, 1) == 0 && unshare(CLONE_NEWUSER) == 0 &&
         WriteFile("/proc/self/setgroups", "deny") &&
         WriteFile("/proc/self/uid_map", MapOfOne(inside, uid)) &&
         WriteFile("/proc/self/gid_map", MapOfOne(inside, gid));
}

}  // namespace rxe_user
