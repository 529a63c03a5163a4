// Completes connections while no call of the program waits for them.
#ifndef VERBS_API_RSOCKETS_CONNECTION_THREAD_H_
#define VERBS_API_RSOCKETS_CONNECTION_THREAD_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/unique_fd.h"

namespace rsockets {

class Socket;

// The thread that answers the requests of listeners and continues a
// non-blocking connect(2). One per process, started by the first Begin; it
// sleeps until a descriptor is readable. A child of fork inherits no thread and
// no watches, and may start its own.
//
// It is a separate thread because connections create queue pairs and register
// memory. That may take milliseconds, which the connection manager's thread
// must not spend.
//
// Thread: any. Its lock is a leaf: streams call this with their own lock held.
class ConnectionThread final : private rxe_user::ForkGuard {
 public:
  // A descriptor that the thread waits for. End it before closing the
  // descriptor.
  class Watch {
   public:
    Watch() = default;
    Watch(Watch&& other) noexcept : number_(std::exchange(other.number_, 0)) {}
    Watch& operator=(Watch&& other) noexcept {
      End();
      number_ = std::exchange(other.number_, 0);
      return *this;
    }
    ~Watch() { End(); }

    // Makes no further calls. One call may still be running.
    void End();
    // Checks again whether the descriptor is readable, for `kOnNews`.
    void Renew();

   private:
    friend class ConnectionThread;
    uint64_t number_ = 0;  // 0: no watch
  };
  enum class When {
    kReadable,  // repeatedly, until nothing is left to read
    kOnNews,    // once for what is there now, and again when more arrives
  };

  static ConnectionThread& Get();

  // For Get.
  ConnectionThread();
  ~ConnectionThread();

  // Calls `call` on the thread when `fd` is readable. `socket` owns `fd` and is
  // kept alive during the call. Returns 0, or a negative errno value: no
  // memory, descriptor or thread left.
  int Begin(int fd, When when, std::weak_ptr<Socket> socket,
            std::function<void()> call, Watch* out);
  // Waits for a running call for `socket`. Not on the thread itself, and
  // without the lock of a socket.
  void AwaitEnd(const Socket* socket);

 private:
  struct Watched {
    int fd;
    std::weak_ptr<Socket> socket;
    std::function<void()> call;
    uint32_t events;  // as in epoll(7)
  };

  void BeforeFork() override;
  void AfterForkInParent() override;
  void AfterForkInChild() override;
  int Start();
  void Run();
  void Call(uint64_t number);
  void Rearm(uint64_t number);

  std::mutex mutex_;               // guards the members below
  std::condition_variable ended_;  // signals that a call has ended
  rxe_user::UniqueFd epoll_;       // valid while the thread runs
  std::map<uint64_t, Watched> watched_;
  uint64_t last_number_ = 0;
  const Socket* called_ = nullptr;  // the socket of the running call
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_CONNECTION_THREAD_H_
