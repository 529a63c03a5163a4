// repoll_create, repoll_ctl, repoll_wait of rsocket(7), which Debian 12's
// header does not have yet: epoll(7) over sockets and ordinary descriptors.
//
// Level-triggered for sockets: EPOLLET is not heeded, as by rdma-core, since
// nobody can tell when the program has read all. EPOLLONESHOT is. For ordinary
// descriptors all is as epoll(7) has it.
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

// An instance. Its number is that of an epoll instance of the kernel's, which
// has the ordinary descriptors; the sockets are kept beside it. Calls come from
// any thread, and return what the call of epoll(7) does, or a negative errno
// value.
class Epoll {
 public:
  // The number of a new one; EPOLL_CLOEXEC in `flags`.
  static int Create(int flags);
  // Null: there is none of that number, or it is that of the process that has
  // forked this one.
  static std::shared_ptr<Epoll> Find(int fd);
  // rclose: those who wait return EBADF. EBADF if there is none.
  static int Close(int fd);

  // Those who wait see the change.
  int Control(int operation, int fd, const epoll_event* event);
  // `most` > 0.
  int Wait(epoll_event* events, int most, const Deadline& deadline);

 private:
  struct Watched {
    std::weak_ptr<Socket> socket;  // one that is closed is watched no more
    epoll_event event;
  };

  int ControlSocket(int operation, const std::shared_ptr<Socket>& socket,
                    const epoll_event* event);
  void WakeAll();
  int Collect(std::vector<pollfd>* fds, uint64_t* generation);
  int WaitAs(std::unique_lock<std::mutex>& lock, epoll_event* events, int most,
             const Deadline& deadline);
  int ReportSocket(const pollfd& fd, epoll_event* event);
  int Report(const std::vector<pollfd>& fds, epoll_event* events, int most);
  bool is_ours() const;

  const pid_t pid_ = getpid();
  rxe_user::UniqueFd kernel_;
  std::mutex mutex_;  // guards all below
  std::map<int, Watched> sockets_;
  std::vector<Waiter*> waiters_;
  uint64_t generation_ = 0;  // of what is watched
  // The descriptor of the last event, -1 if it was the kernel's: the next one
  // begins behind it, so that none is left out (epoll_wait(2)).
  int last_ = -1;
  bool closed_ = false;
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_EPOLL_H_
