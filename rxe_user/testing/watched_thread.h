// Waits until a thread is blocked, for tests that then wake it, or check that
// it still waits.
#ifndef RXE_USER_TESTING_WATCHED_THREAD_H_
#define RXE_USER_TESTING_WATCHED_THREAD_H_

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace rxe_user {

// Waits until thread `id` of this process sleeps, through several checks, so
// that a short wait for a lock does not count. The thread's wait must not end
// by itself. False if it has ended (`ended` knows before the system does), or
// still runs after 20 s.
inline bool AwaitSleep(pid_t id, const std::atomic<bool>& ended = false) {
  constexpr auto kLimit = std::chrono::seconds(20);
  constexpr int kStill = 50;
  const std::string path = "/proc/self/task/" + std::to_string(id) + "/status";
  std::string before;
  int still = 0;
  const auto end = std::chrono::steady_clock::now() + kLimit;
  while (!ended && std::chrono::steady_clock::now() < end) {
    std::ifstream status(path);
    if (!status) return false;
    // How often it was descheduled, voluntarily or not.
    std::string now;
    bool sleeps = false;
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("State:")) {
        sleeps = line.find('S', 6) != std::string::npos;
      }
      if (line.find("ctxt_switches") != std::string::npos) now += line;
    }
    still = sleeps && now == before ? still + 1 : 0;
    if (still == kStill) return true;
    before = std::move(now);
    std::this_thread::yield();
  }
  return false;
}

class WatchedThread {
 public:
  explicit WatchedThread(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          id_ = ::gettid();
          // Runs also when the thread is cancelled.
          struct End {
            std::atomic<bool>& ended;
            ~End() { ended = true; }
          } end{ended_};
          body();
        }) {}

  bool AwaitSleep() const {
    while (id_ == 0) std::this_thread::yield();
    return rxe_user::AwaitSleep(id_, ended_);
  }
  pthread_t native_handle() { return thread_.native_handle(); }
  void join() { thread_.join(); }

 private:
  std::atomic<pid_t> id_{0};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_WATCHED_THREAD_H_
