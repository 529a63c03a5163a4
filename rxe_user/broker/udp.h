// UDP sockets on the RoCE port.
#ifndef RXE_USER_BROKER_UDP_H_
#define RXE_USER_BROKER_UDP_H_

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/base/local_address.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/protocol.h"
#include "wire/address.h"

namespace rxe_user::broker {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  const sockaddr* get() const {
    return reinterpret_cast<const sockaddr*>(&storage);
  }
};
SocketAddress ToSocketAddress(const LocalAddress& local, uint16_t port);
// The broker's name as the address of a Unix socket.
SocketAddress BrokerAddress();

enum class Sharing { kExclusive, kReusePort };

// A non-blocking UDP socket bound to the address and port (IPv6: V6ONLY).
// Invalid on failure, with errno set.
UniqueFd BindUdp(const LocalAddress& local, uint16_t port, Sharing sharing);

// Whether a process of our user created the file behind the descriptor.
bool IsOurs(int fd);

// Whether fd is a socket or a memory file. Any other file may belong to a file
// system in user space (FUSE), where every call, even close(), can block.
bool IsSocketOrMemory(int fd);

// Whether fd is a UDP socket of our user that shares `address` on the RoCE port
// in this network namespace, and so is in the same reuseport group as our
// sockets.
bool IsGroupSocket(int fd, const LocalAddress& local);

// From now on no holder of the socket can change or remove its filter, or
// replace the program of its group (SO_LOCK_FILTER). False if refused.
bool LockFilter(int fd);

// The kernel's socket cookie. 0 on failure.
uint64_t SocketCookie(int fd);

// Reads and drops all queued datagrams, at most `limit`. Returns their number.
int Drain(int fd, int limit);

// A socket of this network namespace that is bound to the RoCE port.
struct PortSocket {
  wire::IpAddress local;  // may be unspecified
  bool v6 = false;
  uint64_t inode = 0;  // 0: the kernel's own
  uint32_t uid = 0;
};

// All sockets on the RoCE port. nullopt where /proc does not show them.
std::optional<std::vector<PortSocket>> ListPortSockets();

// The user of a broker that could not be asked: root or our own, since it would
// not be trusted otherwise.
inline constexpr uid_t kUnknownUser = static_cast<uid_t>(-1);

// Describes, as PortHolder does, the socket among `sockets` that keeps the
// running broker (null: none runs) and the next one from the port of `ip`.
// Empty if there is none. Not foreign are sockets of a broker, of a process
// with one of our engines, and copies of lent sockets that other users keep.
std::string ForeignHolder(const std::vector<PortSocket>& sockets,
                          const wire::IpAddress& ip, const ucred* broker);

// The process that holds the RoCE port, so that it cannot be bound at `local`;
// as text for a message: "process 123 (iperf3)", "a process of user 1000", "the
// kernel (rdma_rxe)". Empty if there is none.
std::string PortHolder(const LocalAddress& local);

// Whether any socket of this network namespace is bound to the RoCE port.
bool AnyoneOnPort();

// The error line for a taken port. The second form is for several addresses and
// a known holder ("" if unknown).
std::string PortTakenText(const LocalAddress& local);
std::string PortTakenText(const std::string& addresses,
                          const std::string& holder);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_UDP_H_
