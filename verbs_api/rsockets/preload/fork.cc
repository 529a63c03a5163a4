// fork(2): rsockets belong to one process. With RDMAV_FORK_SAFE in the
// environment (rsocket(7)), fork replaces each connection by a pair of local
// sockets, which parent and child share like a TCP socket. Two threads of the
// parent carry the data between the local socket and the rsocket.
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

// The local sockets that replace connections.
struct Shared {
  std::mutex mutex;
  std::map<int, Names> names;
  std::shared_ptr<HandoverNews> next_handover;
  // The parent's ends of the pairs.
  std::set<int> pumps;
};

Shared& All() {
  static auto* const shared = new Shared;
  return *shared;
}
std::atomic<bool> any_shared{false};

// The process that owns these tables; 0: the first one that asks. Stored in
// memory that is wiped in a child with a copy of the memory, however it was
// created. A child of vfork(2) shares the memory and finds its parent there.
std::atomic<pid_t> early_owner{0};
std::atomic<pid_t>* owner = &early_owner;

void MakeOwner() {
  void* const page =
      mmap(nullptr, sizeof(std::atomic<pid_t>), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Without it, all children except those of fork(3) look like children of
  // vfork.
  if (page != MAP_FAILED &&
      madvise(page, sizeof(std::atomic<pid_t>), MADV_WIPEONFORK) == 0) {
    owner = new (page) std::atomic<pid_t>(0);
  }
  owner->store(getpid());
}

// Whether forks are prepared for.
std::atomic<bool> watches{false};
// By rsocket: the number of running receive calls.
std::atomic<int> receiving[kMaxDescriptors];

// A connection that is being replaced by a pair of local sockets.
struct Handover {
  int rsocket;
  int pump;     // the end of the parent's threads
  int program;  // the end of the program, in parent and child
  Names names;
  std::vector<int> fds;
};
// Held from before to after fork: other threads may fork at the same time.
std::mutex forking;
std::vector<Handover> handovers;  // under `forking`

// --- The parent's threads.

// The number of threads that still carry what the program sends.
struct Pumps {
  std::mutex mutex;
  std::condition_variable ended;
  int to_peer = 0;
};

Pumps& AllPumps() {
  static auto* const pumps = new Pumps;
  return *pumps;
}

// Both ends of a carried connection. The last thread closes them.
struct CarriedConnection {
  CarriedConnection(int rsocket_number, int local_number)
      : rsocket(rsocket_number), local(local_number) {}
  ~CarriedConnection() {
    rclose(rsocket);
    std::lock_guard<std::mutex> lock(All().mutex);
    REAL(close)(local);
    All().pumps.erase(local);
  }
  int rsocket;
  int local;
};

// Call after a failed call, with errno. Returns true if the call should be
// repeated now. The rsocket keeps the program's settings, because the program
// may still be in a call: it may be non-blocking or have timeouts.
bool AwaitAgain(int rsocket, short events) {
  if (errno == EINTR) return true;
  if (errno != EAGAIN) return false;
  pollfd fd = {.fd = rsocket, .events = events, .revents = 0};
  rpoll(&fd, 1, -1);
  return true;
}

void ToProgram(const std::shared_ptr<CarriedConnection>& carried) {
  // Waits for receive calls of other threads that began before.
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
        // The program does not read any more.
        rshutdown(carried->rsocket, SHUT_RD);
        return;
      }
      done += part;
    }
  }
  REAL(shutdown)(carried->local, SHUT_WR);
}

void ToPeer(const std::shared_ptr<CarriedConnection>& carried) {
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

// A thread that carries what the program sends begins or ends.
void CountToPeer(int change) {
  std::lock_guard<std::mutex> lock(AllPumps().mutex);
  AllPumps().to_peer += change;
  AllPumps().ended.notify_all();
}

void StartToPeer(const std::shared_ptr<CarriedConnection>& carried) {
  CountToPeer(1);
  try {
    std::thread([carried] {
      ToPeer(carried);
      CountToPeer(-1);
    }).detach();
  } catch (...) {
    CountToPeer(-1);
    throw;
  }
}

void Carry(int rsocket, int local) {
  // Signals must be handled by the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::shared_ptr<CarriedConnection> carried;
  try {
    carried = std::make_shared<CarriedConnection>(rsocket, local);
    {
      std::lock_guard<std::mutex> lock(All().mutex);
      All().pumps.insert(local);
    }
    std::thread([carried] { ToProgram(carried); }).detach();
    StartToPeer(carried);
  } catch (...) {
    // No thread or no memory is left: the connection ends.
    rshutdown(rsocket, SHUT_RDWR);
    REAL(shutdown)(local, SHUT_RDWR);
  }
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

// Locks the tables during fork itself. Every close(2) uses them.
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
  forking.lock();
  std::map<int, std::vector<int>> found;
  for (int fd = 0; fd < kMaxDescriptors; ++fd) {
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
    // Timeouts apply to the program's calls, so they move to the local socket.
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

// Replaces the program's descriptors by the local socket.
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
    Take(fd);  // last, so that other threads always find one of the sockets
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
  {
    std::lock_guard<std::mutex> lock(All().mutex);
    if (All().next_handover != nullptr) {
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t n =
          REAL(write)(All().next_handover->fd, &one, sizeof(one));
      All().next_handover.reset();
    }
  }
  forking.unlock();
}

void InChild() {
  for (const Handover& handover : handovers) {
    TakeOver(handover);
    // The parent shares the epoll instance and adds the descriptors there.
    for (const int fd : handover.fds) ForgetEpoll(fd, fd);
    REAL(close)(handover.pump);
  }
  handovers.clear();
  // Includes those of earlier forks. Otherwise the children of this process
  // would not see that the parent has ended.
  for (const int fd : All().pumps) REAL(close)(fd);
  All().pumps.clear();
  // The threads exist only in the parent and may have held the lock.
  new (&AllPumps()) Pumps;
  All().next_handover.reset();
  for (std::atomic<int>& calls : receiving) {
    if (calls.load(std::memory_order_relaxed) != 0) calls.store(0);
  }
  new (&forking) std::mutex;  // other threads may have waited for it
}

// At exit, first carries what this process and its children have sent, for a
// limited time.
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

// Registered before all other handlers, so these lock last and unlock first.
// The handlers of the libraries close descriptors, and their threads wait for
// locks of the libraries.
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

// Registered after the libraries' handlers. So connections are queried before
// the libraries take their locks, and carried after they release them.
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
