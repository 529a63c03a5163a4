// An epoll instance of the kernel has the ordinary descriptors. The rsockets
// that the program adds to it are kept beside it, and waiting polls both. While
// an instance has no rsockets, waiting is the kernel's.
#include "verbs_api/rsockets/preload/epoll.h"

#include <poll.h>
#include <rdma/rsocket.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "verbs_api/rsockets/preload/fork.h"
#include "verbs_api/rsockets/preload/real.h"
#include "verbs_api/rsockets/preload/table.h"
#include "verbs_api/rsockets/preload/waiting.h"

namespace rspreload {
namespace {

constexpr uint32_t kFlags =
    EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE;

struct Watched {
  epoll_event event;
  uint64_t version;       // another one after each change
  uint64_t used = 0;      // of TakeUsed
  uint32_t reported = 0;  // edge-triggered: what the program knows already
};

// All that concerns an instance: `Instances::mutex`.
struct Instance {
  ~Instance() {
    if (news >= 0) REAL(close)(news);
    for (const int fd : waiting) REAL(close)(fd);
    for (const int fd : spare) REAL(close)(fd);
  }

  // Its descriptors: copies of one another.
  std::vector<int> numbers;
  // The rsockets, by the program's descriptor.
  std::map<int, Watched> sockets;
  uint64_t versions = 0;
  // The descriptor of the last event, -1 if it was the kernel's: the next one
  // begins behind it.
  int last = -1;
  // eventfds: of the threads that wait beside the kernel, one for each, and
  // those that nobody uses.
  std::vector<int> waiting;
  std::vector<int> spare;
  // An eventfd in the kernel's instance: wakes the threads that wait there. -1:
  // there was no rsocket yet.
  int news = -1;
};

// By epoll instance.
struct Instances {
  std::mutex mutex;
  std::map<int, std::shared_ptr<Instance>> map;
};

Instances& All() {
  static auto* const instances = new Instances;
  return *instances;
}

// So that programs without rsockets in epoll pay nothing.
std::atomic<int> instance_count{0};
// By descriptor: whether it is one of an epoll instance, and how many threads
// wait in the kernel by it.
std::atomic<bool> is_epoll[kMostDescriptors];
std::atomic<int> in_kernel[kMostDescriptors];

// The datum of `news`: no pointer of the program's.
epoll_data_t NewsDatum() { return {.ptr = &instance_count}; }

int Created(int epoll) {
  if (epoll >= 0 && epoll < kMostDescriptors && IsOwner()) {
    is_epoll[epoll].store(true);
  }
  return epoll;
}

void Set(int eventfd) {
  const uint64_t one = 1;
  // It can only fail when it is readable anyway.
  [[maybe_unused]] const ssize_t n = REAL(write)(eventfd, &one, sizeof(one));
}
void Clear(int eventfd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = REAL(read)(eventfd, &count, sizeof(count));
}

// Takes `news` out of what the kernel has told: how many events are left. It
// needs no instance: the one that it is of may be gone, or another process's.
int WithoutNews(epoll_event* events, int count) {
  epoll_event* const rest = std::remove_if(
      events, events + count,
      [](const epoll_event& e) { return e.data.ptr == NewsDatum().ptr; });
  return static_cast<int>(rest - events);
}

// --- All below with `Instances::mutex`, unless said otherwise.

bool SomeWaitInKernel(const Instance& instance) {
  return std::any_of(
      instance.numbers.begin(), instance.numbers.end(),
      [](int n) { return n < kMostDescriptors && in_kernel[n].load() > 0; });
}

// All threads that wait for the instance look anew.
void WakeAll(const Instance& instance) {
  for (const int fd : instance.waiting) Set(fd);
  if (SomeWaitInKernel(instance)) Set(instance.news);
}

// A thread has heard of `news`: it stays readable until all that waited in the
// kernel have left it.
void HeardNews(const Instance& instance) {
  if (!SomeWaitInKernel(instance)) Clear(instance.news);
}

std::shared_ptr<Instance> Find(int epoll) {
  const auto found = All().map.find(epoll);
  return found == All().map.end() ? nullptr : found->second;
}

void Enter(int epoll, const std::shared_ptr<Instance>& instance) {
  instance->numbers.push_back(epoll);
  All().map[epoll] = instance;
  instance_count.store(static_cast<int>(All().map.size()));
}

// That of `epoll`, made if there is none, with its news. Null, with errno: it
// is no epoll instance, or there is no descriptor left.
std::shared_ptr<Instance> FindOrMake(int epoll) {
  std::shared_ptr<Instance> instance = Find(epoll);
  if (instance != nullptr && instance->news >= 0) return instance;
  const int news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (news < 0) return nullptr;
  epoll_event event = {.events = EPOLLIN, .data = NewsDatum()};
  if (REAL(epoll_ctl)(epoll, EPOLL_CTL_ADD, news, &event) != 0) {
    const int error = errno;
    REAL(close)(news);
    errno = error;
    return nullptr;
  }
  if (instance == nullptr) {
    instance = std::make_shared<Instance>();
    Enter(epoll, instance);
  }
  instance->news = news;
  return instance;
}

// epoll_ctl(2): 0 or an errno value.
int Change(int epoll, int operation, int fd, const epoll_event* event) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  const std::shared_ptr<Instance> instance = FindOrMake(epoll);
  if (instance == nullptr) return errno;
  const bool known = instance->sockets.count(fd) != 0;
  switch (operation) {
    case EPOLL_CTL_ADD:
      if (known) return EEXIST;
      break;
    case EPOLL_CTL_MOD:
      if (!known) return ENOENT;
      break;
    case EPOLL_CTL_DEL:
      return instance->sockets.erase(fd) != 0 ? 0 : ENOENT;
    default:
      return EINVAL;
  }
  if (event == nullptr) return EFAULT;
  Watched watched = {.event = *event, .version = ++instance->versions};
  TakeUsed(Behind(fd), &watched.used);
  instance->sockets[fd] = watched;
  WakeAll(*instance);
  return 0;
}

// An rsocket that is waited for.
struct Looked {
  int fd;
  int rsocket;
  uint64_t version;
  short events;
};

std::vector<Looked> Collect(Instance& instance) {
  std::vector<Looked> looked;
  for (auto& [fd, watched] : instance.sockets) {
    const int rsocket = Behind(fd);
    if (rsocket < 0) continue;
    uint32_t wanted = watched.event.events & ~kFlags;
    if (wanted == 0) continue;  // EPOLLONESHOT, and it was reported
    if ((watched.event.events & EPOLLET) != 0) {
      watched.reported &= ~TakeUsed(rsocket, &watched.used);
      wanted &= ~watched.reported;
      // That it has ended comes unasked, and nothing comes after it.
      if ((watched.reported & (EPOLLHUP | EPOLLERR)) != 0) continue;
    }
    looked.push_back({.fd = fd,
                      .rsocket = rsocket,
                      .version = watched.version,
                      .events = static_cast<short>(wanted)});
  }
  return looked;
}

// Reports what rpoll has found of one: 0 if somebody else has had it, or has
// changed what is wanted, else 1.
int ReportSocket(Instance& instance, const Looked& looked, short found,
                 epoll_event* event) {
  const auto at = instance.sockets.find(looked.fd);
  if (found == 0 || at == instance.sockets.end() ||
      at->second.version != looked.version) {
    return 0;
  }
  Watched& watched = at->second;
  if ((found & POLLNVAL) != 0) {
    instance.sockets.erase(at);
    return 0;
  }
  const uint32_t events = watched.event.events;
  const uint32_t ready =
      static_cast<uint16_t>(found) & (events | EPOLLERR | EPOLLHUP);
  if (ready == 0 || (events & ~kFlags) == 0) return 0;
  if ((events & EPOLLET) != 0 && (ready & ~watched.reported) == 0) return 0;
  watched.reported |= ready;
  event->events = ready;
  event->data = watched.event.data;
  if ((events & EPOLLONESHOT) != 0) watched.event.events &= kFlags;
  return 1;
}

// Turns what rpoll has found, with the kernel's instance at the end, into
// events: how many, or -1.
int Report(int epoll, Instance& instance, const std::vector<Looked>& looked,
           const std::vector<pollfd>& found, epoll_event* events, int most) {
  const size_t kernel = looked.size(), places = kernel + 1;
  const auto first = std::upper_bound(
      looked.begin(), looked.end(), instance.last,
      [](int fd, const Looked& other) { return fd < other.fd; });
  const auto offset = static_cast<size_t>(first - looked.begin());
  int n = 0;
  for (size_t i = 0; i < places && n < most; ++i) {
    const size_t place = (offset + i) % places;
    int got = 0;
    if (place != kernel) {
      got = ReportSocket(instance, looked[place], found[place].revents,
                         events + n);
    } else if (found[kernel].revents != 0) {
      got = REAL(epoll_wait)(epoll, events + n, most - n, 0);
      if (got < 0) return n > 0 ? n : -1;
      const int left = WithoutNews(events + n, got);
      if (left != got) HeardNews(instance);
      got = left;
    }
    if (got > 0) instance.last = place == kernel ? -1 : looked[place].fd;
    n += got;
  }
  return n;
}

// Waits beside the kernel, as long as there are rsockets: 0 if there are none
// any more, or the time is over. Not with the lock.
int WaitBeside(int epoll, epoll_event* events, int most,
               const Deadline& deadline, WaitMask& mask) {
  std::unique_lock<std::mutex> lock(All().mutex);
  const std::shared_ptr<Instance> instance = Find(epoll);
  if (instance == nullptr) return 0;
  if (instance->spare.empty()) {
    const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) return -1;
    instance->spare.push_back(fd);
  }
  const int waiter = instance->spare.back();
  instance->spare.pop_back();
  instance->waiting.push_back(waiter);
  int n;
  do {
    const std::vector<Looked> looked = Collect(*instance);
    lock.unlock();
    std::vector<pollfd> found;
    for (const Looked& l : looked) {
      found.push_back({.fd = l.rsocket, .events = l.events, .revents = 0});
    }
    for (const int fd : {epoll, waiter, mask.fd()}) {
      found.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    }
    n = rpoll(found.data(), found.size(), MillisecondsLeft(deadline));
    lock.lock();
    if (n < 0) break;
    if (found[looked.size() + 1].revents != 0) Clear(waiter);
    n = Report(epoll, *instance, looked, found, events, most);
    if (n == 0 && found.back().revents != 0 && mask.Take()) {
      errno = EINTR;
      n = -1;
    }
  } while (n == 0 && !IsOver(deadline) && !instance->sockets.empty());
  const auto at =
      std::find(instance->waiting.begin(), instance->waiting.end(), waiter);
  if (at != instance->waiting.end()) instance->waiting.erase(at);
  instance->spare.push_back(waiter);
  return n;
}

// A thread that waits in the kernel. Not with the lock.
class KernelWait {
 public:
  explicit KernelWait(int epoll) : epoll_(epoll) {
    if (counted()) ++in_kernel[epoll_];
  }
  ~KernelWait() {
    if (counted()) --in_kernel[epoll_];
  }
  KernelWait(const KernelWait&) = delete;
  KernelWait& operator=(const KernelWait&) = delete;

 private:
  bool counted() const { return epoll_ >= 0 && epoll_ < kMostDescriptors; }
  const int epoll_;
};

bool HasRsockets(int epoll) {
  if (instance_count.load() == 0) return false;
  const std::lock_guard<std::mutex> lock(All().mutex);
  const std::shared_ptr<Instance> instance = Find(epoll);
  return instance != nullptr && !instance->sockets.empty();
}

// Without what the kernel has told for us. Not with the lock.
int OfProgram(int epoll, epoll_event* events, int count) {
  if (count <= 0) return count;
  const int left = WithoutNews(events, count);
  if (left == count) return count;
  const std::lock_guard<std::mutex> lock(All().mutex);
  const std::shared_ptr<Instance> instance = Find(epoll);
  if (instance != nullptr) HeardNews(*instance);
  return left;
}

// `wait_in_kernel()` waits for the kernel's instance alone until the deadline.
template <typename WaitInKernel>
int Wait(int epoll, epoll_event* events, int most, const Deadline& deadline,
         const sigset_t* mask, WaitInKernel wait_in_kernel) {
  for (;;) {
    int n = 0;
    bool waited = false;
    {
      const KernelWait wait(epoll);
      if (!HasRsockets(epoll)) {
        n = wait_in_kernel();
        waited = true;
      }
    }
    if (waited) {
      n = OfProgram(epoll, events, n);
    } else if (most <= 0) {
      errno = EINVAL;
      return -1;
    } else {
      WaitMask wait_mask(mask);
      n = wait_mask.ok() ? WaitBeside(epoll, events, most, deadline, wait_mask)
                         : -1;
    }
    if (n != 0 || IsOver(deadline)) return n;
  }
}

}  // namespace

void CopyEpoll(int epoll, int copy) {
  if (epoll >= kMostDescriptors || !is_epoll[epoll].load()) return;
  Created(copy);
  const std::lock_guard<std::mutex> lock(All().mutex);
  std::shared_ptr<Instance> instance = Find(epoll);
  if (instance == nullptr) {
    instance = std::make_shared<Instance>();
    Enter(epoll, instance);
  }
  Enter(copy, instance);
}

void ForgetEpoll(int first, int last) {
  for (int fd = std::max(first, 0); fd <= last && fd < kMostDescriptors; ++fd) {
    if (is_epoll[fd].load(std::memory_order_relaxed)) is_epoll[fd].store(false);
  }
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  const auto erase = [=](auto& map) {
    map.erase(map.lower_bound(first), map.upper_bound(last));
  };
  Instances& all = All();
  const std::lock_guard<std::mutex> lock(all.mutex);
  erase(all.map);
  for (auto& [epoll, instance] : all.map) {
    erase(instance->sockets);
    std::erase_if(instance->numbers,
                  [=](int n) { return n >= first && n <= last; });
  }
  instance_count.store(static_cast<int>(all.map.size()));
}

void LeaveEpollToKernel(int fd) {
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard<std::mutex> lock(All().mutex);
  for (auto& [epoll, instance] : All().map) {
    const auto found = instance->sockets.find(fd);
    if (found == instance->sockets.end()) continue;
    epoll_event event = found->second.event;
    instance->sockets.erase(found);
    REAL(epoll_ctl)(epoll, EPOLL_CTL_ADD, fd, &event);
  }
}

void RenewInEpoll(int rsocket) {
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard<std::mutex> lock(All().mutex);
  for (auto& [epoll, instance] : All().map) {
    for (auto& [fd, watched] : instance->sockets) {
      if (Behind(fd) != rsocket) continue;
      watched.reported = 0;
      // What was found before is no news any more.
      watched.version = ++instance->versions;
      WakeAll(*instance);
    }
  }
}

void LockEpollForFork() { All().mutex.lock(); }
void UnlockEpollAfterFork() { All().mutex.unlock(); }

void UnlockEpollInChild() {
  for (auto& [epoll, instance] : All().map) {
    // The eventfds are shared with the parent.
    for (const int fd : instance->waiting) REAL(close)(fd);
    for (const int fd : instance->spare) REAL(close)(fd);
    instance->waiting.clear();
    instance->spare.clear();
  }
  for (std::atomic<int>& count : in_kernel) {
    if (count.load(std::memory_order_relaxed) != 0) count.store(0);
  }
  All().mutex.unlock();
}

}  // namespace rspreload

PRELOADED int epoll_create(int size) noexcept {
  return rspreload::Created(REAL(epoll_create)(size));
}

PRELOADED int epoll_create1(int flags) noexcept {
  return rspreload::Created(REAL(epoll_create1)(flags));
}

PRELOADED int epoll_ctl(int epoll, int operation, int fd,
                        epoll_event* event) noexcept {
  if (rspreload::Behind(fd) < 0) {
    return REAL(epoll_ctl)(epoll, operation, fd, event);
  }
  const int error = rspreload::Change(epoll, operation, fd, event);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

PRELOADED int epoll_pwait(int epoll, epoll_event* events, int most, int timeout,
                          const sigset_t* mask) {
  const rspreload::Deadline deadline = rspreload::DeadlineOf(timeout);
  return rspreload::Wait(epoll, events, most, deadline, mask, [&] {
    return REAL(epoll_pwait)(epoll, events, most,
                             rspreload::MillisecondsLeft(deadline), mask);
  });
}

PRELOADED int epoll_wait(int epoll, epoll_event* events, int most,
                         int timeout) {
  return epoll_pwait(epoll, events, most, timeout, nullptr);
}

PRELOADED int epoll_pwait2(int epoll, epoll_event* events, int most,
                           const timespec* timeout, const sigset_t* mask) {
  const rspreload::Deadline deadline = rspreload::DeadlineOf(timeout);
  return rspreload::Wait(epoll, events, most, deadline, mask, [&] {
    timespec left = {};
    if (timeout != nullptr) left = rspreload::TimeLeft(deadline);
    return REAL(epoll_pwait2)(epoll, events, most,
                              timeout != nullptr ? &left : nullptr, mask);
  });
}
