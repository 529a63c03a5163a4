// User namespaces as in rootless containers.
#ifndef RXE_USER_TESTING_USER_NAMESPACE_H_
#define RXE_USER_TESTING_USER_NAMESPACE_H_

#include <sys/types.h>

namespace rxe_user {

// Moves the calling process, which must have one thread, into a user namespace
// that maps only its own effective user and group, to `inside`. False if not
// allowed. Permanent: for children of a test.
bool EnterUserNamespace(uid_t inside);

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_USER_NAMESPACE_H_
