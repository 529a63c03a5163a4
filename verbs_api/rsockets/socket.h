// The common part of stream and datagram sockets: number, options, waiting.
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

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/unique_fd.h"
#include "verbs_api/rsockets/iov_cursor.h"
#include "verbs_api/rsockets/settings.h"
#include "verbs_api/rsockets/waiter.h"

namespace rsockets {

using Clock = std::chrono::steady_clock;
// When waiting ends. Absent: never.
using Deadline = std::optional<Clock::time_point>;

// The time limit of closing, unless SO_LINGER sets one.
inline constexpr auto kCloseTimeout = std::chrono::seconds(10);

// Options that are only stored, named as in setsockopt(2).
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

// A socket. Its number is the descriptor of an epoll(7) instance that watches
// the descriptors of completions and events, so it is readable when one has
// arrived.
//
// Functions return what the socket call of that name does, or a negative errno
// value. Thread: any. `mutex_` guards all state and is not held while a thread
// waits.
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
  // Sets `*out` to the accepted connection, and `*peer` to its address.
  virtual int Accept(std::shared_ptr<Socket>* out, sockaddr_storage* peer) = 0;
  virtual int Connect(const sockaddr* address, socklen_t length) = 0;
  virtual int Shutdown(int how) = 0;
  // The last call: the socket is not found by its number any more. Waits until
  // sent data has arrived, for kCloseTimeout or SO_LINGER's time after `begin`.
  // Waiting threads return EBADF.
  virtual void Close(Clock::time_point begin) = 0;
  // Tells the peer that the socket will close, if that does not block.
  virtual void AnnounceClose() {}

  // `to`, `from` and `from_length` may be null.
  virtual ssize_t Send(IovCursor data, int flags, const sockaddr* to,
                       socklen_t to_length) = 0;
  virtual ssize_t Receive(IovCursor data, int flags, sockaddr* from,
                          socklen_t* from_length) = 0;

  virtual int LocalAddress(sockaddr_storage* out) = 0;
  virtual int PeerAddress(sockaddr_storage* out) = 0;

  int SetOption(int level, int name, const void* value, socklen_t length);
  int GetOption(int level, int name, void* value, socklen_t* length);
  // O_NONBLOCK and other status flags.
  int flags();
  int SetFlags(int flags);

  virtual off_t MapMemory(void*, size_t, int, off_t) { return -EOPNOTSUPP; }
  virtual int UnmapMemory(void*, size_t) { return -EOPNOTSUPP; }
  virtual ssize_t WriteMapped(IovCursor, off_t, int) { return -EOPNOTSUPP; }

  // --- For rpoll. Returns the current events among `events` (poll(2)), without
  // waiting. POLLNVAL: the socket is closed, or belongs to another process.
  short Poll(short events);
  // Clears a readable descriptor that no thread waits for.
  void ClearNotifications();
  // Registers the waiter, which is woken by changes from now on, and arms the
  // descriptor. The caller then checks once more and waits.
  void BeginWait(Waiter* waiter);
  // `readable`: whether the descriptor was readable.
  void EndWait(Waiter* waiter, bool readable);
  // Instead of EndWait, after std::bad_alloc.
  void CancelWait(Waiter* waiter);

  // Whether this process created the socket; a child of fork has no device. If
  // not, only Poll may be called: a thread of the parent may have held
  // `mutex_`.
  bool is_ours() const;
  // close(2) was called on the number, which now names another file. Waiting
  // threads return EBADF.
  void OnNumberReused();

 protected:
  Socket(int domain, const Settings& settings);

  // Returns 0 or a negative errno value.
  int Open();
  int Watch(int fd);
  void Unwatch(int fd);

  // --- `mutex_` is held.
  // Processes completions and events. Returns true if anything has changed.
  virtual bool Progress() = 0;
  // Makes the descriptor readable at the next completion.
  virtual void Arm() = 0;
  // Clears a readable descriptor. Returns true if there was anything to take.
  virtual bool Drain() = 0;
  // All current events of poll(2).
  virtual short Ready() = 0;
  // Sets an option that has an effect. Returns 0 or a negative errno value.
  virtual int Apply(int level, int name, int value) = 0;
  // SO_ERROR: returns the error and clears it.
  int TakeError() { return std::exchange(error_, 0); }
  // TCP_MAXSEG, bytes.
  virtual int MaxSegment() { return 2048; }
  // Whether the buffers exist, so that their sizes can no longer be set.
  virtual bool HasBuffers() const = 0;

  void MakeProgress(const Waiter* self = nullptr);
  // Drain, then progress. The notification was for all waiters: they see the
  // changes and arm again.
  void DrainAndProgress(const Waiter* self = nullptr);
  void WakeAll(const Waiter* self);
  bool nonblocking(int message_flags) const;
  static Deadline After(const timeval& timeout);

  // Waits until `done()`. Returns 0, -EAGAIN, -EINTR or -EBADF.
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
    int error = 0;
    bool readable = false;
    {
      waiters_.push_back(waiter);
      const absl::Cleanup forget = [&] { Forget(waiter); };
      Arm();
      if (!look() && !closed_) {
        lock.unlock();
        error = WaitFor(*waiter, deadline, &readable);
        lock.lock();
      }
    }
    if (readable) {
      DrainAndProgress();
    } else {
      MakeProgress();
    }
    return error;
  }
  int WaitFor(Waiter& waiter, const Deadline& deadline, bool* readable);
  void Forget(Waiter* waiter);
  // Absent: not an option.
  std::optional<int> GetSocketOption(int name);
  std::optional<int> GetTcpOption(int name);
  std::optional<int> GetRdmaOption(int name) const;
  int SetSocketOption(int name, const void* value, socklen_t length);
  int SetRdmaOption(int name, int value);

  const int domain_;
  const pid_t pid_;
  rxe_user::UniqueFd epoll_;
  std::vector<Waiter*> waiters_;
};

// When a timeout that starts now ends. Never, if the clock does not reach that
// time.
Deadline DeadlineIn(const timeval& timeout);
// The timeout of poll(2) for a deadline, rounded up. -1: for ever.
int PollTimeout(const Deadline& deadline);

// --- The sockets by their numbers.
std::shared_ptr<Socket> Find(int fd);
int Publish(std::shared_ptr<Socket> socket);
// Removes it from the table. The caller closes it.
std::shared_ptr<Socket> Withdraw(int fd);

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_SOCKET_H_
