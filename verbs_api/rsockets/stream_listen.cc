// Listening: the connection thread answers requests. Connections then wait in
// the backlog to be accepted.
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "verbs_api/rsockets/stream.h"

namespace rsockets {
namespace {

// A peer that has not confirmed within this time loses its place in the
// backlog.
constexpr auto kConfirmTimeout = std::chrono::seconds(10);
// The least number of requests that the connection manager queues.
constexpr size_t kMinQueuedRequests = 128;

size_t MostOfSystem() {
  size_t most = SOMAXCONN;
  std::ifstream("/proc/sys/net/core/somaxconn") >> most;
  return most;
}

// The size of the backlog of listen(2): one more than `backlog`, as in Linux; a
// negative number is a large one.
size_t BacklogCapacity(int backlog) {
  constexpr size_t kMost = 1024;  // the limit of rdma_listen(3)
  size_t places = std::min({size_t{static_cast<unsigned>(backlog)},
                            MostOfSystem(), kMost}) +
                  1;
  // A connection takes three descriptors. Limits the backlog to a third of all
  // descriptors, since the program needs some.
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    places = std::min<size_t>(places, limit.rlim_cur / 9 + 1);
  }
  return places;
}

}  // namespace

int Stream::Listen(int backlog) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (state_ > StreamState::kListening) return -EINVAL;
  backlog_capacity_ = BacklogCapacity(backlog);
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
  auto& answered = backlog_.answered;
  const auto oldest = std::min_element(answered.begin(), answered.end(),
                                       [](const auto& a, const auto& b) {
                                         return a.second.since < b.second.since;
                                       });
  if (oldest == answered.end() ||
      Clock::now() - oldest->second.since < kConfirmTimeout) {
    return false;
  }
  dropped->answered.insert(answered.extract(oldest));
  return true;
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
    error = ConnectionThread::Get().Begin(
        stream->fd(), ConnectionThread::When::kReadable, weak_from_this(),
        [this, key] { ServeAnswered(key); }, &answered.watch);
    // The peer may already have confirmed.
    if (error == 0) return UpdateAnswered(key, dropped);
    backlog_.answered.erase(key);
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
    watch_.Renew();  // its place is free
  }
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
  watch_.Renew();  // a place is free
  lock.unlock();
  if (first.stream == nullptr) return first.error;
  first.stream->OnAccepted(peer);
  *out = first.stream;
  return 0;
}

}  // namespace rsockets
