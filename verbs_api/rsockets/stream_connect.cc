// Connecting a stream: events of the connection manager.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

constexpr int kResolveTimeoutMs = 2000;
constexpr uint8_t kMaxRetries = 7;  // of RNR NAKs: no limit

// The error of a connection that failed. `accepted`: at the accepting end,
// which already treats it as connected.
int ErrorOf(const rdma_cm_event& event, bool accepted) {
  switch (event.event) {
    case RDMA_CM_EVENT_REJECTED:
      return accepted ? ECONNRESET : ECONNREFUSED;
    case RDMA_CM_EVENT_UNREACHABLE:
      return ETIMEDOUT;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
      return EHOSTUNREACH;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return ENODEV;
    case RDMA_CM_EVENT_CONNECT_ERROR:
      // EINVAL: the peer has ended the connection after answering.
      return event.status == 0 || event.status == -EINVAL ? ECONNRESET
                                                          : -event.status;
    default:
      return event.status < 0 ? -event.status : ECONNABORTED;
  }
}

std::optional<ConnectionData> DataOf(const rdma_cm_event& event) {
  const rdma_conn_param& param = event.param.conn;
  return ParseConnectionData(
      {static_cast<const uint8_t*>(param.private_data),
       param.private_data == nullptr ? 0u : param.private_data_len});
}

rdma_conn_param ParamOf(const std::array<uint8_t, kConnectionDataSize>& data) {
  rdma_conn_param param = {};
  param.private_data = data.data();
  param.private_data_len = kConnectionDataSize;
  param.flow_control = 1;
  param.retry_count = param.rnr_retry_count = kMaxRetries;
  return param;
}

// Returns 0 or a negative errno value.
int SetIdOption(rdma_cm_id* id, int name, int value) {
  return rdma_set_option(id, RDMA_OPTION_ID, name, &value, sizeof(value)) == 0
             ? 0
             : -errno;
}

// Converts to the family of the socket: an IPv6 socket shows IPv4 as mapped
// (ipv6(7)).
void FillAddress(int domain, const sockaddr* from, sockaddr_storage* to) {
  std::memset(to, 0, sizeof(*to));
  to->ss_family = static_cast<sa_family_t>(domain);
  if (from->sa_family == AF_INET && domain == AF_INET6) {
    sockaddr_in in;
    std::memcpy(&in, from, sizeof(in));
    auto& in6 = *reinterpret_cast<sockaddr_in6*>(to);
    in6.sin6_port = in.sin_port;
    in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
    std::memcpy(in6.sin6_addr.s6_addr + 12, &in.sin_addr, sizeof(in.sin_addr));
  } else if (from->sa_family != AF_UNSPEC) {
    std::memcpy(to, from,
                from->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                            : sizeof(sockaddr_in));
  }
}

}  // namespace

int Stream::Create(int domain, std::shared_ptr<Socket>* out) {
  std::shared_ptr<Stream> stream(new Stream(domain, Settings::Default()));
  if (const int error = stream->OpenChannel()) return error;
  if (rdma_create_id(stream->channel_, &stream->id_, nullptr, RDMA_PS_TCP)) {
    return -errno;
  }
  *out = std::move(stream);
  return 0;
}

int Stream::OpenChannel() {
  if (const int error = Open()) return error;
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) return -errno;
  if (fcntl(channel_->fd, F_SETFL, O_NONBLOCK) != 0) return -errno;
  return Watch(channel_->fd);
}

Stream::~Stream() {
  // Leaves objects of the parent process alone.
  if (!is_ours()) {
    static_cast<void>(endpoint_.release());
    return;
  }
  watch_.End();
  overdue_watch_.End();
  backlog_ = {};
  for (const Request& request : requests_) rdma_destroy_id(request.id);
  for (Mapping& mapping : mappings_) ibv_dereg_mr(mapping.mr);
  endpoint_.reset();
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

int Stream::Bind(const sockaddr* address, socklen_t) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != StreamState::kIdle) return -EINVAL;
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(address)) != 0) return -errno;
  state_ = StreamState::kBound;
  return 0;
}

int Stream::SetIdOptions() {
  int error = 0;
  if (options_.reuse_address) {
    error = SetIdOption(id_, RDMA_OPTION_ID_REUSEADDR, 1);
  }
  if (error == 0 && options_.ipv6_only) {
    error = SetIdOption(id_, RDMA_OPTION_ID_AFONLY, 1);
  }
  return error;
}

int Stream::Answer(const Request& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  id_ = request.id;
  int error = request.peer.has_value() ? OpenChannel() : -ECONNABORTED;
  if (error == 0 && rdma_migrate_id(id_, channel_) != 0) error = -ECONNABORTED;
  if (error == 0) error = OpenEndpoint();
  if (error != 0) {
    rdma_reject(id_, nullptr, 0);
    return error;
  }
  endpoint_->Begin(*request.peer);
  const auto data = Encode(endpoint_->Describe());
  rdma_conn_param param = ParamOf(data);
  state_ = StreamState::kAccepting;
  in_backlog_ = true;
  return rdma_accept(id_, &param) == 0 ? 0 : -ECONNABORTED;
}

int Stream::Connect(const sockaddr* address, socklen_t) {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool again = opening();
  if (!again) {
    // The result is reported once.
    if (connected()) {
      return std::exchange(connect_result_pending_, false) ? 0 : -EISCONN;
    }
    if (state_ == StreamState::kFailed && error_ != 0) return Outcome();
    if (state_ > StreamState::kBound) return -EINVAL;
    if (rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(address),
                          kResolveTimeoutMs) != 0) {
      return -errno;
    }
    state_ = StreamState::kResolvingAddress;
  }
  // If it is in progress, a blocking call waits for it (connect(2), after
  // EINTR).
  const int error = Await(lock, nonblocking(0), After(options_.send_timeout),
                          [&] { return !opening(); });
  // Like a TCP socket, a non-blocking one returns EINPROGRESS and reports the
  // result later, even if the peer answers at once.
  connect_result_pending_ =
      opening() || (!again && nonblocking(0) && request_sent_);
  if (opening() && !again) {
    // Without the thread, calls of the program continue the connection.
    static_cast<void>(ConnectionThread::Get().Begin(
        channel_->fd, ConnectionThread::When::kReadable, weak_from_this(),
        [this] { ServeConnecting(); }, &watch_));
  }
  if (error != 0 && error != -EAGAIN) return error;
  if (connect_result_pending_) return again ? -EALREADY : -EINPROGRESS;
  return Outcome();
}

void Stream::ServeConnecting() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!closed_) MakeProgress();
}

int Stream::AwaitConnected(std::unique_lock<std::mutex>& lock, bool nonblocking,
                           const Deadline& deadline) {
  if (!opening()) return 0;
  if (const int error =
          Await(lock, nonblocking, deadline, [&] { return !opening(); })) {
    return error;
  }
  return Outcome();
}

int Stream::Outcome() {
  if (state_ != StreamState::kFailed) return 0;
  data_error_ = 0;
  return -TakeError();
}

bool Stream::TakeEvent() {
  rdma_cm_event* event;
  if (rdma_get_cm_event(channel_, &event) != 0) return false;
  // Acknowledges the event even without memory: destroying the id waits for it.
  const std::unique_ptr<rdma_cm_event, int (*)(rdma_cm_event*)> acknowledge(
      event, &rdma_ack_cm_event);
  OnEvent(*event);
  return true;
}

bool Stream::TakeEvents() {
  // The connection thread handles these.
  if (state_ == StreamState::kListening) return false;
  bool any = false;
  while (TakeEvent()) any = true;
  return any;
}

void Stream::OnEvent(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) {
    requests_.push_back({event.id, DataOf(event)});
    return;
  }
  if (event.id != id_) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return OnAddressResolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return OnRouteResolved();
    case RDMA_CM_EVENT_ESTABLISHED:
      return OnEstablished(event);
    case RDMA_CM_EVENT_DISCONNECTED:
      // The completion queue may hold data that the peer sent before.
      PollEndpoint();
      if (opening()) return Fail(ECONNRESET);
      // The accepting program sends credits first. Without them no program has
      // accepted the connection, so it is reset, as in TCP.
      if (connected() && !announced_close_ && !endpoint_->heard_from_peer()) {
        return Fail(ECONNRESET);
      }
      return SetDisconnected();
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    default:
      return Fail(ErrorOf(event, state_ == StreamState::kAccepting));
  }
}

void Stream::OnAddressResolved() {
  if (state_ != StreamState::kResolvingAddress) return;
  state_ = StreamState::kResolvingRoute;
  if (rdma_resolve_route(id_, kResolveTimeoutMs) != 0) Fail(errno);
}

void Stream::OnRouteResolved() {
  if (state_ != StreamState::kResolvingRoute) return;
  if (const int error = OpenEndpoint()) return Fail(-error);
  const auto data = Encode(endpoint_->Describe());
  rdma_conn_param param = ParamOf(data);
  state_ = StreamState::kConnecting;
  request_sent_ = rdma_connect(id_, &param) == 0;
  if (!request_sent_) Fail(errno);
}

void Stream::OnEstablished(const rdma_cm_event& event) {
  if (state_ == StreamState::kConnecting) {
    const std::optional<ConnectionData> peer = DataOf(event);
    if (!peer.has_value()) return Fail(EPROTO);
    endpoint_->Begin(*peer);
  } else if (state_ != StreamState::kAccepting) {
    return;
  }
  SetConnected();
}

int Stream::OpenEndpoint() {
  if (const int error = Endpoint::Create(id_, &settings_, &endpoint_)) {
    return -error;
  }
  return Watch(endpoint_->completion_fd());
}

void Stream::SetConnected() {
  state_ = StreamState::kConnected;
  readable_ = writable_ = established_ = true;
  watch_.End();
  if (options_.keepalive) SetKeepalive();
}

void Stream::SetDisconnected() {
  readable_ = writable_ = false;
  if (connected()) state_ = StreamState::kDisconnected;
}

void Stream::Fail(int error) {
  if (state_ == StreamState::kFailed || state_ == StreamState::kDisconnected) {
    return;
  }
  state_ = StreamState::kFailed;
  watch_.End();
  readable_ = writable_ = false;
  error_ = data_error_ = error;
}

int Stream::LocalAddress(sockaddr_storage* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  FillAddress(domain(), rdma_get_local_addr(id_), out);
  return 0;
}

int Stream::PeerAddress(sockaddr_storage* out) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!connected() && state_ != StreamState::kDisconnected) return -ENOTCONN;
  FillAddress(domain(), rdma_get_peer_addr(id_), out);
  return 0;
}

void Stream::OnAccepted(sockaddr_storage* peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  in_backlog_ = false;
  FillAddress(domain(), rdma_get_peer_addr(id_), peer);
  MakeProgress();
}

int Stream::Apply(int level, int name, int value) {
  if (level == SOL_SOCKET && name == SO_REUSEADDR) {
    // A port that is already bound keeps its setting.
    return state_ == StreamState::kIdle
               ? SetIdOption(id_, RDMA_OPTION_ID_REUSEADDR, value)
               : 0;
  }
  if (level == IPPROTO_IPV6) {
    return SetIdOption(id_, RDMA_OPTION_ID_AFONLY, value);
  }
  return connected() ? SetKeepalive() : 0;
}

int Stream::MaxSegment() {
  const rdma_route& route = id_->route;
  return route.num_paths > 0 ? 128 << route.path_rec->mtu
                             : Socket::MaxSegment();
}

}  // namespace rsockets
