#include "verbs_api/librdmacm/event_channel.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "verbs_api/librdmacm/abi.h"
#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/registry.h"

namespace librdmacm {
namespace {

using rxe_user::NoCancellation;

Registry<rdma_event_channel, EventChannel>& Channels() {
  static auto* const channels = new Registry<rdma_event_channel, EventChannel>;
  return *channels;
}

// Those that the application has and has not acknowledged.
Registry<rdma_cm_event, Event>& Reported() {
  static auto* const events = new Registry<rdma_cm_event, Event>;
  return *events;
}

bool IsNonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// Takes one of the counter without waiting, whatever the descriptor's flags.
// None is there if somebody has taken it who has not come to the queue yet; he
// finds one event less and looks again. The channel's lock is held.
void TakeToken(int fd) {
  uint64_t one;
  const iovec to = {.iov_base = &one, .iov_len = sizeof(one)};
  ssize_t n;
  do {
    n = preadv2(fd, &to, 1, -1, RWF_NOWAIT);
  } while (n < 0 && errno == EINTR);
  if (n >= 0 || errno == EAGAIN) return;
  // Before Linux 5.8. Who waits already is not held up by the flag, and who
  // comes meanwhile looks again (Read).
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  while (read(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  fcntl(fd, F_SETFL, flags);
}

}  // namespace

std::shared_ptr<EventChannel> EventChannel::Create() {
  rxe_user::UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!fd.valid()) return nullptr;
  std::shared_ptr<EventChannel> channel(new EventChannel);
  channel->part_.fd = fd.get();
  channel->fd_ = std::move(fd);
  return channel;
}

void EventChannel::Insert(Events::const_iterator where, Events events) {
  if (!fd_.valid()) return;
  const uint64_t count = events.size();
  events_.splice(where, events);
  Tell(count);
}

void EventChannel::Tell(uint64_t count) {
  // An eventfd takes them all at once.
  while (count != 0 && write(fd_.get(), &count, sizeof(count)) < 0 &&
         errno == EINTR) {
  }
}

void EventChannel::Push(Events events) {
  std::lock_guard<std::mutex> lock(mutex_);
  Insert(events_.end(), std::move(events));
}

bool EventChannel::Read() {
  uint64_t one;
  // Without the lock. The descriptor stays open meanwhile, unless the
  // application destroys the channel that it waits for.
  while (read(part_.fd, &one, sizeof(one)) < 0) {
    if (errno != EAGAIN) return false;
    // It may be TakeToken that does not want to wait.
    const NoCancellation no_cancellation;
    std::lock_guard<std::mutex> lock(mutex_);
    if (IsNonblocking(part_.fd)) {
      errno = EAGAIN;
      return false;
    }
  }
  return true;
}

Events EventChannel::Take() {
  Events taken;
  for (;;) {
    if (!Read()) return taken;
    const NoCancellation no_cancellation;
    std::lock_guard<std::mutex> lock(mutex_);
    if (events_.empty()) continue;  // it was withdrawn
    taken.splice(taken.end(), events_, events_.begin());
    taken.front()->owner->CountReported();
    return taken;
  }
}

Events EventChannel::TakeIf(const Matches& matches) {
  Events taken;
  uint64_t read = 0;  // of the counter
  // One of it goes with the event. What was looked at and left has to be told
  // of again.
  const absl::Cleanup settle = [&] {
    const NoCancellation no_cancellation;
    const int error = errno;
    std::lock_guard<std::mutex> lock(mutex_);
    if (fd_.valid()) {
      if (read < taken.size()) {
        TakeToken(fd_.get());
      } else {
        Tell(read - taken.size());
      }
    }
    errno = error;
  };
  for (;;) {
    {
      const NoCancellation no_cancellation;
      std::lock_guard<std::mutex> lock(mutex_);
      const auto found = std::find_if(
          events_.begin(), events_.end(),
          [&](const std::shared_ptr<Event>& e) { return matches(*e); });
      if (found != events_.end()) {
        taken.splice(taken.end(), events_, found);
        taken.front()->owner->CountReported();
        return taken;
      }
    }
    if (!Read()) return taken;
    ++read;
  }
}

void EventChannel::PutBack(Events event) {
  event.front()->owner->CountAcknowledged();
  std::lock_guard<std::mutex> lock(mutex_);
  Insert(events_.begin(), std::move(event));
}

bool EventChannel::HasIf(const Matches& matches) {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(
      events_.begin(), events_.end(),
      [&](const std::shared_ptr<Event>& event) { return matches(*event); });
}

Events EventChannel::Withdraw(const Id* owner) {
  return WithdrawIf(
      [owner](const Event& event) { return event.owner.get() == owner; });
}

Events EventChannel::WithdrawIf(const Matches& matches) {
  std::lock_guard<std::mutex> lock(mutex_);
  Events withdrawn;
  for (auto at = events_.begin(); at != events_.end();) {
    const auto event = at++;
    if (matches(**event)) withdrawn.splice(withdrawn.end(), events_, event);
  }
  if (fd_.valid()) {
    for (size_t i = 0; i < withdrawn.size(); ++i) TakeToken(fd_.get());
  }
  return withdrawn;
}

Events EventChannel::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  fd_.Reset();
  return std::exchange(events_, {});
}

std::shared_ptr<EventChannel> FindChannel(const rdma_event_channel* channel) {
  std::shared_ptr<EventChannel> found = Channels().Find(channel);
  if (found == nullptr && Channels().IsInherited(channel)) WarnInherited();
  return found;
}

CM_EXPORT rdma_event_channel* rdma_create_event_channel() {
  return PointerCall([]() -> rdma_event_channel* {
    std::shared_ptr<EventChannel> channel = EventChannel::Create();
    if (channel == nullptr) return nullptr;
    rdma_event_channel* const part = channel->part();
    Channels().Add(part, std::move(channel));
    return part;
  });
}

CM_EXPORT void rdma_destroy_event_channel(rdma_event_channel* channel) {
  const NoCancellation no_cancellation;
  const std::shared_ptr<EventChannel> found = Channels().Remove(channel);
  if (found == nullptr) return;
  for (const std::shared_ptr<Event>& event : found->Close()) Discard(*event);
}

CM_EXPORT int rdma_get_cm_event(rdma_event_channel* channel,
                                rdma_cm_event** event) {
  std::shared_ptr<EventChannel> found;
  {
    const NoCancellation no_cancellation;
    found = FindChannel(channel);
  }
  if (found == nullptr || event == nullptr) return Return(EINVAL);
  return TakeEvent(*found, event);
}

namespace {

// What TakeEvent does with what it has taken.
int Report(EventChannel& channel, Events taken, rdma_cm_event** out) {
  if (taken.empty()) return -1;
  return Call([&]() -> int {
    absl::Cleanup put_back = [&] { channel.PutBack(std::move(taken)); };
    if (const int error = BeforeReport(*taken.front())) return error;
    rdma_cm_event* const part = &taken.front()->part;
    Reported().Add(part, taken.front());
    std::move(put_back).Cancel();
    *out = part;
    return 0;
  });
}

}  // namespace

int TakeEvent(EventChannel& channel, rdma_cm_event** out) {
  return Report(channel, channel.Take(), out);
}

int TakeEvent(EventChannel& channel, const EventChannel::Matches& matches,
              rdma_cm_event** out) {
  return Report(channel, channel.TakeIf(matches), out);
}

void ReturnEvent(EventChannel& channel, const rdma_cm_event* event,
                 Events place) {
  place.front() = Reported().Remove(event);
  if (place.front() != nullptr) channel.PutBack(std::move(place));
}

CM_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  return Call([&] {
    const std::shared_ptr<Event> found = Reported().Remove(event);
    if (found == nullptr) return Reported().IsInherited(event) ? 0 : EINVAL;
    found->owner->CountAcknowledged();
    return 0;
  });
}

}  // namespace librdmacm
