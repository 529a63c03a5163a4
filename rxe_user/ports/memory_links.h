// How lanes of one host find each other, and agree on rings of shared memory
// (docs/design/progress.md, "Same host").
//
// A lane listens on an abstract Unix socket (SOCK_SEQPACKET) for each of its
// addresses and slots:
//
//   @rxe_user-memory-ADDRESS-INTERFACE-SLOT
//
// Abstract names belong to a network namespace, as UDP port 4791 does. A lane
// that sends to (ADDRESS, SLOT) connects there and sends a Request with the
// file of a new ring. The listener answers with an Answer and two descriptors:
// the file of its doorbell, and the eventfd that wakes it. From then on packets
// of that direction go through the ring. The connection stays open. When it
// ends, the other side has closed the lane, or its process has ended.
//
// Both sides ask the kernel who the other is (SO_PEERCRED), and continue only
// if it is a process of their own user (base/users.h).
#ifndef RXE_USER_PORTS_MEMORY_LINKS_H_
#define RXE_USER_PORTS_MEMORY_LINKS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/ports/mapped_memory.h"
#include "rxe_user/ports/memory_ring.h"
#include "rxe_user/ports/port.h"
#include "wire/address.h"

namespace rxe_user {

// One direction between two lanes.
struct MemoryRoute {
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t slot = 0;  // of the receiving lane

  bool operator==(const MemoryRoute&) const = default;
};

// The lane's side. All calls are made by MemoryLinks, with the lane's lock
// held. A ring, its doorbell and its eventfd are valid until the call that ends
// the ring. A call that throws bad_alloc is repeated.
class MemoryLinkUser {
 public:
  struct Outgoing {
    RingMemory* ring = nullptr;
    Doorbell* doorbell = nullptr;
    int wake = -1;    // the eventfd of the receiving lane
    int bit = -1;     // of the ring in the doorbell
    int number = -1;  // of the link
  };

  // A ring for `route`.
  virtual void OnOutgoing(const MemoryRoute& route, const Outgoing& link) = 0;
  // `number` is -1: there is no ring for `route`. Otherwise the ring of link
  // `number` has ended. The route may have got another ring after a Disconnect.
  virtual void OnOutgoingEnd(const MemoryRoute& route, int number) = 0;
  // Whether the user gives up the ring of link `number`, because it has not
  // sent by it for a long time. If so, it has forgotten the ring when the call
  // returns. Called at least every MemoryLinks::kAskUnused.
  virtual bool GivesUp(const MemoryRoute& route, int number) = 0;
  // Packets from `source` to `destination` come in `ring`, whose bit is `bit`.
  virtual void OnIncoming(int bit, const wire::IpAddress& source,
                          const wire::IpAddress& destination,
                          RingMemory* ring) = 0;
  virtual void OnIncomingEnd(int bit) = 0;

 protected:
  ~MemoryLinkUser() = default;
};

class MemoryLinks final : public Port::ControlTask, private ForkGuard {
 public:
  // Rings to other lanes, and rings from other lanes, one for each bit of the
  // doorbell.
  static constexpr size_t kMax = Doorbell::kRings;

  // How packets to this process itself travel. By default by UDP: they have
  // arrived before the program deregisters the memory, while a ring would hold
  // them back, at first and when it is full. The others are for tests with one
  // process.
  enum class SelfTraffic : uint8_t {
    kUdp,
    kRings,        // between lanes, as to other processes
    kRingsAtOnce,  // also within a lane; the first packet waits for the ring
  };
  static constexpr std::chrono::seconds kAskUnused{10};

  // `user` must outlive the result. `doorbell_file` and `wake` are passed to
  // other lanes; they stay the caller's, and must stay open.
  static absl::StatusOr<std::unique_ptr<MemoryLinks>> Create(
      MemoryLinkUser* user, int doorbell_file, int wake,
      SelfTraffic self_traffic);
  ~MemoryLinks();

  // --- Thread: any.

  // From now on other lanes can find this one by its addresses and slots. A
  // name that cannot be bound is skipped; without memory, so are the rest.
  void AddAddress(const LocalAddress& local);
  void RemoveAddress(const wire::IpAddress& address);
  void AddSlot(uint16_t slot);
  // Asks for a ring. The user is told in any case, by OnOutgoing or
  // OnOutgoingEnd. False: no memory.
  bool Connect(const MemoryRoute& route);
  // The user has found that the ring is broken, and has forgotten it.
  // OnIncomingEnd or OnOutgoingEnd follows.
  void DisconnectIncoming(int bit);
  void DisconnectOutgoing(int number);

  // --- Port::ControlTask.
  int fd() const override;
  Clock::time_point time() const override;
  void Run(const Port::LockLane& with_lane) override;
  // Ends the rings from and to own addresses that this host no longer has.
  void OnAddressesChanged() override;

 private:
  enum class State : uint8_t {
    kAsked,    // outgoing: waits for the Answer
    kUnknown,  // incoming: waits for the Request
    kOpen,     // either
    kEnded,    // to be deleted
  };
  struct Link {
    Link();
    ~Link();

    State state = State::kEnded;
    State reported = State::kUnknown;  // to the user
    bool outgoing = false;
    MemoryRoute route;
    int bit = -1;     // of the receiving lane; -1: none yet
    int number = -1;  // of an outgoing link; -1: none
    UniqueFd socket;
    UniqueFd wake;
    MappedMemory ring;
    MappedMemory doorbell;
  };
  struct Listener {
    LocalAddress local;
    uint16_t slot;
    UniqueFd socket;
  };
  MemoryLinks(MemoryLinkUser* user, int doorbell_file, int wake,
              SelfTraffic self_traffic);

  // mutex_ held for the following. May throw bad_alloc.
  void Listen(const LocalAddress& local, uint16_t slot);
  bool Watch(int fd, void* what);
  // Closes a descriptor of the epoll set. Also shuts it down, since children of
  // fork may have a copy.
  void Close(UniqueFd& socket);
  // Ends the listeners for which `ends` is true: from now on, no process can
  // connect to them.
  template <typename Ends>
  void EndListeners(Ends ends);
  // Closes the listeners that have ended, after the connections that wait in
  // them. Some stay open while another user's connection cannot be closed, or
  // while descriptors are short.
  void CloseEnded();
  void Wake();
  // True if the connection is from this user. Otherwise moves it to foreign_,
  // which must be empty, tries to close it there, and returns false.
  bool KeepIfOwn(UniqueFd& socket);
  // Does everything that is pending, except telling the user. May throw
  // bad_alloc, and may then be called again.
  void DoPending();
  void Accept(Listener& listener);
  // Whether to accept nothing for kRetry.
  bool must_pause() const { return foreign_.valid() || short_; }
  // Ends the links that are broken or have lost their address. Links that the
  // user does not know of yet stay.
  void EndLinks();
  bool HasWanted();
  // Begins a link for one wanted route. There must be one.
  void BeginLink();
  bool RequestRing(Link& link);
  void OnReadable(Link& link);
  // Whether one more link would be too many, for the lane or the process.
  bool IsFull() const;
  // Reads the message from the link; returns the link's new state.
  State TakeRequest(Link& link);
  State TakeAnswer(Link& link);
  uint32_t ScopeOf(const wire::IpAddress& address) const;

  // Tells the user the state of the link. Needs the lane's lock, but not
  // mutex_, since links_ changes in Run only. If it throws, it is called again.
  void NotifyUser(Link& link);

  // --- ForkGuard. A child has no links and no listeners.
  void BeforeFork() override {
    mutex_.lock();
    wishes_mutex_.lock();
  }
  void AfterForkInParent() override {
    wishes_mutex_.unlock();
    mutex_.unlock();
  }
  void AfterForkInChild() override;

  MemoryLinkUser& user_;
  const int doorbell_file_;
  const int wake_;
  const SelfTraffic self_traffic_;

  // Taken after the lane's lock; never held while that is taken. The control
  // thread holds it while it works, for milliseconds.
  mutable std::mutex mutex_;
  // Guards the lane's wishes. Taken after the lane's lock and mutex_; held
  // briefly.
  std::mutex wishes_mutex_;
  UniqueFd poll_;   // epoll: listeners, connections, event_
  UniqueFd event_;  // wakes the control thread
  std::vector<LocalAddress> addresses_;
  std::vector<uint16_t> slots_;
  std::list<Listener> listeners_;
  std::list<Listener> ended_listeners_;
  std::list<Link> links_;
  // Bits and numbers in use.
  uint64_t incoming_ = 0;
  uint64_t outgoing_ = 0;
  bool short_ = false;  // no descriptors for the last accept
  // must_pause() at the end of the last DoPending. RemoveAddress may change
  // that; it wakes the control thread.
  bool paused_ = false;
  Clock::time_point paused_until_;
  Clock::time_point asked_unused_at_;
  UniqueFd foreign_;  // another user's connection, which could not be closed

  // --- wishes_mutex_ held.
  std::vector<MemoryRoute> wanted_;  // of Connect
  uint64_t broken_incoming_ = 0;     // of DisconnectIncoming, by bit
  uint64_t broken_outgoing_ = 0;     // of DisconnectOutgoing, by number
  bool check_addresses_ = false;     // of OnAddressesChanged
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_MEMORY_LINKS_H_
