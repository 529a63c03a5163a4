// The connection manager of this process: transport::cm::ConnectionManager over
// queue pair 1, which all processes of a host share by the port broker
// (docs/design/connection-manager.md).
//
// One for a process, made at its first use, gone with its last user. It takes a
// slot of the port broker of its own, and starts a control thread, with the
// first call that needs them. Nothing of it is on the data path.
//
// Calls may be made by any thread, by handlers too. Those that speak to the
// port broker (OpenAddress, Reserve, Listen, and Connect or Resolve from an
// address that is new) wait for its answer, for half a minute at most; the
// others do not block. All return 0 or an errno value:
//
//   EINVAL         an argument, or the id is not in a state for this call
//   ENOENT         no such id or service, or not the application's any more
//   EADDRINUSE     the service ID is another's, of this process or another
//   EADDRNOTAVAIL  no such local address
//   EBUSY          the queue pair is in another connection, or not yet out of
//                  timewait
//   ENODEV         the service was made before fork(), and this is the child;
//                  or the port broker cannot be had (a line on stderr says why)
//   ETIMEDOUT      the port broker has not answered
// and what the system gave (EMFILE, ENOMEM, ...). Without memory they throw
// std::bad_alloc, and nothing has changed; SetHandler, Seen, Accept, Reject,
// Delay, Establish, Disconnect, Destroy, Release and AnswerService need none.
#ifndef RXE_USER_CM_CM_SERVICE_H_
#define RXE_USER_CM_CM_SERVICE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/cm/link_watch.h"
#include "rxe_user/cm/neighbor_waits.h"
#include "transport/cm/types.h"
#include "wire/cm_messages.h"

namespace rxe_user {

// Who is told what happens to ids. Called by the service's control thread, one
// event at a time, in order, with no lock of the service held: it may call the
// service, Destroy of this very id included, but should not take long, since
// all others wait.
class CmEventHandler {
 public:
  virtual ~CmEventHandler() = default;
  // transport/cm/types.h says what comes when. `event.listener` is the
  // ServiceHandle. wire::CmView reads `event.mad`. Valid during the call.
  // Who throws std::bad_alloc, and has changed nothing, is told again.
  virtual void OnCmEvent(const transport::cm::Event& event) = 0;
};

// Names a service ID that this process has reserved. Never 0.
using ServiceHandle = uint32_t;

struct ServiceOptions {
  uint64_t service_id = 0;
  // Bits that count. All of them: this service ID alone.
  uint64_t mask = ~uint64_t{0};
  // Which requests it is for, by the local address that they come to:
  // 0.0.0.0 (mapped): all IPv4 ones; ::, also the default: all of both
  // families, or all IPv6 ones with `ipv6_only`.
  LocalAddress local;
  bool ipv6_only = false;
  // Others that say so too may reserve the same (RDMA_OPTION_ID_REUSEADDR),
  // until one of them listens, which the others cannot then.
  bool reuse = false;
  // The lower 16 bits, the port of the RDMA IP CM service, are to be chosen:
  // a free one of the range in which the system chooses ports.
  bool choose_port = false;
};

class CmService {
 public:
  using AcquireSlot = std::function<absl::StatusOr<std::unique_ptr<Slot>>()>;
  // The one of this process. In a child of fork() another one than the
  // parent's. Cheap; fails in none of the ways above. Not to be given up last
  // by a handler: its end waits for the control thread. `acquire_slot`, which a
  // new one uses, is Slot::Acquire of the library that has the process's
  // engines: without a broker they own the port together, once.
  static std::shared_ptr<CmService> Get(AcquireSlot acquire_slot);
  // What is not established is given up, and no event comes any more.
  virtual ~CmService() = default;
  // The process is about to exit: destroys all ids, so that peers hear of it,
  // once. For a destructor of the library: other threads may go on, and if one
  // of them does not leave the service for a tenth of a second, nothing is
  // said.
  virtual void DestroyAll() = 0;

  // --- Local addresses.

  // Makes sure that MADs to `local`, an address of a device, reach this host's
  // port broker. Connect, Resolve, Reserve and Listen do so by themselves, but
  // for link-local addresses, which are known by their interface only: those
  // have to be opened before.
  virtual int OpenAddress(const LocalAddress& local) = 0;

  // --- Interfaces. `on_change` is told of those that go, and that get another
  // hardware address; by the control thread, as handlers are. Once, before the
  // first call that needs the port broker.
  using OnLinkChange = std::function<void(uint32_t interface, InterfaceChange)>;
  virtual void WatchLinks(OnLinkChange on_change) = 0;

  // --- Neighbors.

  // Whether packets from `local` find their way to `remote`: who takes them
  // first, that host or a gateway, has to answer ARP or NDP before. Sets
  // `*wait` to 0 where nobody has to be asked (neighbor_waits.h): most often,
  // which takes some ten microseconds. Else `handler` is told, perhaps before
  // this returns, and `*wait` is for CancelNeighbor. A negative time-out is
  // none. To be called when an address is open: EINVAL before.
  virtual int AwaitNeighbor(const LocalAddress& local,
                            const wire::IpAddress& remote, int timeout_ms,
                            std::shared_ptr<NeighborHandler> handler,
                            NeighborWait* wait) = 0;
  // The handler is not told any more, unless it is being told at this moment.
  virtual void CancelNeighbor(NeighborWait wait) = 0;

  // --- Services.

  // Keeps a service ID from all others of this host (rdma_bind_addr(3)).
  // Requests for it are still rejected: INVALID_SERVICE_ID. EADDRINUSE if
  // somebody, in this process or another, has reserved one that overlaps: same
  // service ID and mask, and an address in common. Sets `*service_id`
  // (may be null) to what was chosen or given.
  virtual int Reserve(const ServiceOptions& options, ServiceHandle* handle,
                      uint64_t* service_id) = 0;
  // Changes how what was reserved is shared, before it listens (EINVAL
  // afterwards). EADDRINUSE, and nothing has changed: others stand against it.
  virtual int Share(ServiceHandle handle, bool ipv6_only, bool reuse) = 0;
  // From now on requests are `handler`'s (kRequest, kServiceRequest), with new
  // ids. With an unspecified address it listens on all addresses of all
  // devices, those that come later included. `backlog`: requests that the
  // application has neither seen (below) nor answered; more are dropped, and
  // come again by the peer's retransmission. EADDRINUSE: one that shares it
  // (`reuse`) listens. EINVAL: it listens already.
  virtual int Listen(ServiceHandle handle, size_t backlog,
                     std::shared_ptr<CmEventHandler> handler) = 0;
  // Stops listening and gives the service ID up. Requests that `handler` has
  // seen stay its own; those that it has not are rejected. When this returns
  // the handler is not being called for this service's requests, nor will be:
  // it waits for a call that is under way, unless a handler calls. So hold no
  // lock that the handler takes. ENOENT.
  virtual int Release(ServiceHandle handle) = 0;

  // --- Connections, as ConnectionManager's. Private data that is shorter than
  // the message's is filled up with zeros; what is longer is EINVAL.

  // Active side: sends a REQ. `handler` gets the events of the id, perhaps
  // before this returns.
  virtual int Connect(const transport::cm::ConnectOptions& options,
                      std::shared_ptr<CmEventHandler> handler,
                      transport::cm::CmId* id) = 0;
  // Who gets the events of an id from now on: after kRequest or
  // kServiceRequest that is the handler of the listener. Called from there it
  // misses none.
  virtual int SetHandler(transport::cm::CmId id,
                         std::shared_ptr<CmEventHandler> handler) = 0;
  // After kRequest or kServiceRequest: the application has been told, however
  // long it takes to answer. Its place in the backlog is free.
  virtual int Seen(transport::cm::CmId id) = 0;
  // Passive side, after kRequest: sends the REP; communication IDs are filled
  // in.
  virtual int Accept(transport::cm::CmId id, const wire::CmRep& rep,
                     uint32_t ece_options = 0) = 0;
  // After kRequest or kReply.
  virtual int Reject(transport::cm::CmId id,
                     const transport::cm::RejectOptions& options) = 0;
  // After kRequest or kReply: the answer will take up to this long (5-bit
  // exponent). Sends an MRA; without, one is sent when the peer asks again.
  virtual int Delay(transport::cm::CmId id, uint8_t service_timeout) = 0;
  // Active side, after kReply: sends the RTU.
  virtual int Establish(transport::cm::CmId id,
                        std::span<const uint8_t> private_data) = 0;
  // Passive side: data has come (IBV_EVENT_COMM_EST), so the peer is
  // established though its RTU was lost. kEstablished comes as for an RTU.
  virtual int NotifyEstablished(transport::cm::CmId id) = 0;
  // When established sends a DREQ; after the peer's (kDisconnected), the DREP.
  virtual int Disconnect(transport::cm::CmId id,
                         std::span<const uint8_t> private_data) = 0;
  // In any state: rejects, disconnects or gives up what is under way. When this
  // returns the handler is not being called for this id, nor will be: it waits
  // for a call that is under way, unless a handler calls. So hold no lock that
  // the handler takes. The id is not the application's any more; the service
  // goes on with what the peer still has to hear.
  virtual int Destroy(transport::cm::CmId id) = 0;

  // --- Service ID resolution.

  virtual int Resolve(const transport::cm::ResolveOptions& options,
                      std::shared_ptr<CmEventHandler> handler,
                      transport::cm::CmId* id) = 0;
  // After kServiceRequest; request ID and service ID are filled in.
  virtual int AnswerService(transport::cm::CmId id, const wire::CmSidrRep& rep,
                            uint32_t ece_options = 0) = 0;

  // --- Getters.

  // Absent for ids that are not the application's.
  virtual std::optional<transport::cm::State> state(
      transport::cm::CmId id) const = 0;
  // Connections and resolutions that take memory, those in timewait and those
  // that are destroyed but not over included.
  virtual size_t size() const = 0;
  virtual transport::cm::Counters counters() const = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_CM_CM_SERVICE_H_
