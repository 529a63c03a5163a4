// The rsockets that each epoll instance of the program watches: epoll_create(2)
// and epoll_ctl(2). The kernel's instance watches the ordinary descriptors.
#include "verbs_api/rsockets/preload/epoll_instance.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "verbs_api/rsockets/preload/epoll.h"
#include "verbs_api/rsockets/preload/fork.h"
#include "verbs_api/rsockets/preload/real.h"

namespace rspreload {
namespace {

// Programs without rsockets in epoll pay nothing.
std::atomic<int> instance_count{0};
// By descriptor: whether it refers to an epoll instance.
std::atomic<bool> is_epoll[kMaxDescriptors];

// The datum of `news`: a pointer that the program cannot have.
epoll_data_t NewsDatum() { return {.ptr = &instance_count}; }

int Created(int epoll) {
  if (epoll >= 0 && epoll < kMaxDescriptors && IsOwner()) {
    is_epoll[epoll].store(true);
  }
  return epoll;
}

void Set(int eventfd) {
  const uint64_t one = 1;
  // write fails only if the eventfd is readable already.
  [[maybe_unused]] const ssize_t n = REAL(write)(eventfd, &one, sizeof(one));
}

// --- `Instances::mutex` is held.

bool SomeWaitInKernel(const Instance& instance) {
  return std::any_of(
      instance.numbers.begin(), instance.numbers.end(),
      [](int n) { return n < kMaxDescriptors && in_kernel[n].load() > 0; });
}

// Makes all threads that wait for the instance check it again.
void WakeAll(const Instance& instance) {
  for (const int fd : instance.waiting) Set(fd);
  if (SomeWaitInKernel(instance)) Set(instance.news);
}

void Enter(int epoll, const std::shared_ptr<Instance>& instance) {
  instance->numbers.push_back(epoll);
  AllEpolls().map[epoll] = instance;
  instance_count.store(static_cast<int>(AllEpolls().map.size()));
}

// The instance of `epoll`, created with its `news` if needed. Null, with errno:
// not an epoll instance, or no descriptor left.
std::shared_ptr<Instance> FindOrMake(int epoll) {
  std::shared_ptr<Instance> instance = FindEpoll(epoll);
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

// epoll_ctl(2). Returns 0 or an errno value.
int Change(int epoll, int operation, int fd, const epoll_event* event) {
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
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

}  // namespace

std::atomic<int> in_kernel[kMaxDescriptors];

Instance::~Instance() {
  if (news >= 0) REAL(close)(news);
  for (const int fd : waiting) REAL(close)(fd);
  for (const int fd : spare) REAL(close)(fd);
}

Instances& AllEpolls() {
  static auto* const instances = new Instances;
  return *instances;
}

void Clear(int eventfd) {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = REAL(read)(eventfd, &count, sizeof(count));
}

int WithoutNews(epoll_event* events, int count) {
  epoll_event* const rest = std::remove_if(
      events, events + count,
      [](const epoll_event& e) { return e.data.ptr == NewsDatum().ptr; });
  return static_cast<int>(rest - events);
}

bool HasRsockets(int epoll) {
  if (instance_count.load() == 0) return false;
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
  const std::shared_ptr<Instance> instance = FindEpoll(epoll);
  return instance != nullptr && !instance->sockets.empty();
}

std::shared_ptr<Instance> FindEpoll(int epoll) {
  const auto found = AllEpolls().map.find(epoll);
  return found == AllEpolls().map.end() ? nullptr : found->second;
}

void HeardNews(const Instance& instance) {
  if (!SomeWaitInKernel(instance)) Clear(instance.news);
}

void CopyEpoll(int epoll, int copy) {
  if (epoll >= kMaxDescriptors || !is_epoll[epoll].load()) return;
  Created(copy);
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
  std::shared_ptr<Instance> instance = FindEpoll(epoll);
  if (instance == nullptr) {
    instance = std::make_shared<Instance>();
    Enter(epoll, instance);
  }
  Enter(copy, instance);
}

void ForgetEpoll(int first, int last) {
  for (int fd = std::max(first, 0); fd <= last && fd < kMaxDescriptors; ++fd) {
    if (is_epoll[fd].load(std::memory_order_relaxed)) is_epoll[fd].store(false);
  }
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  const auto erase = [=](auto& map) {
    map.erase(map.lower_bound(first), map.upper_bound(last));
  };
  Instances& all = AllEpolls();
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
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
  for (auto& [epoll, instance] : AllEpolls().map) {
    const auto found = instance->sockets.find(fd);
    if (found == instance->sockets.end()) continue;
    epoll_event event = found->second.event;
    instance->sockets.erase(found);
    REAL(epoll_ctl)(epoll, EPOLL_CTL_ADD, fd, &event);
  }
}

void RenewInEpoll(int rsocket) {
  if (instance_count.load(std::memory_order_relaxed) == 0) return;
  const std::lock_guard<std::mutex> lock(AllEpolls().mutex);
  for (auto& [epoll, instance] : AllEpolls().map) {
    for (auto& [fd, watched] : instance->sockets) {
      if (Behind(fd) != rsocket) continue;
      watched.reported = 0;
      // A result found before this change must not be reported.
      watched.version = ++instance->versions;
      WakeAll(*instance);
    }
  }
}

void LockEpollForFork() { AllEpolls().mutex.lock(); }
void UnlockEpollAfterFork() { AllEpolls().mutex.unlock(); }

void UnlockEpollInChild() {
  for (auto& [epoll, instance] : AllEpolls().map) {
    // The child shares the eventfds with its parent.
    for (const int fd : instance->waiting) REAL(close)(fd);
    for (const int fd : instance->spare) REAL(close)(fd);
    instance->waiting.clear();
    instance->spare.clear();
  }
  for (std::atomic<int>& count : in_kernel) {
    if (count.load(std::memory_order_relaxed) != 0) count.store(0);
  }
  AllEpolls().mutex.unlock();
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
