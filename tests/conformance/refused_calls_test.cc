// System calls that a container's profile, a sandbox or an emulator refuses.
#include "rxe_user/testing/refused_calls.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// The stderr output and the exit status of `program`, run in a child.
struct Ended {
  int status;
  std::string said;
};
Ended InChild(const std::function<int()>& program) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    _exit(program());
  }
  close(ends[1]);
  Ended ended = {-1, ""};
  char text[1024];
  for (ssize_t n; (n = read(ends[0], text, sizeof(text))) > 0;) {
    ended.said.append(text, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) ended.status = WEXITSTATUS(status);
  return ended;
}

int Lines(const std::string& text) {
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

TEST(RefusedCallsTest, OpeningADeviceNamesTheCall) {
  const struct {
    const char* name;
    long number;
  } calls[] = {{"memfd_create", SYS_memfd_create},
               {"eventfd", SYS_eventfd2},
               {"recvmmsg", SYS_recvmmsg},
               {"sendmmsg", SYS_sendmmsg}};
  for (const auto& call : calls) {
    const Ended ended = InChild([&call] {
      if (!rxe_user::RefuseCall(call.number, EPERM)) return 1;
      ibv_device** const list = ibv_get_device_list(nullptr);
      if (list == nullptr || list[0] == nullptr) return 2;
      for (int i = 0; i < 2; ++i) {
        errno = 0;
        if (ibv_open_device(list[0]) != nullptr) return 3;
        if (errno != EPERM) return 4;
      }
      return 0;
    });
    EXPECT_EQ(ended.status, 0) << call.name;
    EXPECT_EQ(Lines(ended.said), 1) << ended.said;
    EXPECT_NE(ended.said.find(std::string("rxe_user: the system call ") +
                              call.name + " is refused"),
              std::string::npos)
        << ended.said;
  }
}

// Steering that is refused (errno), or accepted and ignored (0). It stays so
// for the rest of this program.
class NoSteeringTest : public PairTest,
                       public testing::WithParamInterface<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(rxe_user::RefuseSteering(GetParam()));
    PairTest::SetUp();
  }
};

TEST_P(NoSteeringTest, OneProcessWorksAndTheSecondGetsTheReason) {
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, 1);
    ASSERT_EQ(Send(b_, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_SIGNALED,
                   a_.address(), a_.mr->rkey),
              0);
    ExpectSuccess(b_.cq, 1);
  }
  const Ended second = InChild([] {
    ibv_device** const list = ibv_get_device_list(nullptr);
    if (list == nullptr || list[0] == nullptr) return 1;
    ibv_context* const context = ibv_open_device(list[0]);
    if (context == nullptr) return 2;
    ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {1, 1, 1, 1, 0};
    attr.qp_type = IBV_QPT_RC;
    errno = 0;
    if (ibv_create_qp(ibv_alloc_pd(context), &attr) != nullptr) return 3;
    return errno != 0 ? 0 : 4;
  });
  EXPECT_EQ(second.status, 0);
  for (const std::string& part :
       {std::string("4791 of 127.0.0.1 is taken by process ") +
            std::to_string(getpid()),
        std::string("cannot be shared among processes")}) {
    EXPECT_NE(second.said.find(part), std::string::npos) << second.said;
  }
}

INSTANTIATE_TEST_SUITE_P(, NoSteeringTest, testing::Values(0, EPERM));

}  // namespace
}  // namespace conformance
