// Sends descriptors to another process (SCM_RIGHTS), also malicious ones.
#ifndef RXE_USER_TESTING_DESCRIPTORS_H_
#define RXE_USER_TESTING_DESCRIPTORS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Sends any bytes with any number of descriptors. False if not sent.
bool SendWithDescriptors(int socket, std::span<const uint8_t> bytes,
                         const std::vector<int>& fds);

// A TCP connection whose last close waits for ten minutes, since the other end
// does not read. That end stays open until the process ends. Invalid on
// failure.
UniqueFd SlowToClose();

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_DESCRIPTORS_H_
