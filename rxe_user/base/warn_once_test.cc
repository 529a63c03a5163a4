#include "rxe_user/base/warn_once.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace rxe_user {
namespace {

// Runs `body` with `fd` as stderr.
void WithStderr(int fd, const std::function<void()>& body) {
  const int before = ::dup(STDERR_FILENO);
  ::dup2(fd, STDERR_FILENO);
  body();
  ::dup2(before, STDERR_FILENO);
  ::close(before);
}

void Fill(int fd) {
  const int flags = ::fcntl(fd, F_GETFL);
  ::fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  const std::string much(4096, 'x');
  while (::write(fd, much.data(), much.size()) > 0) {
  }
  while (::write(fd, much.data(), 1) > 0) {
  }
  ::fcntl(fd, F_SETFL, flags);
}

std::string Drain(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  std::string all;
  char some[4096];
  for (ssize_t n; (n = ::read(fd, some, sizeof(some))) > 0;) {
    all.append(some, static_cast<size_t>(n));
  }
  return all;
}

TEST(Warn, GoesToPipesSocketsAndFiles) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  WithStderr(ends[1], [] { Warn("one"); });
  EXPECT_EQ(Drain(ends[0]), "rxe_user: one\n");
  ::close(ends[0]);
  ::close(ends[1]);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  WithStderr(ends[1], [] { Warn("two"); });
  EXPECT_EQ(Drain(ends[0]), "rxe_user: two\n");
  ::close(ends[0]);
  ::close(ends[1]);
  testing::internal::CaptureStderr();
  Warn("three");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rxe_user: three\n");
}

// Warn must not block, since it may be called with locks held.
TEST(Warn, NeverBlocks) {
  int pipe_ends[2], socket_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, socket_ends), 0);
  for (const int fd : {pipe_ends[1], socket_ends[1]}) {
    Fill(fd);
    WithStderr(fd, [] { Warn("nobody reads this"); });
    EXPECT_EQ(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  }
  // A pipe without a reader does not end the program either.
  ::close(pipe_ends[0]);
  WithStderr(pipe_ends[1], [] { Warn("nobody ever will"); });
  for (const int fd : {pipe_ends[1], socket_ends[0], socket_ends[1]}) {
    ::close(fd);
  }
}

// Lines are limited, since peers may choose their topics.
TEST(Warn, IsBounded) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 10'000; ++i) {
    WarnOnceAbout("peer " + std::to_string(i), "line");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_GE(said.size(), 100 * std::string("rxe_user: line\n").size());
  EXPECT_LE(said.size(), 1000 * std::string("rxe_user: line\n").size());
}

}  // namespace
}  // namespace rxe_user
