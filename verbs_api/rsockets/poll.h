// rpoll: waits for sockets and ordinary descriptors at once.
#ifndef VERBS_API_RSOCKETS_POLL_H_
#define VERBS_API_RSOCKETS_POLL_H_

#include <poll.h>
#include <sys/select.h>

#include <functional>

#include "verbs_api/rsockets/socket.h"

namespace rsockets {

// poll(2) with a deadline. Returns the number of ready descriptors or a
// negative errno value. `give_up`, if set, is called before each wait and after
// the waiter of this thread was woken. If it returns true and nothing is ready,
// Poll returns 0.
int Poll(pollfd* fds, nfds_t count, const Deadline& deadline,
         const std::function<bool()>& give_up = nullptr);
// select(2).
int Select(int count, fd_set* read, fd_set* write, fd_set* except,
           const Deadline& deadline);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_POLL_H_
