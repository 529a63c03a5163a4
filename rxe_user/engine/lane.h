// A lane: an endpoint, the sockets it speaks through and its timers, under one
// lock (docs/architecture.md, "Progress"). Whoever needs progress makes it,
// with non-blocking calls, while holding the lock.
#ifndef RXE_USER_ENGINE_LANE_H_
#define RXE_USER_ENGINE_LANE_H_

#include <cstdint>

#include "transport/base/types.h"
#include "transport/endpoint/endpoint.h"

namespace rxe_user {

// Send requests that were posted together.
struct PostedWork {
  int requests = 0;
  uint64_t bytes = 0;  // their payload
  int signaled = 0;    // those that ask for a completion
};

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
  // leaves it to be gathered into bursts (until enough is queued, one after
  // many asks for a completion, the next poll, or a few microseconds).
  virtual void Posted(transport::Time now, const PostedWork& work) = 0;
  // Lock held. Transmits what can be sent now.
  virtual void Transmit(transport::Time now) = 0;

  // Lock not held. One non-blocking round of receive, timers and transmit if
  // the lock is free; renews the lease that keeps the helper thread out of the
  // way. True when anything was received, sent or timed out.
  virtual bool Progress() = 0;

  // Lock not held. Renews the lease without a round: the application is at what
  // it was brought before.
  virtual void SignOfLife() = 0;

  // Lock not held. The application stops polling (it asked for an event, or
  // blocks): the helper thread takes over at once.
  virtual void DropLease() = 0;

 protected:
  virtual void Lock() = 0;
  virtual void Unlock() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_H_
