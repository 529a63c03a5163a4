// Communication identifiers: rdma_create_id(3).
#ifndef VERBS_API_LIBRDMACM_ID_H_
#define VERBS_API_LIBRDMACM_ID_H_

#include <infiniband/sa.h>
#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "rxe_user/cm/cm_service.h"
#include "verbs_api/librdmacm/addrinfo.h"
#include "verbs_api/librdmacm/endpoint_address.h"
#include "verbs_api/librdmacm/event.h"
#include "verbs_api/librdmacm/event_channel.h"
#include "verbs_api/librdmacm/multicast.h"
#include "wire/rdma_cm.h"

namespace librdmacm {

// How far an id has come. What it takes to call each function is what the
// kernel's rdma_cm asks for.
enum class IdState : uint8_t {
  kIdle,
  kBound,
  kResolvingAddr,
  kAddrResolved,
  kRouteResolved,
  kListening,
  kConnecting,  // active: from rdma_connect on
  kReplied,     // active: the REP is there, the RTU not sent
  kRequested,   // passive: the application is to answer
  kWithdrawn,   // passive: failed before the application has answered
  kAccepted,    // passive: REP sent
  kConnected,
  kDisconnected,
  kFailed,  // rejected, or unreachable
};

// Calls that wait for their event, on synchronous ids. One that has found no
// memory for that goes on with waiting when it is made again.
enum class WaitingCall : uint8_t {
  kNone,
  kResolveAddr,
  kResolveRoute,
  kResolveAddrinfo,
  kConnect,
  kAccept,
  kDisconnect,
  kJoin,
  kGetRequest,
};

// What the queue pair of a connection has to know of the path and of the peer
// (rdma_init_qp_attr).
struct ConnectionAttributes {
  uint8_t gid_index = 0;
  wire::IpAddress remote_gid;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 64;
  uint32_t flow_label = 0;
  uint8_t sl = 0;
  uint8_t ack_timeout = 0;  // 5-bit exponent
  ibv_mtu path_mtu = IBV_MTU_1024;

  uint32_t remote_qpn = 0;
  uint32_t local_psn = 0;   // at which the peer begins to send
  uint32_t remote_psn = 0;  // at which we do
  uint8_t responder_resources = 0;
  uint8_t initiator_depth = 0;
  uint8_t retry_count = 7;
  uint8_t rnr_retry_count = 7;
};

struct IdOptions {
  uint8_t tos = 0;
  bool reuse_address = false;
  bool ipv6_only = false;
  std::optional<uint8_t> ack_timeout;
};

// What rdma_create_ep keeps for later.
struct EndpointOptions {
  ibv_pd* pd = nullptr;
  std::optional<ibv_qp_init_attr> qp;  // of the ids that a listener brings
  std::vector<uint8_t> connect_data;  // before the private data of rdma_connect
};

// An rdma_resolve_addr that waits for the neighbor.
struct AddressResolution {
  UnsentEvent event;                // which tells how it went
  EndpointAddress source;           // what the id is bound to if it fails
  rxe_user::NeighborWait wait = 0;  // 0: the service has not answered yet
};

// An rdma_cm_id with what we need behind it.
//
// Locks: `calls` makes one call of the application at a time, and is held while
// the service is called. `mutex` guards all members below it; events of the
// service take it, so it is held for moments only, and never while the service
// is called. The lock of a channel comes after it.
class Id final : public rxe_user::CmEventHandler,
                 public rxe_user::NeighborHandler,
                 public std::enable_shared_from_this<Id> {
 public:
  Id(rdma_port_space ps, ibv_qp_type type);

  // The service's thread: connection_events.cc.
  void OnCmEvent(const transport::cm::Event& event) override;
  // The same thread, or rdma_resolve_addr: address.cc.
  void OnNeighbor(int error) override;

  // In kConnecting: has the service send its first message, by `start`, which
  // says to which of the service's connections. 0 or an errno value, after
  // which the state is kRouteResolved again. `calls` is held.
  int StartExchange(absl::FunctionRef<int(transport::cm::CmId*)> start);

  // --- Its events that the application has.
  void CountReported();
  void CountAcknowledged();
  void AwaitAcknowledged();

  // --- `mutex` is held.
  // The next event goes to the application.
  UnsentEvent NewEvent(int type, int status = 0);
  void Push(UnsentEvent event) { channel->Push(std::move(event)); }
  void Push(int type, int status = 0) { Push(NewEvent(type, status)); }
  bool is_datagram() const { return part.qp_type == IBV_QPT_UD; }
  // Of its queue pair, or of the one that the application is to make.
  ibv_qp_type qp_type() const {
    return part.qp != nullptr ? part.qp->qp_type : part.qp_type;
  }
  uint8_t port_space() const { return static_cast<uint8_t>(part.ps); }

  rdma_cm_id part = {};  // what the application has

  std::mutex calls;
  // MakeReady found no memory on its way. Under `calls`.
  bool half_ready = false;
  // The groups that it has joined. Under `calls`.
  std::vector<std::shared_ptr<Membership>> memberships;

  std::mutex mutex;
  IdState state = IdState::kIdle;
  bool destroyed = false;
  bool synchronous = false;
  WaitingCall unfinished = WaitingCall::kNone;
  std::shared_ptr<EventChannel> channel;
  std::shared_ptr<rxe_user::CmService> service;
  rxe_user::ServiceHandle reserved = 0;  // 0: none
  transport::cm::CmId connection = 0;    // 0: none
  EndpointAddress source;                // of family AF_UNSPEC until bound
  EndpointAddress destination;
  uint32_t interface = 0;              // of its device; 0: bound to none
  std::shared_ptr<const void> device;  // its share of part.verbs
  std::optional<AddressResolution> address_resolution;  // while it goes on
  IdOptions options;
  EndpointOptions endpoint;
  ConnectionAttributes attributes;
  rdma_conn_param requested = {};  // passive: what the peer has asked for
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  ibv_sa_path_rec path = {};
  bool resolving = false;   // rdma_resolve_addrinfo is under way
  UniqueAddrinfo addrinfo;  // what it has found, until the application takes it
  bool owns_send_cq = false;
  bool owns_recv_cq = false;
  bool srq_has_recv_cq = false;  // an XRC SRQ receives into it

 private:
  // OnCmEvent, by kinds. `mutex` is held.
  void OnRequest(const transport::cm::Event& event);
  void OnReply(const transport::cm::Event& event);
  void OnRejected(const transport::cm::Event& event);
  void OnServiceReply(const transport::cm::Event& event);
  // The id of a connection that a peer asks for; null if what it says is
  // nothing that we understand.
  std::shared_ptr<Id> NewRequest(const transport::cm::Event& event,
                                 const wire::RdmaCmHeader& header,
                                 uint64_t service_id);

  std::mutex ack_mutex_;  // after all others
  std::condition_variable acknowledged_;
  uint64_t unacknowledged_ = 0;  // guarded by ack_mutex_
};

// The id of an application's pointer; null if it is none.
std::shared_ptr<Id> FindId(const rdma_cm_id* id);
void PublishId(const std::shared_ptr<Id>& id);
// Of one that no application has seen.
void WithdrawId(const Id& id);

// Sets `*out` to a new id, known by its pointer. Without a channel it gets one
// of its own, and its calls wait; without a type that of its port space. 0 or
// an errno value: EINVAL if there is no such port space.
int CreateId(rdma_event_channel* channel, void* context, int port_space,
             std::optional<ibv_qp_type> type, std::shared_ptr<Id>* out);

// Ends an id that FindId does not find any more: its service and connection are
// given up, no event comes after it, and the requests that nobody has seen are
// rejected. Does not wait for acknowledgements.
void GiveUp(Id& id);

// The connection manager of this process, of which ids hold a share. It stays:
// what is in timewait outlives the ids.
std::shared_ptr<rxe_user::CmService> Service();

// Finds the id, and calls `body(Id&)` with `calls` held; EINVAL if there is no
// such id. 0 or -1 with errno.
template <typename Body>
int IdCall(rdma_cm_id* pointer, Body&& body) noexcept;

// For calls whose result comes as an event: waits for it if the id is
// synchronous, and makes it the id's. Events of other things stay in the
// channel, but the removal of the device, which ends every wait: ENODEV. 0 or
// -1 with errno. A cancellation point.
int Complete(rdma_cm_id* pointer, WaitingCall call);

// What Complete waits for: 0 or -1 with errno. A cancellation point.
int TakeOutcome(EventChannel& channel, WaitingCall call, rdma_cm_event** out);

// Whether the event of `id` that `call` waits for is there.
bool HasOutcome(EventChannel& channel, WaitingCall call, const Id& id);

// Acknowledges the event that the last call of a synchronous id has left.
void AcknowledgeOwn(rdma_cm_id* part);

// Whether `call` was made before and has only to wait: nothing else is to be
// done then. Takes `id.mutex`.
bool TakesUp(Id& id, WaitingCall call);

// IdCall and Complete.
template <typename Body>
int CompleteCall(rdma_cm_id* pointer, WaitingCall call, Body&& body);

}  // namespace librdmacm

#include "verbs_api/librdmacm/abi.h"

namespace librdmacm {

template <typename Body>
int IdCall(rdma_cm_id* pointer, Body&& body) noexcept {
  return Call([&]() -> int {
    const std::shared_ptr<Id> id = FindId(pointer);
    if (id == nullptr) return EINVAL;
    std::lock_guard<std::mutex> lock(id->calls);
    if (id->destroyed) return EINVAL;
    return body(*id);
  });
}

template <typename Body>
int CompleteCall(rdma_cm_id* pointer, WaitingCall call, Body&& body) {
  const int result = IdCall(
      pointer, [&](Id& id) -> int { return TakesUp(id, call) ? 0 : body(id); });
  return result != 0 ? result : Complete(pointer, call);
}

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ID_H_
