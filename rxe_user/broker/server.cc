// The life cycle of the broker and its clients.
#include "rxe_user/broker/server.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/system/system_error.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "rxe_user/base/close_elsewhere.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/random.h"
#include "rxe_user/base/users.h"
#include "rxe_user/broker/container_socket.h"
#include "rxe_user/broker/short_waits.h"
#include "rxe_user/broker/steering_trial.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;
using std::chrono::milliseconds;

// A process may have a connection for each slot; others are short queries.
constexpr int kMaxClients = 10'000;
// A connection that sends no Hello is closed after this time.
constexpr milliseconds kHelloTime{5000};
// How long to wait for the first client.
constexpr milliseconds kFirstClientTime{1000};
// Connections of a user who is not trusted.
constexpr ptrdiff_t kMaxClientsOfUser = kMaxClients / 4;
// The first of them have kClientSendBuffer bytes and MadQueue::kMax MADs of
// space for unread data. Further ones get less, as follows.
constexpr ptrdiff_t kLargeClientsOfUser = 256;
constexpr int kSmallSendBuffer = 32'768;
constexpr size_t kFewMads = 64;
// Messages and time of one client before the next client's turn.
constexpr int kMessagesPerTurn = 64;
constexpr milliseconds kTurn{1};
// How many other free slots are granted before a slot is granted again.
constexpr size_t kRestingSlots = 64;
// Connections accepted before messages are read.
constexpr int kConnectionsPerTurn = 64;
// Without descriptors or memory. Nothing signals that there are some again.
constexpr milliseconds kAcceptRetry{100};

// Whether the client has closed its connection. A client does so when its Hello
// is not answered in time, and then connects again.
bool HasHungUp(int fd) {
  pollfd p{fd, 0, 0};
  return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP) != 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(Options options) {
  if (!NamesOneUser(geteuid())) {
    return absl::PermissionDeniedError(
        "UDP port 4791 cannot be shared with other processes by user " +
        std::to_string(geteuid()) +
        ", which in this user namespace stands for all users that it does not "
        "map: run as another user");
  }
  if (absl::Status status = TrySteering(); !status.ok()) return status;
  UniqueFd listener(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress name = BrokerAddress();
  if (bind(listener.get(), name.get(), name.size) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError("another broker is running");
    }
    return absl::InternalError(std::string("bind: ") + std::strerror(errno));
  }
  try {
    std::unique_ptr<Server> server(new Server(options, std::move(listener)));
    // A process that connects before this sees that the name is taken, and
    // waits. So the port has been probed by the time that a client can connect.
    if (listen(server->listener_.native_handle(), kMaxClients) != 0) {
      return absl::InternalError(std::string("listen: ") +
                                 std::strerror(errno));
    }
    server->AwaitClients(server->listener_);
    if (options.containers) server->ListenToContainers();
    return server;
  } catch (const boost::system::system_error& error) {
    return absl::InternalError(error.what());
  }
}

Server::Server(Options options, UniqueFd listener)
    : options_(options),
      uid_(geteuid()),
      listener_(io_),
      container_listener_(io_),
      leave_(io_),
      spare_(listener.Copy()),
      last_slot_(static_cast<uint16_t>(SecureRandom32() % kRestingSlots)),
      recovery_deadline_(io_),
      settle_gaps_(kSettleGaps),
      settle_(io_) {
  listener_.assign(listener.Release());
  OpenReport();
  if (AnyoneOnPort()) StartRecovery();
  LeaveAfter(std::max(options_.linger, kFirstClientTime));
}

Server::~Server() {
  // Close the port first: a process that finds the name free must find the port
  // free.
  management_.clear();
  groups_.clear();
  if (stat_server_ != nullptr) (void)stat_socket_.release();
}

void Server::Run() { io_.run(); }

void Server::LeaveAfter(milliseconds linger) {
  if (options_.linger < milliseconds::zero()) return;
  leave_.expires_after(linger);
  leave_.async_wait([this](error_code error) {
    if (error || !clients_.empty()) return;
    while (!absent_.empty()) {
      const auto absent = absent_.extract(absent_.begin());
      if (absent.mapped().holds) Free(absent.key());
    }
    io_.stop();
  });
}

void Server::ListenToContainers() {
  const bool stays = options_.linger < milliseconds::zero();
  absl::StatusOr<UniqueFd> listener = BindContainerSocket(stays);
  if (absl::IsNotFound(listener.status()) && !stays) return;
  if (!listener.ok() || listen(listener->get(), kMaxClients) != 0) {
    const absl::Status why =
        listener.ok() ? ErrnoStatus(errno, "listen") : listener.status();
    std::fprintf(stderr,
                 "rxe-user-port-broker: containers with user namespaces of "
                 "their own are not served: %s\n",
                 std::string(why.message()).c_str());
    return;
  }
  container_listener_.assign(listener->Release());
  AwaitClients(container_listener_);
}

void Server::AwaitClients(stream_descriptor& listener) {
  listener.async_wait(stream_descriptor::wait_read,
                      [this, &listener](error_code error) {
                        if (error) return;
                        if (Accept(listener.native_handle())) {
                          AwaitClients(listener);
                        } else {
                          AwaitResources(listener);
                        }
                      });
}

// The connection that could not be accepted keeps the listener readable.
void Server::AwaitResources(stream_descriptor& listener) {
  const auto retry =
      std::make_shared<boost::asio::steady_timer>(io_, kAcceptRetry);
  retry->async_wait([this, &listener, retry](error_code error) {
    if (!error) AwaitClients(listener);
  });
}

bool Server::Accept(int listener) {
  // A refused connection may contain messages with descriptors.
  const ShortWaits short_waits;
  for (int i = 0; i < kConnectionsPerTurn; ++i) {
    UniqueFd fd(
        accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      // Otherwise the connection would stay queued and keep waking us.
      spare_.Reset();
      UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
      spare_.Reset(fcntl(listener, F_DUPFD_CLOEXEC, 3));
      return spare_.valid();
    }
    if (!fd.valid()) return errno != ENOMEM && errno != ENOBUFS;
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (clients_.size() >= kMaxClients ||
        getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
      continue;
    }
    if (!NamesOneUser(peer.uid)) {
      Refuse(fd.get(), Refusal::kUser,
             "UDP port 4791 of this network namespace is shared by a port "
             "broker in a user namespace that does not have this user; run "
             "rxe-user-port-broker --stay as the machine's root to share it "
             "among all users");
      continue;
    }
    if (uid_ != 0 && peer.uid != uid_) {
      // An idle broker ends, to make way for one that this user accepts.
      if (clients_.empty() && absent_.empty()) LeaveAfter(milliseconds::zero());
      Refuse(fd.get(), Refusal::kUser,
             "UDP port 4791 of this network namespace is shared by user " +
                 std::to_string(uid_) +
                 "'s port broker, which serves no other user; run "
                 "rxe-user-port-broker --stay as root to share it among users");
      continue;
    }
    const bool trusted = peer.uid == uid_ || peer.uid == 0;
    if (!trusted) accounts_.Refresh();
    const uid_t account = trusted ? peer.uid : accounts_.Of(peer.uid);
    const ptrdiff_t others =
        trusted ? 0 : std::ranges::count_if(clients_, [&](const ClientPtr& c) {
          return c->account == account;
        });
    if (others >= kMaxClientsOfUser) continue;
    const auto client = std::make_shared<Client>(io_);
    error_code error;
    client->connection.assign(fd.get(), error);
    if (error) continue;
    (void)fd.Release();
    const bool small = others >= kLargeClientsOfUser;
    if (small) client->mads = MadQueue(kFewMads);
    // The kernel doubles the value.
    const int half = (small ? kSmallSendBuffer : kClientSendBuffer) / 2;
    (void)setsockopt(client->fd(), SOL_SOCKET, SO_SNDBUF, &half, sizeof(half));
    client->uid = peer.uid;
    client->account = account;
    client->trusted = trusted;
    client->hello_deadline.expires_after(kHelloTime);
    client->hello_deadline.async_wait([this, client](error_code ended) {
      if (ended || client->dropped()) return;
      if (!client->slot.has_value() && !client->waiting_for_slot) Drop(client);
    });
    clients_.insert(client);
    leave_.cancel();
    AwaitMessages(client);
  }
  return true;
}

void Server::Refuse(int fd, Refusal refusal, absl::string_view text) {
  HelloReply reply;
  reply.refusal = refusal;
  reply.text = MakeText(text);
  Send(fd, reply);
}

void Server::AwaitMessages(const ClientPtr& client) {
  client->connection.async_wait(stream_descriptor::wait_read,
                                [this, client](error_code error) {
                                  if (error || client->dropped()) return;
                                  Serve(client);
                                });
}

void Server::Serve(const ClientPtr& client) {
  const Clock::time_point begin = Clock::now();
  if (!client->trusted) {
    const Clock::time_point turn = user_time_.NextTurn(client->account);
    if (turn > begin) {
      client->turn.expires_at(turn);
      client->turn.async_wait([this, client](error_code error) {
        if (!error && !client->dropped()) Serve(client);
      });
      return;
    }
  }
  if (ReadMessages(client) == Next::kClose) {
    Drop(client);
  } else {
    AwaitMessages(client);
  }
  if (!client->trusted) user_time_.Charge(client->account, begin, Clock::now());
}

// Descriptors of untrusted users are accepted only where the protocol has them.
bool Server::MayHandBack(const Client& client) const {
  return client.trusted || (!blocked_uids_.contains(client.uid) &&
                            (!client.slot.has_value() || client.restoring));
}

// True if there were any. A descriptor that cannot be closed without waiting is
// leaked; no more are accepted from that user.
bool Server::RefuseUnexpectedDescriptors(const Client& client,
                                         Message& message) {
  bool unexpected = false;
  for (UniqueFd& fd : message.fds()) {
    if (!fd.valid() || IsSocketOrMemory(fd.get())) continue;
    unexpected = true;
    if (!CloseElsewhere(fd)) (void)fd.Release();
  }
  if (unexpected) blocked_uids_.insert(client.uid);
  return unexpected;
}

Server::Next Server::ReadMessages(const ClientPtr& client) {
  const ShortWaits short_waits(!client->trusted);
  const Clock::time_point end = Clock::now() + kTurn;
  for (int i = 0; i < kMessagesPerTurn && Clock::now() < end; ++i) {
    Message message;
    const Message::Outcome outcome = message.Receive(
        client->fd(),
        MayHandBack(*client) ? Message::Fds::kTake : Message::Fds::kRefuse);
    if (!client->trusted && RefuseUnexpectedDescriptors(*client, message)) {
      return Next::kClose;
    }
    switch (outcome) {
      case Message::Outcome::kNothing:
        return Next::kKeep;
      case Message::Outcome::kClosed:
        return Next::kClose;
      case Message::Outcome::kMessage:
        if (OnMessage(client, message) == Next::kClose) return Next::kClose;
        // Lost descriptors cost time, so an untrusted client may not send them.
        if (!client->trusted && message.lost_fds()) return Next::kClose;
    }
  }
  return Next::kKeep;
}

Server::Next Server::OnMessage(const ClientPtr& client, Message& message) {
  const std::optional<Header> header = message.header();
  if (!header.has_value()) return Next::kClose;
  if (header->version != kProtocolVersion) {
    if (client->trusted) other_version_at_ = Clock::now();
    Refuse(client->fd(), Refusal::kVersion,
           "the port broker speaks protocol version " +
               std::to_string(kProtocolVersion) + ", this library version " +
               std::to_string(header->version) +
               "; wait until the programs that use the other version have "
               "ended");
    return Next::kClose;
  }
  if (header->type == Type::kHello) return OnHello(*client, message);
  if (!client->slot.has_value()) return Next::kClose;
  switch (header->type) {
    case Type::kOpen:
      return OnOpen(client, message);
    case Type::kExtend:
      return OnExtend(*client, message);
    case Type::kClose:
      return OnClose(*client, message);
    case Type::kRestore:
      return OnRestore(*client, message);
    case Type::kConnected:
      return OnConnected(client, message);
    case Type::kRestoreEnd:
      if (!client->restoring) return Next::kClose;
      client->restoring = false;
      trusted_restoring_ -= client->trusted;
      EndRecoveryIfDone();
      return Next::kKeep;
    case Type::kReserve:
      return OnReserve(*client, message);
    case Type::kUnreserve:
      return OnUnreserve(*client, message);
    case Type::kStray: {
      const std::optional<Message::StrayView> stray = message.AsStray();
      if (!stray.has_value()) return Next::kClose;
      OnStray(*client, *stray);
      return Next::kKeep;
    }
    default:
      return Next::kClose;
  }
}

Server::Next Server::OnHello(Client& client, Message& message) {
  const std::optional<Hello> hello = message.As<Hello>();
  if (!hello.has_value() || client.slot.has_value() ||
      client.waiting_for_slot || hello->slot >= kSlots ||
      HasHungUp(client.fd())) {
    return Next::kClose;
  }
  client.hello_deadline.cancel();
  if (hello->slot != 0) {
    return Reclaim(client, static_cast<uint16_t>(hello->slot), message);
  }
  client.waiting_for_slot = true;
  return recovering_ ? Next::kKeep : GrantFreeSlot(client);
}

bool Server::InUse(uint16_t slot) const {
  return slot == 0 || absent_.contains(slot) || holders_[slot] != nullptr;
}

Server::Next Server::GrantFreeSlot(Client& client) {
  client.waiting_for_slot = false;
  const absl::Status may = MayHaveSlot(client);
  if (!may.ok()) {
    Refuse(client.fd(), Refusal::kFull, may.message());
    return Next::kClose;
  }
  return Grant(client, NextFreeSlot());
}

size_t Server::FreeSlots() const {
  size_t free = 0;
  for (int s = 1; s < kSlots; ++s) free += !InUse(static_cast<uint16_t>(s));
  return free;
}

uint16_t Server::NextFreeSlot() {
  const size_t used = kSlots - 1 - FreeSlots();
  const size_t last = std::min<size_t>(kSlots - 1, used + kRestingSlots);
  do {
    last_slot_ = last_slot_ >= last ? 1 : last_slot_ + 1;
  } while (InUse(last_slot_));
  return last_slot_;
}

absl::Status Server::MayHaveSlot(const Client& client) const {
  const size_t free = FreeSlots();
  const std::string all = std::to_string(kSlots - 1) + " slots of UDP port " +
                          std::to_string(wire::kRoceUdpPort);
  if (free == 0) {
    return absl::ResourceExhaustedError(
        "all " + all + " are in use; end some of the programs that use it");
  }
  if (client.trusted) return absl::OkStatus();
  const auto held =
      std::ranges::count_if(
          holders_,
          [&](const Client* c) { return c && c->account == client.account; }) +
      std::ranges::count_if(absent_, [&](const auto& a) {
        return accounts_.Of(a.second.uid) == client.account;
      });
  // With one more, the user would have more than all other users can still get.
  if (static_cast<size_t>(held) + 1 > free - 1) {
    return absl::ResourceExhaustedError(
        "user " + std::to_string(client.uid) +
        " has reached its quota of the " + all +
        "; end some of this user's programs that use it");
  }
  return absl::OkStatus();
}

Server::Next Server::Grant(Client& client, uint16_t slot) {
  client.slot = slot;
  Hold(client, slot);
  HelloReply reply;
  reply.slot = slot;
  return Send(client.fd(), reply, {ledger_.fd()}) ? Next::kKeep : Next::kClose;
}

void Server::Hold(Client& client, uint16_t slot) {
  holders_[slot] = &client;
  ledger_.data().main[slot] = *client.slot;
  ledger_.data().uid[slot] = client.uid;
}

void Server::GiveUp(uint16_t slot) {
  holders_[slot] = nullptr;
  ledger_.data().main[slot] = 0;
}

Server::Next Server::OnExtend(Client& client, Message& message) {
  const std::optional<Extend> extend = message.As<Extend>();
  const auto held = std::count(holders_.begin(), holders_.end(), &client);
  if (!extend.has_value() || extend->slot >= kSlots ||
      (extend->slot != 0 && !client.restoring) || held > Extend::kMax) {
    return Next::kClose;
  }
  ExtendReply reply;
  reply.slot = extend->slot;
  const auto refuse = [&](Refusal refusal, absl::string_view text) {
    reply.refusal = refusal;
    reply.text = MakeText(text);
    Send(client.fd(), reply);
    return Next::kKeep;
  };
  if (extend->slot != 0) {
    const auto slot = static_cast<uint16_t>(extend->slot);
    std::optional<LedgerEntry> entry;
    if (former_ != nullptr) entry = former_->Of(slot);
    if (!MayTakeBack(client, slot, entry)) {
      return refuse(Refusal::kSlotTaken,
                    "slot " + std::to_string(slot) +
                        " of UDP port 4791 was given to another process "
                        "meanwhile; its queue pairs receive nothing any more");
    }
    Hold(client, slot);
    return Next::kKeep;
  }
  // Processes that have not come back may own all free slots.
  if (recovering_) {
    return refuse(Refusal::kFull, "the port broker waits for processes");
  }
  const absl::Status may = MayHaveSlot(client);
  if (!may.ok()) return refuse(Refusal::kFull, may.message());
  const uint16_t slot = NextFreeSlot();
  Hold(client, slot);
  for (auto& [local, group] : groups_) {
    if (group.fd_of(*client.slot) < 0) continue;
    const absl::Status updated = group.Update();
    Record(group);
    if (updated.ok()) continue;
    GiveUp(slot);
    return refuse(Refusal::kOther, updated.message());
  }
  reply.slot = slot;
  Send(client.fd(), reply);
  return Next::kKeep;
}

void Server::Free(uint16_t slot) {
  for (const auto& [local, group] : groups_) NoteUnread(slot, group);
  DisconnectAll(slot);
  qp1_.Forget(slot);
  GiveUp(slot);
  for (auto& [local, group] : groups_) {
    group.Forget(slot);
    group.Release(slot);
    Record(group);
  }
}

void Server::Drop(const ClientPtr& client) {
  if (client->slot.has_value()) {
    for (uint16_t slot = 1; slot < kSlots; ++slot) {
      if (holders_[slot] != client.get()) continue;
      // A process that had not restored everything may be alive and try again,
      // for want of descriptors, say. Others could keep slots in this state.
      if (client->restoring && client->trusted) {
        holders_[slot] = nullptr;
        qp1_.Forget(slot);
        AddAbsent(slot, client->uid, /*holds=*/true);
      } else {
        Free(slot);
      }
    }
    FreeUnusedGroups();
  }
  trusted_restoring_ -= client->restoring && client->trusted;
  const ShortWaits short_waits(!client->trusted);
  error_code ignored;
  client->connection.close(ignored);
  client->turn.cancel();
  client->hello_deadline.cancel();
  client->open_retry.cancel();
  client->list_retry.cancel();
  clients_.erase(client);
  EndRecoveryIfDone();
  if (clients_.empty()) {
    LeaveAfter(std::max(options_.linger, milliseconds::zero()));
  }
}

}  // namespace rxe_user::broker
