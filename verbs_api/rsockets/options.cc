// rsetsockopt and rgetsockopt: the options of rsocket(7), and timeouts.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "verbs_api/rsockets/protocol.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {
namespace {

template <typename T>
int Take(const void* value, socklen_t length, T* out) {
  if (value == nullptr || length < sizeof(T)) return -EINVAL;
  std::memcpy(out, value, sizeof(T));
  return 0;
}

template <typename T>
int Give(const T& value, void* out, socklen_t* length) {
  *length = std::min<socklen_t>(*length, sizeof(T));
  std::memcpy(out, &value, *length);
  return 0;
}

bool IsTimeout(int level, int name) {
  return level == SOL_SOCKET && (name == SO_RCVTIMEO || name == SO_SNDTIMEO);
}

}  // namespace

int Socket::SetSocketOption(int name, const void* value, socklen_t length) {
  if (name == SO_LINGER) return Take(value, length, &options_.lingering);
  if (IsTimeout(SOL_SOCKET, name)) {
    timeval timeout;
    if (const int error = Take(value, length, &timeout)) return error;
    if (timeout.tv_usec < 0 || timeout.tv_usec >= 1000000) return -EDOM;
    (name == SO_RCVTIMEO ? options_.receive_timeout : options_.send_timeout) =
        timeout;
    return 0;
  }
  int number;
  if (const int error = Take(value, length, &number)) return error;
  switch (name) {
    case SO_REUSEADDR:
      options_.reuse_address = number != 0;
      return Apply(SOL_SOCKET, name, number);
    case SO_KEEPALIVE:
      options_.keepalive = number != 0;
      return Apply(SOL_SOCKET, name, number);
    case SO_OOBINLINE:
      options_.oob_inline = number != 0;
      return 0;
    // Twice the requested size, as in the kernel. No effect once connected.
    case SO_RCVBUF:
      if (number < 0) return -EINVAL;
      if (!HasBuffers()) settings_.SetReceiveBuffer(uint64_t{2} * number);
      return 0;
    case SO_SNDBUF:
      if (number < 0) return -EINVAL;
      if (!HasBuffers()) settings_.SetSendBuffer(uint64_t{2} * number);
      return 0;
    default:
      return -ENOPROTOOPT;
  }
}

int Socket::SetRdmaOption(int name, int value) {
  if (HasBuffers() || value < 0) return -EINVAL;
  switch (name) {
    case RDMA_SQSIZE:
      settings_.send_queue = Settings::QueueSize(value);
      return 0;
    case RDMA_RQSIZE:
      settings_.receive_queue = Settings::QueueSize(value);
      return 0;
    case RDMA_INLINE:
      settings_.inline_data = static_cast<uint32_t>(value);
      return 0;
    case RDMA_IOMAPSIZE:
      settings_.iomap_entries = RoundIomapEntries(value);
      return 0;
    default:
      return -ENOPROTOOPT;
  }
}

int Socket::SetOption(int level, int name, const void* value,
                      socklen_t length) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (level == SOL_SOCKET) return SetSocketOption(name, value, length);
  int number;
  if (level == SOL_RDMA && name == RDMA_ROUTE) {
    // The system's routing decides the path; it cannot be set.
    return -ENOPROTOOPT;
  }
  if (const int error = Take(value, length, &number)) return error;
  switch (level) {
    case IPPROTO_TCP:
      switch (name) {
        case TCP_NODELAY:
          options_.no_delay = number != 0;
          return 0;
        case TCP_KEEPIDLE:
          if (number <= 0) return -EINVAL;
          options_.keepalive_seconds = number;
          return Apply(level, name, number);
        // A reliable connection needs no repeated probes.
        case TCP_KEEPCNT:
        case TCP_KEEPINTVL:
        case TCP_MAXSEG:
          return 0;
      }
      return -ENOPROTOOPT;
    case IPPROTO_IPV6:
      if (name != IPV6_V6ONLY) return -ENOPROTOOPT;
      options_.ipv6_only = number != 0;
      return Apply(level, name, number);
    case SOL_RDMA:
      return SetRdmaOption(name, number);
    default:
      return -ENOPROTOOPT;
  }
}

std::optional<int> Socket::GetSocketOption(int name) {
  switch (name) {
    case SO_ERROR:
      return TakeError();
    case SO_TYPE:
      return type();
    case SO_DOMAIN:
      return domain_;
    case SO_REUSEADDR:
      return options_.reuse_address;
    case SO_KEEPALIVE:
      return options_.keepalive;
    case SO_OOBINLINE:
      return options_.oob_inline;
    case SO_RCVBUF:
      return static_cast<int>(settings_.receive_buffer);
    case SO_SNDBUF:
      return static_cast<int>(settings_.send_buffer);
    default:
      return std::nullopt;
  }
}

std::optional<int> Socket::GetTcpOption(int name) {
  switch (name) {
    case TCP_NODELAY:
      return options_.no_delay;
    case TCP_KEEPIDLE:
      return options_.keepalive_seconds;
    case TCP_KEEPCNT:
    case TCP_KEEPINTVL:
      return 1;
    case TCP_MAXSEG:
      return MaxSegment();
    default:
      return std::nullopt;
  }
}

std::optional<int> Socket::GetRdmaOption(int name) const {
  switch (name) {
    case RDMA_SQSIZE:
      return static_cast<int>(settings_.send_queue);
    case RDMA_RQSIZE:
      return static_cast<int>(settings_.receive_queue);
    case RDMA_INLINE:
      return static_cast<int>(settings_.inline_data);
    case RDMA_IOMAPSIZE:
      return static_cast<int>(settings_.iomap_entries);
    default:
      return std::nullopt;
  }
}

int Socket::GetOption(int level, int name, void* value, socklen_t* length) {
  if (value == nullptr || length == nullptr) return -EFAULT;
  std::lock_guard<std::mutex> lock(mutex_);
  if (level == SOL_SOCKET && name == SO_ERROR) {
    // The connection may have failed since the last progress.
    MakeProgress();
  }
  if (level == SOL_SOCKET && name == SO_LINGER) {
    return Give(options_.lingering, value, length);
  }
  if (IsTimeout(level, name)) {
    return Give(
        name == SO_RCVTIMEO ? options_.receive_timeout : options_.send_timeout,
        value, length);
  }
  std::optional<int> number;
  switch (level) {
    case SOL_SOCKET:
      number = GetSocketOption(name);
      break;
    case IPPROTO_TCP:
      number = GetTcpOption(name);
      break;
    case IPPROTO_IPV6:
      if (name == IPV6_V6ONLY) number = options_.ipv6_only;
      break;
    case SOL_RDMA:
      number = GetRdmaOption(name);
      break;
  }
  return number ? Give(*number, value, length) : -ENOPROTOOPT;
}

}  // namespace rsockets
