// The capture of a process, from its first open device to its end.
#include <mutex>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/observe/capture.h"

namespace rxe_user {
namespace {

// How long the end of a program waits for its capture.
constexpr std::chrono::seconds kExitPatience{5};

class Holder final : private ForkGuard {
 public:
  // Never destroyed: other threads may use engines during exit.
  static Holder& Get() {
    static Holder* const holder = new Holder;
    return *holder;
  }

  Capture* Find() {
    const std::lock_guard lock(mutex_);
    if (!asked_) {
      asked_ = true;
      const char* const name = Environment("RXE_USER_CAPTURE");
      if (name != nullptr && *name != '\0') {
        current_ = Capture::Begin(name).release();
        FlushAtExit(current_);
      }
    }
    return current_;
  }

  static void FlushAtExit(Capture* capture) { at_exit_ = capture; }
  static Capture* at_exit() { return at_exit_; }

 private:
  Holder() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  void BeforeFork() override {
    mutex_.lock();
    if (current_ != nullptr) current_->LockForFork();
  }
  void AfterForkInParent() override {
    if (current_ != nullptr) current_->UnlockInParent();
    mutex_.unlock();
  }
  // The parent's lanes still refer to the capture, so it is not freed.
  void AfterForkInChild() override {
    if (current_ != nullptr) current_->AbandonInChild();
    current_ = nullptr;
    asked_ = false;
    FlushAtExit(nullptr);
    mutex_.unlock();
  }

  static std::atomic<Capture*> at_exit_;

  std::mutex mutex_;
  bool asked_ = false;
  Capture* current_ = nullptr;
};

std::atomic<Capture*> Holder::at_exit_ = nullptr;

// After the handlers of atexit(), since those of the engines still transmit.
__attribute__((destructor)) void FlushCapture() {
  Capture* const capture = Holder::at_exit();
  if (capture != nullptr) capture->Flush(kExitPatience);
}

}  // namespace

transport::PacketObserver* ProcessCapture() { return Holder::Get().Find(); }

}  // namespace rxe_user
