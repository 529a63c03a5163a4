#include "verbs_api/librdmacm/event_channel.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/needed_calls.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/warn_once.h"
#include "verbs_api/librdmacm/abi.h"
#include "verbs_api/librdmacm/connect.h"
#include "verbs_api/librdmacm/id.h"
#include "verbs_api/librdmacm/registry.h"

namespace librdmacm {
namespace {

using rxe_user::NoCancellation;

Registry<rdma_event_channel, EventChannel>& Channels() {
  return rxe_user::OnlyOne<Registry<rdma_event_channel, EventChannel>>();
}

// Events that the application has taken and not acknowledged.
Registry<rdma_cm_event, Event>& Reported() {
  return rxe_user::OnlyOne<Registry<rdma_cm_event, Event>>();
}

Events::const_iterator Find(const Events& events,
                            const EventChannel::Matches& matches) {
  return std::find_if(
      events.begin(), events.end(),
      [&](const std::shared_ptr<Event>& event) { return matches(*event); });
}

bool Has(const Events& events, const EventChannel::Matches& matches) {
  return Find(events, matches) != events.end();
}

// One write to an eventfd adds any count.
void Add(int fd, uint64_t count) {
  while (count != 0 && write(fd, &count, sizeof(count)) < 0 && errno == EINTR) {
  }
}

bool IsNonblocking(int fd) { return (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0; }

// Takes one from the counter without blocking, whatever the descriptor's flags
// are. Returns false if the counter is empty: another thread has read it but
// not taken its event yet. The channel's lock is held.
bool TakeOne(int fd) {
  uint64_t one;
  const iovec to = {.iov_base = &one, .iov_len = sizeof(one)};
  ssize_t n;
  do {
    n = preadv2(fd, &to, 1, -1, RWF_NOWAIT);
  } while (n < 0 && errno == EINTR);
  if (n >= 0 || errno == EAGAIN) return n >= 0;
  // Fallback for Linux before 5.8: makes the descriptor non-blocking for a
  // moment. Threads that already block are not affected; a thread that gets
  // EAGAIN meanwhile checks the flags again (Read).
  const int flags = fcntl(fd, F_GETFL);
  fcntl(fd, F_SETFL, flags | O_NONBLOCK);
  do {
    n = read(fd, &one, sizeof(one));
  } while (n < 0 && errno == EINTR);
  fcntl(fd, F_SETFL, flags);
  return n >= 0;
}

}  // namespace

std::shared_ptr<EventChannel> EventChannel::Create() {
  if (const absl::Status allowed = rxe_user::CheckNeededCalls();
      !allowed.ok()) {
    rxe_user::WarnOnce(std::string(allowed.message()));
    errno = rxe_user::ErrnoOf(allowed);
    return nullptr;
  }
  rxe_user::UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!fd.valid()) return nullptr;
  std::shared_ptr<EventChannel> channel(new EventChannel);
  channel->part_.fd = fd.get();
  channel->fd_ = std::move(fd);
  return channel;
}

bool EventChannel::Insert(Events::const_iterator where, Events& events) {
  if (closed_) return false;
  const uint64_t count = events.size();
  for (const Waiter* waiter = waiters_; waiter != nullptr;
       waiter = waiter->next) {
    if (Has(events, waiter->matches)) Add(waiter->bell.get(), 1);
  }
  events_.splice(where, events);
  Add(fd_.get(), count);
  return true;
}

void EventChannel::Push(Events events) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (Insert(events_.end(), events)) return;
  }
  for (const std::shared_ptr<Event>& event : events) Discard(*event);
}

bool EventChannel::Read() {
  uint64_t one;
  // Without the lock.
  while (read(part_.fd, &one, sizeof(one)) < 0) {
    if (errno != EAGAIN) return false;
    // TakeOne may have set O_NONBLOCK for a moment.
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
  ++readers_;
  // Also runs when the thread is cancelled.
  const absl::Cleanup leave = [this] {
    if (--readers_ != 0 || !closed_) return;
    const NoCancellation no_cancellation;
    const int error = errno;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (readers_ == 0) fd_.Reset();
    }
    errno = error;
  };
  if (closed_) {
    errno = EBADF;
    return taken;
  }
  for (;;) {
    if (!Read()) return taken;
    const NoCancellation no_cancellation;
    std::lock_guard<std::mutex> lock(mutex_);
    if (withdrawn_ > 0) {
      --withdrawn_;
      continue;
    }
    if (events_.empty()) continue;  // the application has written to it
    taken.splice(taken.end(), events_, events_.begin());
    taken.front()->owner->CountReported();
    return taken;
  }
}

// Waits on a separate descriptor. If it took from the channel's counter without
// taking the event, other takers would miss that event.
Events EventChannel::TakeIf(const Matches& matches) {
  Events taken;
  Waiter self{.matches = matches, .bell = {}, .next = nullptr};
  // Also runs when the thread is cancelled.
  const absl::Cleanup leave = [&] {
    const NoCancellation no_cancellation;
    const int error = errno;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      Waiter** at = &waiters_;
      while (*at != nullptr && *at != &self) at = &(*at)->next;
      if (*at != nullptr) *at = self.next;
    }
    self.bell.Reset();
    errno = error;
  };
  for (;;) {
    {
      const NoCancellation no_cancellation;
      std::lock_guard<std::mutex> lock(mutex_);
      if (closed_) {
        errno = EBADF;
        return taken;
      }
      const auto found = Find(events_, matches);
      if (found != events_.end()) {
        taken.splice(taken.end(), events_, found);
        taken.front()->owner->CountReported();
        TakeToken();
        return taken;
      }
      if (IsNonblocking(fd_.get())) {
        errno = EAGAIN;
        return taken;
      }
      if (!self.bell.valid()) {
        self.bell.Reset(eventfd(0, EFD_CLOEXEC));
        if (!self.bell.valid()) return taken;
        self.next = std::exchange(waiters_, &self);
      }
    }
    uint64_t rung;
    if (read(self.bell.get(), &rung, sizeof(rung)) < 0) return taken;
  }
}

void EventChannel::PutBack(Events event) {
  const std::shared_ptr<Event> kept = event.front();
  Id& owner = *kept->owner;
  bool back = false;
  {
    std::lock_guard<std::mutex> lock(owner.mutex);
    if (!owner.destroyed) {
      EventChannel& channel = *owner.channel;
      std::lock_guard<std::mutex> channel_lock(channel.mutex_);
      back = channel.Insert(channel.events_.begin(), event);
    }
  }
  if (!back) Discard(*kept);
  owner.CountAcknowledged();
}

void EventChannel::TakeToken() {
  if (!TakeOne(fd_.get())) ++withdrawn_;
}

bool EventChannel::HasIf(const Matches& matches) {
  std::lock_guard<std::mutex> lock(mutex_);
  return Has(events_, matches);
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
  for (size_t i = 0; i < withdrawn.size(); ++i) TakeToken();
  return withdrawn;
}

Events EventChannel::Close() {
  std::lock_guard<std::mutex> lock(mutex_);
  closed_ = true;
  if (readers_ == 0) fd_.Reset();
  for (const Waiter* waiter = waiters_; waiter != nullptr;
       waiter = waiter->next) {
    Add(waiter->bell.get(), 1);
  }
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
    if (const int failed = rxe_user_fail_on_command(__func__)) {
      return Return(failed);
    }
    found = FindChannel(channel);
  }
  if (found == nullptr || event == nullptr) return Return(EINVAL);
  return TakeEvent(*found, event);
}

namespace {

// Completes the events that TakeEvent took. `before`: errno before taking,
// which may change it.
int Report(Events taken, int before, rdma_cm_event** out) {
  if (taken.empty()) return -1;
  errno = before;
  return Call([&]() -> int {
    absl::Cleanup put_back = [&] { EventChannel::PutBack(std::move(taken)); };
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
  const int before = errno;
  return Report(channel.Take(), before, out);
}

int TakeEvent(EventChannel& channel, const EventChannel::Matches& matches,
              rdma_cm_event** out) {
  const int before = errno;
  return Report(channel.TakeIf(matches), before, out);
}

void ReturnEvent(const rdma_cm_event* event, Events place) {
  place.front() = Reported().Remove(event);
  if (place.front() != nullptr) EventChannel::PutBack(std::move(place));
}

int Acknowledge(rdma_cm_event* event) {
  const std::shared_ptr<Event> found = Reported().Remove(event);
  if (found == nullptr) return Reported().IsInherited(event) ? 0 : EINVAL;
  found->owner->CountAcknowledged();
  return 0;
}

CM_EXPORT int rdma_ack_cm_event(rdma_cm_event* event) {
  return Call([&] { return Acknowledge(event); });
}

}  // namespace librdmacm
