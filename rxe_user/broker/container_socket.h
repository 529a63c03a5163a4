// The socket by which processes in other user namespaces find the broker of the
// machine's root. In those namespaces, SO_PEERCRED does not tell root from an
// unmapped user. Only root can write the folder /run/rxe_user, so a socket in
// it is root's. A container needs this folder mounted.
#ifndef RXE_USER_BROKER_CONTAINER_SOCKET_H_
#define RXE_USER_BROKER_CONTAINER_SOCKET_H_

#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

inline constexpr char kContainerFolder[] = "/run/rxe_user";

// A socket to listen at, for the broker of this network namespace. Replaces an
// old one; every user can connect. kNotFound: the folder does not exist and
// `make_folder` is false.
absl::StatusOr<UniqueFd> BindContainerSocket(bool make_folder);

// The address of that socket. Empty (size 0) unless the file exists and other
// users can write neither the folder nor /run. Both must belong to root, to our
// user, or to an unmapped user: then we trust the process that mounted them.
// Thread: any.
SocketAddress ContainerSocket();

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CONTAINER_SOCKET_H_
