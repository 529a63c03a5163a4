// How a stream comes to be connected: events of the connection manager.
#include <fcntl.h>
#include <infiniband/sa.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstring>

#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

constexpr int kResolveTimeoutMs = 2000;
constexpr uint8_t kMostRetries = 7;  // of RNR NAKs: for ever

// What a program hears of a connection that did not come to be; `accepted`:
// here, so that it takes it for one.
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
      // EINVAL: the peer has ended what it had answered.
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
  param.retry_count = param.rnr_retry_count = kMostRetries;
  return param;
}

// As a socket of `domain` shows it: one of IPv6 has IPv4 mapped (ipv6(7)).
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
  // What belongs to the parent of this process stays as it is.
  if (!is_ours()) {
    static_cast<void>(endpoint_.release());
    return;
  }
  for (Mapping& mapping : mappings_) ibv_dereg_mr(mapping.mr);
  endpoint_.reset();
  DropRequests();
  if (id_ != nullptr) rdma_destroy_id(id_);
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

void Stream::DropRequests() {
  for (const Request& request : requests_) {
    rdma_reject(request.id, nullptr, 0);
    rdma_destroy_id(request.id);
  }
  requests_.clear();
}

int Stream::Bind(const sockaddr* address, socklen_t) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ != StreamState::kIdle) return -EINVAL;
  if (rdma_bind_addr(id_, const_cast<sockaddr*>(address)) != 0) return -errno;
  state_ = StreamState::kBound;
  return 0;
}

int Stream::Listen(int backlog) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ == StreamState::kListening) return 0;
  if (state_ > StreamState::kListening) return -EINVAL;
  if (rdma_listen(id_, backlog) != 0) return -errno;
  state_ = StreamState::kListening;
  return 0;
}

int Stream::SetIdOptions() {
  int on = 1;
  if (options_.reuse_address &&
      rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on,
                      sizeof(on)) != 0) {
    return -errno;
  }
  if (options_.ipv6_only &&
      rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on,
                      sizeof(on)) != 0) {
    return -errno;
  }
  return 0;
}

int Stream::StopListening() {
  // librdmacm's listeners listen for as long as they live.
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return -errno;
  sockaddr_storage address;
  std::memcpy(&address, rdma_get_local_addr(id_), sizeof(address));
  DropRequests();
  rdma_destroy_id(std::exchange(id_, id));
  // Somebody may have taken the port meanwhile.
  state_ =
      SetIdOptions() == 0 &&
              rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) == 0
          ? StreamState::kBound
          : StreamState::kIdle;
  WakeAll(nullptr);
  return 0;
}

int Stream::Accept(std::shared_ptr<Socket>* out) {
  for (;;) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (state_ != StreamState::kListening) return -EINVAL;
    if (const int error =
            Await(lock, nonblocking(0), After(options_.receive_timeout), [&] {
              return !requests_.empty() || state_ != StreamState::kListening;
            })) {
      return error;
    }
    if (state_ != StreamState::kListening) return -EINVAL;
    const Request request = requests_.front();
    requests_.pop_front();
    std::shared_ptr<Stream> stream(new Stream(domain(), settings_));
    stream->options_ = options_;
    lock.unlock();
    const int error = stream->Serve(request);
    if (error == 0) {
      *out = std::move(stream);
      return 0;
    }
    // Whoever asked has gone meanwhile: the next one.
    if (error != -ECONNABORTED) return error;
  }
}

int Stream::Serve(const Request& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  id_ = request.id;
  int error = OpenChannel();
  if (error == 0 && rdma_migrate_id(id_, channel_) != 0) error = -ECONNABORTED;
  if (error == 0) error = OpenEndpoint();
  if (error != 0) {
    rdma_reject(id_, nullptr, 0);
    return error;
  }
  endpoint_->Begin(request.peer);
  const auto data = Encode(endpoint_->Describe());
  rdma_conn_param param = ParamOf(data);
  state_ = StreamState::kAccepting;
  return rdma_accept(id_, &param) == 0 ? 0 : -ECONNABORTED;
}

int Stream::Connect(const sockaddr* address, socklen_t) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (opening()) {
    // It is on its way: who may wait waits for it (connect(2), after EINTR).
    const int error =
        AwaitConnected(lock, nonblocking(0), After(options_.send_timeout));
    return error == -EAGAIN ? -EALREADY : error;
  }
  if (connected()) return -EISCONN;
  if (state_ == StreamState::kFailed && error_ != 0) {
    data_error_ = 0;  // what has become of it is told once
    return -TakeError();
  }
  if (state_ > StreamState::kBound) return -EINVAL;
  if (rdma_resolve_addr(id_, nullptr, const_cast<sockaddr*>(address),
                        kResolveTimeoutMs) != 0) {
    return -errno;
  }
  state_ = StreamState::kResolvingAddress;
  const int error =
      AwaitConnected(lock, nonblocking(0), After(options_.send_timeout));
  return error == -EAGAIN ? -EINPROGRESS : error;
}

int Stream::AwaitConnected(std::unique_lock<std::mutex>& lock, bool nonblocking,
                           const Deadline& deadline) {
  if (!opening()) return 0;
  if (const int error =
          Await(lock, nonblocking, deadline, [&] { return !opening(); })) {
    return error;
  }
  if (state_ == StreamState::kFailed) {
    data_error_ = 0;
    return -TakeError();
  }
  return 0;
}

bool Stream::TakeEvents() {
  bool any = false;
  rdma_cm_event* event;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    any = true;
    OnEvent(*event);
    rdma_ack_cm_event(event);
  }
  for (rdma_cm_id* const id : refused_) {
    rdma_reject(id, nullptr, 0);
    rdma_destroy_id(id);
  }
  refused_.clear();
  return any;
}

void Stream::OnEvent(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return OnRequest(event);
  // Of a request that waits: whoever accepts it will see.
  if (event.id != id_) return;
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      return OnAddressResolved();
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      return OnRouteResolved();
    case RDMA_CM_EVENT_ESTABLISHED:
      return OnEstablished(event);
    case RDMA_CM_EVENT_DISCONNECTED:
      // What it has sent before is in the completion queue.
      PollEndpoint();
      if (opening()) return Fail(ECONNRESET);
      return SetDisconnected();
    case RDMA_CM_EVENT_TIMEWAIT_EXIT:
    case RDMA_CM_EVENT_ADDR_CHANGE:
      return;
    default:
      return Fail(ErrorOf(event, state_ == StreamState::kAccepting));
  }
}

void Stream::OnRequest(const rdma_cm_event& event) {
  const std::optional<ConnectionData> peer = DataOf(event);
  if (peer.has_value() && state_ == StreamState::kListening) {
    requests_.push_back({event.id, *peer});
  } else {
    refused_.push_back(event.id);
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
  if (rdma_connect(id_, &param) != 0) Fail(errno);
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
  readable_ = writable_ = true;
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
  if (!connected() && state_ != StreamState::kAccepting &&
      state_ != StreamState::kDisconnected) {
    return -ENOTCONN;
  }
  FillAddress(domain(), rdma_get_peer_addr(id_), out);
  return 0;
}

int Stream::Apply(int level, int name, int value) {
  if (level == SOL_SOCKET && name == SO_REUSEADDR) {
    // A port that is bound already stays as it is.
    if (state_ == StreamState::kIdle &&
        rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &value,
                        sizeof(value)) != 0) {
      return -errno;
    }
    return 0;
  }
  if (level == IPPROTO_IPV6) {
    return rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &value,
                           sizeof(value)) == 0
               ? 0
               : -errno;
  }
  return connected() ? SetKeepalive() : 0;
}

int Stream::MaxSegment() {
  const rdma_route& route = id_->route;
  return route.num_paths > 0 ? 128 << route.path_rec->mtu
                             : Socket::MaxSegment();
}

}  // namespace rsockets
