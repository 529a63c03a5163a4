// rpoll: waiting for sockets and ordinary descriptors at once.
#ifndef VERBS_API_RSOCKETS_POLL_H_
#define VERBS_API_RSOCKETS_POLL_H_

#include <poll.h>
#include <sys/select.h>

#include "verbs_api/rsockets/socket.h"

namespace rsockets {

// poll(2) with a deadline: the number of ready descriptors, or a negative errno
// value.
int Poll(pollfd* fds, nfds_t count, const Deadline& deadline);
// select(2).
int Select(int count, fd_set* read, fd_set* write, fd_set* except,
           const Deadline& deadline);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_POLL_H_
