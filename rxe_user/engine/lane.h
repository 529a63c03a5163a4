// A lane: an endpoint, the sockets it speaks through and its timers, under one
// lock (docs/design/progress.md). Whoever needs progress makes it,
// with non-blocking calls, while holding the lock.
#ifndef RXE_USER_ENGINE_LANE_H_
#define RXE_USER_ENGINE_LANE_H_

#include <cstdint>

#include "rxe_user/progress/post_batcher.h"
#include "transport/base/types.h"
#include "transport/endpoint/endpoint.h"

namespace rxe_user {

class Lane {
 public:
  virtual ~Lane() = default;

  // Holds the lane's lock. Bounded waits only: holders make at most a bounded
  // number of non-blocking calls. Not recursive. On release a holder that finds
  // work left by others goes round again, a bounded number of times.
  class Guard {
   public:
    explicit Guard(Lane& lane) : lane_(lane) { lane_.Lock(); }
    ~Guard() { lane_.Unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Lane& lane_;
  };

  // Nanoseconds of CLOCK_MONOTONIC: the Time that the endpoint is driven with.
  static transport::Time Now();

  // The lane's queue pairs live here. The lock must be held for every call on
  // it and on them.
  virtual transport::Endpoint& endpoint() = 0;

  // Lock held. Work was posted: transmits it now when the lane was idle, else
  // leaves it to share a send with what follows (PostBatcher), for 50 us at
  // most.
  virtual void Posted(transport::Time now, const PostedWork& work) = 0;
  // Lock held. Transmits what can be sent now.
  virtual void Transmit(transport::Time now) = 0;
  // Lock held. Executes what has come, up to some MiB.
  virtual void Receive(transport::Time now) = 0;

 protected:
  virtual void Lock() = 0;
  virtual void Unlock() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_H_
