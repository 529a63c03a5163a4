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

enum class Sharing { kExclusive, kReusePort };

// A non-blocking UDP socket bound to the address and port (IPv6: V6ONLY).
// Invalid on failure, errno says why.
UniqueFd BindUdp(const LocalAddress& local, uint16_t port, Sharing sharing);

// Whether a process of our own user made the file behind a descriptor, whoever
// holds it.
bool IsOurs(int fd);

// Whether fd is a socket or a file in memory: of anything else each look, and
// its end, may wait for a file system that is somebody's program.
bool IsSocketOrMemory(int fd);

// Whether fd is a UDP socket of ours that shares `address` on the RoCE port in
// this network namespace: then it is in the group that our sockets there are
// in.
bool IsGroupSocket(int fd, const LocalAddress& local);

// No holder of the socket can change or remove its filter any more, or replace
// the program of its group through it (SO_LOCK_FILTER). False if refused.
bool LockFilter(int fd);
bool IsFilterLocked(int fd);

// The kernel's name of the socket behind a descriptor; 0 on failure.
uint64_t SocketCookie(int fd);

// Reads and drops everything that waits in the socket, at most `limit`
// datagrams; the number dropped.
int Drain(int fd, int limit);

// A socket of this network namespace that is bound to the RoCE port.
struct PortSocket {
  wire::IpAddress local;  // may be unspecified
  bool v6 = false;
  uint64_t inode = 0;  // 0: the kernel's own
  uint32_t uid = 0;
};

// All of them; nullopt where /proc does not show them.
std::optional<std::vector<PortSocket>> ListPortSockets();

// Who of `sockets`, in PortHolder's words, keeps the port of `ip` from the
// running broker (null: none runs) and from the next one. Empty if nobody does:
// what a broker or a process with one of our engines holds is not foreign, nor
// is what a broker has lent and other users keep.
std::string ForeignHolder(const std::vector<PortSocket>& sockets,
                          const wire::IpAddress& ip, const ucred* broker);

// Who holds the RoCE port so that `address` cannot be bound, for a message:
// "process 123 (iperf3)", "a process of user 1000", "the kernel (rdma_rxe)".
// Empty if nobody does.
std::string PortHolder(const LocalAddress& local);

// Whether any socket of this network namespace is bound to the RoCE port.
bool AnyoneOnPort();

// The one line for a port that is taken; the second, where it is known by whom
// ("" if not), and for several addresses.
std::string PortTakenText(const LocalAddress& local);
std::string PortTakenText(const std::string& addresses,
                          const std::string& holder);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_UDP_H_
