// fork(2): the rsockets of a process are its own. With RDMAV_FORK_SAFE in the
// environment (rsocket(7)), its connections become pairs of local sockets when
// it forks, which parent and child share as they would share a TCP socket; two
// threads of the parent carry what goes over them.
#include "verbs_api/rsockets/preload/fork.h"

#include <fcntl.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include "verbs_api/rsockets/preload/epoll.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"

namespace rspreload {
namespace {

struct Names {
  sockaddr_storage local = {};
  sockaddr_storage peer = {};
};

// What local sockets of the program stand for.
struct Shared {
  std::mutex mutex;
  std::map<int, Names> names;
  std::shared_ptr<HandoverNews> next_handover;
  // The parent's ends of them.
  std::set<int> pumps;
};

Shared& All() {
  static auto* const shared = new Shared;
  return *shared;
}
std::atomic<bool> any_shared{false};

// The process whose tables these are; 0: who asks first. In memory that a child
// finds empty if it has a copy of it, however it was made; one of vfork(2)
// finds its parent there.
std::atomic<pid_t> early_owner{0};
std::atomic<pid_t>* owner = &early_owner;

void MakeOwner() {
  void* const page =
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Without it, all but children of fork(3) are taken for those of vfork.
  if (page != MAP_FAILED &&
      madvise(page, sizeof(std::atomic<pid_t>), MADV_WIPEONFORK) == 0) {
    owner = new (page) std::atomic<pid_t>(0);
  }
  owner->store(getpid());
}

// Forks are prepared for.
std::atomic<bool> watches{false};
// By rsocket: calls that receive.
std::atomic<int> receiving[kMostDescriptors];

// A connection on its way to a pair of local sockets.
struct Handover {
  int rsocket;
  int pump;     // the parent's threads have this end
  int program;  // parent and child have this one
  Names names;
  std::vector<int> fds;
};
std::vector<Handover> handovers;  // from before fork to after it, whose thread
                                  // alone touches it

// --- The parent's threads.

// How many threads still carry what the program sends.
struct Pumps {
  std::mutex mutex;
  std::condition_variable ended;
  int to_peer = 0;
};

Pumps& AllPumps() {
  static auto* const pumps = new Pumps;
  return *pumps;
}

// Both ends of a connection that is carried; closed with the last thread.
struct Carried {
  ~Carried() {
    rclose(rsocket);
    std::lock_guard<std::mutex> lock(All().mutex);
    REAL(close)(local);
    All().pumps.erase(local);
  }
  int rsocket;
  int local;
};

// After a call that has failed, with errno: it is to be made again, now. The
// rsocket is as the program has made it, which may still be in a call: it may
// be non-blocking, or have time-outs.
bool AwaitAgain(int rsocket, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd fd = {.fd = rsocket, .events = events, .revents = 0};
  rpoll(&fd, 1, -1);
  return true;
}

void ToProgram(const std::shared_ptr<Carried>& carried) {
  // Calls of other threads that began before.
  std::atomic<int>& calls = receiving[carried->rsocket];
  while (const int n = calls.load()) calls.wait(n);
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t n = rrecv(carried->rsocket, buffer.data(), buffer.size(), 0);
    if (n < 0 && AwaitAgain(carried->rsocket, POLLIN)) continue;
    if (n <= 0) break;
    for (ssize_t done = 0; done < n;) {
      const ssize_t part =
          REAL(send)(carried->local, buffer.data() + done,
                     static_cast<size_t>(n - done), MSG_NOSIGNAL);
      if (part < 0) {
        if (errno == EINTR) continue;
        rshutdown(carried->rsocket, SHUT_RD);  // nobody reads any more
        return;
      }
      done += part;
    }
  }
  REAL(shutdown)(carried->local, SHUT_WR);
}

void ToPeer(const std::shared_ptr<Carried>& carried) {
  std::vector<char> buffer(1 << 16);
  for (;;) {
    const ssize_t n =
        REAL(recv)(carried->local, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    for (ssize_t done = 0; done < n;) {
      const ssize_t part = rsend(carried->rsocket, buffer.data() + done,
                                 static_cast<size_t>(n - done), 0);
      if (part < 0) {
        if (AwaitAgain(carried->rsocket, POLLOUT)) continue;
        REAL(shutdown)(carried->local, SHUT_RD);
        return;
      }
      done += part;
    }
  }
  rshutdown(carried->rsocket, SHUT_WR);
}

void Carry(int rsocket, int local) {
  std::shared_ptr<Carried> carried(new Carried{rsocket, local});
  {
    std::lock_guard<std::mutex> lock(All().mutex);
    All().pumps.insert(local);
  }
  {
    std::lock_guard<std::mutex> lock(AllPumps().mutex);
    ++AllPumps().to_peer;
  }
  // Signals are the program's own threads' business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([carried] { ToProgram(carried); }).detach();
  std::thread([carried] {
    ToPeer(carried);
    std::lock_guard<std::mutex> lock(AllPumps().mutex);
    --AllPumps().to_peer;
    AllPumps().ended.notify_all();
  }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// --- Around fork.

bool NamesOf(int rsocket, Names* names) {
  socklen_t length = sizeof(names->peer);
  if (rgetpeername(rsocket, reinterpret_cast<sockaddr*>(&names->peer),
                   &length) != 0) {
    return false;  // not connected
  }
  length = sizeof(names->local);
  return rgetsockname(rsocket, reinterpret_cast<sockaddr*>(&names->local),
                      &length) == 0;
}

// The tables, which every close(2) looks at: for the moment of fork itself.
void LockTables() {
  LockEpollForFork();
  All().mutex.lock();
}
void UnlockTables() {
  All().mutex.unlock();
  UnlockEpollAfterFork();
}
void UnlockTablesInChild() {
  owner->store(getpid());
  All().mutex.unlock();
  UnlockEpollInChild();
}

void Prepare() {
  std::map<int, std::vector<int>> found;
  for (int fd = 0; fd < kMostDescriptors; ++fd) {
    if (Behind(fd) >= 0) found[Behind(fd)].push_back(fd);
  }
  for (auto& [rsocket, fds] : found) {
    Handover handover = {};
    handover.rsocket = rsocket;
    handover.fds = fds;
    int pair[2];
    if (!NamesOf(rsocket, &handover.names) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      continue;
    }
    handover.pump = pair[0];
    handover.program = pair[1];
    // The program's time-outs are those of its own calls.
    for (const int name : {SO_RCVTIMEO, SO_SNDTIMEO}) {
      timeval timeout = {};
      socklen_t length = sizeof(timeout);
      rgetsockopt(rsocket, SOL_SOCKET, name, &timeout, &length);
      REAL(setsockopt)
      (handover.program, SOL_SOCKET, name, &timeout, sizeof(timeout));
    }
    handovers.push_back(std::move(handover));
  }
}

// The program's descriptors become those of the local socket.
void TakeOver(const Handover& handover) {
  for (const int fd : handover.fds) {
    const int status = REAL(fcntl)(fd, F_GETFL);
    const int flags = REAL(fcntl)(fd, F_GETFD);
    REAL(dup2)(handover.program, fd);
    REAL(fcntl)(fd, F_SETFL, status);
    REAL(fcntl)(fd, F_SETFD, flags);
    {
      std::lock_guard<std::mutex> lock(All().mutex);
      All().names[fd] = handover.names;
      any_shared.store(true);
    }
    Take(fd);  // last: other threads find the one or the other
  }
  REAL(close)(handover.program);
}

void InParent() {
  for (const Handover& handover : handovers) {
    TakeOver(handover);
    for (const int fd : handover.fds) LeaveEpollToKernel(fd);
    Carry(handover.rsocket, handover.pump);
  }
  handovers.clear();
  std::lock_guard<std::mutex> lock(All().mutex);
  if (All().next_handover == nullptr) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t n =
      REAL(write)(All().next_handover->fd, &one, sizeof(one));
  All().next_handover.reset();
}

void InChild() {
  for (const Handover& handover : handovers) {
    TakeOver(handover);
    // An epoll instance is the parent's, too, who adds them.
    for (const int fd : handover.fds) ForgetEpoll(fd, fd);
    REAL(close)(handover.pump);
  }
  handovers.clear();
  // Those of earlier forks, too: else their children would not hear that the
  // parent has ended.
  for (const int fd : All().pumps) REAL(close)(fd);
  All().pumps.clear();
  // The threads are the parent's, who may have held the lock.
  new (&AllPumps()) Pumps;
  All().next_handover.reset();
  for (std::atomic<int>& calls : receiving) {
    if (calls.load(std::memory_order_relaxed) != 0) calls.store(0);
  }
}

// The process ends: what it and its children have sent is carried first, if
// they are done with it before long.
__attribute__((destructor)) void AwaitPumps() {
  constexpr auto kLimit = std::chrono::seconds(10);
  if (!any_shared.load()) return;
  {
    std::lock_guard<std::mutex> lock(All().mutex);
    for (const auto& [fd, names] : All().names) REAL(close)(fd);
    All().names.clear();
  }
  Pumps& pumps = AllPumps();
  std::unique_lock<std::mutex> lock(pumps.mutex);
  pumps.ended.wait_for(lock, kLimit, [&] { return pumps.to_peer == 0; });
}

// Before any other handler: so it locks last, and unlocks first. The libraries'
// handlers close descriptors, and their threads wait for locks of theirs.
__attribute__((constructor)) void Register() {
  MakeOwner();
  pthread_atfork(LockTables, UnlockTables, UnlockTablesInChild);
}

bool IsWanted() {
  return std::getenv("RDMAV_FORK_SAFE") != nullptr ||
         std::getenv("IBV_FORK_SAFE") != nullptr;
}

int Give(const sockaddr_storage& from, sockaddr* to, socklen_t* length) {
  const socklen_t size =
      from.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(to, &from, std::min(*length, size));
  *length = size;
  return 0;
}

}  // namespace

// After the libraries' own handlers: so connections are asked before their
// locks are taken, and carried when they are free again.
void WatchForks() {
  static const bool watched = [] {
    if (!IsWanted()) return false;
    ibv_fork_init();
    watches.store(true);
    pthread_atfork(Prepare, InParent, InChild);
    return true;
  }();
  static_cast<void>(watched);
}

bool IsOwner() {
  const pid_t self = getpid(), before = owner->load();
  if (before == 0) owner->store(self);
  return before == 0 || before == self;
}

ReceiveCall::ReceiveCall(int rsocket)
    : rsocket_(watches.load(std::memory_order_relaxed) ? rsocket : -1) {
  if (rsocket_ >= 0) ++receiving[rsocket_];
}

ReceiveCall::~ReceiveCall() {
  if (rsocket_ < 0) return;
  --receiving[rsocket_];
  receiving[rsocket_].notify_all();
}

bool ReceiveCall::IsTooLate(int fd) const {
  return rsocket_ >= 0 && Behind(fd) != rsocket_;
}

HandoverNews::~HandoverNews() { REAL(close)(fd); }

std::shared_ptr<HandoverNews> NextHandover() {
  if (!watches.load(std::memory_order_relaxed)) return nullptr;
  Shared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.next_handover == nullptr) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return nullptr;
    all.next_handover.reset(new HandoverNews{fd});
  }
  return all.next_handover;
}

bool IsShared(int fd) {
  if (!any_shared.load(std::memory_order_relaxed)) return false;
  Shared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.names.count(fd) != 0;
}

void ForgetShared(int first, int last) {
  if (!any_shared.load(std::memory_order_relaxed)) return;
  Shared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.names.erase(all.names.lower_bound(first), all.names.upper_bound(last));
}

void CopyShared(int fd, int copy) {
  if (!any_shared.load(std::memory_order_relaxed)) return;
  Shared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.names.find(fd);
  if (found != all.names.end()) all.names[copy] = Names(found->second);
}

int SharedName(int fd, bool peer, sockaddr* address, socklen_t* length) {
  Shared& all = All();
  std::lock_guard<std::mutex> lock(all.mutex);
  const Names& names = all.names[fd];
  return Give(peer ? names.peer : names.local, address, length);
}

}  // namespace rspreload
