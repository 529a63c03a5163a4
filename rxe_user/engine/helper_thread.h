// The thread that makes progress when no other thread does
// (docs/design/progress.md). Each lane has one, so a busy lane does not delay
// another.
//
// It waits on one epoll set: the armed sockets of the lane, an eventfd that
// wakes it, and a timer. It calls epoll itself instead of using an event
// library: sockets enter and leave the set with one system call while the
// application polls, which an edge-triggered reactor cannot do.
//
// The timer is only ever set to an earlier time. Retransmission deadlines move
// back with each message, and setting a timer for each may cost more than the
// message, above all in a virtual machine. So the timer sometimes expires too
// early.
//
// All signals but faults are blocked, the thread is never pinned to a core, and
// it sleeps without limit while it has nothing to do.
#ifndef RXE_USER_ENGINE_HELPER_THREAD_H_
#define RXE_USER_ENGINE_HELPER_THREAD_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/engine/lane_impl.h"

namespace rxe_user {

class HelperThread final : public LaneHelper {
 public:
  // Called at every wake-up. `by_socket`: an armed socket is among the causes.
  // Returns the latest time of the next call.
  using Work = std::function<transport::Time(bool by_socket)>;

  // `name` is a string literal of at most 15 characters.
  static absl::StatusOr<std::unique_ptr<HelperThread>> Create(const char* name,
                                                              Work work);
  // Ends the thread if it runs.
  ~HelperThread() override;

  absl::Status Start();

  void Wake() override;
  bool AddSocket(int fd, bool armed) override;
  void RemoveSocket(int fd) override;
  bool Arm(bool on) override;
  transport::Time timer_cost() const override { return timer_cost_; }

  // How often the thread has woken from sleep, and has set its timer.
  uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }
  uint64_t timers_set() const {
    return timers_set_.load(std::memory_order_relaxed);
  }

  // In the child of fork, where this thread does not exist: closes the
  // descriptors.
  void AbandonInChild();

 private:
  HelperThread(const char* name, Work work);
  void Run();
  int Sleep(transport::Time until);
  static void SleepBriefly();
  void SetTimer(transport::Time when);
  void MeasureTimer();
  bool ArmSocket(int fd);

  const char* const name_;
  const Work work_;
  UniqueFd epoll_fd_;
  UniqueFd wake_fd_;
  UniqueFd timer_fd_;
  std::vector<int> sockets_;  // guarded by the lane's lock
  pthread_t thread_{};
  bool running_ = false;
  transport::Time timer_ = transport::kNever;  // when it expires
  transport::Time timer_cost_ = 0;
  std::atomic<bool> stop_ = false;
  // A socket cannot leave the set any more: the program has closed our
  // descriptor, and another process holds the socket open.
  std::atomic<bool> has_stale_socket_ = false;
  std::atomic<uint64_t> wakeups_ = 0;
  std::atomic<uint64_t> timers_set_ = 0;
  // The events of the last Sleep.
  static constexpr int kMaxEvents = 16;
  uint64_t events_[kMaxEvents];
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_HELPER_THREAD_H_
