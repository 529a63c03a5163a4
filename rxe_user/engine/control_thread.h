// The engine's thread for slow work: the port broker, link changes, alarms.
// Driven by Boost.Asio; it handles no packets.
//
// All signals but faults are blocked. It sleeps while it has nothing to do.
#ifndef RXE_USER_ENGINE_CONTROL_THREAD_H_
#define RXE_USER_ENGINE_CONTROL_THREAD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rxe_user {

class ControlThread {
 public:
  using Clock = std::chrono::steady_clock;

  // Something to wait for. The thread calls all of its functions.
  struct Source {
    // The descriptor that becomes readable; -1: none.
    std::function<int()> fd;
    // The time to wait for; max(): none.
    std::function<Clock::time_point()> time = [] {
      return Clock::time_point::max();
    };
    // Called when the descriptor is readable or the time has come. May change
    // both.
    std::function<void()> run;
    // For Remove. 0: the source stays.
    uint64_t owner = 0;
  };

  // Starts the thread. In a child of fork() it does not run and its descriptors
  // are closed; only the destructor may be called there.
  static absl::StatusOr<std::unique_ptr<ControlThread>> Start();
  // Ends the thread after the source that it is running.
  virtual ~ControlThread() = default;

  // Thread: any.
  void Add(Source source);
  // Adds all of them, or none if there is no memory: std::bad_alloc.
  virtual void AddAll(std::vector<Source> sources) = 0;
  // Removes the sources of `owner`: their descriptors are no longer waited for
  // and may be closed. Called by a running source of another owner. A source
  // that was added a moment ago may still appear; its fd() must then return -1.
  virtual void Remove(uint64_t owner) = 0;
  // What the sources wait for may have changed. Thread: any.
  virtual void Refresh() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_CONTROL_THREAD_H_
