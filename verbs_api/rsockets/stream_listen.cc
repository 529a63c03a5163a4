// Listening: the connection thread answers requests. Connections then wait in
// the backlog to be accepted.
#include <poll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include "verbs_api/rsockets/datagram_protocol.h"
#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

// A peer that has not confirmed an answered request within this time is
// overdue. It is less while others are overdue (ConfirmTimeout).
constexpr Clock::duration kConfirmTimeout = std::chrono::seconds(1);
constexpr Clock::duration kMinConfirmTimeout = std::chrono::milliseconds(10);
constexpr size_t kMaxOverdue = 64;
// The minimum number of requests that the connection manager queues.
constexpr size_t kMinQueuedRequests = 128;

size_t SystemMaxBacklog() {
  size_t max = SOMAXCONN;
  std::ifstream("/proc/sys/net/core/somaxconn") >> max;
  return max;
}

// `max`, limited so that connections take at most 1/`part` of the program's
// descriptors: a connection takes three, and the program needs some.
size_t Limited(size_t max, size_t part) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return max;
  return std::min<size_t>(max, limit.rlim_cur / (3 * part) + 1);
}

// The size of the backlog of listen(2): one more than `backlog`, as in Linux; a
// negative number is a large one.
size_t BacklogCapacity(int backlog) {
  constexpr size_t kMax = 1024;  // the limit of rdma_listen(3)
  return Limited(std::min({size_t{static_cast<unsigned>(backlog)},
                           SystemMaxBacklog(), kMax}) +
                     1,
                 3);
}

// Shorter with each overdue peer, so that a flood of requests that are never
// confirmed is answered faster than it arrives.
Clock::duration ConfirmTimeout(size_t overdue) {
  const size_t divisor = (1 + overdue) * (1 + overdue);
  return std::max<Clock::duration>(kConfirmTimeout / divisor,
                                   kMinConfirmTimeout);
}

bool IsReadable(int fd) {
  pollfd readable = {fd, POLLIN, 0};
  return poll(&readable, 1, 0) == 1;
}

void SetTimer(int timer, Clock::time_point at) {
  const auto since_epoch = at.time_since_epoch();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
  itimerspec when = {};
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec =
      std::chrono::nanoseconds(since_epoch - seconds).count();
  static_cast<void>(timerfd_settime(timer, TFD_TIMER_ABSTIME, &when, nullptr));
}

}  // namespace

int Stream::Listen(int backlog) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ > StreamState::kListening) return -EINVAL;
  backlog_capacity_ = BacklogCapacity(backlog);
  max_overdue_ = Limited(kMaxOverdue, 12);
  if (state_ == StreamState::kListening) {
    watch_.Renew();  // more may have arrived
    return 0;
  }
  if (const int error = ConnectionThread::Get().Begin(
          channel_->fd, ConnectionThread::When::kOnNews, weak_from_this(),
          [this] { ServeRequests(); }, &watch_)) {
    return error;
  }
  if (rdma_listen(id_, static_cast<int>(std::max(backlog_capacity_,
                                                 kMinQueuedRequests))) != 0) {
    const int error = -errno;
    watch_.End();
    return error;
  }
  // Without a timer, only the next request causes the check.
  overdue_timer_.Reset(
      timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (overdue_timer_.valid()) {
    static_cast<void>(ConnectionThread::Get().Begin(
        overdue_timer_.get(), ConnectionThread::When::kOnNews, weak_from_this(),
        [this] { ServeRequests(); }, &overdue_watch_));
  }
  Unwatch(channel_->fd);
  state_ = StreamState::kListening;
  return 0;
}

int Stream::StopListening(std::unique_lock<std::mutex>& lock) {
  // An rdma_cm_id cannot stop listening, so it is replaced.
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0) return -errno;
  sockaddr_storage address;
  std::memcpy(&address, rdma_get_local_addr(id_), sizeof(address));
  watch_.End();
  overdue_watch_.End();
  overdue_timer_.Reset();
  rdma_destroy_id(std::exchange(id_, id));
  // Another program may have taken the port meanwhile.
  state_ =
      SetIdOptions() == 0 &&
              rdma_bind_addr(id_, reinterpret_cast<sockaddr*>(&address)) == 0
          ? StreamState::kBound
          : StreamState::kIdle;
  const int error = Watch(channel_->fd);
  WakeAll(nullptr);
  DropBacklog(lock);
  return error;
}

void Stream::DropBacklog(std::unique_lock<std::mutex>& lock) {
  // Their destructors reset the connections, which takes time.
  const Backlog dropped = std::exchange(backlog_, {});
  const std::deque<Request> requests = std::exchange(requests_, {});
  lock.unlock();
  for (const Request& request : requests) rdma_destroy_id(request.id);
}

bool Stream::HasBacklogSlot(Backlog* dropped) {
  if (backlog_.size() < backlog_capacity_) return true;
  if (requests_.empty() && !IsReadable(channel_->fd)) return false;
  auto& answered = backlog_.answered;
  const auto oldest = std::min_element(
      answered.begin(), answered.end(), [](const auto& a, const auto& b) {
        return std::tuple(a.second.overdue, a.second.since) <
               std::tuple(b.second.overdue, b.second.since);
      });
  if (oldest == answered.end() || oldest->second.overdue) return false;
  const Clock::time_point due =
      oldest->second.since + ConfirmTimeout(backlog_.overdue);
  if (due > Clock::now()) {
    SetTimer(overdue_timer_.get(), due);
    return false;
  }
  // The peer may still confirm the connection.
  oldest->second.overdue = true;
  if (++backlog_.overdue > max_overdue_) DropOverdue(dropped);
  return true;
}

// Drops the oldest overdue connection of the address that has the most.
void Stream::DropOverdue(Backlog* dropped) {
  auto& answered = backlog_.answered;
  std::map<std::array<uint8_t, 16>, size_t> count;
  for (const auto& [key, one] : answered) count[one.source] += one.overdue;
  const auto before = [&](const auto& a, const auto& b) {
    const auto rank = [&](const Answered& one) {
      return std::tuple(!one.overdue, max_overdue_ - count[one.source] + 1,
                        one.since);
    };
    return rank(a.second) < rank(b.second);
  };
  const auto last = std::min_element(answered.begin(), answered.end(), before);
  dropped->answered.insert(answered.extract(last));
  --backlog_.overdue;
}

void Stream::ServeRequests() {
  Backlog dropped;  // destroyed after unlocking
  std::unique_lock<std::mutex> lock(mutex_);
  while (state_ == StreamState::kListening && !closed_ &&
         HasBacklogSlot(&dropped) && (!requests_.empty() || TakeEvent())) {
    if (requests_.empty()) {  // another event
      WakeAll(nullptr);
      continue;
    }
    std::shared_ptr<Stream> stream(new Stream(domain(), settings_));
    stream->options_ = options_;
    const Request request = requests_.front();
    requests_.pop_front();
    // Unlocked: threads that poll or accept must not wait for Answer.
    lock.unlock();
    const int error = stream->Answer(request);
    lock.lock();
    Admit(std::move(stream), error, &dropped);
    // One request per call, since in a flood there is always another one.
    // Before this returns, what was dropped is not freed, and no other socket
    // is served.
    watch_.Renew();
    return;
  }
}

void Stream::Admit(std::shared_ptr<Stream> stream, int error,
                   Backlog* dropped) {
  if (state_ != StreamState::kListening || closed_) {
    dropped->waiting.push_back({std::move(stream), 0});
    return;
  }
  if (error == 0) {
    const Stream* const key = stream.get();
    Answered& answered = backlog_.answered[key];
    answered.stream = stream;
    answered.since = Clock::now();
    answered.source =
        DatagramAddress::Of(rdma_get_peer_addr(stream->id_)).Gid();
    error = ConnectionThread::Get().Begin(
        stream->fd(), ConnectionThread::When::kReadable, weak_from_this(),
        [this, key] { ServeAnswered(key); }, &answered.watch);
    // The peer may already have confirmed.
    if (error == 0) return UpdateAnswered(key, dropped);
    backlog_.answered.erase(key);  // it is not overdue yet
  }
  dropped->waiting.push_back({std::move(stream), 0});
  if (error == -ECONNABORTED) return;
  backlog_.waiting.push_back({nullptr, error});
  WakeAll(nullptr);
}

void Stream::ServeAnswered(const Stream* stream) {
  Backlog dropped;  // destroyed after unlocking
  std::lock_guard<std::mutex> lock(mutex_);
  UpdateAnswered(stream, &dropped);
}

void Stream::UpdateAnswered(const Stream* key, Backlog* dropped) {
  const auto found = backlog_.answered.find(key);
  if (found == backlog_.answered.end()) return;
  const std::shared_ptr<Stream> stream = found->second.stream;
  const std::optional<bool> established = stream->TakeAnswer();
  if (!established.has_value()) return;
  if (*established) {
    backlog_.waiting.push_back({stream, 0});
    WakeAll(nullptr);
  } else {
    dropped->waiting.push_back({stream, 0});
    watch_.Renew();  // its slot is free
  }
  if (found->second.overdue) --backlog_.overdue;
  backlog_.answered.erase(found);
}

std::optional<bool> Stream::TakeAnswer() {
  std::lock_guard<std::mutex> lock(mutex_);
  DrainAndProgress();
  if (state_ == StreamState::kAccepting) {
    // Received data also confirms the connection.
    Arm();
    MakeProgress();
  }
  if (state_ == StreamState::kAccepting) return std::nullopt;
  return established_;
}

int Stream::Accept(std::shared_ptr<Socket>* out, sockaddr_storage* peer) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (state_ != StreamState::kListening) return -EINVAL;
  if (const int error =
          Await(lock, nonblocking(0), After(options_.receive_timeout), [&] {
            return !backlog_.waiting.empty() ||
                   state_ != StreamState::kListening;
          })) {
    return error;
  }
  if (state_ != StreamState::kListening) return -EINVAL;
  const Waiting first = std::move(backlog_.waiting.front());
  backlog_.waiting.pop_front();
  watch_.Renew();  // a slot is free
  lock.unlock();
  if (first.stream == nullptr) return first.error;
  first.stream->OnAccepted(peer);
  *out = first.stream;
  return 0;
}

}  // namespace rsockets
