#include "rxe_user/engine/alarms.h"

#include <algorithm>
#include <utility>

namespace rxe_user {

void Alarms::RunOn(ControlThread* thread) {
  {
    const std::lock_guard<std::shared_mutex> lock(thread_mutex_);
    thread_ = thread;
  }
  if (thread == nullptr) return;
  thread->Add({.fd = [] { return -1; },
               .time = [this] { return Next(); },
               .run = [this] { RingDue(); }});
}

uint64_t Alarms::Add(Ring ring) {
  const std::lock_guard<std::mutex> lock(mutex_);
  alarms_[next_id_].ring = std::move(ring);
  return next_id_++;
}

void Alarms::Remove(uint64_t id) {
  const std::lock_guard<std::mutex> ringing(ringing_);
  const std::lock_guard<std::mutex> lock(mutex_);
  alarms_.erase(id);
}

void Alarms::Set(uint64_t id, Clock::time_point when) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = alarms_.find(id);
    if (found == alarms_.end() || found->second.when <= when) return;
    found->second.when = when;
    if (next_ <= when) return;  // the thread wakes early enough
    next_ = when;
  }
  const std::shared_lock<std::shared_mutex> lock(thread_mutex_);
  if (thread_ != nullptr) thread_->Refresh();
}

Alarms::Clock::time_point Alarms::Next() {
  const std::lock_guard<std::mutex> lock(mutex_);
  next_ = Clock::time_point::max();
  for (const auto& [id, alarm] : alarms_) next_ = std::min(next_, alarm.when);
  return next_;
}

Alarms::Alarm* Alarms::TakeDue(Clock::time_point now) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [id, alarm] : alarms_) {
    if (alarm.when > now) continue;
    alarm.when = Clock::time_point::max();
    return &alarm;
  }
  return nullptr;
}

// Alarms that are set meanwhile wait for the next call, so the loop ends.
void Alarms::RingDue() {
  const Clock::time_point now = Clock::now();
  const std::lock_guard<std::mutex> ringing(ringing_);
  while (Alarm* const due = TakeDue(now)) due->ring();
}

}  // namespace rxe_user
