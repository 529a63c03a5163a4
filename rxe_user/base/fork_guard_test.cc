#include "rxe_user/base/fork_guard.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>

#include "rxe_user/base/random.h"
#include "rxe_user/base/warn_once.h"

namespace {

// A thread that registers handlers waits for `may_register` first, if set.
thread_local bool waits_to_register = false;
std::atomic<bool> waiting = false;
std::binary_semaphore may_register(0);

}  // namespace

// Replaces the C library's function, which pthread_atfork calls.
extern "C" int __register_atfork(void (*before)(), void (*in_parent)(),
                                 void (*in_child)(), void* library) {
  if (waits_to_register) {
    waiting = true;
    may_register.acquire();
  }
  static const auto real = reinterpret_cast<decltype(&__register_atfork)>(
      dlsym(RTLD_NEXT, "__register_atfork"));
  return real(before, in_parent, in_child, library);
}

namespace rxe_user {
namespace {

// First: in a process that has no handlers yet.
TEST(ForkGuard, FirstUseInChildWhileTheParentRegisters) {
  std::thread registers([] {
    waits_to_register = true;
    SecureRandom32();
  });
  while (!waiting) std::this_thread::yield();
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(20);
    SecureRandom32();
    _exit(0);
  }
  int status = -1;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  // The handlers of the two threads are registered both.
  SecureRandom32();
  may_register.release();
  registers.join();
}

// Records its calls.
class Recorder final : public ForkGuard {
 public:
  Recorder(ForkLevel level, char name, std::string& calls)
      : ForkGuard(level), name_(name), calls_(calls) {
    EnterForkGuard();
  }
  ~Recorder() { LeaveForkGuard(); }

 private:
  void BeforeFork() override { calls_ += {'b', name_}; }
  void AfterForkInParent() override { calls_ += {'p', name_}; }
  void AfterForkInChild() override { calls_ += {'c', name_}; }

  const char name_;
  std::string& calls_;
};

// Forks. Returns the parent's calls, and stores the child's in `child`.
std::string Calls(std::string& calls, std::string& child) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    (void)!write(ends[1], calls.data(), calls.size());
    _exit(0);
  }
  char text[256];
  close(ends[1]);
  const ssize_t length = read(ends[0], text, sizeof(text));
  close(ends[0]);
  waitpid(pid, nullptr, 0);
  child.assign(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  return std::exchange(calls, "");
}

TEST(ForkGuard, IsCalledInTheOrderOfLevels) {
  std::string calls, child;
  {
    const Recorder descriptors(ForkLevel::kDescriptors, 'D', calls);
    const Recorder objects(ForkLevel::kVerbsObjects, 'O', calls);
    const Recorder engines(ForkLevel::kEngines, 'E', calls);
    EXPECT_EQ(Calls(calls, child), "bObEbDpOpEpD");
    EXPECT_EQ(child, "bObEbDcOcEcD");
  }
  EXPECT_EQ(Calls(calls, child), "");
  EXPECT_EQ(child, "");
}

// A lock that another thread keeps taking is free in each child.
TEST(ForkGuard, LocksAreFreeInChild) {
  static auto* const mutex = new ForkSafeMutex;
  std::atomic<bool> stop = false;
  std::thread other([&] {
    while (!stop) {
      { const std::lock_guard lock(*mutex); }
      SecureRandom32();
    }
  });
  for (int i = 0; i < 100; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(20);
      { const std::lock_guard lock(*mutex); }
      SecureRandom32();
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(pid, &status, 0), pid);
    ASSERT_EQ(status, 0) << "fork " << i;
  }
  stop = true;
  other.join();
}

TEST(SecureRandom, ChildOfForkDrawsDifferentNumbers) {
  SecureRandom32();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t pid = fork();
  if (pid == 0) {
    const uint32_t value = SecureRandom32();
    (void)!write(ends[1], &value, sizeof(value));
    _exit(0);
  }
  uint32_t child = 0;
  EXPECT_EQ(read(ends[0], &child, sizeof(child)), ssize_t{sizeof(child)});
  EXPECT_NE(child, SecureRandom32());
  waitpid(pid, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(WarnOnce, PrintsALineOnceAndOneLinePerTopic) {
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) {
    WarnOnce("something is wrong");
    WarnOnceAbout("topic", "value " + std::to_string(i));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "rxe_user: something is wrong\nrxe_user: value 0\n");
}

}  // namespace
}  // namespace rxe_user
