// repoll_create, repoll_ctl, repoll_wait of rsocket(7): epoll(7) over sockets
// and ordinary descriptors. Debian 12's header does not have them yet.
//
// Sockets are level-triggered: EPOLLET is ignored, as in rdma-core, because
// nothing tells when the program has read everything. EPOLLONESHOT works.
// Ordinary descriptors behave as in epoll(7).
#ifndef VERBS_API_RSOCKETS_EPOLL_H_
#define VERBS_API_RSOCKETS_EPOLL_H_

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {

// An instance. Its number is that of an epoll instance of the kernel, which
// watches the ordinary descriptors; sockets are watched here. Thread: any.
// Functions return what the call of epoll(7) does, or a negative errno value.
class Epoll {
 public:
  // Returns the number of a new instance. `flags`: EPOLL_CLOEXEC.
  static int Create(int flags);
  // Null if there is no instance of that number, or it belongs to the process
  // that forked this one.
  static std::shared_ptr<Epoll> Find(int fd);
  // rclose: waiters return EBADF. EBADF if there is no such instance.
  static int Close(int fd);

  // Waiters see the change.
  int Control(int operation, int fd, const epoll_event* event);
  // `max_events` > 0.
  int Wait(epoll_event* events, int max_events, const Deadline& deadline);

 private:
  struct Watched {
    std::weak_ptr<Socket> socket;  // a closed socket is no longer watched
    epoll_event event;
  };

  int ControlSocket(int operation, const std::shared_ptr<Socket>& socket,
                    const epoll_event* event);
  void WakeAll();
  int Collect(std::vector<pollfd>* fds, uint64_t* generation);
  int WaitAs(std::unique_lock<std::mutex>& lock, epoll_event* events,
             int max_events, const Deadline& deadline);
  int ReportSocket(const pollfd& fd, epoll_event* event);
  int Report(const std::vector<pollfd>& fds, epoll_event* events,
             int max_events);
  bool is_ours() const;

  const pid_t pid_ = getpid();
  rxe_user::UniqueFd kernel_;
  std::mutex mutex_;  // guards the members below
  std::map<int, Watched> sockets_;
  std::vector<Waiter*> waiters_;
  uint64_t generation_ = 0;  // counts changes to what is watched
  // The descriptor of the last event, or -1 for the kernel's instance. The next
  // search starts after it, so that no descriptor starves (epoll_wait(2)).
  int last_ = -1;
  bool closed_ = false;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_EPOLL_H_
