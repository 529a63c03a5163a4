#include "rxe_user/objects/completion_queue.h"

#include <cerrno>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/warn_once.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/queue_pair.h"
#include "rxe_user/observe/process_files.h"

namespace rxe_user {

using transport::Completion;
using transport::Time;
using transport::WcStatus;

namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Completion* RingIn(const QueueMemory& memory) {
  return reinterpret_cast<Completion*>(memory.get());
}

}  // namespace

// Untouched pages cost nothing: requests are often much larger than needed.
QueueMemory CompletionQueue::Allocate(uint32_t capacity) const {
  static_assert(std::is_trivially_copyable_v<Completion>);
  return AllocateQueueMemory(config_.allocator, capacity * sizeof(Completion),
                             QueueKind::kCompletionQueue);
}

CompletionQueue::CompletionQueue(Engine& engine, const Config& config)
    : engine_(engine),
      config_(config),
      id_(NextId()),
      ring_memory_(Allocate(config.capacity)),
      ring_(RingIn(ring_memory_)),
      capacity_(config.capacity) {}

CompletionQueue::~CompletionQueue() {
  if (alarm_ != 0) engine_.RemoveAlarm(alarm_);
  if (Tracer* const tracer = CurrentTracer()) tracer->OnCqDestroyed(id_);
}

bool CompletionQueue::Push(const Completion& completion) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (overrun()) return false;
  uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == capacity_) {
    if (!config_.ignore_overrun) {
      Lose();
      // The peers only see that responses stop.
      WarnOnce(absl::StrCat("a completion queue of ", capacity_,
                            " entries has overrun and its queue pairs go to "
                            "the error state: make it large enough for all "
                            "outstanding requests, or poll it more often"));
      return false;
    }
    ring_[head_].slot.Free();
    if (++head_ == capacity_) head_ = 0;
    --count;
  }
  uint32_t tail = head_ + count;
  if (tail >= capacity_) tail -= capacity_;
  ring_[tail] = completion;
  count_.store(count + 1, std::memory_order_release);
  if (armed_ == Armed::kNext ||
      (armed_ == Armed::kSolicited &&
       (completion.solicited || completion.status != WcStatus::kSuccess))) {
    OnEventWanted(1);
  }
  return true;
}

void CompletionQueue::Lose() {
  overrun_.store(true, std::memory_order_release);
  FailLater();
  RaiseError();
}

void CompletionQueue::Overrun() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!overrun()) Lose();
}

void CompletionQueue::RaiseError() {
  config_.async->Post(
      {config_.error_event, config_.element, 0, &async_account_});
}

void CompletionQueue::RevealLate() {
  std::lock_guard<std::mutex> lock(users_mutex_);
  for (QueuePair* qp : users_) qp->RevealLate();
}

transport::CqReport CompletionQueue::Report() {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  return {.id = id_,
          .capacity = capacity_,
          .unpolled = count,
          .oldest = count > 0 ? ring_[head_].time : 0,
          .has_channel = config_.channel != nullptr,
          .armed = armed_ != Armed::kNo,
          .overrun = overrun()};
}

void CompletionQueue::OnEventWanted(uint32_t completions) {
  const bool first = held_ == 0;
  held_ += completions;
  const bool at_once = hold_count_ == 0 && hold_period_ == 0;
  if (at_once || (hold_count_ != 0 && held_ >= hold_count_) ||
      count_.load(std::memory_order_relaxed) == capacity_) {
    RaiseEvent();
  } else if (first && hold_period_ != 0) {
    StartHoldTimer(hold_period_ * transport::kMicrosecond);
  }
}

void CompletionQueue::StartHoldTimer(Time time) {
  hold_until_ = Lane::Now() + time;
  engine_.SetAlarm(alarm_, time);
}

// The alarm may have been set for an event that was raised early, by its count.
void CompletionQueue::OnAlarm() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (armed_ == Armed::kNo || held_ == 0 || hold_period_ == 0) return;
  const Time left = hold_until_ - Lane::Now();
  if (left > 0) {
    engine_.SetAlarm(alarm_, left);
  } else {
    RaiseEvent();
  }
}

int CompletionQueue::Moderate(uint16_t count, uint16_t period) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (period != 0 && alarm_ == 0) {
    const auto alarm = engine_.AddAlarm([this] { OnAlarm(); });
    if (!alarm.ok()) return ReportedErrno(alarm.status());
    alarm_ = *alarm;
  }
  hold_count_ = count;
  hold_period_ = period;
  if (const uint32_t held = std::exchange(held_, 0); held > 0)
    OnEventWanted(held);
  return 0;
}

void CompletionQueue::RaiseEvent() {
  armed_ = Armed::kNo;
  held_ = 0;
  config_.channel->Post({0, config_.element, 0, &completion_account_});
}

void CompletionQueue::Arm(bool solicited_only) {
  if (config_.channel != nullptr) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!solicited_only) {
      armed_ = Armed::kNext;
    } else if (armed_ == Armed::kNo) {
      armed_ = Armed::kSolicited;
    }
  }
  engine_.DropLease(lanes_.lanes());
}

int CompletionQueue::Resize(uint32_t capacity, uint32_t wanted) {
  QueueMemory memory = Allocate(capacity);  // the old one after the swap
  if (memory == nullptr) return ENOMEM;
  Completion* const bigger = RingIn(memory);
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (wanted < count) return EINVAL;
  for (uint32_t i = 0; i < count; ++i) {
    bigger[i] = ring_[head_];
    if (++head_ == capacity_) head_ = 0;
  }
  head_ = 0;
  capacity_ = capacity;
  ring_memory_.swap(memory);
  ring_ = bigger;
  return 0;
}

void CompletionQueue::Forget(uint32_t qpn) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  uint32_t from = head_;
  uint32_t to = head_;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (ring_[from].qpn == qpn) {
      ring_[from].slot.Free();
    } else {
      if (from != to) ring_[to] = ring_[from];
      ++kept;
      if (++to == capacity_) to = 0;
    }
    if (++from == capacity_) from = 0;
  }
  count_.store(kept, std::memory_order_release);
}

void CompletionQueue::ForgetSlots(const transport::Retrieved* queue) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t count = count_.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < count; ++i) {
    Completion& completion = ring_[(head_ + i) % capacity_];
    if (completion.slot.queue == queue) completion.slot = {};
  }
}

void CompletionQueue::FailQueuePairs() {
  if (!fail_pending_.exchange(false, std::memory_order_acq_rel)) return;
  std::lock_guard<std::mutex> lock(users_mutex_);
  for (QueuePair* qp : users_) {
    if (overrun()) {
      qp->OnCqError();
    } else {
      qp->FailOnCommand();
    }
  }
}

void CompletionQueue::Attach(QueuePair* qp) {
  {
    std::lock_guard<std::mutex> lock(users_mutex_);
    users_.push_back(qp);
  }
  AddLane(qp->lane_index());
}

void CompletionQueue::Detach(QueuePair* qp) {
  {
    std::lock_guard<std::mutex> lock(users_mutex_);
    std::erase(users_, qp);
  }
  RemoveLane(qp->lane_index());
}

void CompletionQueue::AttachSrq() {
  std::lock_guard<std::mutex> lock(users_mutex_);
  ++srqs_;
}

void CompletionQueue::DetachSrq() {
  std::lock_guard<std::mutex> lock(users_mutex_);
  --srqs_;
}

void CompletionQueue::AddLane(int lane) {
  std::lock_guard<std::mutex> lock(users_mutex_);
  lanes_.Add(lane);
  if (config_.channel != nullptr) config_.channel->AddLane(lane);
}

void CompletionQueue::RemoveLane(int lane) {
  std::lock_guard<std::mutex> lock(users_mutex_);
  lanes_.Remove(lane);
  if (config_.channel != nullptr) config_.channel->RemoveLane(lane);
}

bool CompletionQueue::used() {
  std::lock_guard<std::mutex> lock(users_mutex_);
  return !users_.empty() || srqs_ > 0;
}

uint32_t CompletionQueue::WithdrawCompletionEvents() {
  uint64_t alarm;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    alarm = std::exchange(alarm_, 0);
    hold_period_ = 0;
  }
  if (alarm != 0) engine_.RemoveAlarm(alarm);  // it raises no more events
  return config_.channel == nullptr
             ? 0
             : config_.channel->Withdraw(&completion_account_);
}

uint32_t CompletionQueue::WithdrawAsyncEvents() {
  return config_.async->Withdraw(&async_account_);
}

}  // namespace rxe_user
