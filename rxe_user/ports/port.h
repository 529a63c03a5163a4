// The burst contract: how a lane uses the network (docs/design/progress.md,
// "I/O"). UDP sockets implement it; faults on command (rxe_user/faults) and
// memory shared with other processes (memory_port.h) are ports in front of it.
//
// Nothing here blocks. All calls are made with the lane's lock held, unless
// stated otherwise.
#ifndef RXE_USER_PORTS_PORT_H_
#define RXE_USER_PORTS_PORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/ports/port_counters.h"
#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/address.h"

namespace rxe_user {

class Recorder;

class Port : public transport::BurstSink {
 public:
  virtual ~Port() = default;

  // --- Sockets.

  // Receives from `fd`, a UDP socket bound to `local` on port 4791. Takes
  // ownership, also on error. `local` may be a multicast group.
  virtual absl::Status AddReceiver(const LocalAddress& local, int fd) = 0;
  virtual bool HasReceiver(const wire::IpAddress& address) const = 0;
  // Closes the socket of `address`; AddReceiver may add it again. Must not run
  // concurrently with AddReceiver and HasReceiver.
  virtual void RemoveReceiver(const wire::IpAddress& address) = 0;
  // The port of a socket that sends from `local`. The same `choice` gives the
  // same port while that socket is open. Errors: kResourceExhausted (too many
  // sockets), what the system refused.
  virtual absl::StatusOr<uint16_t> SourcePort(const LocalAddress& local,
                                              uint32_t choice) = 0;
  // Makes sure that a socket sends from `local` and UDP port `port`. Errors:
  // kResourceExhausted (too many sockets), kUnimplemented (NatMode), what the
  // system refused (EADDRINUSE, EACCES).
  virtual absl::Status OpenSourcePort(const LocalAddress& local,
                                      uint16_t port) = 0;
  // Closes the sending sockets, except those of the address vectors that
  // `for_each_used` passes to its argument. Returns the number closed.
  using ForEachUsed = std::function<void(
      const std::function<void(const transport::AddressVector&)>&)>;
  virtual size_t CloseUnusedSenders(const ForEachUsed& for_each_used) = 0;
  // The descriptors that become readable when there is something to receive, in
  // order of addition. Wait on them directly, not through an epoll set of their
  // own: that would lose the kernel's hint that the waker is about to sleep,
  // and so wake the thread on another core (18 us instead of 4). The lane's
  // lock is not needed.
  virtual std::vector<int> ReceiveDescriptors() const = 0;

  // The lane's queue pairs have numbers of `slot` from now on (base/qpn.h). The
  // lane's lock is not needed.
  virtual void AddSlot(uint16_t /*slot*/) {}

  // --- Receive.

  // Returns GRO batches, about as many as are waiting. Valid until the next
  // call. Empty: nothing has arrived. `thorough`: reads every socket, else
  // quiet ones only at intervals.
  virtual std::span<const transport::GroBatch> Receive(bool thorough) = 0;
  // Whether the last Receive probably left datagrams behind.
  virtual bool more() const = 0;
  // Datagrams that full receive buffers have dropped since the last call.
  virtual uint64_t TakeOverflow() = 0;
  // A thread will wait on the descriptors next. From now on, arriving packets,
  // and packets that Receive has left, make one of them readable.
  virtual void PrepareWait() {}
  // Says whether threads may wait on the descriptors from now on. At first they
  // may not.
  virtual void SetWaitedOn(bool /*waited_on*/) {}

  // --- Transmit.

  // As BurstSink::Begin. Null while sends are blocked.
  transport::Burst* Begin(const transport::Flow& flow) override = 0;
  // Queues the burst of the last Begin. It may be sent later; its flow need not
  // live that long.
  virtual void Queue() = 0;
  // Sends queued and blocked bursts.
  virtual void Flush() = 0;
  // The system refused more data. Call Flush() again a little later.
  virtual bool blocked() const = 0;
  // Flows are refused, all or some (only_that_flow). Call Receive() and Flush()
  // again a little later.
  virtual bool must_retry() const = 0;
  // `on_room` is called by Receive() when flows that were refused alone may
  // send again (Endpoint::OnRoom). Set it once, before the lane is used.
  virtual void WatchRoom(std::function<void()> /*on_room*/) {}
  // The port for packets that cannot wait, since their queue pair is about to
  // be destroyed or to drop them: it refuses no flow alone. They may arrive
  // before what was sent earlier.
  virtual Port& ForLastPackets() { return *this; }

  // --- Slow work, for the engine's control thread.

  // Runs a function with the lane locked.
  using LockLane = std::function<void(const std::function<void()>&)>;
  class ControlTask {
   public:
    using Clock = std::chrono::steady_clock;
    virtual ~ControlTask() = default;
    // Run is called when the descriptor is readable or the time has come.
    virtual int fd() const = 0;
    virtual Clock::time_point time() const = 0;
    virtual void Run(const LockLane& with_lane) = 0;
    // The addresses of an interface have changed, or it is up or down. Any
    // thread.
    virtual void OnAddressesChanged() {}
  };
  // Null: none. The same for the port's lifetime.
  virtual ControlTask* control_task() { return nullptr; }

  // Whether the packets of this flow go through shared memory, for reports.
  // Lane locked.
  virtual bool UsesMemory(const wire::IpAddress& /*source*/,
                          const wire::IpAddress& /*destination*/,
                          uint32_t /*peer_qpn*/) const {
    return false;
  }

  virtual const PortCounters& counters() const = 0;

  // Called before the lane is used. `observer` will see the packets; null:
  // none. Returns the observer for the endpoint. The lane's `recorder` is told
  // what the port does to packets on purpose. Both must outlive the port.
  virtual transport::PacketObserver* Watch(transport::PacketObserver* observer,
                                           Recorder* /*recorder*/) {
    return observer;
  }

  // In the child of fork: closes all descriptors without changing the kernel
  // objects behind them, which are the parent's. No lock needed. Only the
  // destructor may be called afterwards.
  virtual void AbandonInChild() = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_PORT_H_
