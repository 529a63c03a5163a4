#include "rxe_user/ports/memory_links.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/descriptor_message.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/users.h"
#include "rxe_user/ports/udp_socket.h"

namespace rxe_user {
namespace {

constexpr uint32_t kMagic = 0x72786d32;  // "rxm2": changes with the layout
constexpr int kBacklog = 64;
// The maximum number of connections. Not all of them have a ring.
constexpr size_t kMaxLinks = 3 * MemoryLinks::kMax;
constexpr int kEvents = 16;
// The maximum number of connections that are accepted from a listener, or
// begun, before the lane is told of them.
constexpr int kTurn = 16;
// The process may have one link per this many descriptors of its soft limit. A
// link has one or two; the rest is the program's.
constexpr rlim_t kPartOfLimit = 16;
std::atomic<rlim_t> process_links = 0;
// Time between tries to close another user's connection, or to accept one when
// descriptors are short.
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

// The pid is 0, which no process has, if the system refuses.
ucred PeerOf(int socket) {
  ucred peer{.pid = 0, .uid = ~uid_t{0}, .gid = ~gid_t{0}};
  socklen_t size = sizeof(peer);
  (void)::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer;
}

// Returns 0 if the kernel would let a process send from `local`. Otherwise
// returns errno: EADDRNOTAVAIL if this host does not have the address.
int ErrorOf(const LocalAddress& local) {
  SocketAddress address;
  const socklen_t size =
      ToSocketAddress(BoundAddress(local.address), 0, local.scope_id, &address);
  const UniqueFd probe(
      ::socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const bool good =
      probe.valid() && ::bind(probe.get(), &address.any, size) == 0;
  return good ? 0 : errno;
}

// Whether this host no longer has the address, or its interface. False if that
// is unknown, for instance without descriptors.
bool IsGone(const LocalAddress& local) {
  const int error = ErrorOf(local);
  return error == EADDRNOTAVAIL || error == ENODEV ||
         (error == EINVAL && IsLinkLocal(local.address));
}

// Whether accept4 failed for lack of descriptors or memory. The connection then
// stays queued, and keeps the listener readable.
bool IsShort(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

constexpr uint64_t Bit(int index) { return uint64_t{1} << index; }

template <typename T>
bool Send(int socket, const T& message, std::initializer_list<int> fds) {
  const iovec part = {const_cast<T*>(&message), sizeof(message)};
  return SendMessage(socket, {&part, 1}, {fds.begin(), fds.size()});
}

// Also returns kClosed for any message but a T with all of `fds`.
template <typename T, size_t kFds>
Arrival Receive(int socket, T* message, std::array<UniqueFd, kFds>* fds) {
  ReceivedMessage received;
  const Arrival arrival = ReceiveMessage(
      socket, {reinterpret_cast<uint8_t*>(message), sizeof(*message)}, *fds,
      &received);
  if (arrival != Arrival::kMessage) return arrival;
  const bool good = received.bytes == sizeof(*message) &&
                    received.descriptors == kFds && !received.truncated &&
                    !received.lost_descriptors && message->magic == kMagic;
  return good ? arrival : Arrival::kClosed;
}

UniqueFd UnixSocket() {
  return UniqueFd(MoveHigh(
      ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemoryLinks>> MemoryLinks::Create(
    MemoryLinkUser* user, int doorbell_file, int wake,
    SelfTraffic self_traffic) {
  auto links = std::unique_ptr<MemoryLinks>(
      new MemoryLinks(user, doorbell_file, wake, self_traffic));
  if (!links->poll_.valid() || !links->event_.valid() ||
      !links->Watch(links->event_.get(), nullptr)) {
    return ErrnoStatus(errno, "same host");
  }
  return links;
}

MemoryLinks::MemoryLinks(MemoryLinkUser* user, int doorbell_file, int wake,
                         SelfTraffic self_traffic)
    : ForkGuard(ForkLevel::kDescriptors),
      user_(*user),
      doorbell_file_(doorbell_file),
      wake_(wake),
      self_traffic_(self_traffic),
      poll_(MoveHigh(::epoll_create1(EPOLL_CLOEXEC))),
      event_(MoveHigh(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))) {
  EnterForkGuard();
}

MemoryLinks::~MemoryLinks() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Link& link : links_) Close(link.socket);
    links_.clear();
    // A socket that may contain descriptors of another user is left open if it
    // cannot be closed.
    EndListeners([](const Listener&) { return true; });
    for (Listener& listener : ended_listeners_) {
      (void)listener.socket.Release();
    }
    if (!CloseElsewhere(foreign_)) (void)foreign_.Release();
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
  ended_listeners_.clear();
  foreign_.Reset();
  poll_.Reset();
  event_.Reset();
  wishes_mutex_.unlock();
  mutex_.unlock();
}

MemoryLinks::Link::Link() { ++process_links; }
MemoryLinks::Link::~Link() { --process_links; }

bool MemoryLinks::IsFull() const {
  rlimit limit{};
  return links_.size() >= kMaxLinks ||
         ::getrlimit(RLIMIT_NOFILE, &limit) != 0 ||
         process_links >= limit.rlim_cur / kPartOfLimit;
}

bool MemoryLinks::Watch(int fd, void* what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = what;
  return ::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void MemoryLinks::Close(UniqueFd& socket) {
  if (!socket.valid()) return;
  (void)::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  ::shutdown(socket.get(), SHUT_RDWR);
  socket.Reset();
}

template <typename Ends>
void MemoryLinks::EndListeners(Ends ends) {
  for (auto next = listeners_.begin(); next != listeners_.end();) {
    const auto listener = next++;
    if (!ends(*listener)) continue;
    const int fd = listener->socket.get();
    (void)::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);
    ::shutdown(fd, SHUT_RDWR);
    ended_listeners_.splice(ended_listeners_.end(), listeners_, listener);
  }
  CloseEnded();
}

// Connections first: closing a listener closes those that wait in it, which
// might block.
void MemoryLinks::CloseEnded() {
  while (!ended_listeners_.empty() && CloseElsewhere(foreign_)) {
    const int fd = ended_listeners_.front().socket.get();
    UniqueFd waiting(::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC));
    if (waiting.valid()) {
      (void)KeepIfOwn(waiting);
    } else if (IsShort(errno)) {
      short_ = true;
      return;
    } else {
      ended_listeners_.pop_front();
    }
  }
}

void MemoryLinks::Wake() {
  const uint64_t one = 1;
  (void)!::write(event_.get(), &one, sizeof(one));
}

// --- Listening.

void MemoryLinks::AddAddress(const LocalAddress& local) {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    addresses_.push_back(local);
    for (const uint16_t slot : slots_) Listen(local, slot);
  } catch (const std::bad_alloc&) {
  }
}

void MemoryLinks::RemoveAddress(const wire::IpAddress& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(addresses_,
                [&](const auto& local) { return local.address == address; });
  EndListeners([&](const Listener& l) { return l.local.address == address; });
  if (!ended_listeners_.empty()) Wake();
}

void MemoryLinks::AddSlot(uint16_t slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  try {
    slots_.push_back(slot);
    for (const LocalAddress& local : addresses_) Listen(local, slot);
  } catch (const std::bad_alloc&) {
  }
}

// listen(2) is last: from then on a peer can connect and leave descriptors in
// the listener.
void MemoryLinks::Listen(const LocalAddress& local, uint16_t slot) {
  const Name name(local, slot);
  Listener& listener =
      listeners_.emplace_back(Listener{local, slot, UnixSocket()});
  const int fd = listener.socket.get();
  if (fd < 0 || ::bind(fd, name.get(), name.size) != 0 ||
      !Watch(fd, &listener) || ::listen(fd, kBacklog) != 0) {
    Close(listener.socket);
    listeners_.pop_back();
  }
}

uint32_t MemoryLinks::ScopeOf(const wire::IpAddress& address) const {
  for (const LocalAddress& local : addresses_) {
    if (local.address == address) return local.scope_id;
  }
  return 0;
}

// Another user's connection may contain descriptors that block the thread that
// closes it.
bool MemoryLinks::KeepIfOwn(UniqueFd& socket) {
  if (IsOwnUser(PeerOf(socket.get()).uid)) return true;
  foreign_ = std::move(socket);
  (void)CloseElsewhere(foreign_);
  return false;
}

void MemoryLinks::Accept(Listener& listener) {
  for (int i = 0; i < kTurn && !foreign_.valid(); ++i) {
    UniqueFd socket(MoveHigh(::accept4(listener.socket.get(), nullptr, nullptr,
                                       SOCK_CLOEXEC | SOCK_NONBLOCK)));
    if (!socket.valid()) {
      short_ |= IsShort(errno);
      return;
    }
    if (!KeepIfOwn(socket)) continue;
    if (IsFull() || socket.get() < kFirstHighFd) continue;
    Link& link = links_.emplace_back();
    link.route = {{}, listener.local.address, listener.slot};
    if (!Watch(socket.get(), &link)) {
      links_.pop_back();
      continue;
    }
    link.socket = std::move(socket);
    link.state = State::kUnknown;
  }
}

// --- The lane's wishes.

bool MemoryLinks::Connect(const MemoryRoute& route) {
  const std::lock_guard<std::mutex> lock(wishes_mutex_);
  try {
    wanted_.push_back(route);
  } catch (const std::bad_alloc&) {
    return false;
  }
  Wake();
  return true;
}

void MemoryLinks::DisconnectIncoming(int bit) {
  const std::lock_guard<std::mutex> lock(wishes_mutex_);
  broken_incoming_ |= Bit(bit);
  Wake();
}

void MemoryLinks::DisconnectOutgoing(int number) {
  const std::lock_guard<std::mutex> lock(wishes_mutex_);
  broken_outgoing_ |= Bit(number);
  Wake();
}

void MemoryLinks::OnAddressesChanged() {
  const std::lock_guard<std::mutex> lock(wishes_mutex_);
  check_addresses_ = true;
  Wake();
}

// --- The control thread.

int MemoryLinks::fd() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return paused_ ? -1 : poll_.get();
}

MemoryLinks::Clock::time_point MemoryLinks::time() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  Clock::time_point time = Clock::time_point::max();
  if (paused_) time = paused_until_;
  if (outgoing_ != 0) time = std::min(time, asked_unused_at_ + kAskUnused);
  return time;
}

void MemoryLinks::Run(const Port::LockLane& with_lane) {
  const auto news = [](const Link& link) {
    return link.state != link.reported || link.state == State::kEnded;
  };
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!poll_.valid()) return;  // in a child of fork
      DoPending();
      if (outgoing_ == 0 && std::ranges::none_of(links_, news)) return;
    }
    with_lane([this] {
      for (Link& link : links_) NotifyUser(link);
    });
  } catch (const std::bad_alloc&) {
    // The user keeps its rings until it has been told.
    Wake();
    throw;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  asked_unused_at_ = Clock::now();
  links_.remove_if([this](Link& link) {
    if (link.state != State::kEnded) return false;
    if (!link.outgoing && link.bit >= 0) incoming_ &= ~Bit(link.bit);
    if (link.number >= 0) outgoing_ &= ~Bit(link.number);
    Close(link.socket);
    return true;
  });
}

void MemoryLinks::DoPending() {
  short_ = false;
  paused_until_ = Clock::now() + kRetry;
  CloseEnded();
  (void)CloseElsewhere(foreign_);
  uint64_t ignored;
  (void)!::read(event_.get(), &ignored, sizeof(ignored));
  EndLinks();
  for (int i = 0; i < kTurn && HasWanted() && !foreign_.valid(); ++i) {
    BeginLink();
  }
  if (HasWanted()) Wake();
  epoll_event events[kEvents];
  const int count = ::epoll_wait(poll_.get(), events, kEvents, 0);
  for (int i = 0; i < count; ++i) {
    void* const what = events[i].data.ptr;
    if (what == nullptr) continue;
    const auto listener = std::ranges::find_if(
        listeners_, [&](const Listener& l) { return &l == what; });
    if (listener != listeners_.end()) {
      Accept(*listener);
      continue;
    }
    for (Link& link : links_) {
      if (&link == what) OnReadable(link);
    }
  }
  // There may be more events than one call returns.
  if (count == kEvents) Wake();
  paused_ = must_pause();
}

void MemoryLinks::EndLinks() {
  uint64_t broken_incoming, broken_outgoing;
  bool check_addresses;
  {
    const std::lock_guard<std::mutex> lock(wishes_mutex_);
    broken_incoming = std::exchange(broken_incoming_, 0);
    broken_outgoing = std::exchange(broken_outgoing_, 0);
    check_addresses = std::exchange(check_addresses_, false);
  }
  // Remembers the results, so that the kernel is asked once for each address
  // (more often if there is no memory).
  std::vector<std::pair<wire::IpAddress, bool>> asked;
  const auto is_gone = [&](const wire::IpAddress& own) {
    const auto before =
        std::ranges::find(asked, own, &std::pair<wire::IpAddress, bool>::first);
    if (before != asked.end()) return before->second;
    const bool gone = IsGone({own, ScopeOf(own)});
    try {
      asked.emplace_back(own, gone);
    } catch (const std::bad_alloc&) {
    }
    return gone;
  };
  for (Link& link : links_) {
    if (link.reported != State::kOpen) continue;
    const wire::IpAddress& own =
        link.outgoing ? link.route.source : link.route.destination;
    const uint64_t broken = link.outgoing ? broken_outgoing & Bit(link.number)
                                          : broken_incoming & Bit(link.bit);
    if (broken != 0 || (check_addresses && is_gone(own))) {
      link.state = State::kEnded;
    }
  }
}

bool MemoryLinks::HasWanted() {
  const std::lock_guard<std::mutex> lock(wishes_mutex_);
  return !wanted_.empty();
}

void MemoryLinks::BeginLink() {
  const bool full = IsFull();
  Link& link = links_.emplace_back();  // kEnded: the user will be told
  link.outgoing = true;
  link.reported = State::kAsked;
  {
    const std::lock_guard<std::mutex> lock(wishes_mutex_);
    link.route = wanted_.back();
    wanted_.pop_back();
  }
  if (!full && RequestRing(link)) link.state = State::kAsked;
}

// Refuses rings within the process (SelfTraffic): by UDP, a program's packets
// to itself have arrived, and are executed before it deregisters the memory.
bool MemoryLinks::RequestRing(Link& link) {
  if ((self_traffic_ != SelfTraffic::kRingsAtOnce &&
       std::ranges::find(slots_, link.route.slot) != slots_.end()) ||
      outgoing_ == ~uint64_t{0}) {
    return false;
  }
  link.number = std::countr_one(outgoing_);
  outgoing_ |= Bit(link.number);
  const MemoryRoute& route = link.route;
  const Name name({route.destination,
                   IsLinkLocal(route.destination) ? ScopeOf(route.source) : 0},
                  route.slot);
  UniqueFd socket = UnixSocket();
  if (socket.get() < kFirstHighFd ||
      ::connect(socket.get(), name.get(), name.size) != 0 ||
      !KeepIfOwn(socket) ||
      (self_traffic_ == SelfTraffic::kUdp &&
       PeerOf(socket.get()).pid == ::getpid())) {
    return false;
  }
  UniqueFd file;
  absl::StatusOr<MappedMemory> ring =
      MappedMemory::CreateShared(sizeof(RingMemory), &file);
  if (!ring.ok()) return false;
  link.ring = *std::move(ring);
  Request request;
  request.source = route.source;
  if (!Send(socket.get(), request, {file.get()}) ||
      !Watch(socket.get(), &link)) {
    return false;
  }
  link.socket = std::move(socket);
  return true;
}

// An unexpected message ends the link, as does any after the expected one.
void MemoryLinks::OnReadable(Link& link) {
  // An exception ends the link, too: its message may have been received
  // already.
  const State was = std::exchange(link.state, State::kEnded);
  if (was == State::kUnknown) {
    link.state = TakeRequest(link);
  } else if (was == State::kAsked) {
    link.state = TakeAnswer(link);
  } else {
    uint8_t byte;
    ReceivedMessage ignored;
    if (ReceiveMessage(link.socket.get(), {&byte, 1}, {}, &ignored) ==
        Arrival::kNothing) {
      link.state = was;
    }
  }
}

MemoryLinks::State MemoryLinks::TakeRequest(Link& link) {
  Request request;
  std::array<UniqueFd, 1> fds;
  const Arrival arrival = Receive(link.socket.get(), &request, &fds);
  if (arrival == Arrival::kNothing) return State::kUnknown;
  if (arrival == Arrival::kClosed || request.ring_bytes != sizeof(RingMemory) ||
      incoming_ == ~uint64_t{0}) {
    return State::kEnded;
  }
  link.route.source = request.source;
  const wire::IpAddress& own = link.route.destination;
  const uint32_t scope = ScopeOf(own);
  if (ErrorOf({own, scope}) != 0 ||
      ErrorOf({request.source, IsLinkLocal(request.source) ? scope : 0}) != 0) {
    return State::kEnded;
  }
  absl::StatusOr<MappedMemory> ring =
      MappedMemory::MapShared(fds[0].get(), sizeof(RingMemory));
  if (!ring.ok()) return State::kEnded;
  link.ring = *std::move(ring);
  const int bit = std::countr_one(incoming_);
  Answer answer;
  answer.bit = static_cast<uint32_t>(bit);
  if (!Send(link.socket.get(), answer, {doorbell_file_, wake_})) {
    return State::kEnded;
  }
  link.bit = bit;
  incoming_ |= Bit(bit);
  return State::kOpen;
}

MemoryLinks::State MemoryLinks::TakeAnswer(Link& link) {
  Answer answer;
  std::array<UniqueFd, 2> fds;
  const Arrival arrival = Receive(link.socket.get(), &answer, &fds);
  if (arrival == Arrival::kNothing) return State::kAsked;
  if (arrival == Arrival::kClosed || answer.bit >= Doorbell::kRings ||
      fds[1].get() < kFirstHighFd || !IsEventfd(fds[1].get())) {
    return State::kEnded;
  }
  absl::StatusOr<MappedMemory> doorbell =
      MappedMemory::MapShared(fds[0].get(), kDoorbellBytes);
  if (!doorbell.ok()) return State::kEnded;
  link.doorbell = *std::move(doorbell);
  link.wake = std::move(fds[1]);
  link.bit = static_cast<int>(answer.bit);
  return State::kOpen;
}

void MemoryLinks::NotifyUser(Link& link) {
  if (link.reported == link.state) {
    if (link.outgoing && link.state == State::kOpen &&
        user_.GivesUp(link.route, link.number)) {
      link.state = link.reported = State::kEnded;
    }
    return;
  }
  switch (link.state) {
    case State::kUnknown:
    case State::kAsked:
      break;
    case State::kOpen:
      if (link.outgoing) {
        user_.OnOutgoing(link.route, {RingMemory::In(link.ring.bytes()),
                                      Doorbell::In(link.doorbell.bytes()),
                                      link.wake.get(), link.bit, link.number});
      } else {
        user_.OnIncoming(link.bit, link.route.source, link.route.destination,
                         RingMemory::In(link.ring.bytes()));
      }
      break;
    case State::kEnded:
      if (link.outgoing) {
        user_.OnOutgoingEnd(link.route,
                            link.reported == State::kOpen ? link.number : -1);
      } else if (link.reported == State::kOpen) {
        user_.OnIncomingEnd(link.bit);
      }
      break;
  }
  link.reported = link.state;
}

}  // namespace rxe_user
