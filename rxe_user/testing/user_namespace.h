// User namespaces, as rootless containers have them.
#ifndef RXE_USER_TESTING_USER_NAMESPACE_H_
#define RXE_USER_TESTING_USER_NAMESPACE_H_

#include <sys/types.h>

namespace rxe_user {

// Moves the calling process, which has one thread, into a user namespace that
// maps nobody but its own effective user and group, to `inside`. False where
// that is not allowed. For children of a test: there is no way back.
bool EnterUserNamespace(uid_t inside);

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_USER_NAMESPACE_H_
