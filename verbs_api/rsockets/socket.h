// What streams and datagram sockets have in common: a number, options, waiting.
#ifndef VERBS_API_RSOCKETS_SOCKET_H_
#define VERBS_API_RSOCKETS_SOCKET_H_

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "verbs_api/rsockets/iov_cursor.h"
#include "verbs_api/rsockets/settings.h"
#include "verbs_api/rsockets/waiter.h"

namespace rsockets {

using Clock = std::chrono::steady_clock;
// When waiting ends; nothing: never.
using Deadline = std::optional<Clock::time_point>;

// Closing waits no longer, unless SO_LINGER says so.
inline constexpr auto kCloseTimeout = std::chrono::seconds(10);

// Options that are kept and told, by what setsockopt(2) calls them.
struct Options {
  bool reuse_address = false;
  bool keepalive = false;
  int keepalive_seconds = 7200;  // TCP_KEEPIDLE
  bool oob_inline = false;
  bool no_delay = false;
  bool ipv6_only = false;
  linger lingering = {};
  timeval receive_timeout = {};  // 0: none
  timeval send_timeout = {};
};

// A socket. Its number is a descriptor of its own: an epoll(7) instance over
// the descriptors where completions and events come, readable if one has come.
//
// Calls return what the socket call of that name does, or a negative errno
// value. They come from any thread. `mutex_` guards all state; it is not held
// while a thread waits.
class Socket : public std::enable_shared_from_this<Socket> {
 public:
  virtual ~Socket() = default;
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  int fd() const { return epoll_.get(); }
  int domain() const { return domain_; }
  virtual int type() const = 0;

  virtual int Bind(const sockaddr* address, socklen_t length) = 0;
  virtual int Listen(int backlog) = 0;
  // Sets `*out` to the connection that has come, `*peer` to where from.
  virtual int Accept(std::shared_ptr<Socket>* out, sockaddr_storage* peer) = 0;
  virtual int Connect(const sockaddr* address, socklen_t length) = 0;
  virtual int Shutdown(int how) = 0;
  // The last call: nobody finds the socket by its number any more. Waits for
  // what was sent to arrive, for kCloseTimeout or SO_LINGER's time from `begin`
  // on. Those who wait return EBADF.
  virtual void Close(Clock::time_point begin) = 0;
  // Tells the peer that it will be closed, if that can be told without waiting.
  virtual void SayGoodbye() {}

  // `to`, `from` and `from_length` may be null.
  virtual ssize_t Send(IovCursor data, int flags, const sockaddr* to,
                       socklen_t to_length) = 0;
  virtual ssize_t Receive(IovCursor data, int flags, sockaddr* from,
                          socklen_t* from_length) = 0;

  virtual int LocalAddress(sockaddr_storage* out) = 0;
  virtual int PeerAddress(sockaddr_storage* out) = 0;

  int SetOption(int level, int name, const void* value, socklen_t length);
  int GetOption(int level, int name, void* value, socklen_t* length);
  // O_NONBLOCK and what else was set.
  int flags();
  int SetFlags(int flags);

  virtual off_t MapMemory(void*, size_t, int, off_t) { return -EOPNOTSUPP; }
  virtual int UnmapMemory(void*, size_t) { return -EOPNOTSUPP; }
  virtual ssize_t WriteMapped(IovCursor, off_t, int) { return -EOPNOTSUPP; }

  // --- For rpoll: what of `events` (poll(2)) there is, without waiting.
  // POLLNVAL: the socket is closed, or another process's.
  short Poll(short events);
  // The descriptor is readable, and nobody waits for it: takes what made it so.
  void TakeNotices();
  // The waiter hears of changes from now on, and the descriptor will be
  // readable when something comes: then look once more, and wait.
  void BeginWait(Waiter* waiter);
  // `readable`: the descriptor was.
  void EndWait(Waiter* waiter, bool readable);

  // This is the process that made it: a child of fork has no device. Else
  // nothing may be called that takes `mutex_`, which a thread of the parent may
  // have held; Poll may.
  bool is_ours() const;
  // There is another descriptor of its number: close(2) was called for it.
  // Those who wait return EBADF.
  void LoseNumber();

 protected:
  Socket(int domain, const Settings& settings);

  // 0, or a negative errno value.
  int Open();
  int Watch(int fd);
  void Unwatch(int fd);

  // --- `mutex_` is held.
  // Takes what has come. True if anything has changed.
  virtual bool Progress() = 0;
  // The next completion makes the descriptor readable.
  virtual void Arm() = 0;
  // The descriptor was readable: takes what made it so. True if there was
  // anything.
  virtual bool Drain() = 0;
  // All of poll(2)'s events that there are.
  virtual short Ready() = 0;
  // An option that is more than kept. 0, or a negative errno value.
  virtual int Apply(int level, int name, int value) = 0;
  // SO_ERROR: tells it once.
  int TakeError() { return std::exchange(error_, 0); }
  // TCP_MAXSEG, bytes.
  virtual int MaxSegment() { return 2048; }
  // Sizes may still be set.
  virtual bool HasBuffers() const = 0;

  void MakeProgress(const Waiter* self = nullptr);
  // The same after the descriptor was readable. What made it so was for all who
  // wait: they see what has changed, and arm anew.
  void DrainAndProgress(const Waiter* self = nullptr);
  void WakeAll(const Waiter* self);
  bool nonblocking(int message_flags) const;
  static Deadline After(const timeval& timeout);

  // Waits until `done()`: 0, -EAGAIN, -EINTR or -EBADF.
  template <typename Done>
  int Await(std::unique_lock<std::mutex>& lock, bool nonblocking,
            const Deadline& deadline, Done done) {
    if (closed_) return -EBADF;
    MakeProgress();
    if (done()) return 0;
    if (nonblocking) {
      DrainAndProgress();
      return done() ? 0 : -EAGAIN;
    }
    const Clock::time_point spin =
        Clock::now() + std::chrono::microseconds(settings_.polling_us);
    do {
      MakeProgress();
      if (done()) return 0;
    } while (Clock::now() < spin);
    for (;;) {
      const int error = WaitOnce(lock, deadline, [&] {
        MakeProgress(Waiter::OfThisThread());
        return done();
      });
      if (closed_) return -EBADF;
      if (done()) return 0;
      if (error != 0) return error;
    }
  }

  std::mutex mutex_;
  Settings settings_;
  Options options_;
  int error_ = 0;  // SO_ERROR
  int flags_ = O_RDWR;
  bool closed_ = false;

 private:
  template <typename Look>
  int WaitOnce(std::unique_lock<std::mutex>& lock, const Deadline& deadline,
               Look look) {
    Waiter* const waiter = Waiter::OfThisThread();
    if (waiter == nullptr) return -EMFILE;
    waiters_.push_back(waiter);
    Arm();
    int error = 0;
    bool readable = false;
    if (!look() && !closed_) {
      lock.unlock();
      error = WaitFor(*waiter, deadline, &readable);
      lock.lock();
    }
    Forget(waiter);
    if (readable) {
      DrainAndProgress();
    } else {
      MakeProgress();
    }
    return error;
  }
  int WaitFor(Waiter& waiter, const Deadline& deadline, bool* readable);
  void Forget(Waiter* waiter);
  int GetSocketOption(int name, int* value);
  int GetTcpOption(int name, int* value);
  int GetRdmaOption(int name, int* value);
  int SetSocketOption(int name, const void* value, socklen_t length);
  int SetRdmaOption(int name, int value);

  const int domain_;
  const pid_t pid_;
  rxe_user::UniqueFd epoll_;
  std::vector<Waiter*> waiters_;
};

// poll(2)'s timeout until the deadline, rounded up; -1: forever.
int PollTimeout(const Deadline& deadline);

// --- The sockets by their numbers.
std::shared_ptr<Socket> Find(int fd);
int Publish(std::shared_ptr<Socket> socket);
// The caller closes it.
std::shared_ptr<Socket> Withdraw(int fd);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SOCKET_H_
