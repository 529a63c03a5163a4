// Threads of which a test must know that they wait, before it does what they
// wait for or says that they still do.
#ifndef RXE_USER_TESTING_WATCHED_THREAD_H_
#define RXE_USER_TESTING_WATCHED_THREAD_H_

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace rxe_user {

// Waits until the thread `id` of this process sleeps, twice in a row without
// having run in between: it then waits for somebody else. False if it has ended
// or still runs after 20 s.
inline bool AwaitSleep(pid_t id) {
  constexpr int kLooks = 20'000;
  std::string before;
  for (int i = 0; i < kLooks; ++i) {
    std::ifstream status("/proc/self/task/" + std::to_string(id) + "/status");
    if (!status) return false;
    std::string now;
    bool sleeps = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:")) {
        sleeps = line.find('S', 6) != std::string::npos;
      }
      // How often it has stopped running, of its own accord or not.
      if (line.find("ctxt_switches") != std::string::npos) now += line;
    }
    if (sleeps && now == before) return true;
    before = sleeps ? now : std::string();
    const timespec pause{0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

class WatchedThread {
 public:
  explicit WatchedThread(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          id_ = ::gettid();
          body();
        }) {}

  bool AwaitSleep() const {
    while (id_ == 0) std::this_thread::yield();
    return rxe_user::AwaitSleep(id_);
  }
  pthread_t native_handle() { return thread_.native_handle(); }
  void join() { thread_.join(); }

 private:
  std::atomic<pid_t> id_{0};
  std::thread thread_;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_WATCHED_THREAD_H_
