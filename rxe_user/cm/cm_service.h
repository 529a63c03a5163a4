// The connection manager of this process: transport::cm::ConnectionManager on
// queue pair 1, which all processes of a host share through the port broker
// (docs/design/connection-manager.md).
//
// A process has one, from its first use to its last user. The first call that
// needs a slot of the port broker takes one, and starts a control thread. The
// data path does not use the service.
//
// Thread: any, also from a handler. Calls that need the port broker
// (OpenAddress, Reserve, Listen, and Connect or Resolve from a new address)
// wait for its reply, at most half a minute; the others do not block. All
// return 0 or an errno value:
//
//   EINVAL         invalid argument, or wrong state of the id
//   ENOENT         no such id or service, or already destroyed
//   EADDRINUSE     the service ID is taken, in this process or another
//   EADDRNOTAVAIL  no such local address
//   EBUSY          the queue pair is in another connection, or in timewait
//   ENODEV         the service is from before fork(), and this is the child;
//                  or there is no port broker (a line on stderr says why)
//   ETIMEDOUT      the port broker has not replied
// and errors of the system (EMFILE, ENOMEM, ...). Without memory a call throws
// std::bad_alloc and has no effect. SetHandler, Seen, Accept, Reject,
// Establish, Disconnect, Destroy, Release and AnswerService need no memory.
#ifndef RXE_USER_CM_CM_SERVICE_H_
#define RXE_USER_CM_CM_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/cm/cm_faults.h"
#include "rxe_user/cm/link_watch.h"
#include "rxe_user/cm/neighbor_waits.h"
#include "transport/cm/connection_manager.h"
#include "transport/cm/types.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/cm_messages.h"

namespace rxe_user {

// Receives the events of ids. Called by the service's control thread, one event
// at a time, in order, with no lock of the service held. It may call the
// service, even Destroy of the same id. It should return soon, since all other
// events wait.
class CmEventHandler {
 public:
  virtual ~CmEventHandler() = default;
  // transport/cm/types.h lists the events. `event.listener` is the
  // ServiceHandle. wire::CmView reads `event.mad`. Valid during the call. If it
  // throws std::bad_alloc, having changed nothing, it is called again.
  virtual void OnCmEvent(const transport::cm::Event& event) = 0;
};

// A service ID that this process has reserved. Never 0.
using ServiceHandle = uint32_t;

struct ServiceOptions {
  uint64_t service_id = 0;
  // The bits that must match. All: only this service ID.
  uint64_t mask = ~uint64_t{0};
  // Selects requests by the local address that they arrive at. 0.0.0.0
  // (mapped): all of IPv4. :: (the default): all of both families, or all of
  // IPv6 with `ipv6_only`.
  LocalAddress local;
  bool ipv6_only = false;
  // Other services with this flag may reserve the same ID
  // (RDMA_OPTION_ID_REUSEADDR), until one of them listens.
  bool reuse = false;
  // Choose the lower 16 bits, the port of the RDMA IP CM service: a free port
  // of the dynamic range.
  bool choose_port = false;
};

class CmService {
 public:
  using AcquireSlot = std::function<absl::StatusOr<std::unique_ptr<Slot>>()>;
  // The service of this process. A child of fork() gets a new one. Cheap; never
  // fails. A handler must not drop the last reference, since the destructor
  // waits for the control thread.
  //
  // `acquire_slot` is used by a new service: Slot::Acquire of the library that
  // has the process's engines, because without a broker they share one
  // exclusive slot. `observer` sees each packet of queue pair 1 before its
  // effects; null: none. `faults` decides about each message; null: no faults.
  // Both must outlive the process's services.
  static std::shared_ptr<CmService> Get(
      AcquireSlot acquire_slot, transport::PacketObserver* observer = nullptr,
      CmFaults* faults = nullptr);
  // Gives up connections that are not established. No events follow.
  virtual ~CmService() = default;
  // The process is about to exit: destroys all ids, and notifies each peer
  // once. For a destructor of the library. Other threads may continue; if one
  // of them holds the service's lock for a tenth of a second, nothing is sent.
  virtual void DestroyAll() = 0;

  // --- Local addresses.

  // Makes sure that MADs to `local`, an address of a device, reach this host's
  // port broker. Connect, Resolve, Reserve and Listen do so themselves, except
  // for link-local addresses, which need an interface: open those first.
  virtual int OpenAddress(const LocalAddress& local) = 0;

  // --- Interfaces. `on_change` is called when an interface disappears or
  // changes its hardware address; by the control thread, like handlers. Call
  // WatchLinks once, before the first call that needs the port broker.
  using OnLinkChange = std::function<void(uint32_t interface, InterfaceChange)>;
  virtual void WatchLinks(OnLinkChange on_change) = 0;

  // --- Neighbors.

  // Whether packets from `local` can be sent to `remote` now: its neighbor,
  // which is that host or a gateway, must have answered ARP or NDP. Usually it
  // is known (neighbor_waits.h): the call then sets `*wait` to 0, and takes
  // some ten microseconds. Otherwise `handler` is called, perhaps before this
  // returns, and `*wait` is for CancelNeighbor. A negative timeout means none.
  // EINVAL before an address is open.
  virtual int AwaitNeighbor(const LocalAddress& local,
                            const wire::IpAddress& remote, int timeout_ms,
                            std::shared_ptr<NeighborHandler> handler,
                            NeighborWait* wait) = 0;
  // The handler is not called any more, unless it is running now.
  virtual void CancelNeighbor(NeighborWait wait) = 0;

  // --- Services.

  // Reserves a service ID on this host (rdma_bind_addr(3)). Requests for it are
  // still rejected (INVALID_SERVICE_ID). EADDRINUSE: this or another process
  // has an overlapping reservation: same service ID and mask, and an address in
  // common. Sets `*service_id` (may be null) to the reserved ID.
  virtual int Reserve(const ServiceOptions& options, ServiceHandle* handle,
                      uint64_t* service_id) = 0;
  // Changes how a reservation is shared, before it listens (EINVAL afterwards).
  // EADDRINUSE, without effect: it would conflict.
  virtual int Share(ServiceHandle handle, bool ipv6_only, bool reuse) = 0;
  // From now on, requests go to `handler` (kRequest, kServiceRequest), with new
  // ids. With an unspecified address it listens on all addresses of all
  // devices, including later ones. `backlog`: limit of requests that the
  // application has neither marked as seen (below) nor answered. Further ones
  // are dropped, and the peer retransmits. EADDRINUSE: a service that shares
  // the ID (`reuse`) listens. EINVAL: it listens already.
  virtual int Listen(ServiceHandle handle, size_t backlog,
                     std::shared_ptr<CmEventHandler> handler) = 0;
  // Stops listening and frees the service ID. Requests that `handler` has seen
  // stay with it; others are rejected. On return the handler does not run for
  // this service's requests, and never will: the call waits for a running
  // handler, unless a handler makes the call. The caller must not hold a lock
  // that the handler takes. ENOENT.
  virtual int Release(ServiceHandle handle) = 0;

  // --- Connections, as ConnectionManager's. Short private data is padded with
  // zeros; private data that does not fit is EINVAL.

  // Active side: sends a REQ. `handler` gets the id's events, perhaps before
  // this returns.
  virtual int Connect(const transport::cm::ConnectOptions& options,
                      std::shared_ptr<CmEventHandler> handler,
                      transport::cm::CmId* id) = 0;
  // Sets the handler of an id's later events. After kRequest or kServiceRequest
  // that is the listener's handler; if it calls this itself, no event is
  // missed.
  virtual int SetHandler(transport::cm::CmId id,
                         std::shared_ptr<CmEventHandler> handler) = 0;
  // After kRequest or kServiceRequest: the application has the request, however
  // long it takes to answer. The request no longer counts in the backlog.
  int Seen(transport::cm::CmId id) {
    return Call([&](Manager& manager, Time) { return manager.Seen(id); });
  }
  // Passive side, after kRequest: sends the REP. Communication IDs are filled
  // in.
  int Accept(transport::cm::CmId id, const wire::CmRep& rep,
             uint32_t ece_options = 0) {
    return Call([&](Manager& manager, Time now) {
      return manager.Accept(id, rep, now, ece_options);
    });
  }
  // After kRequest or kReply.
  int Reject(transport::cm::CmId id,
             const transport::cm::RejectOptions& options) {
    return Call([&](Manager& manager, Time now) {
      return manager.Reject(id, options, now);
    });
  }
  // Active side, after kReply: sends the RTU.
  int Establish(transport::cm::CmId id, std::span<const uint8_t> private_data) {
    return Call([&](Manager& manager, Time) {
      return manager.Establish(id, private_data);
    });
  }
  // Passive side: data has arrived (IBV_EVENT_COMM_EST), so the peer is
  // established although its RTU was lost. Raises kEstablished, as an RTU does.
  int NotifyEstablished(transport::cm::CmId id) {
    return Call(
        [&](Manager& manager, Time) { return manager.NotifyEstablished(id); });
  }
  // If established, sends a DREQ; after the peer's DREQ (kDisconnected), sends
  // the DREP.
  int Disconnect(transport::cm::CmId id,
                 std::span<const uint8_t> private_data) {
    return Call([&](Manager& manager, Time now) {
      return manager.Disconnect(id, private_data, now);
    });
  }
  // Allowed in any state: rejects, disconnects or gives up. On return the
  // handler does not run for this id, and never will: the call waits for a
  // running handler, unless a handler makes the call. The caller must not hold
  // a lock that the handler takes. The id is no longer the application's; the
  // service still sends what the peer must get.
  virtual int Destroy(transport::cm::CmId id) = 0;

  // --- Service ID resolution.

  virtual int Resolve(const transport::cm::ResolveOptions& options,
                      std::shared_ptr<CmEventHandler> handler,
                      transport::cm::CmId* id) = 0;
  // After kServiceRequest. Request ID and service ID are filled in.
  int AnswerService(transport::cm::CmId id, const wire::CmSidrRep& rep,
                    uint32_t ece_options = 0) {
    return Call([&](Manager& manager, Time now) {
      return manager.AnswerService(id, rep, now, ece_options);
    });
  }

  // --- Getters.

  // Absent if the id is not the application's.
  virtual std::optional<transport::cm::State> state(
      transport::cm::CmId id) const = 0;
  // Connections and resolutions in memory, including those in timewait and
  // those that are destroyed but not finished.
  virtual size_t size() const = 0;
  virtual transport::cm::Counters counters() const = 0;

 protected:
  using Manager = transport::cm::ConnectionManager;
  using Time = transport::Time;
  // Runs `call` on the manager, and sends the MADs that result.
  virtual int Call(
      absl::FunctionRef<transport::cm::Result(Manager&, Time)> call) = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SERVICE_H_
