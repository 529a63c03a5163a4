// Timed callbacks on the engine's control thread, used to moderate completion
// events. Packet timers are the lanes' deadlines, not alarms.
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

  // Sets the thread that calls the alarms. It must end before this object does,
  // and null must be set before it ends; alarms then wait for the next thread.
  void RunOn(ControlThread* thread);

  // Ids are never 0 and never reused. `ring` may set alarms, also its own. It
  // must not add or remove any. Thread: any.
  uint64_t Add(Ring ring);
  // On return the alarm is not running and will not run again. The caller must
  // not hold a lock that `ring` takes.
  void Remove(uint64_t id);

  // Rings once, at `when` or soon after. If it is set already, the earlier time
  // counts. Thread: any; any lock but those of this class may be held.
  void Set(uint64_t id, Clock::time_point when);

 private:
  struct Alarm {
    Ring ring;
    Clock::time_point when = Clock::time_point::max();
  };

  Clock::time_point Next();
  void RingDue();
  // Returns an alarm that is due, and unsets it. Null if there is none.
  Alarm* TakeDue(Clock::time_point now);

  // Guards thread_. Held shared during ControlThread::Refresh, which may wait
  // for the source that the thread is running.
  std::shared_mutex thread_mutex_;
  ControlThread* thread_ = nullptr;

  std::mutex ringing_;  // held while an alarm rings; taken before mutex_
  std::mutex mutex_;
  std::map<uint64_t, Alarm> alarms_;  // guarded by mutex_
  uint64_t next_id_ = 1;              // guarded by mutex_
  // The earliest `when`. Guarded by mutex_.
  Clock::time_point next_ = Clock::time_point::max();
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_ALARMS_H_
