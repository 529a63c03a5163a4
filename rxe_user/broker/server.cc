#include "rxe_user/broker/server.h"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace rxe_user::broker {
namespace {

constexpr int kMaxClients = 1024;
// A connection that does not introduce itself is closed.
constexpr int64_t kHelloMs = 5000;
// After a start on a port in use: how long new clients wait for the old ones to
// come back.
constexpr int64_t kRecoveryMs = 1000;
// How long the slot of a process that did not come back (it is stopped, say)
// stays reserved.
constexpr int64_t kAbsentMs = 60'000;
// Sockets that are handed back are settled together with those that follow.
constexpr int64_t kSettleDelayMs = 20;
// Positions are looked at again, since sockets that are on their way out move
// others when they go.
constexpr int64_t kSettleAgainMs[] = {60, 250, 1000};
constexpr int64_t kSettleGapsMs = 1000;
// How long a request waits for the port to become free.
constexpr int64_t kOwnPortWaitMs = 1500;
constexpr int64_t kForeignPortWaitMs = 100;
constexpr int64_t kTickMs = 10;
constexpr int kManagementBatch = 64;
constexpr int kMaxStrayBacklog = 64 << 10;

int64_t NowMs() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * int64_t{1000} + t.tv_nsec / 1'000'000;
}

bool Add(int epoll, int fd) {
  epoll_event e{};
  e.events = EPOLLIN;
  e.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) == 0;
}

Refusal RefusalOf(const absl::Status& status) {
  if (absl::IsNotFound(status)) return Refusal::kNoAddress;
  if (absl::IsUnavailable(status) || absl::IsAlreadyExists(status)) {
    return Refusal::kPortTaken;
  }
  return Refusal::kOther;
}

void Refuse(int fd, Refusal refusal, std::string_view text) {
  HelloReply reply;
  reply.refusal = refusal;
  reply.text = MakeText(text);
  Send(fd, reply);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Options options) {
  UniqueFd listener(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, kSocketName.data(), kSocketName.size());
  const socklen_t size = static_cast<socklen_t>(
      offsetof(sockaddr_un, sun_path) + 1 + kSocketName.size());
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), size) !=
      0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError("another broker is running");
    }
    return absl::InternalError(std::string("bind: ") + std::strerror(errno));
  }
  std::unique_ptr<Server> server(
      new Server(options, std::move(listener), std::move(epoll)));
  // Only now: who connects finds the port looked at.
  if (listen(server->listener_.get(), kMaxClients) != 0 ||
      !Add(server->epoll_.get(), server->listener_.get())) {
    return absl::InternalError(std::string("listen: ") + std::strerror(errno));
  }
  return server;
}

Server::Server(Options options, UniqueFd listener, UniqueFd epoll)
    : options_(options),
      uid_(geteuid()),
      listener_(std::move(listener)),
      epoll_(std::move(epoll)),
      spare_(epoll_.Copy()) {
  const int64_t now = NowMs();
  if (AnyoneOnPort()) recovering_until_ms_ = now + kRecoveryMs;
  exit_at_ms_ = now + std::max(options_.linger_ms, 1000);
}

Server::~Server() {
  // The port first, then the name: who finds the name free finds the port free.
  groups_.clear();
}

void Server::Run() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int64_t now = NowMs();
    if (clients_.empty() && options_.linger_ms >= 0 && now >= exit_at_ms_) {
      return;
    }
    const int n = epoll_wait(epoll_.get(), events.data(),
                             static_cast<int>(events.size()), TimeoutMs(now));
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<size_t>(i)].data.fd;
      if (fd == listener_.get()) {
        Accept();
      } else if (clients_.contains(fd)) {
        OnClient(fd);
      } else if (management_.contains(fd)) {
        OnManagement(fd);
      }
    }
    OnTick();
  }
}

int Server::TimeoutMs(int64_t now) const {
  int64_t next = INT64_MAX;
  const auto at = [&](int64_t ms) { next = std::min(next, ms); };
  if (clients_.empty() && options_.linger_ms >= 0) at(exit_at_ms_);
  if (recovering_until_ms_ != 0) at(recovering_until_ms_);
  if (settle_at_ms_ != 0) at(settle_at_ms_);
  if (!settle_again_ms_.empty()) at(settle_again_ms_.front());
  for (const auto& [slot, absent] : absent_) at(absent.until_ms);
  for (const auto& [fd, c] : clients_) {
    if (!c.opens.empty()) at(now + kTickMs);
    if (!c.slot.has_value() && !c.waiting_for_slot) at(c.hello_until_ms);
  }
  if (next == INT64_MAX) return -1;
  return static_cast<int>(std::clamp<int64_t>(next - now, 0, 60'000));
}

void Server::Accept() {
  for (;;) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr,
                        SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      // Else the connection would wait, and wake us for ever.
      spare_.Reset();
      UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      spare_ = epoll_.Copy();
      return;
    }
    if (!fd.valid()) return;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (clients_.size() >= kMaxClients ||
        getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      continue;
    }
    if (uid_ != 0 && peer.uid != uid_) {
      // Nobody uses us: make room for a broker that this user accepts.
      if (clients_.empty() && absent_.empty()) exit_at_ms_ = NowMs();
      Refuse(fd.get(), Refusal::kUser,
             "UDP port 4791 of this network namespace is shared by user " +
                 std::to_string(uid_) +
                 "'s port broker, which serves no other user; run "
                 "rxe-user-port-broker --stay as root to share it among users");
      continue;
    }
    const int number = fd.get();
    if (!Add(epoll_.get(), number)) continue;
    Client c;
    c.fd = std::move(fd);
    c.uid = peer.uid;
    c.trusted = peer.uid == uid_ || peer.uid == 0;
    c.hello_until_ms = NowMs() + kHelloMs;
    clients_.emplace(number, std::move(c));
  }
}

void Server::OnClient(int fd) {
  Client& client = clients_.at(fd);
  // Bounded, so that nobody keeps the others waiting.
  for (int i = 0; i < 64; ++i) {
    Message message;
    switch (message.Receive(fd)) {
      case Message::Outcome::kNothing:
        return;
      case Message::Outcome::kClosed:
        return Drop(fd);
      case Message::Outcome::kMessage:
        if (OnMessage(client, message) == Fate::kGoes) return Drop(fd);
    }
  }
}

void Server::Drop(int fd) {
  const auto it = clients_.find(fd);
  if (it->second.slot.has_value()) {
    const uint8_t slot = *it->second.slot;
    for (auto& [address, group] : groups_) {
      group.Release(slot);
      Record(group);
    }
    ledger_.data().used[slot] = 0;
  }
  clients_.erase(it);
  if (clients_.empty()) {
    exit_at_ms_ = NowMs() + std::max(options_.linger_ms, 0);
  }
}

Server::Fate Server::OnMessage(Client& client, Message& message) {
  const std::optional<Header> header = message.header();
  if (!header.has_value()) return Fate::kGoes;
  if (header->version != kProtocolVersion) {
    Refuse(client.fd.get(), Refusal::kVersion,
           "the port broker speaks protocol version " +
               std::to_string(kProtocolVersion) + ", this library version " +
               std::to_string(header->version) +
               "; wait until the programs that use the other version have "
               "ended");
    return Fate::kGoes;
  }
  if (header->type == Type::kHello) return OnHello(client, message);
  if (!client.slot.has_value()) return Fate::kGoes;
  switch (header->type) {
    case Type::kOpen:
      return OnOpen(client, message);
    case Type::kHandBack:
      return OnHandBack(client, message);
    case Type::kHandBackEnd:
      if (!client.returning) return Fate::kGoes;
      client.returning = false;
      EndRecoveryIfDone(NowMs());
      return Fate::kStays;
    case Type::kStray: {
      const std::optional<Message::StrayView> stray = message.AsStray();
      if (!stray.has_value()) return Fate::kGoes;
      OnStray(client, *stray);
      return Fate::kStays;
    }
    default:
      return Fate::kGoes;
  }
}

Server::Fate Server::OnHello(Client& client, Message& message) {
  const std::optional<Hello> hello = message.As<Hello>();
  if (!hello.has_value() || client.slot.has_value() ||
      client.waiting_for_slot || hello->slot >= kSlots) {
    return Fate::kGoes;
  }
  if (hello->slot != 0) {
    return TakeBack(client, static_cast<uint8_t>(hello->slot), message);
  }
  client.waiting_for_slot = true;
  return recovering_until_ms_ == 0 ? GiveSlot(client) : Fate::kStays;
}

bool Server::InUse(uint8_t slot) const {
  return slot == 0 || absent_.contains(slot) ||
         std::any_of(clients_.begin(), clients_.end(),
                     [&](const auto& c) { return c.second.slot == slot; });
}

Server::Fate Server::GiveSlot(Client& client) {
  client.waiting_for_slot = false;
  std::vector<uint8_t> free;
  for (int s = 1; s < kSlots; ++s) {
    if (!InUse(static_cast<uint8_t>(s))) {
      free.push_back(static_cast<uint8_t>(s));
    }
  }
  if (free.empty()) {
    Refuse(
        client.fd.get(), Refusal::kFull,
        "all 255 slots of UDP port 4791 are in use; end some of the programs "
        "that use it");
    return Fate::kGoes;
  }
  uint32_t random = 0;
  (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
  const uint8_t slot = free[random % free.size()];
  return Welcome(client, slot);
}

Server::Fate Server::Welcome(Client& client, uint8_t slot) {
  client.slot = slot;
  ledger_.data().used[slot] = 1;
  ledger_.data().uid[slot] = client.uid;
  HelloReply reply;
  reply.slot = slot;
  return Send(client.fd.get(), reply, {ledger_.fd()}) ? Fate::kStays
                                                      : Fate::kGoes;
}

Server::Fate Server::TakeBack(Client& client, uint8_t slot, Message& message) {
  const UniqueFd ledger = message.TakeFd(0);
  if (client.trusted && !former_.has_value()) {
    former_ = ReadLedger(ledger.get());
    if (former_.has_value()) {
      // At once: we may be killed before all have come back.
      ledger_.data().groups = former_->groups;
      ledger_.data().group_count = former_->group_count;
      const int64_t until = NowMs() + kAbsentMs;
      for (size_t s = 1; s < kSlots; ++s) {
        const auto number = static_cast<uint8_t>(s);
        if (former_->used[s] != 1 || InUse(number)) continue;
        absent_.emplace(number, Absent{until, former_->uid[s]});
        ledger_.data().used[s] = 1;
        ledger_.data().uid[s] = former_->uid[s];
      }
    }
  }
  const auto absent = absent_.find(slot);
  if (absent != absent_.end() && absent->second.uid == client.uid) {
    absent_.erase(absent);
  }
  if (InUse(slot)) {
    Refuse(client.fd.get(), Refusal::kSlotTaken,
           "slot " + std::to_string(slot) +
               " of UDP port 4791 was given to another process meanwhile");
    return Fate::kGoes;
  }
  client.returning = true;
  return Welcome(client, slot);
}

Server::Fate Server::OnHandBack(Client& client, Message& message) {
  const std::optional<HandBack> back = message.As<HandBack>();
  if (!back.has_value() || !client.returning) return Fate::kGoes;
  const Address address = Address::From(back->place);
  UniqueFd socket = message.TakeFd(0);
  UniqueFd keeper = message.TakeFd(1);
  if (!client.trusted) keeper.Reset();
  const auto index = static_cast<uint16_t>(back->index);
  Group* group = Find(address);
  if (group == nullptr) {
    const LedgerGroup* former = nullptr;
    if (former_.has_value()) {
      for (uint32_t i = 0; i < former_->group_count; ++i) {
        if (Address::From(former_->groups[i].place) == address) {
          former = &former_->groups[i];
        }
      }
    }
    Group adopted = Group::ForAdoption(address, former);
    if (!adopted.Adopt(*client.slot, client.uid, std::move(socket), index,
                       std::move(keeper))) {
      return Fate::kGoes;
    }
    groups_.emplace(address, std::move(adopted));
  } else if (!group->Adopt(*client.slot, client.uid, std::move(socket), index,
                           std::move(keeper))) {
    return Fate::kGoes;
  }
  const int64_t now = NowMs();
  if (settle_at_ms_ == 0) settle_at_ms_ = now + kSettleDelayMs;
  return Fate::kStays;
}

void Server::EndRecoveryIfDone(int64_t now) {
  const bool all_back =
      absent_.empty() &&
      std::none_of(clients_.begin(), clients_.end(),
                   [](const auto& c) { return c.second.returning; });
  if (all_back && settle_at_ms_ != 0) settle_at_ms_ = now;
  if (recovering_until_ms_ == 0) return;
  // Without a ledger, others may be on their way.
  if (now < recovering_until_ms_ && !(all_back && former_.has_value())) return;
  recovering_until_ms_ = 0;
  std::vector<int> refused;
  for (auto& [fd, client] : clients_) {
    if (client.waiting_for_slot && GiveSlot(client) == Fate::kGoes) {
      refused.push_back(fd);
    }
  }
  for (const int fd : refused) Drop(fd);
}

void Server::Settle(int64_t now) {
  for (auto& [address, group] : groups_) {
    if (!group.adopted()) continue;
    management_.erase(group.management_fd());
    (void)group.Settle();
    Watch(group);
    Record(group);
  }
  if (settle_at_ms_ != 0) {
    settle_at_ms_ = 0;
    settle_again_ms_.clear();
    for (const int64_t ms : kSettleAgainMs) {
      settle_again_ms_.push_back(now + ms);
    }
  }
  if (settle_again_ms_.empty() && AnyGaps()) {
    settle_again_ms_.push_back(now + kSettleGapsMs);
  }
}

bool Server::AnyGaps() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const auto& g) { return g.second.has_gaps(); });
}

void Server::Watch(Group& group) {
  const int fd = group.management_fd();
  if (fd < 0) return;
  Add(epoll_.get(), fd);  // it may be there already
  management_.insert_or_assign(fd, group.address());
}

void Server::Record(const Group& group) {
  LedgerData& d = ledger_.data();
  const Place place = group.address().ToPlace();
  for (size_t i = 0; i < LedgerData::kGroups; ++i) {
    if (i == d.group_count) {
      d.groups[i].place = place;
      ++d.group_count;
    }
    if (std::memcmp(&d.groups[i].place, &place, sizeof(place)) == 0) {
      d.groups[i].index = group.map();
      return;
    }
  }
}

Group* Server::Find(const Address& address) {
  const auto it = groups_.find(address);
  return it == groups_.end() ? nullptr : &it->second;
}

Server::Fate Server::OnOpen(Client& client, Message& message) {
  const std::optional<Open> open = message.As<Open>();
  if (!open.has_value()) return Fate::kGoes;
  // Clients ask for one at a time.
  if (!client.opens.empty()) return Fate::kGoes;
  const int64_t now = NowMs();
  const PendingOpen pending{open->place, now + kOwnPortWaitMs};
  if (!TryOpen(client, pending, now)) client.opens.push_back(pending);
  return Fate::kStays;
}

// Answers the request, or returns false: it has to wait.
bool Server::TryOpen(Client& client, const PendingOpen& open, int64_t now) {
  const Address address = Address::From(open.place);
  OpenReply reply;
  reply.place = open.place;
  const auto refuse = [&](const absl::Status& status) {
    reply.refusal = RefusalOf(status);
    reply.text = MakeText(
        std::string_view(status.message().data(), status.message().size()));
    Send(client.fd.get(), reply);
    return true;
  };
  Group* group = Find(address);
  if (group != nullptr && !group->settled() && now < open.give_up_ms) {
    return false;
  }
  if (group == nullptr) {
    absl::StatusOr<Group> created = Group::Create(address);
    if (!created.ok()) {
      const int64_t waited = now - (open.give_up_ms - kOwnPortWaitMs);
      const bool wait =
          (absl::IsAlreadyExists(created.status()) && now < open.give_up_ms) ||
          (absl::IsUnavailable(created.status()) &&
           (waited < kForeignPortWaitMs));
      return wait ? false : refuse(created.status());
    }
    group = &groups_.emplace(address, *std::move(created)).first->second;
    Watch(*group);
  }
  const absl::StatusOr<const Group::Member*> member =
      group->Assign(*client.slot, client.uid);
  Record(*group);
  if (!member.ok()) return refuse(member.status());
  reply.index = (*member)->index;
  // A client that does not read its replies loses them, and gives up.
  Send(client.fd.get(), reply,
       {(*member)->fd.get(), client.trusted ? group->management_fd() : -1});
  return true;
}

void Server::OnStray(Client& client, const Message::StrayView& stray) {
  if (stray.bytes.size() < 12 || !client.strays.Take(NowMs())) return;
  const uint8_t slot = stray.bytes[5];
  if (slot == 0) {
    ++management_dropped_;
    return;
  }
  for (const auto& [fd, other] : clients_) {
    if (other.slot != slot || &other == &client) continue;
    // The sender could forge the source address.
    if (client.uid != other.uid && client.uid != 0) return;
    // Replies need room too.
    int waiting = 0;
    if (ioctl(fd, SIOCOUTQ, &waiting) != 0 || waiting > kMaxStrayBacklog) {
      return;
    }
    const std::span<const uint8_t> parts[] = {
        {reinterpret_cast<const uint8_t*>(&stray.head), sizeof(stray.head)},
        stray.bytes};
    SendRecord(fd, parts);
    return;
  }
}

// QP1: connection management belongs here.
void Server::OnManagement(int fd) {
  management_dropped_ += static_cast<uint64_t>(Drain(fd, kManagementBatch));
}

void Server::OnTick() {
  const int64_t now = NowMs();
  EndRecoveryIfDone(now);
  if (settle_at_ms_ != 0 && now >= settle_at_ms_) {
    Settle(now);
  } else if (!settle_again_ms_.empty() && now >= settle_again_ms_.front()) {
    settle_again_ms_.pop_front();
    Settle(now);
  }
  for (auto it = absent_.begin(); it != absent_.end();) {
    // A process that never came back may still have its sockets among ours.
    if (now >= it->second.until_ms && AnyGaps()) {
      it->second.until_ms = now + kAbsentMs;
    }
    if (now < it->second.until_ms) {
      ++it;
      continue;
    }
    for (auto& [address, group] : groups_) group.Forget(it->first);
    ledger_.data().used[it->first] = 0;
    it = absent_.erase(it);
  }
  std::vector<int> silent;
  for (auto& [fd, client] : clients_) {
    std::erase_if(client.opens, [&](const PendingOpen& open) {
      return TryOpen(client, open, now);
    });
    if (!client.slot.has_value() && !client.waiting_for_slot &&
        now >= client.hello_until_ms) {
      silent.push_back(fd);
    }
  }
  for (const int fd : silent) Drop(fd);
}

}  // namespace rxe_user::broker
