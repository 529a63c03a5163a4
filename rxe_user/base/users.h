// What a user ID that the kernel reports for a process or file proves.
#ifndef RXE_USER_BASE_USERS_H_
#define RXE_USER_BASE_USERS_H_

#include <sys/types.h>

namespace rxe_user {

// False for the overflow ID (/proc/sys/kernel/overflowuid, 65534 by default) in
// a user namespace that does not map every user: it then stands for all
// unmapped users (user_namespaces(7), "Unmapped user and group IDs"). Also
// false if /proc does not show the map. Thread: any.
bool NamesOneUser(uid_t uid);

// Whether `uid` can only be this process's effective user.
bool IsOwnUser(uid_t uid);

// Whether this process runs as root of the machine, not of a user namespace.
bool IsRootOfTheMachine();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_USERS_H_
