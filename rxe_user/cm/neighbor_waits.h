// Who waits for hosts of this one's links to answer ARP or NDP: before packets
// can be sent to them (rdma_resolve_addr(3)).
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

// Who is told, by the service's control thread, with no lock held. It may call
// the service, should not take long, and needs no memory.
class NeighborHandler {
 public:
  virtual ~NeighborHandler() = default;
  // Once: 0, EHOSTUNREACH if it does not answer, ETIMEDOUT if it has not
  // answered in time.
  virtual void OnNeighbor(int error) = 0;
};

// Names one that waits. Never 0.
using NeighborWait = uint64_t;

// Thread: any, but for Run, which one thread calls. No call waits. In a child
// of fork() nobody waits any more.
class NeighborWaits final : private ForkGuard {
 public:
  using Clock = std::chrono::steady_clock;

  NeighborWaits();
  ~NeighborWaits();

  // Returns 0 where nobody has to be asked before packets can be sent from
  // `local`, an address of this host, to `remote`: it is known already, as most
  // often, is this host, or a group; or the system does not let us ask. Else
  // the kernel asks for it now, and `handler` is told what came of it, perhaps
  // before this returns. What fd and time say has changed then.
  NeighborWait Begin(const LocalAddress& local, const wire::IpAddress& remote,
                     Clock::time_point deadline,
                     std::shared_ptr<NeighborHandler> handler);
  // The handler is not told, or is being told at this moment.
  void Cancel(NeighborWait wait);

  // What Run waits for: -1, and max(), if for nothing.
  int fd() const;
  Clock::time_point time() const;
  // The descriptor is readable, or the time has come.
  void Run();

 private:
  struct Waiting {
    NeighborWait name = 0;
    Neighbor neighbor;
    Clock::time_point deadline;
    std::shared_ptr<NeighborHandler> handler;
    int error = 0;  // of one that has ended
  };
  using List = std::list<Waiting>;

  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  void AfterForkInChild() override;

  // --- With mutex_ held.
  void ReadNews(List* ended);
  void LookUp(List* ended);
  void Expire(List* ended);
  void End(List::iterator waiting, int error, List* ended);
  void OnState(const Neighbor& neighbor, NeighborState state, List* ended);
  List::iterator Find(NeighborWait wait);

  mutable std::mutex mutex_;
  // All that follows is under mutex_.
  NeighborNews news_;  // come while somebody waits
  List waiting_;
  NeighborWait last_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_NEIGHBOR_WAITS_H_
