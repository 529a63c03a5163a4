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

// The state of an id. The state that each function requires is that of the
// kernel's rdma_cm.
enum class IdState : uint8_t {
  kIdle,
  kBound,
  kResolvingAddr,
  kAddrResolved,
  kRouteResolved,
  kListening,
  kConnecting,  // active: since rdma_connect
  kReplied,     // active: REP received, RTU not sent
  kRequested,   // passive: waits for the application's answer
  kWithdrawn,   // passive: failed before the application answered
  kAccepted,    // passive: REP sent
  kConnected,
  kDisconnected,
  kFailed,  // rejected, or unreachable
};

// A call on a synchronous id that waits for its event. If waiting fails for
// lack of memory, the same call made again resumes the wait.
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

// The attributes of path and peer that the queue pair of a connection needs
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
  uint32_t local_psn = 0;   // the peer starts sending with it
  uint32_t remote_psn = 0;  // we start sending with it
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

// Arguments of rdma_create_ep that are used later.
struct EndpointOptions {
  ibv_pd* pd = nullptr;
  // For the ids of a listener's connection requests.
  std::optional<ibv_qp_init_attr> qp;
  // Sent before the private data of rdma_connect.
  std::vector<uint8_t> connect_data;
};

// An rdma_resolve_addr in progress.
struct AddressResolution {
  UnsentEvent event;                // carries the result
  EndpointAddress source;           // the id is bound to it on failure
  rxe_user::NeighborWait wait = 0;  // 0: the service has not replied yet
};

// An rdma_cm_id, followed by our own members.
//
// Locks: `calls` serializes the application's calls and is held while the
// service is called. `mutex` guards all members below it. Events of the service
// take it, so it is held only briefly, and never while the service is called,
// except on the service's own thread, where calls do not wait for events. The
// lock of a channel is taken after it.
class Id final : public rxe_user::CmEventHandler,
                 public rxe_user::NeighborHandler,
                 public std::enable_shared_from_this<Id> {
 public:
  Id(rdma_port_space ps, ibv_qp_type type);

  // On the service's thread: connection_events.cc.
  void OnCmEvent(const transport::cm::Event& event) override;
  // On the service's thread, or in rdma_resolve_addr: address.cc.
  void OnNeighbor(int error) override;

  // In kConnecting, makes the service send the first message. `start` calls the
  // service and returns the ID of its connection. Returns 0 or an errno value;
  // on error the state is kRouteResolved again. `calls` is held.
  int StartExchange(absl::FunctionRef<int(transport::cm::CmId*)> start);

  // --- Events that the application has taken and not acknowledged.
  void CountReported();
  void CountAcknowledged();
  void AwaitAcknowledged();

  // --- `mutex` is held.
  // Creates an event of this id for the application.
  UnsentEvent NewEvent(int type, int status = 0);
  void Push(UnsentEvent event) { channel->Push(std::move(event)); }
  void Push(int type, int status = 0) { Push(NewEvent(type, status)); }
  bool is_datagram() const { return part.qp_type == IBV_QPT_UD; }
  // The type of its queue pair, or of the one that the application will create.
  ibv_qp_type qp_type() const {
    return part.qp != nullptr ? part.qp->qp_type : part.qp_type;
  }
  uint8_t port_space() const { return static_cast<uint8_t>(part.ps); }

  rdma_cm_id part = {};  // the application's view

  std::mutex calls;
  // MakeReady stopped half way for lack of memory. Guarded by `calls`.
  bool ready_interrupted = false;
  // The groups that it has joined. Guarded by `calls`.
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
  std::shared_ptr<const void> device;  // keeps part.verbs open
  std::optional<AddressResolution> address_resolution;  // while in progress
  IdOptions options;
  EndpointOptions endpoint;
  ConnectionAttributes attributes;
  rdma_conn_param requested = {};  // passive: requested by the peer
  ibv_ece local_ece = {};
  ibv_ece remote_ece = {};
  ibv_sa_path_rec path = {};
  bool resolving = false;   // rdma_resolve_addrinfo is in progress
  UniqueAddrinfo addrinfo;  // its result, until the application takes it
  bool owns_send_cq = false;
  bool owns_recv_cq = false;
  bool srq_has_recv_cq = false;  // an XRC SRQ uses the id's recv_cq

 private:
  // The cases of OnCmEvent. `mutex` is held.
  void OnRequest(const transport::cm::Event& event);
  void OnReply(const transport::cm::Event& event);
  void OnRejected(const transport::cm::Event& event);
  void OnServiceReply(const transport::cm::Event& event);
  // The id for a peer's connection request; null if the request is not
  // understood.
  std::shared_ptr<Id> NewRequest(const transport::cm::Event& event,
                                 const wire::RdmaCmHeader& header,
                                 uint64_t service_id);

  std::mutex ack_mutex_;  // taken after all other locks
  std::condition_variable acknowledged_;
  uint64_t unacknowledged_ = 0;  // guarded by ack_mutex_
};

// The id behind an application's pointer; null if there is none.
std::shared_ptr<Id> FindId(const rdma_cm_id* id);
void PublishId(const std::shared_ptr<Id>& id);
// For an id that no application has seen.
void WithdrawId(const Id& id);

// Sets `*out` to a new id, which FindId finds by its pointer. Without a channel
// the id is synchronous and gets a channel of its own. Without a type it gets
// that of its port space. Returns 0 or an errno value: EINVAL for an unknown
// port space.
int CreateId(rdma_event_channel* channel, void* context, int port_space,
             std::optional<ibv_qp_type> type, std::shared_ptr<Id>* out);

// Ends an id that FindId does not find any more: releases its service and
// connection, rejects the requests that the application has not seen, and lets
// no event follow. Does not wait for acknowledgements.
void EndId(Id& id);

// The connection manager of this process. It is never destroyed: connections in
// timewait outlive their ids.
std::shared_ptr<rxe_user::CmService> Service();

// Finds the id and calls `body(Id&)` with `calls` held. EINVAL if there is no
// such id. Returns 0, or -1 with errno. `function`: as that of Call.
template <typename Body>
int IdCall(rdma_cm_id* pointer, Body&& body,
           const char* function = __builtin_FUNCTION()) noexcept;

// For calls whose result is an event. On a synchronous id, waits for the event
// and stores it in the id. Unrelated events stay in the channel, except device
// removal, which ends every wait with ENODEV. Returns 0, or -1 with errno. A
// cancellation point.
int Complete(rdma_cm_id* pointer, WaitingCall call);

// The wait of Complete. Returns 0, or -1 with errno. A cancellation point.
int TakeOutcome(EventChannel& channel, WaitingCall call, rdma_cm_event** out);

// Whether the event that ends `call` on `id` is queued.
bool HasOutcome(EventChannel& channel, WaitingCall call, const Id& id);

// rdma_ack_cm_event for the library's own use: no fault rule makes it fail.
// Returns 0 or an errno value.
int Acknowledge(rdma_cm_event* event);

// Acknowledges the event that the last call on a synchronous id left in it.
void AcknowledgeOwn(rdma_cm_id* part);

// Whether `call` was made before and only has to resume its wait. Takes
// `id.mutex`.
bool ResumesWait(Id& id, WaitingCall call);

// IdCall, then Complete.
template <typename Body>
int CompleteCall(rdma_cm_id* pointer, WaitingCall call, Body&& body,
                 const char* function = __builtin_FUNCTION());

}  // namespace librdmacm

#include "verbs_api/librdmacm/abi.h"

namespace librdmacm {

template <typename Body>
int IdCall(rdma_cm_id* pointer, Body&& body, const char* function) noexcept {
  return Call(
      [&]() -> int {
        const std::shared_ptr<Id> id = FindId(pointer);
        if (id == nullptr) return EINVAL;
        std::lock_guard<std::mutex> lock(id->calls);
        if (id->destroyed) return EINVAL;
        return body(*id);
      },
      function);
}

template <typename Body>
int CompleteCall(rdma_cm_id* pointer, WaitingCall call, Body&& body,
                 const char* function) {
  const int result = IdCall(
      pointer,
      [&](Id& id) -> int { return ResumesWait(id, call) ? 0 : body(id); },
      function);
  return result != 0 ? result : Complete(pointer, call);
}

}  // namespace librdmacm

#endif  // VERBS_API_LIBRDMACM_ID_H_
