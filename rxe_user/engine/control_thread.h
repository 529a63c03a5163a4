// The thread of an engine for what may take its time: the port broker, changes
// of the link. Driven by Boost.Asio; packets are none of its business.
//
// It runs with all signals but faults blocked, and sleeps for ever when there
// is nothing to do.
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

  // Something to wait for. All of it is called by the thread.
  struct Source {
    // The descriptor whose readability is waited for; -1: none.
    std::function<int()> fd;
    // The time that is waited for; max(): none.
    std::function<Clock::time_point()> time = [] {
      return Clock::time_point::max();
    };
    // The descriptor is readable or the time has come. May change both.
    std::function<void()> run;
    // Whose it is, for Remove. 0: it stays.
    uint64_t owner = 0;
  };

  // Starts the thread. In a child of fork() it is not there, its descriptors
  // are closed, and nothing may be called but the destructor.
  static absl::StatusOr<std::unique_ptr<ControlThread>> Start();
  // Ends the thread. What it is running ends first.
  ~ControlThread();

  // Thread: any.
  void Add(Source source);
  // All, or, without memory, none: std::bad_alloc.
  void AddAll(std::vector<Source> sources);
  // Those of `owner` are no more: nothing waits for their descriptors, which
  // may be closed then. For a source that runs and is not one of them. What was
  // added a moment ago may come later; it says then that it has no descriptor.
  void Remove(uint64_t owner);
  // What the sources wait for may have changed. Thread: any.
  void Refresh();

 private:
  class Impl;
  explicit ControlThread(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_CONTROL_THREAD_H_
