// The thread that makes progress when nobody else does
// (docs/design/progress.md).
//
// Each lane has one of its own: what it waits for, and when, is the lane's, and
// a lane that is busy holds up no other.
//
// It waits on one epoll set: the sockets of the lane while they are armed, a
// wake descriptor and a timer. It waits itself rather than by an event library:
// data sockets have to come and go from the set with one system call while the
// application polls, which an edge-triggered reactor that keeps its descriptors
// registered cannot do.
//
// The timer is set only when the thread has to come sooner than it would
// already: deadlines of retransmission move away with each message, and setting
// a timer for each of them may cost more than the message, in a virtual machine
// above all. So the timer now and then goes off too soon.
//
// It runs with all signals but faults blocked, is never pinned, and sleeps for
// ever when nobody needs it.
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
#include "rxe_user/engine/lane_impl.h"

namespace rxe_user {

class HelperThread final : public LaneHelper {
 public:
  // Called at every wake-up (`by_socket`: of an armed socket among others),
  // returns when it wants to be called again at the latest.
  using Work = std::function<transport::Time(bool by_socket)>;

  // `name` is a literal of at most 15 characters.
  static absl::StatusOr<std::unique_ptr<HelperThread>> Create(const char* name,
                                                              Work work);
  // Ends the thread, if it runs.
  ~HelperThread() override;

  absl::Status Start();

  void Wake() override;
  bool AddSocket(int fd, bool armed) override;
  void RemoveSocket(int fd) override;
  bool Arm(bool on) override;
  transport::Time timer_cost() const override { return timer_cost_; }

  // Times that the thread has woken from sleep, and that it set its timer.
  uint64_t wakeups() const { return wakeups_.load(std::memory_order_relaxed); }
  uint64_t timers_set() const {
    return timers_set_.load(std::memory_order_relaxed);
  }

  // In the child of fork, where the thread is not: closes the descriptors.
  void AbandonInChild();

 private:
  HelperThread(const char* name, Work work);
  static void* Main(void* self);
  void Run();
  int Sleep(transport::Time until);
  static void Nap();
  void SetTimer(transport::Time when);
  void MeasureTimer();
  bool ArmSocket(int fd);

  const char* const name_;
  const Work work_;
  const int epoll_fd_;
  const int wake_fd_;
  const int timer_fd_;
  std::vector<int> sockets_;  // guarded by the lane's lock
  pthread_t thread_{};
  bool running_ = false;
  bool abandoned_ = false;
  transport::Time timer_ = transport::kNever;  // when it goes off
  transport::Time timer_cost_ = 0;
  std::atomic<bool> stop_ = false;
  // A socket stays in the set, since the program has closed its descriptor and
  // somebody else has one.
  std::atomic<bool> lost_ = false;
  std::atomic<uint64_t> wakeups_ = 0;
  std::atomic<uint64_t> timers_set_ = 0;
  // What the last Sleep found.
  static constexpr int kMaxEvents = 16;
  uint64_t events_[kMaxEvents];
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_HELPER_THREAD_H_
