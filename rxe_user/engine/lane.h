// A lane: an endpoint, its sockets and its timers under one lock
// (docs/design/progress.md). Any thread that needs progress makes it, with
// non-blocking calls, while it holds the lock.
#ifndef RXE_USER_ENGINE_LANE_H_
#define RXE_USER_ENGINE_LANE_H_

#include <cstdint>

#include "rxe_user/observe/recorder.h"
#include "rxe_user/progress/post_batcher.h"
#include "transport/base/types.h"
#include "transport/endpoint/endpoint.h"

namespace rxe_user {

class Lane {
 public:
  virtual ~Lane() = default;

  // Holds the lane's lock. Waits are bounded, since a holder makes a bounded
  // number of non-blocking calls. Not recursive. On release, a holder that
  // finds work left by others does it, or wakes the helper thread.
  class Guard {
   public:
    explicit Guard(Lane& lane) : lane_(lane) { lane_.Lock(); }
    ~Guard() { lane_.Unlock(); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Lane& lane_;
  };

  // Nanoseconds of CLOCK_MONOTONIC. The endpoint is driven with this time.
  static transport::Time Now();

  // The endpoint of the lane's queue pairs. The lock must be held for every
  // call on it and on them.
  virtual transport::Endpoint& endpoint() = 0;

  // Rare events of the lane's queue pairs. Lock held for every call on it.
  virtual Recorder& recorder() = 0;

  // Lock held. Work was posted. Transmits it now if the lane was idle, else
  // leaves it for at most 50 us to share a send with later posts (PostBatcher).
  virtual void Posted(transport::Time now, const PostedWork& work) = 0;
  // Lock held. Transmits what can be sent now.
  virtual void Transmit(transport::Time now) = 0;
  // Lock held. The same before `qp` is destroyed or drops its packets: those
  // that wait for memory (Port::only_that_flow) go by UDP.
  virtual void TransmitLast(transport::EndpointQp& qp, transport::Time now) = 0;
  // Lock held. Processes the packets that have arrived, up to some MiB.
  virtual void Receive(transport::Time now) = 0;

 protected:
  virtual void Lock() = 0;
  virtual void Unlock() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_ENGINE_LANE_H_
