// Descriptors on their way to another process (SCM_RIGHTS), as a stranger may
// send them.
#ifndef RXE_USER_TESTING_DESCRIPTORS_H_
#define RXE_USER_TESTING_DESCRIPTORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Any bytes with any number of descriptors. False if they were not sent.
bool SendWithDescriptors(int socket, std::span<const uint8_t> bytes,
                         const std::vector<int>& fds);

// A TCP connection whose last close waits for ten minutes, since the other end
// does not read. That end stays open until the process ends. Invalid if there
// was none to be had.
UniqueFd SlowToClose();

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_DESCRIPTORS_H_
