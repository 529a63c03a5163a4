// The sockets that a broker lends, and datagrams between clients.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/server.h"
#include "wire/packet.h"

namespace rxe_user::broker {
namespace {

using boost::asio::posix::stream_descriptor;
using boost::system::error_code;
using std::chrono::milliseconds;

// How long a request waits for a port that is in use: while a dead broker's
// clients may hand it back, and for a foreign holder.
constexpr milliseconds kOwnPortWait{1500};
constexpr milliseconds kForeignPortWait{100};
// How long programs of another protocol version count as present after a
// request. They ask a new broker every second.
constexpr milliseconds kOtherVersionSeen{5000};
// Retries, since the kernel does not report when a port becomes free.
constexpr milliseconds kOpenRetry{10};
// The quota of an untrusted user: a number of sockets, and a fraction (1/16) of
// the descriptors that we may open. Each socket may cost two more, for its
// group.
constexpr size_t kMaxSocketsOfUser = 4096;
constexpr size_t kPartOfDescriptors = 16;
constexpr int kMaxStrayBacklog = 64 << 10;

Refusal RefusalOf(const absl::Status& status) {
  if (absl::IsNotFound(status)) return Refusal::kNoAddress;
  if (absl::IsUnavailable(status) || absl::IsAlreadyExists(status)) {
    return Refusal::kPortTaken;
  }
  if (absl::IsResourceExhausted(status)) return Refusal::kFull;
  return Refusal::kOther;
}

}  // namespace

Group* Server::Find(const LocalAddress& local) {
  const auto it = groups_.find(local);
  return it == groups_.end() ? nullptr : &it->second;
}

Server::Next Server::OnOpen(const ClientPtr& client, Message& message) {
  const std::optional<Open> open = message.As<Open>();
  if (!open.has_value()) return Next::kClose;
  // Clients send one request at a time.
  if (client->open.has_value()) return Next::kClose;
  client->open = {open->address, Clock::now()};
  client->wants_unverified |= open->wants_unverified != 0;
  RetryOpen(client);
  return Next::kKeep;
}

Server::Next Server::OnClose(const Client& client, Message& message) {
  const std::optional<Close> close = message.As<Close>();
  if (!close.has_value()) return Next::kClose;
  Group* const group = Find(Normalized(close->address));
  if (group == nullptr) return Next::kKeep;
  group->Release(*client.slot);
  Record(*group);
  FreeUnusedGroups();
  return Next::kKeep;
}

// Tries to answer the client's request, now and again later.
void Server::RetryOpen(const ClientPtr& client) {
  if (TryOpen(*client)) {
    client->open.reset();
    client->open_retry.cancel();
    return;
  }
  client->open_retry.expires_after(kOpenRetry);
  client->open_retry.async_wait([this, client](error_code error) {
    if (error || client->dropped() || !client->open.has_value()) return;
    RetryOpen(client);
  });
}

// Answers the request. False if it must wait.
bool Server::TryOpen(Client& client) {
  const LocalAddress local = Normalized(client.open->local);
  const Clock::duration waited = Clock::now() - client.open->since;
  OpenReply reply;
  reply.address = client.open->local;  // as the client wrote it
  const auto refuse = [&](const absl::Status& status) {
    reply.refusal = RefusalOf(status);
    reply.text = MakeText(status.message());
    Send(client.fd(), reply);
    return true;
  };
  // A group of such an address would take datagrams of others.
  if (local.address.is_unspecified() || local.address.is_multicast()) {
    return refuse(absl::NotFoundError("not an address of this machine: " +
                                      local.ToString()));
  }
  Group* group = Find(local);
  const auto is_locating = [&] {
    if (group == nullptr || !group->locating()) return false;
    AwaitLocating();
    return true;
  };
  if (is_locating()) return false;
  if (group != nullptr && !group->settled()) {
    if (waited < kOwnPortWait) return false;
    // A client that keeps handing back sockets must not delay others.
    if (const absl::Status status = group->StartLocating(); !status.ok()) {
      return refuse(status);
    }
    if (is_locating()) return false;
  }
  const bool has_it = group != nullptr && group->fd_of(*client.slot) >= 0;
  if (!has_it && !MayOpenOneMore(client)) {
    return refuse(absl::ResourceExhaustedError(
        "user " + std::to_string(client.uid) +
        " has reached its quota of sockets of UDP port 4791; end some of "
        "this user's programs that use it"));
  }
  if (group == nullptr) {
    absl::StatusOr<Group> created = Group::Create(local, ledger_.data().main);
    if (absl::IsAlreadyExists(created.status())) {
      if (waited < (recovering_ ? kOwnPortWait : kForeignPortWait))
        return false;
      // A new group would replace the steering program of that version's
      // sockets.
      if (other_version_at_ > Clock::now() - kOtherVersionSeen) {
        return refuse(absl::UnavailableError(
            "programs with another version of rxe_user use UDP port 4791 of " +
            local.ToString() + "; wait until they have ended"));
      }
      // Sockets of ours hold the port: another user keeps copies of lent
      // sockets.
      created = Group::Join(local, ledger_.data().main);
      if (created.ok() && !settle_at_.has_value()) {
        SettleAt(Clock::now() + kSettleGaps);
      }
    }
    if (!created.ok()) {
      return absl::IsUnavailable(created.status()) && waited < kForeignPortWait
                 ? false
                 : refuse(created.status());
    }
    group = &groups_.emplace(local, *std::move(created)).first->second;
    if (is_locating()) return false;
  }
  WatchManagement(*group);
  const absl::StatusOr<const Group::Member*> member =
      group->Assign(*client.slot, client.uid, client.trusted);
  Record(*group);
  if (!member.ok()) {
    FreeUnusedGroups();
    return refuse(member.status());
  }
  // Wait until the index is known.
  if (is_locating()) return false;
  reply.index = (*member)->index;
  // A client that does not read its replies loses them.
  Send(client.fd(), reply,
       {(*member)->fd.get(), client.trusted ? group->management_fd() : -1});
  return true;
}

bool Server::MayOpenOneMore(const Client& client) const {
  if (client.trusted) return true;
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  const size_t most =
      std::min<size_t>(kMaxSocketsOfUser, files.rlim_cur / kPartOfDescriptors);
  size_t lent = 0;
  const auto counts = [&](uid_t uid) {
    return uid == client.uid || accounts_.Of(uid) == client.account;
  };
  for (const auto& [local, group] : groups_) lent += group.Lent(counts);
  return lent < most;
}

// Frees groups that no client uses: an address costs descriptors, and one user
// could open all of 127.0.0.0/8.
void Server::FreeUnusedGroups() {
  for (auto it = groups_.begin(); it != groups_.end();) {
    if (!it->second.unused() || it->second.locating()) {
      ++it;
      continue;
    }
    LedgerData& d = ledger_.data();
    for (uint32_t i = 0; i < d.group_count; ++i) {
      if (d.groups[i].address == it->first) {
        d.groups[i] = d.groups[--d.group_count];
        break;
      }
    }
    management_.erase(it->first);
    it = groups_.erase(it);
  }
}

void Server::Record(const Group& group) {
  LedgerData& d = ledger_.data();
  for (size_t i = 0; i < LedgerData::kGroups; ++i) {
    if (i == d.group_count) {
      d.groups[i].address = group.address();
      ++d.group_count;
    }
    if (d.groups[i].address == group.address()) {
      d.groups[i].index = group.map();
      d.groups[i].probe_word = group.probe_word();
      return;
    }
  }
}

void Server::OnStray(Client& client, const Message::StrayView& stray) {
  const std::optional<uint32_t> qpn = wire::PeekDestQpn(stray.bytes);
  if (!qpn.has_value() || !client.strays.Take(MonotonicMs())) return;
  const uint16_t slot = SlotOf(*qpn);
  if (slot == 0) return OnStrayMad(client, stray);
  Client* const other = holders_[slot];
  if (other == nullptr || other == &client) return;
  // The sender could forge the source address.
  if (client.uid != other->uid && client.uid != 0) return;
  // Replies need space too.
  int waiting = 0;
  if (ioctl(other->fd(), SIOCOUTQ, &waiting) != 0 ||
      waiting > kMaxStrayBacklog) {
    return;
  }
  SendStray(other->fd(), stray.head, stray.bytes);
}

}  // namespace rxe_user::broker
