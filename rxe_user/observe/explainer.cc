#include "rxe_user/observe/explainer.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "rxe_user/base/service_thread.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/observe/explain.h"
#include "rxe_user/observe/refusals.h"
#include "rxe_user/observe/report_text.h"

namespace rxe_user {
namespace {

// How long the end of a program or device waits for its explanations.
constexpr std::chrono::seconds kExitPatience{5};
// Further failures are not explained: they mostly have the same cause.
constexpr int kMaxFailures = 16;

std::string Explain(const Failure& failure) {
  LaneReport lane;
  lane.queue_pairs = {failure.queue_pair};
  lane.events = failure.events;
  DeviceReport device;
  device.now = failure.now;
  device.lanes = {std::move(lane)};
  if (const ProcessFaults* const faults = ProcessFaults::Current()) {
    device.fault_rules = faults->Status();
  }
  const Witness own = WitnessOf(::getpid(), ReportText(device));
  // Ask this process as well: both ends may be in it.
  auto others = AskWitnesses(0);
  if (!others.ok()) others = std::vector<Witness>();
  return ExplainQueuePair(own, failure.queue_pair.qpn, *others);
}

class Explainer {
 public:
  // Null if there is none yet. Never destroyed.
  static Explainer* Existing() {
    Explainer* const found = current;
    return found != nullptr && found->pid_ == ::getpid() ? found : nullptr;
  }
  // A child of fork() gets its own: in the parent's, a lock may be held and the
  // thread does not exist.
  static Explainer& OfThisProcess() {
    Explainer* found = current;
    if (found != nullptr && found->pid_ == ::getpid()) return *found;
    auto made = std::make_unique<Explainer>();
    if (current.compare_exchange_strong(found, made.get())) {
      return *made.release();
    }
    return *found;
  }

  Explainer() : pid_(::getpid()) {}

  void Add(Failure failure) {
    const std::lock_guard lock(mutex_);
    if (++failures_ > kMaxFailures || !StartThread()) return;
    waiting_.push_back(std::move(failure));
    changed_.notify_all();
  }

  void Flush() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kExitPatience,
                      [this] { return waiting_.empty() && !busy_; });
  }

 private:
  static std::atomic<Explainer*> current;

  bool StartThread() {
    if (started_) return true;
    pthread_t thread;
    const auto run = [](void* self) -> void* {
      static_cast<Explainer*>(self)->Run();
      return nullptr;
    };
    if (StartServiceThread(&thread, run, this) != 0) return false;
    (void)pthread_setname_np(thread, "rxe-user-why");
    (void)pthread_detach(thread);
    started_ = true;
    return true;
  }

  [[noreturn]] void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !waiting_.empty(); });
      const Failure failure = std::move(waiting_.front());
      waiting_.pop_front();
      busy_ = true;
      lock.unlock();
      try {
        Warn(Explain(failure));
      } catch (const std::bad_alloc&) {
        // Without memory there is no explanation.
      }
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  const pid_t pid_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Failure> waiting_;
  int failures_ = 0;
  bool started_ = false;
  bool busy_ = false;
};

std::atomic<Explainer*> Explainer::current = nullptr;

__attribute__((destructor)) void FlushAtExit() { AwaitExplanations(); }

}  // namespace

void AwaitExplanations() {
  Explainer* const explainer = Explainer::Existing();
  if (explainer != nullptr) explainer->Flush();
}

bool IsFailure(const transport::RareEvent& event) {
  if (event.kind != transport::RareEventKind::kState) return false;
  const auto to = static_cast<transport::QpState>(event.value & 0xff);
  return (to == transport::QpState::kErr || to == transport::QpState::kSqe) &&
         event.reason != transport::Reason::kNone &&
         event.reason != transport::Reason::kModifiedToError;
}

void ExplainLater(Failure failure) {
  if (!ExplainMode()) return;
  try {
    Explainer::OfThisProcess().Add(std::move(failure));
  } catch (const std::bad_alloc&) {
    // Without memory there is no explanation.
  }
}

}  // namespace rxe_user
