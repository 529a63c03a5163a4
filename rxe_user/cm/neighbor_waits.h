// Waits until a neighbor has answered ARP or NDP, before packets can be sent to
// it (rdma_resolve_addr(3)).
#ifndef RXE_USER_CM_NEIGHBOR_WAITS_H_
#define RXE_USER_CM_NEIGHBOR_WAITS_H_

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/devices/neighbor.h"

namespace rxe_user {

// Called by the service's control thread, with no lock held. It may call the
// service, should return soon, and needs no memory.
class NeighborHandler {
 public:
  virtual ~NeighborHandler() = default;
  // Called once: 0, EHOSTUNREACH if the neighbor does not answer, ETIMEDOUT if
  // it has not answered in time.
  virtual void OnNeighbor(int error) = 0;
};

// Identifies a wait. Never 0.
using NeighborWait = uint64_t;

// Thread: any; Run by one thread only. No call blocks. In a child of fork()
// there are no waits.
class NeighborWaits final : private ForkGuard {
 public:
  using Clock = std::chrono::steady_clock;

  NeighborWaits();
  ~NeighborWaits();

  // Returns 0 if packets can be sent at once from `local`, an address of this
  // host, to `remote`: the neighbor is known (the usual case), `remote` is this
  // host or a multicast group, or the system does not let us find out.
  // Otherwise the kernel looks the neighbor up, fd() and time() have changed,
  // and `handler` gets the result, perhaps before this returns.
  NeighborWait Begin(const LocalAddress& local, const wire::IpAddress& remote,
                     Clock::time_point deadline,
                     std::shared_ptr<NeighborHandler> handler);
  // The handler is not called any more, unless it is running now.
  void Cancel(NeighborWait wait);

  // What Run waits for; -1 and max() if there is nothing.
  int fd() const;
  Clock::time_point time() const;
  // Call this when the descriptor is readable or the time has come.
  void Run();

 private:
  struct Waiting {
    NeighborWait name = 0;
    Neighbor neighbor;
    Clock::time_point deadline;
    std::shared_ptr<NeighborHandler> handler;
    int error = 0;  // the result, once ended
  };
  using List = std::list<Waiting>;

  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  // --- mutex_ held.
  void ReadEvents(List* ended);
  void LookUp(List* ended);
  void Expire(List* ended);
  void End(List::iterator waiting, int error, List* ended);
  void OnState(const Neighbor& neighbor, NeighborState state, List* ended);
  List::iterator Find(NeighborWait wait);

  mutable std::mutex mutex_;
  // mutex_ guards all that follows.
  NeighborEvents events_;  // subscribed while there are waits
  List waiting_;
  NeighborWait last_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_NEIGHBOR_WAITS_H_
