#include "rxe_user/engine/control_thread.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <semaphore>
#include <set>
#include <string>
#include <thread>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

using namespace std::chrono_literals;
using Clock = ControlThread::Clock;

std::unique_ptr<ControlThread> Start() {
  auto thread = ControlThread::Start();
  EXPECT_TRUE(thread.ok()) << thread.status();
  return *std::move(thread);
}

// An eventfd as a source, and a semaphore that counts its reads.
class Bell {
 public:
  Bell() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  int fd() const { return fd_.get(); }
  void Ring() {
    const uint64_t one = 1;
    EXPECT_EQ(::write(fd(), &one, sizeof(one)), ssize_t{sizeof(one)});
  }
  // Called by the source.
  void Answer() {
    uint64_t count;
    if (::read(fd(), &count, sizeof(count)) > 0) answered_.release();
  }
  bool Answered() { return answered_.try_acquire_for(20s); }
  bool HasAnswered() { return answered_.try_acquire(); }

 private:
  const UniqueFd fd_;
  std::counting_semaphore<> answered_{0};
};

ControlThread::Source SourceOf(Bell& bell) {
  return {.fd = [&bell] { return bell.fd(); },
          .run = [&bell] { bell.Answer(); }};
}

TEST(ControlThread, RunsSourcesWhoseDescriptorsAreReadable) {
  Bell a, b;
  const auto control = Start();
  control->Add(SourceOf(a));
  control->Add(SourceOf(b));
  for (int i = 0; i < 3; ++i) {
    a.Ring();
    EXPECT_TRUE(a.Answered());
    b.Ring();
    EXPECT_TRUE(b.Answered());
  }
}

// As when there are more messages than one run reads.
TEST(ControlThread, RunsASourceWhileItIsReadable) {
  Bell bell;
  std::atomic<int> runs = 0;
  const auto control = Start();
  bell.Ring();
  control->Add({.fd = [&] { return bell.fd(); },
                .run =
                    [&] {
                      if (++runs == 5) bell.Answer();
                    }});
  EXPECT_TRUE(bell.Answered());
  EXPECT_EQ(runs, 5);
}

TEST(ControlThread, RunsASourceWhenItsTimeHasCome) {
  std::atomic<Clock::time_point> time = Clock::now() + 20ms;
  const Clock::time_point first = time;
  std::counting_semaphore<> ran(0);
  std::atomic<int> runs = 0;
  const auto control = Start();
  control->Add({.fd = [] { return -1; },
                .time = [&] { return time.load(); },
                .run =
                    [&] {
                      EXPECT_GE(Clock::now(), first);
                      time = ++runs < 3 ? Clock::now() + 1ms
                                        : Clock::time_point::max();
                      ran.release();
                    }});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ran.try_acquire_for(20s));
  // Another thread sets an earlier time than the pending one.
  time = Clock::now() + 1h;
  control->Refresh();
  time = Clock::now();
  control->Refresh();
  EXPECT_TRUE(ran.try_acquire_for(20s));
}

// Refreshes do not pile up while a source runs for a long time.
TEST(ControlThread, RefreshesThatWaitAreOne) {
  Bell bell, other;
  std::binary_semaphore running(0), go_on(0);
  std::atomic<int> looks = 0;
  const auto control = Start();
  control->Add({.fd = [&] { return bell.fd(); },
                .run =
                    [&] {
                      running.release();
                      EXPECT_TRUE(go_on.try_acquire_for(20s));
                      bell.Answer();
                    }});
  control->Add({.fd =
                    [&] {
                      ++looks;
                      return other.fd();
                    },
                .run = [&] { other.Answer(); }});
  other.Ring();
  ASSERT_TRUE(other.Answered());
  bell.Ring();
  ASSERT_TRUE(running.try_acquire_for(20s));
  const int before = looks;
  for (int i = 0; i < 1000; ++i) control->Refresh();
  go_on.release();
  ASSERT_TRUE(bell.Answered());
  other.Ring();
  ASSERT_TRUE(other.Answered());  // after all pending refreshes
  EXPECT_LT(looks - before, 10);
}

// A source that finds no memory is run again. The others are not affected.
TEST(ControlThread, ContinuesAfterALackOfMemory) {
  Bell starved, other;
  int runs = 0;
  const auto control = Start();
  control->Add({.fd = [&] { return starved.fd(); },
                .run =
                    [&] {
                      if (++runs <= 2) throw std::bad_alloc();
                      starved.Answer();
                    }});
  control->Add(SourceOf(other));
  starved.Ring();
  other.Ring();
  EXPECT_TRUE(other.Answered());
  EXPECT_TRUE(starved.Answered());
  EXPECT_EQ(runs, 3);
}

// The failed run has used up the source's time; the source then returns the
// next one.
TEST(ControlThread, ContinuesWithATimerAfterALackOfMemory) {
  std::atomic<int> runs = 0;
  std::binary_semaphore done{0};
  const auto control = Start();
  control->Add(
      {.fd = [] { return -1; },
       .time =
           [&] { return runs < 2 ? Clock::now() : Clock::time_point::max(); },
       .run =
           [&] {
             if (++runs == 1) throw std::bad_alloc();
             done.release();
           }});
  EXPECT_TRUE(done.try_acquire_for(20s));
}

// Another file gets the descriptor's number at once, and the old file is still
// open elsewhere.
TEST(ControlThread, ForgetsRemovedSources) {
  Bell remover, after;
  std::optional<Bell> gone(std::in_place), kept(std::in_place);
  const UniqueFd copy(::dup(gone->fd()));
  const auto control = Start();
  ControlThread::Source source = SourceOf(*gone);
  source.owner = 7;
  control->Add(std::move(source));
  ControlThread::Source other = SourceOf(*kept);
  other.owner = 8;
  control->Add(std::move(other));
  gone->Ring();
  EXPECT_TRUE(gone->Answered());
  control->Add({.fd = [&] { return remover.fd(); },
                .run =
                    [&] {
                      control->Remove(7);
                      gone.reset();
                      gone.emplace();
                      remover.Answer();
                    }});
  remover.Ring();
  EXPECT_TRUE(remover.Answered());
  const uint64_t one = 1;
  EXPECT_EQ(::write(copy.get(), &one, sizeof(one)), ssize_t{sizeof(one)});
  gone->Ring();
  kept->Ring();
  EXPECT_TRUE(kept->Answered());
  EXPECT_FALSE(gone->HasAnswered());
  control->Add(SourceOf(*gone));
  EXPECT_TRUE(gone->Answered());
}

TEST(ControlThread, FollowsADescriptorThatChanges) {
  Bell a, b;
  std::atomic<Bell*> bell = &a;
  const auto control = Start();
  control->Add({.fd = [&] { return bell.load() ? bell.load()->fd() : -1; },
                .run = [&] { bell.load()->Answer(); }});
  a.Ring();
  EXPECT_TRUE(a.Answered());
  bell = nullptr;
  control->Refresh();
  bell = &b;
  control->Refresh();
  b.Ring();
  EXPECT_TRUE(b.Answered());
}

std::set<std::string> Descriptors() {
  std::set<std::string> all;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (!error && !target.string().starts_with("/proc/")) {
      all.insert(entry.path().filename().string() + " " + target.string());
    }
  }
  return all;
}

// The exit status of a child that runs `f`.
int StatusOfChild(const std::function<bool()>& f) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(20);
    ::_exit(f() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

TEST(ControlThread, AForkedChildInheritsNothing) {
  Bell bell;
  const std::set<std::string> before = Descriptors();
  auto control = Start();
  control->Add(SourceOf(bell));
  bell.Ring();
  ASSERT_TRUE(bell.Answered());
  ASSERT_GT(Descriptors().size(), before.size());
  EXPECT_EQ(StatusOfChild([&] {
              const bool clean = Descriptors() == before;
              control.reset();
              // The descriptor stays open: it belongs to the source.
              return clean && Descriptors() == before;
            }),
            0);
  // The parent's thread still works: the child has not changed its epoll set.
  bell.Ring();
  EXPECT_TRUE(bell.Answered());
  control.reset();
  EXPECT_EQ(Descriptors(), before);
}

// fork() does not wait for a slow source, such as one that starts a broker.
TEST(ControlThread, ForkDoesNotWaitForASource) {
  Bell bell;
  std::binary_semaphore begun(0), go_on(0);
  const auto control = Start();
  control->Add({.fd = [&] { return bell.fd(); },
                .run =
                    [&] {
                      begun.release();
                      go_on.acquire();
                      bell.Answer();
                    }});
  bell.Ring();
  ASSERT_TRUE(begun.try_acquire_for(20s));
  EXPECT_EQ(StatusOfChild([] { return true; }), 0);
  go_on.release();
  EXPECT_TRUE(bell.Answered());
}

TEST(ControlThread, ForksAtAnyTimeAreSafe) {
  Bell bell;
  std::atomic<bool> stop = false;
  auto control = Start();
  control->Add(SourceOf(bell));
  std::thread refreshes([&] {
    while (!stop) control->Refresh();
  });
  std::thread rings([&] {
    while (!stop) {
      bell.Ring();
      EXPECT_TRUE(bell.Answered());
    }
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(StatusOfChild([&] {
                control.reset();
                return true;
              }),
              0);
  }
  stop = true;
  refreshes.join();
  rings.join();
}

TEST(ControlThread, TakesNoSignalOfTheProgram) {
  Bell bell;
  const auto control = Start();
  control->Add(SourceOf(bell));
  bell.Ring();
  ASSERT_TRUE(bell.Answered());  // the thread has set its name by now
  std::string blocked;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, line;
    std::getline(std::ifstream(task.path() / "comm"), name);
    std::ifstream status(task.path() / "status");
    while (name == kControlThreadName && std::getline(status, line)) {
      if (line.starts_with("SigBlk:")) blocked = line;
    }
  }
  // All but SIGILL 4, SIGTRAP 5, SIGBUS 7, SIGFPE 8, SIGSEGV 11, and the
  // signals that cannot be blocked: 9, 19, and the C library's own 32 and 33.
  EXPECT_EQ(blocked, "SigBlk:\tfffffffe7ffbfa27");
}

TEST(ControlThread, ReportsThatThereAreNoFilesLeft) {
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  int next = ::dup(0);
  ::close(next);
  // The thread needs two descriptors. Without a third, Asio uses no timerfd.
  for (int room = 0; room < 3; ++room) {
    rlimit small = before;
    small.rlim_cur = static_cast<rlim_t>(next + room);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &small), 0);
    const auto control = ControlThread::Start();
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_EQ(IsOutOfFiles(control.status()), room < 2) << room;
    EXPECT_EQ(control.ok(), room == 2) << room << control.status();
  }
}

}  // namespace
}  // namespace rxe_user
