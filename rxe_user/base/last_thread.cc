#include "rxe_user/base/last_thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user {
namespace {

// How often to check whether other threads have ended, since nothing reports
// that. Only needed after the main thread has ended while others run.
constexpr useconds_t kRecheckUs = 50'000;

enum class State : uint8_t {
  kNotAsked,   // no service threads
  kAsked,      // service threads, and the main thread runs
  kMainEnded,  // main thread ended, no service threads
  kWatched,    // a thread checks for the end
};
std::atomic<State> state = State::kNotAsked;

bool IsServiceThread(const char* tid) {
  const std::string path = std::string("/proc/self/task/") + tid + "/comm";
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  // The thread has just ended.
  if (!fd.valid()) return true;
  char name[16] = {};
  if (::read(fd.get(), name, sizeof(name) - 1) < 0) return true;
  return std::strncmp(name, kServiceThreadPrefix,
                      std::strlen(kServiceThreadPrefix)) == 0;
}

// Whether the program has a thread besides the main thread and ours.
bool HasThreads() {
  const std::unique_ptr<DIR, int (*)(DIR*)> tasks(::opendir("/proc/self/task"),
                                                  &::closedir);
  if (tasks == nullptr) return true;
  const std::string main_thread = std::to_string(::getpid());
  while (const dirent* task = ::readdir(tasks.get())) {
    if (task->d_name[0] == '.' || main_thread == task->d_name) continue;
    if (!IsServiceThread(task->d_name)) return true;
  }
  return false;
}

void* Watch(void* /*unused*/) {
  ::pthread_setname_np(::pthread_self(), "rxe-user-last");
  while (HasThreads()) ::usleep(kRecheckUs);
  std::exit(0);
}

void StartToWatch() {
  pthread_t thread;
  if (StartServiceThread(&thread, &Watch, nullptr) == 0) {
    ::pthread_detach(thread);
  }
}

// The destructor of the main thread's value. It runs at pthread_exit(), not at
// exit().
void OnMainThreadEnds(void* /*unused*/) {
  State now = State::kNotAsked;
  if (state.compare_exchange_strong(now, State::kMainEnded)) return;
  if (now == State::kAsked &&
      state.compare_exchange_strong(now, State::kWatched)) {
    StartToWatch();
  }
}

pthread_key_t key;

void RememberMainThread() { (void)::pthread_setspecific(key, &key); }

// Usually the main thread loads libraries. If another one does, by dlopen(),
// the program does not end with its last thread.
[[gnu::constructor]] void Load() {
  if (::pthread_key_create(&key, &OnMainThreadEnds) != 0) return;
  if (::gettid() == ::getpid()) RememberMainThread();
}

}  // namespace

void EndWithLastThread() {
  State now = State::kNotAsked;
  if (state.compare_exchange_strong(now, State::kAsked)) return;
  if (now == State::kMainEnded &&
      state.compare_exchange_strong(now, State::kWatched)) {
    StartToWatch();
  }
}

void ForgetParentsMainThread() {
  // A watching thread of the parent does not exist in the child.
  state = State::kAsked;
  RememberMainThread();
}

}  // namespace rxe_user
