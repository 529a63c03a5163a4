#include "rxe_user/observe/explainer.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

Failure FailureOf(uint32_t qpn) {
  Failure failure;
  failure.queue_pair.qpn = qpn;
  failure.queue_pair.state = transport::QpState::kErr;
  failure.queue_pair.first_error = transport::Reason::kRemoteRange;
  return failure;
}

// What `write` prints on stderr.
template <typename Write>
std::string OnStderr(Write write) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const UniqueFd out(ends[0]);
  const UniqueFd before(dup(STDERR_FILENO));
  dup2(ends[1], STDERR_FILENO);
  close(ends[1]);
  write();
  dup2(before.get(), STDERR_FILENO);
  std::string text;
  char bytes[4096];
  ssize_t n;
  while ((n = read(out.get(), bytes, sizeof(bytes))) > 0) {
    text.append(bytes, static_cast<size_t>(n));
  }
  return text;
}

void Explain(uint32_t qpn) {
  ExplainLater(FailureOf(qpn));
  AwaitExplanations();
}

TEST(ExplainerTest, AChildOfForkExplainsItsOwnFailures) {
  setenv("RXE_USER_EXPLAIN", "1", 1);
  EXPECT_NE(OnStderr([] { Explain(0x11011); }).find("queue pair 0x011011"),
            std::string::npos);
  const std::string text = OnStderr([] {
    const pid_t child = fork();
    if (child == 0) {
      Explain(0x11011);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
  EXPECT_NE(text.find("queue pair 0x011011"), std::string::npos) << text;
  // The parent explains its later failures.
  EXPECT_NE(OnStderr([] { Explain(0x11012); }).find("queue pair 0x011012"),
            std::string::npos);
}

}  // namespace
}  // namespace rxe_user
