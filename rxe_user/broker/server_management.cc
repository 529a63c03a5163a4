// Queue pair 1: its sockets, and MADs forwarded to processes.
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "rxe_user/base/random.h"
#include "rxe_user/broker/server.h"
#include "rxe_user/broker/udp.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;
using What = Management::Verdict::What;

// Datagrams read from one address before the next one's turn.
constexpr int kManagementBatch = 64;
// A datagram of this size or more is not a MAD.
constexpr size_t kReadBytes = 2 * transport::cm::kMadPacketSize;
// Datagrams read from the socket of a process that has ended.
constexpr size_t kMaxUnread = 8192;
constexpr size_t kMaxServicesOfProcess = 1024;
// Each request is looked up once per mask.
constexpr size_t kMaxMasksOfProcess = 16;
// The limit for bytes queued in a client's connection, out of
// kClientSendBuffer. The connection becomes writable again when only a quarter
// is in use.
constexpr int kMaxMadBacklog = kClientSendBuffer * 5 / 8;

// How often a client is asked for its connections, and how long to wait if the
// question could not be sent.
constexpr std::chrono::milliseconds kListAgain{1000};
constexpr std::chrono::milliseconds kListRetry{50};

transport::Time Now() {
  return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count();
}

// Makes replies carry the IP identification with which their ICRC was computed.
void Prepare(int fd, const LocalAddress& local) {
  const auto set = [fd](int level, int option, int value) {
    (void)setsockopt(fd, level, option, &value, sizeof(value));
  };
  if (local.address.is_v4()) {
    set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO);
  } else {
    set(IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DO);
  }
}

struct Sender {
  wire::IpAddress address;
  uint16_t port;
};
Sender SenderOf(const SocketAddress& from) {
  if (from.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(from.storage);
    return {wire::IpAddress::FromV4(v4.sin_addr.s_addr), ntohs(v4.sin_port)};
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from.storage);
  return {wire::IpAddress::FromGid(v6.sin6_addr.s6_addr), ntohs(v6.sin6_port)};
}

}  // namespace

Server::Next Server::OnReserve(Client& client, Message& message) {
  const std::optional<Reserve> reserve = message.As<Reserve>();
  if (!reserve.has_value()) return Next::kClose;
  ReserveReply reply;
  reply.token = reserve->token;
  reply.sequence = reserve->sequence;
  Service service = reserve->service;
  service.local = Normalized(service.local);
  if (!qp1_.services().Has(*client.slot, reserve->token) &&
      qp1_.services().CountOf(*client.slot) >= kMaxServicesOfProcess) {
    reply.refusal = Refusal::kFull;
    reply.text = MakeText("a process may reserve at most 1024 service IDs");
  } else if (qp1_.services().MasksWith(*client.slot, reserve->token,
                                       service.mask) > kMaxMasksOfProcess) {
    reply.refusal = Refusal::kFull;
    reply.text =
        MakeText("a process may reserve service IDs with at most 16 masks");
  } else if (!qp1_.services().Set(*client.slot, reserve->token, service,
                                  reserve->sequence != 0
                                      ? ServiceTable::Since::kNow
                                      : ServiceTable::Since::kBefore)) {
    reply.refusal = Refusal::kServiceTaken;
    reply.text = MakeText("the service ID is in use");
  } else {
    OfferEarly(service);
  }
  if (reply.sequence != 0 || reply.refusal != Refusal::kNone) {
    // A client that does not read its replies loses them.
    Send(client.fd(), reply);
  }
  return Next::kKeep;
}

Server::Next Server::OnUnreserve(Client& client, Message& message) {
  const std::optional<Unreserve> unreserve = message.As<Unreserve>();
  if (!unreserve.has_value()) return Next::kClose;
  qp1_.services().Remove(*client.slot, unreserve->token);
  ReserveReply reply;
  reply.token = unreserve->token;
  reply.sequence = unreserve->sequence;
  Send(client.fd(), reply);
  return Next::kKeep;
}

void Server::WatchManagement(const Group& group) {
  if (group.management_fd() < 0 || management_.contains(group.address())) {
    return;
  }
  UniqueFd copy(fcntl(group.management_fd(), F_DUPFD_CLOEXEC, 3));
  stream_descriptor socket(io_);
  error_code error;
  if (copy.valid()) socket.assign(copy.get(), error);
  if (!copy.valid() || error) return;  // retried with the next request
  Prepare(copy.Release(), group.address());
  AwaitManagement(
      group.address(),
      management_.emplace(group.address(), std::move(socket)).first->second);
}

void Server::AwaitManagement(const LocalAddress& local,
                             stream_descriptor& socket) {
  socket.async_wait(stream_descriptor::wait_read,
                    [this, local, &socket](error_code error) {
                      if (error) return;
                      ReadManagement(local, socket.native_handle());
                      AwaitManagement(local, socket);
                    });
}

void Server::ReadManagement(const LocalAddress& local, int fd) {
  for (int i = 0; i < kManagementBatch; ++i) {
    std::array<uint8_t, kReadBytes> bytes;
    SocketAddress from;
    from.size = sizeof(from.storage);
    const ssize_t n =
        recvfrom(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_TRUNC,
                 reinterpret_cast<sockaddr*>(&from.storage), &from.size);
    if (n < 0) return;
    const Sender sender = SenderOf(from);
    const Management::Datagram datagram = {
        .local = local,
        .source = sender.address,
        .source_port = sender.port,
        .bytes = std::span(bytes).first(
            std::min(static_cast<size_t>(n), bytes.size()))};
    const Management::Verdict verdict = Route(datagram);
    if (verdict.what == What::kHandOn) HandOn(datagram, verdict);
    if (verdict.what == What::kAnswer && !HoldEarly(datagram, verdict)) {
      Answer(local, sender.address, verdict.answer);
    }
  }
}

void Server::Answer(const LocalAddress& local, const wire::IpAddress& peer,
                    const transport::cm::Mad& mad) {
  const auto socket = management_.find(local);
  if (socket == management_.end()) return;
  std::array<uint8_t, transport::cm::kMadPacketSize> answer;
  transport::cm::EmitMadPacket({.source = local.address,
                                .destination = peer,
                                .source_port = wire::kRoceUdpPort},
                               /*psn=*/0, mad, answer);
  const SocketAddress to =
      ToSocketAddress({peer, local.scope_id}, wire::kRoceUdpPort);
  // A lost reply is not repeated: the peer retransmits its request.
  (void)!sendto(socket->second.native_handle(), answer.data(), answer.size(),
                MSG_DONTWAIT, to.get(), to.size);
}

bool Server::HoldEarly(const Management::Datagram& datagram,
                       const Management::Verdict& verdict) {
  if (!verdict.initial) return false;
  EarlyRequests::Entry entry = {.local = datagram.local,
                                .source = datagram.source,
                                .source_port = datagram.source_port,
                                .service_id = verdict.service_id};
  // Route has checked the size.
  std::memcpy(entry.bytes.data(), datagram.bytes.data(), entry.bytes.size());
  entry.refusal = verdict.answer;
  const bool first = !early_.NextDeadline().has_value();
  if (!early_.Push(entry, Now())) return false;
  if (first) AwaitEarly();
  return true;
}

void Server::OfferEarly(const Service& service) {
  if (service.listening != 1) return;
  early_.Offer([this, &service](const EarlyRequests::Entry& entry) {
    if (((entry.service_id ^ service.service_id) & service.mask) != 0) {
      return false;
    }
    const Management::Datagram datagram = {.local = entry.local,
                                           .source = entry.source,
                                           .source_port = entry.source_port,
                                           .bytes = entry.bytes};
    if (!qp1_.services().Match(entry.service_id, entry.local)) return false;
    const Management::Verdict verdict = Route(datagram);
    if (verdict.what == What::kHandOn) HandOn(datagram, verdict);
    return verdict.what == What::kHandOn;
  });
}

void Server::AwaitEarly() {
  const std::optional<transport::Time> deadline = early_.NextDeadline();
  if (!deadline.has_value()) return;
  early_timer_.expires_at(
      Clock::time_point(std::chrono::nanoseconds(*deadline)));
  early_timer_.async_wait([this](error_code error) {
    if (error) return;
    while (const auto entry = early_.PopDue(Now())) {
      Answer(entry->local, entry->source, entry->refusal);
    }
    AwaitEarly();
  });
}

Management::Verdict Server::Route(const Management::Datagram& datagram) {
  return qp1_.Route(
      datagram,
      [this](uint16_t slot) {
        if (const Client* const holder = HolderOf(slot)) {
          return holder->wants_unverified ? Management::Holder::kWantsUnverified
                                          : Management::Holder::kProcess;
        }
        return recovering_ || absent_.contains(slot)
                   ? Management::Holder::kMayComeBack
                   : Management::Holder::kNobody;
      },
      // Untrusted clients do not count, since they could delay all requests by
      // restoring.
      !recovering_ && absent_.empty() && trusted_restoring_ == 0, Now());
}

// A MAD that GRO merged into a client's socket. The client could forge the
// source address, so it is forwarded only to processes of the client's user.
void Server::OnStrayMad(const Client& client, const Message::StrayView& stray) {
  const Management::Datagram datagram = {
      .local = {wire::IpAddress::FromGid(stray.head.destination), 0},
      .source = wire::IpAddress::FromGid(stray.head.source),
      .source_port = stray.head.source_port,
      .bytes = stray.bytes};
  const Management::Verdict verdict = Route(datagram);
  if (verdict.what != What::kHandOn) return;
  const Client* const holder = HolderOf(verdict.slot);
  if (holder != nullptr && (client.uid == holder->uid || client.uid == 0)) {
    HandOn(datagram, verdict);
  }
}

void Server::HandOn(const Management::Datagram& datagram,
                    const Management::Verdict& verdict) {
  Client* const found = HolderOf(verdict.slot);
  if (found == nullptr) return;
  const ClientPtr holder = found->shared_from_this();
  wire::CmView mad;
  if (!verdict.unverified &&
      wire::CmView::Parse(verdict.mad, &mad) == wire::CmParseError::kOk) {
    connections_.Note(verdict.slot, datagram.local, datagram.source, mad);
  }
  MadQueue::Entry entry;
  const wire::IpAddress& destination = datagram.local.address;
  std::memcpy(entry.head.source, datagram.source.bytes.data(),
              sizeof(entry.head.source));
  std::memcpy(entry.head.destination, destination.bytes.data(),
              sizeof(entry.head.destination));
  entry.head.source_port = datagram.source_port;
  entry.head.length = static_cast<uint32_t>(entry.bytes.size());
  // Route has checked the size.
  std::memcpy(entry.bytes.data(), datagram.bytes.data(), entry.bytes.size());
  entry.source = datagram.source;
  entry.initial = verdict.initial;
  const bool waits = !holder->mads.empty();
  if (!holder->mads.Push(entry)) {
    ++qp1_.counters().queue_full;
    return;
  }
  if (!waits) SendMads(holder);
  AskConnected(holder);
}

// Asks the process to list its connections if the broker's records of them are
// incomplete or contradictory (MustAsk). Waits until the process has received
// all recorded MADs.
void Server::AskConnected(const ClientPtr& client) {
  if (!connections_.MustAsk(*client->slot) || client->list_waits) return;
  if (Clock::now() >= client->list_again && client->mads.empty() &&
      Send(client->fd(), ListConnected{})) {
    connections_.Ask(*client->slot);
    client->listed.emplace();
    client->list_again = Clock::now() + kListAgain;
    return;
  }
  client->list_waits = true;
  client->list_retry.expires_at(
      std::max(client->list_again, Clock::now() + kListRetry));
  client->list_retry.async_wait([this, client](error_code error) {
    client->list_waits = false;
    if (!error && !client->dropped()) AskConnected(client);
  });
}

void Server::NoteUnread(uint16_t slot, const Group& group) {
  const int fd = group.fd_of(slot);
  if (fd < 0 || !connections_.AwaitsRtu(slot)) return;
  std::array<uint8_t, kReadBytes> bytes;
  SocketAddress from;
  // The number is limited, since packets may still arrive.
  for (size_t i = 0; i < kMaxUnread; ++i) {
    from.size = sizeof(from.storage);
    const ssize_t n =
        recvfrom(fd, bytes.data(), bytes.size(), MSG_DONTWAIT,
                 reinterpret_cast<sockaddr*>(&from.storage), &from.size);
    if (n < 0) return;
    const Sender sender = SenderOf(from);
    std::span<const uint8_t> mad;
    wire::CmView view;
    if (transport::cm::ParseMadPacket(
            {.source = sender.address,
             .destination = group.address().address,
             .source_port = sender.port},
            std::span(bytes).first(static_cast<size_t>(n)),
            &mad) == transport::cm::MadPacketError::kOk &&
        wire::CmView::Parse(mad, &view) == wire::CmParseError::kOk &&
        view.attribute() == wire::CmAttribute::kRtu) {
      connections_.Note(slot, group.address(), sender.address, view);
    }
  }
}

// The process of `slot` has ended: sends each peer one DREQ. Lost ones are not
// retransmitted, as if the host had died.
void Server::DisconnectAll(uint16_t slot) {
  for (const OpenConnections::Connection& c : connections_.Take(slot)) {
    transport::cm::Mad mad;
    wire::EmitCm({.id = (uint64_t{SecureRandom32()} << 32) | c.local_id},
                 wire::CmDreq{.local_comm_id = c.local_id,
                              .remote_comm_id = c.remote_id,
                              .remote_qpn = c.remote_qpn},
                 mad);
    Answer(c.local, c.peer, mad);
  }
}

// Sends as many MADs as fit in the client's connection, and the others later.
void Server::SendMads(const ClientPtr& client) {
  // Replies need space too.
  int waiting = 0;
  while (!client->mads.empty() &&
         ioctl(client->fd(), SIOCOUTQ, &waiting) == 0 &&
         waiting < kMaxMadBacklog) {
    const MadQueue::Entry& entry = client->mads.front();
    if (!SendStray(client->fd(), entry.head, entry.bytes)) {
      // The connection of a client that has shut down reading stays writable:
      // drop the rest.
      if (errno == EPIPE || errno == ECONNRESET) client->mads.Clear();
      break;
    }
    client->mads.Pop();
  }
  if (client->mads.empty()) return;
  client->connection.async_wait(stream_descriptor::wait_write,
                                [this, client](error_code error) {
                                  if (error || client->dropped()) return;
                                  SendMads(client);
                                });
}

}  // namespace rxe_user::broker
