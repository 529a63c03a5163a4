// What a thread of the engine does at a time: the moderation of completion
// events. Not for what packets need, which lanes have deadlines for.
#ifndef RXE_USER_ENGINE_ALARMS_H_
#define RXE_USER_ENGINE_ALARMS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <shared_mutex>

#include "rxe_user/engine/control_thread.h"

namespace rxe_user {

class Alarms {
 public:
  using Clock = ControlThread::Clock;
  using Ring = std::function<void()>;

  // The thread that rings, which ends before this does; null, before it ends,
  // for none: alarms wait for the next one.
  void RunOn(ControlThread* thread);

  // Ids are never 0 and never used again. `ring` may set alarms, also its own;
  // it must not add or remove any. Thread: any.
  uint64_t Add(Ring ring);
  // Returns when it is not running and will not be called again. Not to be
  // called with a lock held that `ring` takes.
  void Remove(uint64_t id);

  // It rings once, at `when` or soon after; at the earlier of two times when it
  // is set already. Thread: any, with any lock held but those of this.
  void Set(uint64_t id, Clock::time_point when);

 private:
  struct Alarm {
    Ring ring;
    Clock::time_point when = Clock::time_point::max();
  };

  Clock::time_point Next();
  void RingDue();
  // One whose time has come, which is not set any more; null: none.
  Alarm* TakeDue(Clock::time_point now);

  // Shared while the thread is told, which may wait for what it is at.
  std::shared_mutex thread_mutex_;
  ControlThread* thread_ = nullptr;  // guarded by thread_mutex_

  std::mutex ringing_;  // held while one rings; before mutex_
  std::mutex mutex_;
  std::map<uint64_t, Alarm> alarms_;  // guarded by mutex_
  uint64_t next_id_ = 1;              // guarded by mutex_
  // The earliest of them, guarded by mutex_.
  Clock::time_point next_ = Clock::time_point::max();
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ALARMS_H_
