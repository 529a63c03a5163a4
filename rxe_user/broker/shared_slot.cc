#include "rxe_user/broker/shared_slot.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user::broker {
namespace {

constexpr int64_t kRequestMs = 5000;
// A thread that makes progress for others must not be kept for long.
constexpr int64_t kRecoverMs = 200;
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::milliseconds kRetryRefused{1000};
// How long clients of root's broker leave it to root to start the next one.
constexpr int64_t kLetRootMs = 1500;
constexpr int kMessagesPerCall = 64;

}  // namespace

std::unique_ptr<Slot> SharedSlot::Make(Session session) {
  return std::unique_ptr<Slot>(new SharedSlot(std::move(session)));
}

SharedSlot::SharedSlot(Session session)
    : ForkGuard(ForkLevel::kDescriptors),
      number_(session.slot),
      strays_(kStraysPerSecond, kStrayBurst) {
  Use(std::move(session));
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
  fd_ = -1;
  retry_at_ = Clock::time_point::max();
  connection_.Reset();
  ledger_.Reset();
  held_.clear();
}

void SharedSlot::OnChange(std::function<void()> changed) {
  const std::lock_guard lock(requests_);
  changed_ = std::move(changed);
}

void SharedSlot::Use(Session session) {
  UniqueFd old;  // goes after the new one has come: another number
  {
    const std::lock_guard lock(descriptors_);
    broker_uid_ = session.broker_uid;
    lost_since_ms_ = 0;
    complained_ = false;
    old = std::exchange(connection_, std::move(session.socket));
    ledger_ = std::move(session.ledger);
    fd_ = connection_.get();
    retry_at_ = Clock::time_point::max();
  }
  if (changed_) changed_();
}

void SharedSlot::RetryAfter(std::chrono::milliseconds pause) {
  {
    const std::lock_guard lock(descriptors_);
    connection_.Reset();
    fd_ = -1;
    retry_at_ = Clock::now() + pause;
  }
  if (changed_) changed_();
}

bool SharedSlot::RestoreAll(const Session& session) {
  for (const Held& h : held_) {
    Restore message;
    message.index = h.index;
    message.address = h.local;
    if (!Send(session.socket.get(), message,
              {h.socket.get(), h.anchor.get()})) {
      return false;
    }
  }
  return Send(session.socket.get(), RestoreEnd{});
}

// The broker has gone: finds or starts another and hands the sockets back.
// False if that has to be tried again later. Running traffic goes on without.
bool SharedSlot::Recover(int64_t budget_ms) {
  const int64_t now = MonotonicMs();
  if (lost_since_ms_ == 0) lost_since_ms_ = now;
  // After root's broker, which served all users, another of root's is wanted.
  const bool lets_root =
      broker_uid_ == 0 && geteuid() != 0 && now - lost_since_ms_ < kLetRootMs;
  Failure failure{};
  absl::StatusOr<Session> session =
      Connect(number_, ledger_.get(), now + budget_ms,
              lets_root ? Start::kNever : Start::kIfNeeded, failure);
  if (!session.ok() && failure == Failure::kRefused) {
    if (!complained_) {
      Warn("the port broker has gone, and the next one will not do (" +
           std::string(session.status().message()) +
           "); running traffic goes on, new addresses cannot be opened");
    }
    complained_ = true;
    RetryAfter(kRetryRefused);
    return false;
  }
  if (!session.ok() || !RestoreAll(*session)) {
    RetryAfter(kRetry);
    return false;
  }
  Use(*std::move(session));
  return true;
}

void SharedSlot::OnReadable(const std::function<void(const Stray&)>& deliver) {
  Message message;
  for (int i = 0; i < kMessagesPerCall && !dead_; ++i) {
    {
      const std::lock_guard lock(requests_);
      const Message::Outcome outcome = connection_.valid()
                                           ? message.Receive(connection_.get())
                                           : Message::Outcome::kClosed;
      if (outcome == Message::Outcome::kNothing) return;
      if (outcome == Message::Outcome::kClosed) {
        if (!connection_.valid() && Clock::now() < retry_at()) return;
        if (!Recover(kRecoverMs)) return;
        continue;
      }
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

const SharedSlot::Held* SharedSlot::Find(const LocalAddress& local) const {
  const auto it = std::find_if(held_.begin(), held_.end(),
                               [&](const Held& h) { return h.local == local; });
  return it == held_.end() ? nullptr : &*it;
}

absl::StatusOr<int> SharedSlot::OpenAddress(const LocalAddress& local) {
  if (dead_) {
    return absl::FailedPreconditionError(
        "the device was opened before fork(); open it in the child");
  }
  const std::lock_guard lock(requests_);
  if (Find(local) == nullptr) {
    const absl::Status status = Request(local);
    if (!status.ok()) return status;
  }
  const int copy = Find(local)->socket.Copy().Release();
  if (copy < 0) return ErrnoStatus(errno, "UDP socket");
  return copy;
}

// Asks the broker for a socket, and the next one should this one die.
absl::Status SharedSlot::Request(const LocalAddress& local) {
  const int64_t deadline = MonotonicMs() + kRequestMs;
  Open open;
  open.address = local;
  Message message;
  while (MonotonicMs() < deadline) {
    if (!connection_.valid() || !Send(connection_.get(), open)) {
      if (!Recover(deadline - MonotonicMs())) break;
      continue;
    }
    std::optional<OpenReply> reply;
    Message::Outcome outcome = Message::Outcome::kMessage;
    // A stray that arrives meanwhile is dropped, as datagrams may be.
    while (!reply.has_value() && outcome == Message::Outcome::kMessage) {
      outcome = Await(connection_.get(), deadline, message);
      reply = outcome == Message::Outcome::kMessage ? message.As<OpenReply>()
                                                    : std::nullopt;
    }
    if (outcome == Message::Outcome::kNothing) break;
    if (outcome == Message::Outcome::kClosed) {
      if (!Recover(deadline - MonotonicMs())) break;
      continue;
    }
    if (reply->address != local) continue;
    const absl::Status status = StatusOf(reply->refusal, reply->text);
    if (!status.ok()) return status;
    Held held{local, static_cast<uint16_t>(reply->index), message.TakeFd(0),
              message.TakeFd(1)};
    if (message.lost_fds() || !held.socket.valid()) {
      return ErrnoStatus(EMFILE, "cannot take a socket from the port broker");
    }
    const std::lock_guard guard(descriptors_);
    held_.push_back(std::move(held));
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "the port broker of this network namespace does not answer");
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
  const std::span<const uint8_t> parts[] = {
      {reinterpret_cast<const uint8_t*>(&head), sizeof(head)}, stray.bytes};
  SendRecord(connection_.get(), parts);
}

}  // namespace rxe_user::broker
