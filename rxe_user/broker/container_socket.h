// Where processes in a user namespace of their own find the broker of the
// machine's root: to them, SO_PEERCRED does not tell root from any user whom
// their namespace does not map. A folder that only root can write vouches for
// the socket in it: /run/rxe_user, which a container has to be shown.
#ifndef RXE_USER_BROKER_CONTAINER_SOCKET_H_
#define RXE_USER_BROKER_CONTAINER_SOCKET_H_

#include "absl/status/statusor.h"
#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

inline constexpr char kContainerFolder[] = "/run/rxe_user";

// A socket to listen at, in the place of one that may be there, to which every
// user can connect. For the broker of this network namespace. kNotFound: there
// is no folder, and none is to be made.
absl::StatusOr<UniqueFd> BindContainerSocket(bool make_folder);

// The address of that socket; of size 0 unless a file is there and neither the
// folder nor /run can be written by other users: they belong to root, to our
// own user or to one who is not mapped, and whoever mounted them vouches for
// it. Thread: any.
SocketAddress ContainerSocket();

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_CONTAINER_SOCKET_H_
