#include "verbs_api/rsockets/connection_thread.h"

#include <pthread.h>
#include <sys/epoll.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <thread>

#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/service_thread.h"
#include "verbs_api/rsockets/socket.h"

namespace rsockets {
namespace {

thread_local bool is_connection_thread = false;

}  // namespace

ConnectionThread& ConnectionThread::Get() {
  return rxe_user::OnlyOne<ConnectionThread>();
}

ConnectionThread::ConnectionThread()
    : ForkGuard(rxe_user::ForkLevel::kLeafLocks) {
  EnterForkGuard();
}

ConnectionThread::~ConnectionThread() { LeaveForkGuard(); }

void ConnectionThread::BeforeFork() { mutex_.lock(); }
void ConnectionThread::AfterForkInParent() { mutex_.unlock(); }

void ConnectionThread::AfterForkInChild() {
  watched_.clear();
  epoll_.Reset();
  called_ = nullptr;
  new (&ended_) std::condition_variable;  // its waiters are the parent's
  mutex_.unlock();
}

// `mutex_` is held.
int ConnectionThread::Start() {
  rxe_user::UniqueFd epoll(rxe_user::MoveHigh(epoll_create1(EPOLL_CLOEXEC)));
  if (!epoll.valid()) return -errno;
  pthread_t thread;
  const int error = rxe_user::StartServiceThread(
      &thread,
      [](void* self) -> void* {
        is_connection_thread = true;
        static_cast<ConnectionThread*>(self)->Run();
        return nullptr;
      },
      this);
  if (error != 0) return -error;
  pthread_setname_np(thread, "rxe-user-conn");
  pthread_detach(thread);
  epoll_ = std::move(epoll);
  return 0;
}

int ConnectionThread::Begin(int fd, When when, std::weak_ptr<Socket> socket,
                            std::function<void()> call, Watch* out) {
  out->End();
  std::lock_guard<std::mutex> lock(mutex_);
  if (!epoll_.valid()) {
    if (const int error = Start()) return error;
  }
  const uint64_t number = ++last_number_;
  epoll_event event = {};
  event.events = EPOLLIN | (when == When::kOnNews ? EPOLLET : 0u);
  event.data.u64 = number;
  const auto place = watched_
                         .emplace(number, Watched{.fd = fd,
                                                  .socket = std::move(socket),
                                                  .call = std::move(call),
                                                  .events = event.events})
                         .first;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    const int error = -errno;
    watched_.erase(place);
    return error;
  }
  out->number_ = number;
  return 0;
}

void ConnectionThread::Watch::End() {
  if (number_ == 0) return;
  ConnectionThread& thread = Get();
  std::lock_guard<std::mutex> lock(thread.mutex_);
  // In a child of fork there is none of the parent's watches.
  const auto found = thread.watched_.find(std::exchange(number_, 0));
  if (found == thread.watched_.end()) return;
  epoll_ctl(thread.epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  thread.watched_.erase(found);
}

void ConnectionThread::Watch::Renew() {
  if (number_ == 0) return;
  ConnectionThread& thread = Get();
  std::lock_guard<std::mutex> lock(thread.mutex_);
  thread.Rearm(number_);
}

// `mutex_` is held.
void ConnectionThread::Rearm(uint64_t number) {
  const auto found = watched_.find(number);
  if (found == watched_.end()) return;
  epoll_event event = {};
  event.events = found->second.events;
  event.data.u64 = number;
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
}

void ConnectionThread::AwaitEnd(const Socket* socket) {
  if (is_connection_thread) return;
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait(lock, [&] { return called_ != socket; });
}

void ConnectionThread::Run() {
  int epoll;
  {
    // Waits until Start has returned.
    std::lock_guard<std::mutex> lock(mutex_);
    epoll = epoll_.get();
  }
  constexpr int kBatch = 16;
  epoll_event events[kBatch];
  for (;;) {
    const int n = epoll_wait(epoll, events, kBatch, -1);
    for (int i = 0; i < n; ++i) Call(events[i].data.u64);
  }
}

void ConnectionThread::Call(uint64_t number) {
  std::shared_ptr<Socket> socket;
  std::function<void()> call;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = watched_.find(number);
    if (found == watched_.end()) return;  // ended meanwhile
    socket = found->second.socket.lock();
    if (socket == nullptr) return;
    call = found->second.call;
    called_ = socket.get();
  }
  bool again = false;
  try {
    call();
  } catch (...) {
    // Out of memory: retries, since another thread may free some.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    again = true;
  }
  // Before waiters continue: they then hold the last reference.
  socket.reset();
  std::lock_guard<std::mutex> lock(mutex_);
  called_ = nullptr;
  ended_.notify_all();
  if (again) Rearm(number);
}

}  // namespace rsockets
