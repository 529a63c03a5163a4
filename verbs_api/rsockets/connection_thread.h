// Connections that come to be while no call of the program waits for them.
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

// The thread that answers what listeners are asked for, and goes on with what a
// call of connect(2) has begun and left. There is one for the process, from the
// first Begin on; it sleeps until a descriptor is readable. A child of fork has
// none of its parent's, and may begin anew.
//
// It is none of those that there are already: connections take queue pairs and
// memory, so it may be busy for milliseconds, and the connection manager's
// thread must not.
//
// Thread: any. Its lock is a leaf: streams call this with their own held.
class ConnectionThread final : private rxe_user::ForkGuard {
 public:
  // One descriptor that the thread waits for. Ends before that is closed.
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

    // From now on nothing is called; a call may be under way.
    void End();
    // Looks again whether it is readable: for those that begin with `kOnNews`.
    void Renew();

   private:
    friend class ConnectionThread;
    uint64_t number_ = 0;  // 0: nothing is watched
  };
  enum class When {
    kReadable,  // again and again, until nothing is left to be read
    kOnNews,    // once for what there is, and when more comes
  };

  static ConnectionThread& Get();

  // Calls `call` in the thread when `fd` is readable; `socket`, which is kept
  // alive meanwhile, is whose it is. 0, or a negative errno value: there is no
  // memory, descriptor or thread left.
  int Begin(int fd, When when, std::weak_ptr<Socket> socket,
            std::function<void()> call, Watch* out);
  // Waits for a call for `socket` that is under way; not in the thread itself.
  // With no lock of a socket.
  void AwaitEnd(const Socket* socket);

 private:
  struct Watched {
    int fd;
    std::weak_ptr<Socket> socket;
    std::function<void()> call;
    uint32_t events;  // of epoll(7)
  };

  ConnectionThread();
  void BeforeFork() override;
  void AfterForkInParent() override;
  void AfterForkInChild() override;
  int Start();
  void Run();
  void Call(uint64_t number);
  void Rearm(uint64_t number);

  std::mutex mutex_;               // guards all below
  std::condition_variable ended_;  // a call has
  rxe_user::UniqueFd epoll_;       // valid: the thread runs
  std::map<uint64_t, Watched> watched_;
  uint64_t last_number_ = 0;
  const Socket* called_ = nullptr;  // whose call is under way
};

}  // namespace rsockets

#endif  // VERBS_API_RSOCKETS_CONNECTION_THREAD_H_
