// Opening an engine fails halfway, because a thread cannot be started.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"

namespace {

// Called instead of this thread's next pthread_create, if set.
thread_local std::function<int()>* instead = nullptr;

}  // namespace

// Replaces the C library's function.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attr,
                              void* (*start)(void*), void* argument) {
  if (std::function<int()>* call = std::exchange(instead, nullptr)) {
    return (*call)();
  }
  static const auto real = reinterpret_cast<decltype(&pthread_create)>(
      dlsym(RTLD_NEXT, "pthread_create"));
  return real(thread, attr, start, argument);
}

namespace rxe_user {
namespace {

bool IsIn(pid_t thread, long system_call) {
  std::string line;
  std::getline(
      std::ifstream("/proc/self/task/" + std::to_string(thread) + "/syscall"),
      line);
  return line.starts_with(std::to_string(system_call) + " ");
}

// A thread begins to wait for events while the engine is being opened, which
// fails. The thread then waits for its descriptor alone; another thread serves
// the lane when the engine opens later.
TEST(EngineOpen, AThreadThatWaitsDuringAFailedOpenServesNoLane) {
  TestSlots slots;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  std::thread waiter;
  const wire::IpAddress address = *wire::IpAddress::Parse("127.0.0.1");
  Node a(slots, address, CreateSocketPort);
  Node b(slots, address, CreateSocketPort, [&](EngineImpl& engine) {
    std::function<int()> fail = [&] {
      std::atomic<pid_t> id = 0;
      waiter = std::thread([&] {
        id = ::gettid();
        EXPECT_EQ(engine.WaitReadable(ends[0], OnlyLane(0)), 0);
      });
      while (id == 0 || !IsIn(id, SYS_ppoll)) std::this_thread::yield();
      return EAGAIN;
    };
    instead = &fail;
    const auto qpn = engine.AllocateQpn();
    EXPECT_FALSE(qpn.ok());
    EXPECT_EQ(instead, nullptr);
  });
  a.Connect(b);
  b.Connect(a);
  const std::vector<uint8_t> from(100, 7);
  std::vector<uint8_t> to(100);
  ASSERT_EQ(a.Write(1, from.data(), 100, to.data()), 0);
  const auto completion = a.Watch();
  ASSERT_TRUE(completion.has_value());
  EXPECT_EQ(completion->status, transport::WcStatus::kSuccess);
  EXPECT_EQ(from, to);
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  waiter.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace rxe_user
