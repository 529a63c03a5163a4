// Messages with descriptors over Unix sockets (unix(7), SCM_RIGHTS).
#ifndef RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_
#define RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// Descriptors of one message.
inline constexpr size_t kMostDescriptors = 2;

// Sends one message without blocking. `fds`: at most kMostDescriptors, which
// stay the caller's. False if it was not sent. Thread: any.
bool SendMessage(int socket, std::span<const iovec> parts,
                 std::span<const int> fds);

enum class Arrival {
  kMessage,
  kNothing,  // yet; also where the socket was said to be readable
  kClosed    // or an error
};

struct ReceivedMessage {
  size_t bytes = 0;        // that fit
  size_t descriptors = 0;  // in `fds`
  bool truncated = false;  // it had more bytes
  // It had more descriptors than `fds` takes, or this process may not open
  // more.
  bool lost_descriptors = false;
};

// Receives one message without blocking: its first bytes and its first
// descriptors, at high numbers (high_fd.h). `fds`: at most kMostDescriptors;
// with none, descriptors are never opened in this process. They are stored for
// kClosed, too, as an empty message is. Thread: any.
Arrival ReceiveMessage(int socket, std::span<uint8_t> bytes,
                       std::span<UniqueFd> fds, ReceivedMessage* message);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_
