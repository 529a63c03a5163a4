#include "rxe_user/base/needed_calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "rxe_user/base/errno_status.h"

namespace rxe_user {
namespace {

struct NeededCall {
  const char* name;
  long number;
};

constexpr NeededCall kCalls[] = {
    {"memfd_create", SYS_memfd_create},
    {"eventfd", SYS_eventfd2},
    {"recvmmsg", SYS_recvmmsg},
    {"sendmmsg", SYS_sendmmsg},
};

}  // namespace

absl::Status CheckNeededCalls() {
  for (const NeededCall& call : kCalls) {
    // Each call fails by its invalid flags or descriptor. The name for
    // memfd_create is a valid string, since valgrind checks it.
    const long first = call.number == SYS_memfd_create
                           ? static_cast<long>(reinterpret_cast<intptr_t>(""))
                           : -1;
    const long got = ::syscall(call.number, first, -1, 0, 0, 0);
    const int error = got < 0 ? errno : 0;
    if (error == EPERM || error == ENOSYS || error == EACCES) {
      return ErrnoStatus(error,
                         std::string("the system call ") + call.name +
                             " is refused (by a seccomp profile?), and RDMA "
                             "devices need it: allow it in the profile");
    }
  }
  return absl::OkStatus();
}

}  // namespace rxe_user
