#include "rxe_user/broker/shared_slot.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <utility>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/opened_before_fork.h"
#include "rxe_user/base/public_addresses.h"
#include "rxe_user/base/users.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user::broker {
namespace {

// A busy machine may delay a broker for a long time.
constexpr int64_t kRequestMs = 30'000;
// Short, since nothing depends on the reply.
constexpr int64_t kUnreserveMs = 5000;
// How long the serving thread waits for a new broker; short at first, since it
// also makes progress for others. It doubles after each timeout, since a broker
// with many clients may take longer.
constexpr int64_t kRecoverMs = 200;
constexpr int64_t kMaxRecoverMs = 1600;
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kRetryRefused{1000};
// How long clients of root's broker wait for root to start the next one.
constexpr int64_t kLetRootMs = 1500;
constexpr int kMessagesPerCall = 64;
// Messages kept while a reply is awaited.
constexpr size_t kMaxEarly = 256;

// 1 if the ICRC of arriving datagrams may have been computed for other
// addresses (Open).
uint32_t WantsUnverified(const LocalAddress& local) {
  return NatMode() || KnownAddress(local.address) != local.address ? 1 : 0;
}

// Waits for space until the deadline.
template <typename T>
bool SendSoon(int socket, const T& message, int64_t deadline_ms,
              std::initializer_list<int> fds = {}) {
  while (!Send(socket, message, fds)) {
    const int64_t left = deadline_ms - MonotonicMs();
    if (errno != EAGAIN || left <= 0) return false;
    pollfd p{socket, POLLOUT, 0};
    poll(&p, 1, static_cast<int>(left));
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Slot>> SharedSlot::Make(Session session) {
  UniqueFd readable(MoveHigh(epoll_create1(EPOLL_CLOEXEC)));
  if (!readable.valid()) return ErrnoStatus(errno, "epoll");
  std::unique_ptr<SharedSlot> slot(
      new SharedSlot(session.slot, std::move(readable)));
  const absl::Status used = slot->Use(std::move(session));
  if (!used.ok()) return used;
  return std::unique_ptr<Slot>(std::move(slot));
}

SharedSlot::SharedSlot(uint16_t number, UniqueFd readable)
    : ForkGuard(ForkLevel::kDescriptors),
      number_(number),
      readable_(std::move(readable)),
      strays_(kStraysPerSecond, kStrayBurst) {
  EnterForkGuard();
}

SharedSlot::~SharedSlot() {
  {
    const std::lock_guard lock(descriptors_);
    CloseAll();
  }
  LeaveForkGuard();
}

void SharedSlot::AfterForkInChild() {
  dead_ = true;
  CloseAll();
  descriptors_.unlock();
}

void SharedSlot::CloseAll() {
  retry_at_ = Clock::time_point::max();
  readable_.Reset();
  connection_.Reset();
  ledger_.Reset();
  starting_.Reset();
  held_.clear();
}

void SharedSlot::OnChange(std::function<void()> changed) {
  const std::lock_guard lock(requests_);
  changed_ = std::move(changed);
}

void SharedSlot::TellConnections(
    std::function<std::vector<OpenConnection>()> connections) {
  const std::lock_guard lock(requests_);
  connections_ = std::move(connections);
}

UniqueFd SharedSlot::TakeConnection() {
  if (connection_.valid()) {
    (void)epoll_ctl(readable_.get(), EPOLL_CTL_DEL, connection_.get(), nullptr);
  }
  return std::move(connection_);
}

absl::Status SharedSlot::Use(Session&& session) {
  UniqueFd old;
  {
    const std::lock_guard lock(descriptors_);
    epoll_event readable{};
    readable.events = EPOLLIN;
    if (epoll_ctl(readable_.get(), EPOLL_CTL_ADD, session.socket.get(),
                  &readable) != 0) {
      return ErrnoStatus(errno, "cannot wait for the port broker");
    }
    broker_uid_ = session.broker_uid;
    broker_pid_ = session.broker_pid;
    lost_since_ms_ = 0;
    used_since_ms_ = MonotonicMs();
    recover_ms_ = kRecoverMs;
    complained_ = false;
    old = TakeConnection();
    connection_ = std::move(session.socket);
    ledger_ = std::move(session.ledger);
    retry_at_ = Clock::time_point::max();
  }
  if (changed_) changed_();
  return absl::OkStatus();
}

void SharedSlot::RetryAfter(std::chrono::milliseconds pause) {
  UniqueFd old;
  {
    const std::lock_guard lock(descriptors_);
    old = TakeConnection();
    retry_at_ = Clock::now() + pause;
  }
  if (changed_) changed_();
}

bool SharedSlot::RestoreAll(const Session& session, int64_t deadline_ms) {
  for (size_t i = 0; i < further_.size(); ++i) {
    broker::Extend message;
    message.slot = further_[i];
    if (!SendSoon(session.socket.get(), message, deadline_ms)) return false;
  }
  for (const HeldSocket& h : held_) {
    Restore message;
    message.index = h.index;
    message.address = h.local;
    message.wants_unverified = WantsUnverified(h.local);
    if (!SendSoon(session.socket.get(), message, deadline_ms,
                  {h.socket.get(), h.anchor.get()})) {
      return false;
    }
  }
  for (const auto& [token, service] : services_) {
    broker::Reserve message;
    message.token = token;
    message.service = service;
    if (!SendSoon(session.socket.get(), message, deadline_ms)) return false;
  }
  return SendConnections(session.socket.get(), false, deadline_ms) &&
         SendSoon(session.socket.get(), RestoreEnd{}, deadline_ms);
}

bool SharedSlot::SendConnections(int socket, bool is_answer,
                                 int64_t deadline_ms) {
  std::vector<OpenConnection> all;
  if (connections_) all = connections_();
  for (size_t done = 0; done < all.size() || is_answer;
       done += Connected::kMax) {
    Connected message;
    message.count = static_cast<uint32_t>(
        std::min<size_t>(all.size() - done, Connected::kMax));
    std::copy_n(all.begin() + static_cast<ptrdiff_t>(done), message.count,
                message.connections);
    const bool last = done + message.count == all.size();
    message.last = is_answer && last ? 1 : 0;
    if (!SendSoon(socket, message, deadline_ms)) return false;
    if (last) break;
  }
  return true;
}

// Root's broker served all users, so a new broker of root is preferred.
bool SharedSlot::LetsRoot() const {
  return broker_uid_ == 0 && !IsRootOfTheMachine() &&
         (lost_since_ms_ == 0 || MonotonicMs() - lost_since_ms_ < kLetRootMs);
}

// A broker that refuses what is restored, for want of descriptors, say, ends
// the connection soon.
bool SharedSlot::IsFresh() const {
  return connection_.valid() &&
         MonotonicMs() - used_since_ms_ < kRetryRefused.count();
}

// Called when the broker has died: finds or starts another one, and hands the
// sockets back to it. A failure is retried later. Established traffic does not
// need the broker.
absl::Status SharedSlot::Recover(int64_t patience_ms) {
  if (lost_since_ms_ == 0) lost_since_ms_ = MonotonicMs();
  Failure failure{};
  UniqueFd starting;
  {
    const std::lock_guard lock(descriptors_);
    starting = std::move(starting_);
  }
  absl::StatusOr<Session> session =
      Connect(number_, ledger_.get(), patience_ms,
              LetsRoot() ? Start::kNever : Start::kIfNeeded, starting, failure);
  {
    const std::lock_guard lock(descriptors_);
    starting_ = std::move(starting);
  }
  if (!session.ok() && failure == Failure::kRefused) {
    if (!complained_) {
      Warn("the port broker has ended, and the next one cannot be used (" +
           std::string(session.status().message()) +
           "); established connections continue, new addresses cannot be "
           "opened");
    }
    complained_ = true;
    RetryAfter(kRetryRefused);
    return session.status();
  }
  absl::Status status = session.status();
  if (status.ok() && !RestoreAll(*session, MonotonicMs() + patience_ms)) {
    status = NoAnswer(session->broker_pid, patience_ms);
  }
  if (status.ok()) status = Use(*std::move(session));
  if (!status.ok()) RetryAfter(kRetry);
  return status;
}

void SharedSlot::OnReadable(const std::function<void(const Stray&)>& deliver) {
  Message message;
  for (int i = 0; i < kMessagesPerCall && !dead_; ++i) {
    {
      const std::lock_guard lock(requests_);
      if (!TakeEarly(message)) {
        const Message::Outcome outcome =
            connection_.valid() ? message.Receive(connection_.get())
                                : Message::Outcome::kClosed;
        if (outcome == Message::Outcome::kNothing) return;
        if (outcome == Message::Outcome::kClosed) {
          if (!connection_.valid() && Clock::now() < retry_at()) return;
          if (IsFresh()) return RetryAfter(kRetry);
          const absl::Status recovered = Recover(recover_ms_);
          if (absl::IsDeadlineExceeded(recovered)) {
            recover_ms_ = std::min(2 * recover_ms_, kMaxRecoverMs);
          }
          if (!recovered.ok()) return;
          continue;
        }
      }
    }
    const std::optional<ReserveReply> refused = message.As<ReserveReply>();
    if (refused.has_value() && refused->sequence == 0) {
      Warn(
          "another process has reserved a service ID that this process "
          "listens on, while there was no port broker");
    }
    if (const auto lost = message.As<ExtendReply>();
        lost.has_value() && lost->refusal != Refusal::kNone) {
      Warn(std::string(TextOf(lost->text)));
    }
    if (message.As<ListConnected>().has_value()) {
      const std::lock_guard lock(requests_);
      if (connection_.valid()) {
        (void)SendConnections(connection_.get(), true,
                              MonotonicMs() + kRecoverMs);
      }
      continue;
    }
    const std::optional<Message::StrayView> view = message.AsStray();
    if (!view.has_value()) continue;
    Stray stray;
    stray.source = wire::IpAddress::FromGid(view->head.source);
    stray.destination = wire::IpAddress::FromGid(view->head.destination);
    stray.source_port = view->head.source_port;
    stray.traffic_class = view->head.traffic_class;
    stray.hop_limit = view->head.hop_limit;
    stray.bytes = view->bytes;
    deliver(stray);
  }
}

void SharedSlot::KeepEarly(Message& message) {
  const std::optional<Message::StrayView> stray = message.AsStray();
  const std::optional<ReserveReply> reserved = message.As<ReserveReply>();
  const bool unasked = reserved.has_value() && reserved->sequence == 0;
  if (early_.size() == kMaxEarly || (!stray.has_value() && !unasked &&
                                     !message.As<ListConnected>().has_value() &&
                                     !message.As<ExtendReply>().has_value())) {
    return;
  }
  try {
    early_.push_back(std::move(message));
    message = Message();
  } catch (const std::bad_alloc&) {
    // Return a MAD to the broker, which sends it again after the reply, because
    // its peer would take seconds to retransmit it. Other datagrams are lost,
    // as if on the network.
    if (!stray.has_value()) return;
    SendStray(connection_.get(), stray->head, stray->bytes);
  }
}

bool SharedSlot::TakeEarly(Message& message) {
  if (early_.empty()) return false;
  message = std::move(early_.front());
  early_.pop_front();
  if (early_.empty() && connection_.valid()) {
    retry_at_ = Clock::time_point::max();
  }
  return true;
}

void SharedSlot::AnnounceEarly() {
  if (early_.empty()) return;
  retry_at_ = Clock::now();
  if (changed_) changed_();
}

template <typename T>
absl::Status SharedSlot::Ask(const T& request, Message& message,
                             int64_t patience_ms,
                             const std::function<bool()>& answered) {
  const int64_t until = MonotonicMs() + patience_ms;
  for (;;) {
    Message::Outcome outcome = Message::Outcome::kClosed;
    if (connection_.valid() && SendSoon(connection_.get(), request, until)) {
      const int64_t deadline = MonotonicMs() + patience_ms;
      do {
        outcome = Await(connection_.get(), deadline, message);
        if (outcome == Message::Outcome::kMessage && answered()) {
          return absl::OkStatus();
        }
        if (outcome == Message::Outcome::kMessage) KeepEarly(message);
      } while (outcome == Message::Outcome::kMessage);
    } else if (connection_.valid() && errno == EAGAIN) {
      // The broker is alive, but does not read. A new connection would end this
      // one, and with it our hold of the slot.
      outcome = Message::Outcome::kNothing;
    } else if (connection_.valid() && errno != EPIPE && errno != ECONNRESET) {
      return ErrnoStatus(errno, "cannot ask the port broker");
    }
    const int64_t left = until - MonotonicMs();
    if (outcome == Message::Outcome::kNothing || left <= 0) {
      return NoAnswer(broker_pid_, patience_ms);
    }
    if (IsFresh()) SleepMs(kRetry.count());
    const bool lets_root = LetsRoot();
    const absl::Status recovered = Recover(left);
    if (absl::IsNotFound(recovered) && lets_root) {
      SleepMs(kRetry.count());
      continue;
    }
    if (absl::IsDeadlineExceeded(recovered)) return recovered;
    if (!recovered.ok()) {
      return absl::UnavailableError("the port broker has ended: " +
                                    std::string(recovered.message()));
    }
  }
}

absl::StatusOr<uint16_t> SharedSlot::Extend() {
  if (dead_) return OpenedBeforeForkError();
  const std::lock_guard lock(requests_);
  if (further_.full()) {
    return absl::ResourceExhaustedError("a process has too many slots");
  }
  Message message;
  std::optional<ExtendReply> reply;
  const absl::Status answered = Ask(broker::Extend{}, message, kRequestMs, [&] {
    reply = message.As<ExtendReply>();
    // Not the refusal of a slot that was to come back.
    return reply.has_value() &&
           (reply->refusal == Refusal::kNone || reply->slot == 0);
  });
  AnnounceEarly();
  if (!answered.ok()) return answered;
  const absl::Status status = StatusOf(reply->refusal, reply->text);
  if (!status.ok()) return status;
  if (reply->slot == 0 || reply->slot >= kSlots) {
    return absl::InternalError("the port broker sent an invalid reply");
  }
  further_.Add(static_cast<uint16_t>(reply->slot));
  return static_cast<uint16_t>(reply->slot);
}

const SharedSlot::HeldSocket* SharedSlot::Find(
    const LocalAddress& local) const {
  const auto it = std::ranges::find(held_, local, &HeldSocket::local);
  return it == held_.end() ? nullptr : &*it;
}

absl::StatusOr<int> SharedSlot::OpenAddress(const LocalAddress& local) {
  if (dead_) return OpenedBeforeForkError();
  const std::lock_guard lock(requests_);
  if (Find(local) == nullptr) {
    const absl::Status status = Request(local);
    AnnounceEarly();
    if (!status.ok()) return status;
  }
  const int copy = MoveHigh(Find(local)->socket.Copy().Release());
  if (copy < 0) return ErrnoStatus(errno, "UDP socket");
  return copy;
}

void SharedSlot::CloseAddress(const LocalAddress& local) {
  if (dead_) return;
  const std::lock_guard lock(requests_);
  {
    const std::lock_guard guard(descriptors_);
    if (std::erase_if(held_, [&](const HeldSocket& h) {
          return h.local == local;
        }) == 0) {
      return;
    }
  }
  // Sent before the broker can lend the socket to another process. If the
  // message does not fit, the socket stays ours.
  Close close;
  close.address = local;
  if (connection_.valid()) (void)Send(connection_.get(), close);
}

absl::Status SharedSlot::Request(const LocalAddress& local) {
  Open open;
  open.address = local;
  open.wants_unverified = WantsUnverified(local);
  Message message;
  std::optional<OpenReply> reply;
  const absl::Status answered = Ask(open, message, kRequestMs, [&] {
    reply = message.As<OpenReply>();
    return reply.has_value() && reply->address == local;
  });
  if (!answered.ok()) return answered;
  const absl::Status status = StatusOf(reply->refusal, reply->text);
  if (!status.ok()) return status;
  HeldSocket held{local, static_cast<uint16_t>(reply->index), message.TakeFd(0),
                  message.TakeFd(1)};
  if (message.lost_fds() || !held.socket.valid()) {
    return ErrnoStatus(EMFILE, "cannot take a socket from the port broker");
  }
  const std::lock_guard guard(descriptors_);
  held_.push_back(std::move(held));
  return absl::OkStatus();
}

template <typename T>
absl::StatusOr<ReserveReply> SharedSlot::AskForService(T& request,
                                                       int64_t patience_ms) {
  request.sequence = ++sequence_ == 0 ? ++sequence_ : sequence_;
  Message message;
  std::optional<ReserveReply> reply;
  const auto is_answer = [&] {
    reply = message.As<ReserveReply>();
    return reply.has_value() && reply->sequence == request.sequence;
  };
  // By reference: copying the function could need memory.
  const absl::Status answered =
      Ask(request, message, patience_ms, std::cref(is_answer));
  AnnounceEarly();
  if (!answered.ok()) return answered;
  return *reply;
}

void SharedSlot::TellConnected(const OpenConnection& connection) {
  if (dead_) return;
  const std::lock_guard lock(requests_);
  // Without a broker this need not be sent: the next one gets all connections.
  if (!connection_.valid()) return;
  Connected message;
  message.count = 1;
  message.connections[0] = connection;
  (void)SendSoon(connection_.get(), message, MonotonicMs() + kRecoverMs);
}

absl::Status SharedSlot::Reserve(uint32_t token, const Service& service) {
  if (dead_) return OpenedBeforeForkError();
  const std::lock_guard lock(requests_);
  // Allocate first: once granted, the reservation must be recorded.
  decltype(services_) kept;
  kept.try_emplace(token, service);
  broker::Reserve reserve;
  reserve.token = token;
  reserve.service = service;
  const absl::StatusOr<ReserveReply> reply = AskForService(reserve, kRequestMs);
  if (!reply.ok()) return reply.status();
  const absl::Status status = StatusOf(reply->refusal, reply->text);
  if (status.ok()) {
    services_.erase(token);
    services_.merge(kept);
  }
  return status;
}

void SharedSlot::Unreserve(uint32_t token) {
  if (dead_) return;
  const std::lock_guard lock(requests_);
  services_.erase(token);
  // Without a broker there is nothing to undo: a dead one has forgotten it.
  if (!connection_.valid()) return;
  broker::Unreserve unreserve;
  unreserve.token = token;
  try {
    (void)AskForService(unreserve, kUnreserveMs);
  } catch (const std::bad_alloc&) {
    // No memory for the error text of a missing reply.
  }
}

void SharedSlot::Forward(const Stray& stray) {
  if (dead_ || stray.bytes.size() > kMaxStrayBytes) return;
  const std::unique_lock lock(requests_, std::try_to_lock);
  if (!lock.owns_lock() || !connection_.valid() ||
      !strays_.Take(MonotonicMs())) {
    return;
  }
  StrayHead head;
  std::memcpy(head.source, stray.source.bytes.data(), sizeof(head.source));
  std::memcpy(head.destination, stray.destination.bytes.data(),
              sizeof(head.destination));
  head.source_port = stray.source_port;
  head.traffic_class = stray.traffic_class;
  head.hop_limit = stray.hop_limit;
  head.length = static_cast<uint32_t>(stray.bytes.size());
  SendStray(connection_.get(), head, stray.bytes);
}

}  // namespace rxe_user::broker
