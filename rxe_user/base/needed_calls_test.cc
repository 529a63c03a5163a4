#include "rxe_user/base/needed_calls.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gtest/gtest.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user {
namespace {

constexpr int kNoFilters = 77;

TEST(NeededCallsTest, AllowedCallsOpenNothing) {
  const int next = dup(0);
  close(next);
  EXPECT_EQ(CheckNeededCalls(), absl::OkStatus());
  EXPECT_EQ(dup(0), next);
  close(next);
}

TEST(NeededCallsTest, NamesARefusedCall) {
  const struct {
    const char* name;
    long number;
    int error;
  } cases[] = {{"memfd_create", SYS_memfd_create, EPERM},
               {"eventfd", SYS_eventfd2, ENOSYS},
               {"recvmmsg", SYS_recvmmsg, EPERM},
               {"sendmmsg", SYS_sendmmsg, EACCES}};
  for (const auto& c : cases) {
    const pid_t child = fork();
    if (child == 0) {
      if (!RefuseCall(c.number, c.error)) _exit(kNoFilters);
      const absl::Status status = CheckNeededCalls();
      const std::string text(status.message());
      _exit(ErrnoOf(status) == c.error &&
                    text.find(std::string("system call ") + c.name + " is") !=
                        std::string::npos
                ? 0
                : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (WEXITSTATUS(status) == kNoFilters) GTEST_SKIP() << "no seccomp";
    EXPECT_EQ(WEXITSTATUS(status), 0) << c.name;
  }
}

}  // namespace
}  // namespace rxe_user
