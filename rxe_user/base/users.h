// What a user ID that the kernel tells of another process, or of a file, is
// worth.
#ifndef RXE_USER_BASE_USERS_H_
#define RXE_USER_BASE_USERS_H_

#include <sys/types.h>

namespace rxe_user {

// False for the overflow ID (/proc/sys/kernel/overflowuid, 65534 by default) in
// a user namespace that does not map every user: it then stands for all users
// that are not mapped (user_namespaces(7), "Unmapped user and group IDs").
// Also false if /proc does not tell what is mapped. Thread: any.
bool NamesOneUser(uid_t uid);

// Whether `uid` is this process's effective user, and nobody else.
bool IsOwnUser(uid_t uid);

// Whether this process runs as root of the machine, not of a user namespace.
bool IsRootOfTheMachine();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_USERS_H_
