#include "rxe_user/observe/process_files.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

#include "rxe_user/base/environment.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/faults/process_faults.h"

namespace rxe_user {
namespace {

// How long the end of a program waits for its files.
constexpr std::chrono::seconds kExitPatience{5};

std::atomic<Capture*> capture_at_exit = nullptr;
std::atomic<Tracer*> current_tracer = nullptr;

class TwoObservers final : public transport::PacketObserver {
 public:
  TwoObservers(PacketObserver& first, PacketObserver& second)
      : first_(first), second_(second) {}
  void OnPacket(const transport::ObservedPacket& packet) override {
    first_.OnPacket(packet);
    second_.OnPacket(packet);
  }
  // A capture ignores held packets; only recordings have events for faults.
  uint64_t OnHeld(const transport::ObservedPacket& packet) override {
    return std::max(first_.OnHeld(packet), second_.OnHeld(packet));
  }
  void OnOverflow(uint64_t packets) override {
    first_.OnOverflow(packets);
    second_.OnOverflow(packets);
  }
  bool WantsKernelTime() const override {
    return first_.WantsKernelTime() || second_.WantsKernelTime();
  }

 private:
  PacketObserver& first_;
  PacketObserver& second_;
};

const char* NameIn(const char* variable) {
  const char* const name = Environment(variable);
  return name != nullptr && *name != '\0' ? name : nullptr;
}

class Holder final : private ForkGuard {
 public:
  static Holder& Get() { return OnlyOne<Holder>(); }

  Holder() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~Holder() { LeaveForkGuard(); }

  Capture* FindCapture() {
    const std::lock_guard lock(mutex_);
    Start();
    return capture_;
  }
  Tracer* FindTracer() {
    const std::lock_guard lock(mutex_);
    Start();
    return tracer_;
  }
  Tally* FindTally() {
    const std::lock_guard lock(mutex_);
    Start();
    return tally_;
  }
  int FindTallyError() {
    const std::lock_guard lock(mutex_);
    Start();
    return tally_error_;
  }
  transport::PacketObserver* FindObserver() {
    const std::lock_guard lock(mutex_);
    Start();
    if (capture_ == nullptr) return tracer_;
    if (tracer_ == nullptr) return capture_;
    if (both_ == nullptr) both_ = new TwoObservers(*capture_, *tracer_);
    return both_;
  }

 private:
  void Start() {
    if (started_) return;
    started_ = true;
    if (const char* const name = NameIn("RXE_USER_CAPTURE")) {
      capture_ = Capture::Begin(name).release();
      capture_at_exit = capture_;
    }
    Tracer::Options options;
    if (const char* const folder = NameIn("RXE_USER_TALLY")) {
      tally_ = options.tally = Tally::Begin(folder).release();
      tally_error_ = tally_ == nullptr ? errno : 0;
      if (tally_error_ != 0) {
        Warn(std::string("cannot count what the program does, for rxe-user "
                         "run --expect, in ") +
             folder + ": " + std::strerror(tally_error_) +
             "; the device cannot be opened");
      }
    }
    if (const char* const name = NameIn("RXE_USER_TRACE")) {
      const char* const payload = NameIn("RXE_USER_TRACE_PAYLOAD");
      options.payload = payload != nullptr && std::strcmp(payload, "0") != 0;
      tracer_ = Tracer::Begin(name, options).release();
    }
    if (tracer_ == nullptr && tally_ != nullptr) {
      tracer_ = Tracer::Begin("", options).release();
    }
    current_tracer.store(tracer_, std::memory_order_release);
  }

  void BeforeFork() override {
    mutex_.lock();
    if (capture_ != nullptr) capture_->file().LockForFork();
    if (tracer_ != nullptr) tracer_->LockForFork();
  }
  void AfterForkInParent() override {
    if (tracer_ != nullptr) tracer_->UnlockInParent();
    if (capture_ != nullptr) capture_->file().UnlockInParent();
    mutex_.unlock();
  }
  // The parent's capture and tracer are not freed, since its lanes still refer
  // to them.
  void AfterForkInChild() override {
    if (tracer_ != nullptr) tracer_->AbandonInChild();
    if (capture_ != nullptr) capture_->file().AbandonInChild();
    tracer_ = nullptr;
    tally_ = nullptr;
    tally_error_ = 0;
    capture_ = nullptr;
    both_ = nullptr;
    started_ = false;
    capture_at_exit = nullptr;
    current_tracer = nullptr;
    mutex_.unlock();
  }

  std::mutex mutex_;
  bool started_ = false;
  Capture* capture_ = nullptr;
  Tracer* tracer_ = nullptr;
  Tally* tally_ = nullptr;
  int tally_error_ = 0;  // errno
  TwoObservers* both_ = nullptr;
};

// Runs after the handlers of atexit(), since those of the engines still
// transmit.
__attribute__((destructor)) void FlushFiles() {
  if (Capture* const capture = capture_at_exit) {
    capture->file().Flush(kExitPatience);
  }
  Tracer* const tracer = current_tracer;
  if (tracer == nullptr || tracer->IsInterrupted(kExitPatience)) return;
  if (const ProcessFaults* const faults = ProcessFaults::Current()) {
    for (const FaultRuleStatus& rule : faults->StatusAtExit(kExitPatience)) {
      tracer->OnFaultRule(rule);
    }
  }
  tracer->Flush(kExitPatience);
}

}  // namespace

Capture* ProcessCapture() { return Holder::Get().FindCapture(); }
Tracer* ProcessTracer() { return Holder::Get().FindTracer(); }
Tally* ProcessTally() { return Holder::Get().FindTally(); }
int TallyError() { return Holder::Get().FindTallyError(); }
transport::PacketObserver* ProcessObserver() {
  return Holder::Get().FindObserver();
}

void GuardProcessFiles() { Holder::Get(); }

Tracer* CurrentTracer() {
  return current_tracer.load(std::memory_order_acquire);
}

}  // namespace rxe_user
