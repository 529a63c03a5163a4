#include "rxe_user/ports/memory_links.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/users.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {
namespace {

constexpr uint32_t kMagic = 0x72786d31;  // "rxm1": changes with the layout
constexpr int kBacklog = 64;
constexpr size_t kMostIncoming = 2 * Doorbell::kRings;
constexpr int kEvents = 16;
// Between tries to close another user's connection.
constexpr std::chrono::milliseconds kRetry{100};

struct Request {
  uint32_t magic = kMagic;
  uint32_t ring_bytes = sizeof(RingMemory);
  wire::IpAddress source;
};
struct Answer {
  uint32_t magic = kMagic;
  uint32_t bit = 0;
};
static_assert(std::is_trivially_copyable_v<Request>);

struct Name {
  Name(const LocalAddress& local, uint16_t slot) {
    const std::string text =
        absl::StrCat("rxe_user-memory-", local.address.ToString(), "-",
                     local.scope_id, "-", slot);
    un.sun_family = AF_UNIX;
    std::memcpy(un.sun_path + 1, text.data(),
                std::min(text.size(), sizeof(un.sun_path) - 1));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  text.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&un); }
  sockaddr_un un{};
  socklen_t size;
};

// Whether writing to `fd` never blocks: it is a non-blocking eventfd.
bool IsEventfd(int fd) {
  char target[64];
  const ssize_t size = ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(),
                                  target, sizeof(target));
  const int flags = ::fcntl(fd, F_GETFL);
  return size > 0 && flags >= 0 && (flags & O_NONBLOCK) != 0 &&
         std::string_view(target, static_cast<size_t>(size)) ==
             "anon_inode:[eventfd]";
}

bool IsOfOwnUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         IsOwnUser(peer.uid);
}

// Whether the kernel would let a process send from `local`.
bool IsOfThisHost(const LocalAddress& local) {
  SocketAddress address;
  const socklen_t size =
      ToSocketAddress(BoundAddress(local.address), 0, local.scope_id, &address);
  const UniqueFd probe(
      ::socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe.valid() && ::bind(probe.get(), &address.any, size) == 0;
}

template <typename T, size_t kFds>
bool Send(int socket, const T& message, const std::array<int, kFds>& fds) {
  iovec data = {const_cast<T*>(&message), sizeof(message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&m);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(fds));
  std::memcpy(CMSG_DATA(header), fds.data(), sizeof(fds));
  return ::sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof(message));
}

// Whether there was a message with exactly that, and not EAGAIN or the end.
template <typename T, size_t kFds>
bool Receive(int socket, T* message, std::array<UniqueFd, kFds>* fds) {
  iovec data = {message, sizeof(*message)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFds)];
  msghdr m{};
  m.msg_iov = &data;
  m.msg_iovlen = 1;
  m.msg_control = control;
  m.msg_controllen = sizeof(control);
  const ssize_t bytes = ::recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return false;
  size_t taken = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&m); c != nullptr; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; CMSG_LEN(sizeof(int) * (i + 1)) <= c->cmsg_len; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      UniqueFd owned(MoveHigh(fd));
      if (taken < kFds) (*fds)[taken++] = std::move(owned);
    }
  }
  return bytes == static_cast<ssize_t>(sizeof(*message)) && taken == kFds &&
         (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
         message->magic == kMagic;
}

UniqueFd UnixSocket() {
  return UniqueFd(MoveHigh(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryLinks>> MemoryLinks::Create(
    MemoryLinkUser* user, int doorbell_file, int wake) {
  auto links =
      std::unique_ptr<MemoryLinks>(new MemoryLinks(user, doorbell_file, wake));
  if (!links->poll_.valid() || !links->event_.valid() ||
      !links->Watch(links->event_.get(), nullptr)) {
    return ErrnoStatus(errno, "same host");
  }
  return links;
}

MemoryLinks::MemoryLinks(MemoryLinkUser* user, int doorbell_file, int wake)
    : ForkGuard(ForkLevel::kDescriptors),
      user_(*user),
      doorbell_file_(doorbell_file),
      wake_(wake),
      poll_(MoveHigh(::epoll_create1(EPOLL_CLOEXEC))),
      event_(MoveHigh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  EnterForkGuard();
}

MemoryLinks::~MemoryLinks() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    // A connection that may contain descriptors of another user is left open if
    // it cannot be closed.
    if (!CloseElsewhere(foreign_)) (void)foreign_.Release();
    listeners_.clear();
    links_.clear();
  }
  LeaveForkGuard();
}

void MemoryLinks::AfterForkInChild() {
  for (Link& link : links_) {
    link.ring.Release();
    link.doorbell.Release();
  }
  links_.clear();
  listeners_.clear();
  foreign_.Reset();
  poll_.Reset();
  event_.Reset();
  mutex_.unlock();
}

bool MemoryLinks::Watch(int fd, void* what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = what;
  return ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void MemoryLinks::Wake() {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));
}

// --- Listening.

void MemoryLinks::AddAddress(const LocalAddress& local) {
  const std::lock_guard<std::mutex> lock(mutex_);
  addresses_.push_back(local);
  for (const uint16_t slot : slots_) Listen(local, slot);
}

void MemoryLinks::RemoveAddress(const wire::IpAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(addresses_,
                [&](const auto& local) { return local.address == address; });
  listeners_.remove_if(
      [&](const Listener& l) { return l.local.address == address; });
}

void MemoryLinks::AddSlot(uint16_t slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  slots_.push_back(slot);
  for (const LocalAddress& local : addresses_) Listen(local, slot);
}

void MemoryLinks::Listen(const LocalAddress& local, uint16_t slot) {
  const Name name(local, slot);
  UniqueFd socket = UnixSocket();
  if (!socket.valid() || ::bind(socket.get(), name.get(), name.size) != 0 ||
      ::listen(socket.get(), kBacklog) != 0) {
    return;
  }
  listeners_.push_back({local, slot, std::move(socket)});
  Listener& listener = listeners_.back();
  if (!Watch(listener.socket.get(), &listener)) listeners_.pop_back();
}

uint32_t MemoryLinks::ScopeOf(const wire::IpAddress& address) const {
  for (const LocalAddress& local : addresses_) {
    if (local.address == address) return local.scope_id;
  }
  return 0;
}

void MemoryLinks::Accept(Listener& listener) {
  for (;;) {
    UniqueFd socket(MoveHigh(::accept4(listener.socket.get(), nullptr, nullptr,
                                       SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket.valid()) return;
    if (!IsOfOwnUser(socket.get())) {
      // It may contain descriptors that block the thread that closes it.
      foreign_ = std::move(socket);
      if (!CloseElsewhere(foreign_)) return;
      continue;
    }
    if (links_.size() >= kMostIncoming + kMostOutgoing) continue;
    Link& link = links_.emplace_back();
    link.state = State::kUnknown;
    link.outgoing = false;
    link.route = {{}, listener.local.address, listener.slot};
    link.socket = std::move(socket);
    if (!Watch(link.socket.get(), &link)) links_.pop_back();
  }
}

// --- The lane's wishes.

bool MemoryLinks::Connect(const MemoryRoute& route) {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    wanted_.push_back(route);
  } catch (const std::bad_alloc&) {
    return false;
  }
  Wake();
  return true;
}

void MemoryLinks::Disconnect(int bit) {
  const std::lock_guard<std::mutex> lock(mutex_);
  broken_bits_ |= uint64_t{1} << bit;
  Wake();
}

void MemoryLinks::Disconnect(const MemoryRoute& route) {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    broken_.push_back(route);
  } catch (const std::bad_alloc&) {
    return;
  }
  Wake();
}

// --- The control thread.

// Nothing is accepted while another user's connection cannot be closed.
int MemoryLinks::fd() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return foreign_.valid() ? -1 : poll_.get();
}

MemoryLinks::Clock::time_point MemoryLinks::time() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clock::time_point next =
      foreign_.valid() ? Clock::now() + kRetry : Clock::time_point::max();
  for (const Link& link : links_) {
    if (link.state == State::kPausing) next = std::min(next, link.deadline);
  }
  return next;
}

void MemoryLinks::Run(const Port::LockLane& with_lane) {
  Calls calls;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!poll_.valid()) return;  // a child of fork
    (void)CloseElsewhere(foreign_);
    uint64_t ignored;
    (void)!::read(event_.get(), &ignored, sizeof(ignored));
    for (const MemoryRoute& route : std::exchange(wanted_, {})) {
      Begin(route, &calls);
    }
    const uint64_t bits = std::exchange(broken_bits_, 0);
    const std::vector<MemoryRoute> routes = std::exchange(broken_, {});
    for (Link& link : links_) {
      if (link.state == State::kEnded || !link.known) continue;
      if (link.outgoing ? std::ranges::find(routes, link.route) != routes.end()
                        : (bits >> link.bit & 1) != 0) {
        End(link, &calls);
      }
    }
    const Clock::time_point now = Clock::now();
    for (Link& link : links_) {
      if (link.state != State::kPausing || link.deadline > now) continue;
      link.state = State::kOpen;
      calls.push_back([this, route = link.route] { user_.OnOpen(route); });
    }
    epoll_event events[kEvents];
    const int count = ::epoll_wait(poll_.get(), events, kEvents, 0);
    for (int i = 0; i < count; ++i) {
      void* const what = events[i].data.ptr;
      if (what == nullptr) continue;
      const auto listener = std::ranges::find_if(
          listeners_, [&](const Listener& l) { return &l == what; });
      if (listener != listeners_.end()) {
        if (!foreign_.valid()) Accept(*listener);
        continue;
      }
      for (Link& link : links_) {
        if (&link == what) OnReadable(link, &calls);
      }
    }
    // More events than one call returns.
    if (count == kEvents) Wake();
  }
  if (!calls.empty()) {
    with_lane([&] {
      for (const auto& call : calls) call();
    });
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  links_.remove_if([](const Link& l) { return l.state == State::kEnded; });
}

void MemoryLinks::Begin(const MemoryRoute& route, Calls* calls) {
  const auto refuse = [&] {
    calls->push_back([this, route] { user_.OnOutgoingEnd(route); });
  };
  if (outgoing_ >= kMostOutgoing) return refuse();
  Link link;
  link.state = State::kAsked;
  link.outgoing = true;
  link.route = route;
  link.socket = UnixSocket();
  const Name name({route.destination,
                   IsLinkLocal(route.destination) ? ScopeOf(route.source) : 0},
                  route.slot);
  if (!link.socket.valid() ||
      ::connect(link.socket.get(), name.get(), name.size) != 0 ||
      !IsOfOwnUser(link.socket.get())) {
    return refuse();
  }
  UniqueFd file;
  absl::StatusOr<SharedMemory> ring =
      SharedMemory::Create(sizeof(RingMemory), &file);
  if (!ring.ok()) return refuse();
  link.ring = *std::move(ring);
  Request request;
  request.source = route.source;
  if (!Send(link.socket.get(), request, std::array{file.get()})) {
    return refuse();
  }
  links_.push_back(std::move(link));
  Link& kept = links_.back();
  if (!Watch(kept.socket.get(), &kept)) {
    links_.pop_back();
    return refuse();
  }
  ++outgoing_;
}

// A message other than the expected one ends the link, and so does any after
// that.
void MemoryLinks::OnReadable(Link& link, Calls* calls) {
  if (link.state == State::kEnded) return;
  const bool good = link.state == State::kUnknown ? TakeRequest(link, calls)
                    : link.state == State::kAsked ? TakeAnswer(link, calls)
                                                  : false;
  if (!good) End(link, calls);
}

bool MemoryLinks::TakeRequest(Link& link, Calls* calls) {
  Request request;
  std::array<UniqueFd, 1> fds;
  if (!Receive(link.socket.get(), &request, &fds) ||
      request.ring_bytes != sizeof(RingMemory) || bits_ == ~uint64_t{0}) {
    return false;
  }
  link.route.source = request.source;
  const uint32_t scope =
      IsLinkLocal(request.source) ? ScopeOf(link.route.destination) : 0;
  if (!IsOfThisHost({request.source, scope})) return false;
  absl::StatusOr<SharedMemory> ring =
      SharedMemory::Map(fds[0].get(), sizeof(RingMemory));
  if (!ring.ok()) return false;
  link.ring = *std::move(ring);
  link.bit = std::countr_one(bits_);
  Answer answer;
  answer.bit = static_cast<uint32_t>(link.bit);
  if (!Send(link.socket.get(), answer, std::array{doorbell_file_, wake_})) {
    return false;
  }
  bits_ |= uint64_t{1} << link.bit;
  link.state = State::kOpen;
  link.known = true;
  calls->push_back([this, &link] {
    user_.OnIncoming(link.bit, link.route.source, link.route.destination,
                     RingMemory::In(link.ring.bytes()));
  });
  return true;
}

bool MemoryLinks::TakeAnswer(Link& link, Calls* calls) {
  Answer answer;
  std::array<UniqueFd, 2> fds;
  if (!Receive(link.socket.get(), &answer, &fds) ||
      answer.bit >= Doorbell::kRings || !IsEventfd(fds[1].get())) {
    return false;
  }
  absl::StatusOr<SharedMemory> doorbell =
      SharedMemory::Map(fds[0].get(), kDoorbellBytes);
  if (!doorbell.ok()) return false;
  link.doorbell = *std::move(doorbell);
  link.wake = std::move(fds[1]);
  link.bit = static_cast<int>(answer.bit);
  link.state = State::kPausing;
  link.known = true;
  link.deadline = Clock::now() + kPause;
  calls->push_back([this, &link] {
    user_.OnOutgoing(link.route, {RingMemory::In(link.ring.bytes()),
                                  Doorbell::In(link.doorbell.bytes()),
                                  link.wake.get(), link.bit});
  });
  return true;
}

void MemoryLinks::End(Link& link, Calls* calls) {
  link.state = State::kEnded;
  if (link.outgoing) {
    --outgoing_;
    calls->push_back(
        [this, route = link.route] { user_.OnOutgoingEnd(route); });
  } else if (link.known) {
    bits_ &= ~(uint64_t{1} << link.bit);
    calls->push_back([this, bit = link.bit] { user_.OnIncomingEnd(bit); });
  }
}

}  // namespace rxe_user
