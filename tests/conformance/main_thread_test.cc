// A program ends with its last thread (pthread_exit(3)), not counting the
// library's threads. It may have devices open, and its main thread may have
// ended first.
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "rxe_user/testing/net_namespace.h"

extern char** environ;

namespace {

constexpr int kTimeoutMs = 20'000;

// --- The program, which is part of this binary.

void Open() {
  ibv_device** const list = ibv_get_device_list(nullptr);
  ibv_context* const context = list == nullptr || list[0] == nullptr
                                   ? nullptr
                                   : ibv_open_device(list[0]);
  ibv_cq* const cq = context == nullptr
                         ? nullptr
                         : ibv_create_cq(context, 1, nullptr, nullptr, 0);
  ibv_pd* const pd = cq == nullptr ? nullptr : ibv_alloc_pd(context);
  if (pd == nullptr) _exit(2);
  ibv_qp_init_attr init = {};
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  // From here on the engine has all its threads.
  if (ibv_create_qp(pd, &init) == nullptr) _exit(3);
  ibv_free_device_list(list);
}

pthread_t main_thread;

void WaitForMain() {
  if (pthread_join(main_thread, nullptr) != 0) _exit(4);
}

void* Last(void* /*unused*/) {
  WaitForMain();
  return nullptr;
}

void* OpenLast(void* /*unused*/) {
  WaitForMain();
  Open();
  return nullptr;
}

void Start(void* (*thread)(void*)) {
  main_thread = pthread_self();
  pthread_t started;
  if (pthread_create(&started, nullptr, thread, nullptr) != 0) _exit(5);
}

// This thread is the main thread of the child.
void* Fork(void* /*unused*/) {
  WaitForMain();
  Open();
  const pid_t child = fork();
  if (child == 0) {
    Open();
    Start(Last);
    return nullptr;
  }
  int status = -1;
  if (waitpid(child, &status, 0) != child || status != 0) _exit(6);
  return nullptr;
}

[[noreturn]] void Program(const std::string& which) {
  std::atexit([] { (void)!write(STDOUT_FILENO, "x", 1); });
  if (which == "open") {
    Open();
    Start(Last);
  } else if (which == "late") {
    Start(OpenLast);
  } else {
    Start(Fork);
  }
  pthread_exit(nullptr);
}

// --- Tests that it ends.

class MainThreadTest : public testing::TestWithParam<const char*> {};

TEST_P(MainThreadTest, EndsWithItsLastThread) {
  int output[2];
  ASSERT_EQ(pipe(output), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_addclose(&actions, output[0]);
  posix_spawn_file_actions_addclose(&actions, output[1]);
  std::string which = GetParam();
  char name[] = "main_thread_test";
  char* arguments[] = {name, which.data(), nullptr};
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments,
                        environ),
            0);
  posix_spawn_file_actions_destroy(&actions);
  close(output[1]);

  // The pipe closes when the program ends.
  std::string written;
  for (;;) {
    pollfd ended = {output[0], POLLIN, 0};
    char byte = 0;
    if (poll(&ended, 1, kTimeoutMs) <= 0) {
      kill(child, SIGKILL);
      ADD_FAILURE() << "it goes on";
      break;
    }
    if (read(output[0], &byte, 1) <= 0) break;
    written += byte;
  }
  close(output[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  // The program ends by exit(3), which runs its handlers, also in the child of
  // fork().
  EXPECT_EQ(written, which == "fork" ? "xx" : "x");
}

INSTANTIATE_TEST_SUITE_P(, MainThreadTest,
                         testing::Values("open", "late", "fork"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc > 1) Program(argv[1]);
  (void)rxe_user::EnterFreshNetNamespace();
  return RUN_ALL_TESTS();
}
