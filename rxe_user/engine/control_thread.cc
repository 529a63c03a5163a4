#include "rxe_user/engine/control_thread.h"

#include <pthread.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/semaphore.h"
#include "rxe_user/base/service_thread.h"

namespace rxe_user {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;

// Keeps fork() and Asio apart: each waits while the other runs. The thread
// leaves the gate while it runs a source, which may be slow, and may run
// through a fork.
class LoopGate {
 public:
  // Called by the thread, which starts outside of the loop.
  void EnterLoop() {
    gate_.Acquire();
    in_loop_ = true;
    gate_.Release();
  }
  void LeaveLoop() {
    gate_.Acquire();
    in_loop_ = false;
    if (std::exchange(wanted_, false)) {
      outside_.Release();  // hands the gate to the waiting thread
    } else {
      gate_.Release();
    }
  }
  // For other threads: calls of Asio that are allowed during the loop.
  template <typename F>
  void Beside(F&& call) {
    gate_.Acquire();
    const absl::Cleanup release = [this] { gate_.Release(); };
    call();
  }
  // For the thread that forks. Returns when the loop has been left; it is not
  // entered again until Open. `interrupt` makes the thread leave it.
  template <typename F>
  void Close(F&& interrupt) {
    gate_.Acquire();
    if (!in_loop_) return;
    wanted_ = true;
    interrupt();
    gate_.Release();
    outside_.Acquire();
  }
  void Open() { gate_.Release(); }

 private:
  // Semaphores, since another thread may release them; a mutex must be unlocked
  // by its owner.
  BinarySemaphore gate_{true};
  BinarySemaphore outside_{false};
  bool in_loop_ = false;  // guarded by gate_
  bool wanted_ = false;   // guarded by gate_
};

// A source and what Asio needs to wait for it. Only the thread uses it.
struct Wait {
  Wait(boost::asio::io_context& io, ControlThread::Source s)
      : source(std::move(s)), readable(io), timer(io) {}

  const ControlThread::Source source;
  stream_descriptor readable;  // the source's own descriptor, not to be closed
  bool awaited = false;        // an async_wait is pending
  boost::asio::steady_timer timer;
  // When the timer expires; max(): it is not set.
  ControlThread::Clock::time_point time =
      ControlThread::Clock::time_point::max();
};

class AsioThread final : public ControlThread, private ForkGuard {
 public:
  AsioThread() : ForkGuard(ForkLevel::kControlThreads) {
    state_.emplace();
    EnterForkGuard();
  }
  ~AsioThread() override {
    if (state_.has_value()) {  // else it is a child of fork()
      if (running_) {
        gate_.Beside([this] { state_->io.stop(); });
        ::pthread_join(thread_, nullptr);
      }
      gate_.Beside([this] { Clear(); });
    }
    LeaveForkGuard();
  }

  absl::Status Start() {
    const int error = StartServiceThread<&AsioThread::Main>(&thread_, this);
    if (error != 0) return ErrnoStatus(error, "control thread");
    // Set here and not by the thread itself, which may start late: as soon as
    // this returns, other processes must recognize the owner of the port
    // (broker/port_holder.cc).
    (void)::pthread_setname_np(thread_, kControlThreadName);
    running_ = true;
    return absl::OkStatus();
  }

  // Allocates in the caller, which can report a lack of memory.
  void AddAll(std::vector<Source> sources) override {
    gate_.Beside([&] {
      if (!state_.has_value()) return;
      Waits added;
      for (Source& source : sources) {
        added.push_back(std::make_shared<Wait>(state_->io, std::move(source)));
      }
      boost::asio::post(state_->io, [this, added = std::move(added)]() mutable {
        state_->waits.splice(state_->waits.end(), added);
        ArmAll();
      });
    });
  }
  // Handlers of Asio that are already queued hold weak pointers and do nothing.
  void Remove(uint64_t owner) override {
    gate_.Beside([&] {
      if (!state_.has_value()) return;
      state_->waits.remove_if([owner](const std::shared_ptr<Wait>& wait) {
        if (wait->source.owner != owner) return false;
        if (wait->readable.is_open()) wait->readable.release();
        return true;
      });
    });
  }
  // One is queued at a time. Both sides exchange: the thread then sees what the
  // caller changed before.
  void Refresh() override {
    if (refresh_queued_.exchange(true)) return;
    gate_.Beside([this] {
      if (!state_.has_value()) return;
      try {
        boost::asio::post(state_->io, [this] {
          refresh_queued_.exchange(false);
          ArmAll();
        });
      } catch (const std::bad_alloc&) {
        refresh_queued_ = false;
        throw;
      }
    });
  }

 private:
  using Waits = std::list<std::shared_ptr<Wait>>;

  // Destroyed in a child of fork().
  struct State {
    // Not defaulted: inside the enclosing class, clang 14 would not know yet
    // that it exists.
    State() {}

    boost::asio::io_context io{1};
    boost::asio::executor_work_guard<boost::asio::io_context::executor_type>
        work{io.get_executor()};
    Waits waits;
    // The first timer makes Asio open its descriptors. Opening them here
    // reports a failure.
    boost::asio::steady_timer first{io};
  };

  // While this lives, the thread is outside of the loop.
  class OutsideLoop {
   public:
    explicit OutsideLoop(LoopGate& gate) : gate_(gate) { gate_.LeaveLoop(); }
    ~OutsideLoop() { gate_.EnterLoop(); }
    OutsideLoop(const OutsideLoop&) = delete;
    OutsideLoop& operator=(const OutsideLoop&) = delete;

   private:
    LoopGate& gate_;
  };

  void Run(const std::shared_ptr<Wait>& wait) {
    {
      const OutsideLoop outside(gate_);
      wait->source.run();
    }
    Arm(wait);
  }

  // May throw bad_alloc, and may then be called again.
  void ArmAll() {
    for (const std::shared_ptr<Wait>& wait : state_->waits) Arm(wait);
  }

  void Arm(const std::shared_ptr<Wait>& wait) {
    ArmDescriptor(wait);
    ArmTimer(wait);
  }
  void ArmDescriptor(const std::shared_ptr<Wait>& shared) {
    Wait& wait = *shared;
    const int fd = wait.source.fd();
    if (wait.readable.is_open() && wait.readable.native_handle() != fd) {
      wait.readable.release();  // ends the async_wait
      wait.awaited = false;
    }
    if (fd < 0 || wait.awaited) return;
    error_code error;
    if (!wait.readable.is_open()) wait.readable.assign(fd, error);
    if (error) return;  // tried again with the next Refresh
    wait.readable.async_wait(
        stream_descriptor::wait_read,
        [this, weak = std::weak_ptr<Wait>(shared), fd](error_code ended) {
          const std::shared_ptr<Wait> wait = weak.lock();
          if (ended || wait == nullptr || wait->source.fd() != fd) return;
          wait->awaited = false;
          Run(wait);
        });
    wait.awaited = true;
  }
  void ArmTimer(const std::shared_ptr<Wait>& shared) {
    Wait& wait = *shared;
    const Clock::time_point time = wait.source.time();
    if (time == wait.time) return;
    wait.time = Clock::time_point::max();
    wait.timer.expires_at(time);  // cancels the earlier async_wait
    if (time == Clock::time_point::max()) return;
    wait.timer.async_wait(
        [this, weak = std::weak_ptr<Wait>(shared)](error_code ended) {
          const std::shared_ptr<Wait> wait = weak.lock();
          if (ended || wait == nullptr) return;
          wait->time = Clock::time_point::max();
          Run(wait);
        });
    wait.time = time;
  }

  void Main() {
    gate_.EnterLoop();
    while (!Loop()) {
      // Nothing signals that memory is available again.
      const OutsideLoop outside(gate_);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    gate_.LeaveLoop();
  }
  // False if a source, or waiting for it, found no memory. All sources are then
  // unchanged, or are waited for again by the next call.
  bool Loop() {
    try {
      ArmAll();
      state_->io.run();
      return true;
    } catch (const std::bad_alloc&) {
      return state_->io.stopped();
    }
  }

  // Leaves the descriptors to their sources.
  void Clear() {
    for (const std::shared_ptr<Wait>& wait : state_->waits) {
      if (wait->readable.is_open()) wait->readable.release();
    }
    state_.reset();
  }

  void BeforeFork() override {
    gate_.Close([this] {
      boost::asio::post(state_->io, [this] {
        gate_.LeaveLoop();
        gate_.EnterLoop();
      });
    });
    if (!state_.has_value()) return;
    state_->io.notify_fork(boost::asio::io_context::fork_prepare);
  }
  void AfterForkInParent() override {
    if (state_.has_value()) {
      state_->io.notify_fork(boost::asio::io_context::fork_parent);
    }
    gate_.Open();
  }
  // Asio first replaces the descriptors that it shares with the parent, so that
  // Clear() does not change the parent's epoll set.
  void AfterForkInChild() override {
    if (state_.has_value()) {
      try {
        state_->io.notify_fork(boost::asio::io_context::fork_child);
      } catch (const boost::system::system_error&) {
        // The shared descriptors are closed nevertheless.
      }
      Clear();
    }
    gate_.Open();
  }

  LoopGate gate_;
  std::optional<State> state_;  // absent in a child of fork()
  std::atomic<bool> refresh_queued_ = false;
  pthread_t thread_{};
  bool running_ = false;
};

}  // namespace

void ControlThread::Add(Source source) {
  std::vector<Source> one;
  one.push_back(std::move(source));
  AddAll(std::move(one));
}

absl::StatusOr<std::unique_ptr<ControlThread>> ControlThread::Start() {
  try {
    auto thread = std::make_unique<AsioThread>();
    if (absl::Status status = thread->Start(); !status.ok()) return status;
    return thread;
  } catch (const boost::system::system_error& error) {
    return ErrnoStatus(error.code().value(), "control thread");
  }
}

}  // namespace rxe_user
