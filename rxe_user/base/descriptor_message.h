// Messages with descriptors over Unix sockets (unix(7), SCM_RIGHTS).
#ifndef RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_
#define RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "rxe_user/base/unique_fd.h"

namespace rxe_user {

// The most descriptors in one message.
inline constexpr size_t kMaxDescriptors = 2;

// Sends one message without blocking. `fds`: at most kMaxDescriptors; the
// caller keeps them. False if the message was not sent. Thread: any.
bool SendMessage(int socket, std::span<const iovec> parts,
                 std::span<const int> fds);

enum class Arrival {
  kMessage,
  kNothing,  // nothing yet; possible even if the socket was reported readable
  kClosed    // or an error
};

struct ReceivedMessage {
  size_t bytes = 0;        // that fit in the buffer
  size_t descriptors = 0;  // in `fds`
  bool truncated = false;  // the message had more bytes
  // The message had more descriptors than `fds` can take, or this process may
  // not open more.
  bool lost_descriptors = false;
};

// Receives one message without blocking: its first bytes and its first
// descriptors, which get high numbers (high_fd.h). `fds`: at most
// kMaxDescriptors; if it is empty, descriptors are never opened in this
// process. Descriptors are stored for kClosed, too, since an empty message is
// reported so. Thread: any.
Arrival ReceiveMessage(int socket, std::span<uint8_t> bytes,
                       std::span<UniqueFd> fds, ReceivedMessage* message);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_DESCRIPTOR_MESSAGE_H_
