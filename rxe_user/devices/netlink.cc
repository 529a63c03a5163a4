#include "rxe_user/devices/netlink.h"

#include <errno.h>
#include <linux/netlink.h>
#include <netlink/errno.h>
#include <netlink/msg.h>
#include <sys/socket.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/unique_fd.h"

namespace rxe_user::netlink {

namespace {

struct LibraryLock {
  ForkSafeMutex mutex;
};

void PassOn(nl_object* object, void* on_object) {
  (*static_cast<OnObject*>(on_object))(object);
}

int OnMessage(nl_msg* message, void* on_object) {
  // libnl does not know some types of messages; we need none of these.
  (void)nl_msg_parse(message, PassOn, on_object);
  return NL_OK;
}

}  // namespace

ForkSafeMutex& Lock() { return OnlyOne<LibraryLock>().mutex; }

absl::Status ErrorStatus(int error, absl::string_view what) {
  if (error == -NLE_NOMEM) return ErrnoStatus(ENOMEM, what);
  return absl::InternalError(absl::StrCat(what, ": ", nl_geterror(error)));
}

absl::StatusOr<Socket> Connect(absl::string_view what) {
  Socket socket(nl_socket_alloc());
  if (socket == nullptr) return ErrnoStatus(ENOMEM, what);
  // nl_connect() would take the lowest free number, perhaps stderr's.
  UniqueFd fd(
      MoveHigh(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)));
  sockaddr_nl local = {};
  local.nl_family = AF_NETLINK;
  if (!fd.valid() || ::bind(fd.get(), reinterpret_cast<sockaddr*>(&local),
                            sizeof(local)) != 0) {
    return ErrnoStatus(errno, what);
  }
  if (const int error = nl_socket_set_fd(socket.get(), NETLINK_ROUTE, fd.get());
      error < 0) {
    return ErrorStatus(error, what);
  }
  (void)fd.Release();
  if (const int error = nl_socket_set_buffer_size(socket.get(), 0, 0);
      error < 0) {
    return ErrorStatus(error, what);
  }
  return socket;
}

absl::StatusOr<Socket> ConnectForEvents(absl::string_view what) {
  absl::StatusOr<Socket> socket = Connect(what);
  if (!socket.ok()) return socket;
  nl_socket_disable_seq_check(socket->get());
  if (const int error = nl_socket_set_nonblocking(socket->get()); error != 0) {
    return ErrorStatus(error, what);
  }
  return socket;
}

int Receive(nl_sock* socket, OnObject on_object) {
  nl_socket_modify_cb(socket, NL_CB_VALID, NL_CB_CUSTOM, OnMessage, &on_object);
  return nl_recvmsgs_default(socket);
}

std::optional<wire::IpAddress> ToIpAddress(nl_addr* address) {
  if (address == nullptr) return std::nullopt;
  const auto* const bytes =
      static_cast<const uint8_t*>(nl_addr_get_binary_addr(address));
  switch (nl_addr_get_family(address)) {
    case AF_INET: {
      uint32_t v4;
      if (nl_addr_get_len(address) != sizeof(v4)) return std::nullopt;
      std::copy_n(bytes, sizeof(v4), reinterpret_cast<uint8_t*>(&v4));
      return wire::IpAddress::FromV4(v4);
    }
    case AF_INET6:
      if (nl_addr_get_len(address) != 16) return std::nullopt;
      return wire::IpAddress::FromGid(bytes);
    default:
      return std::nullopt;
  }
}

Address FromIpAddress(const wire::IpAddress& address) {
  const uint8_t* const bytes = address.bytes.data();
  return address.is_v4() ? Address(nl_addr_build(AF_INET, bytes + 12, 4))
                         : Address(nl_addr_build(AF_INET6, bytes, 16));
}

std::optional<std::array<uint8_t, 6>> ToMac(nl_addr* address) {
  std::array<uint8_t, 6> mac;
  if (address == nullptr || nl_addr_get_len(address) != mac.size()) {
    return std::nullopt;
  }
  std::copy_n(static_cast<const uint8_t*>(nl_addr_get_binary_addr(address)),
              mac.size(), mac.begin());
  return mac;
}

}  // namespace rxe_user::netlink
