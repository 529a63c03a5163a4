// Recovery after a dead broker: its clients reclaim their slots and restore
// their sockets, whose positions are then found.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rxe_user/broker/server.h"

namespace rxe_user::broker {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;

// If the port was in use at the start: how long new clients wait for the old
// ones to come back.
constexpr milliseconds kRecoveryTime{1000};
// How long the slot of a process that has not come back (a stopped one, say)
// stays reserved.
constexpr milliseconds kAbsentTime{60'000};
// How long to wait for further restored sockets, to settle them together.
constexpr milliseconds kSettleDelay{20};
// When to probe positions again, since sockets that are about to close move
// others.
constexpr milliseconds kSettleAgain[] = {milliseconds{60}, milliseconds{250},
                                         milliseconds{1000}};

// The interval is doubled up to this while positions are not found, since
// probing costs CPU time.
constexpr milliseconds kMaxSettleGaps{60'000};

}  // namespace

void Server::StartRecovery() {
  recovering_ = true;
  recovery_deadline_.expires_after(kRecoveryTime);
  recovery_deadline_.async_wait([this](error_code error) {
    if (!error) EndRecoveryIfDone();
  });
}

Server::Next Server::Reclaim(Client& client, uint16_t slot, Message& message) {
  const UniqueFd fd = message.TakeFd(0);
  const std::optional<LedgerEntry> entry = ReadLedgerEntry(fd.get(), slot);
  if (entry.has_value()) {
    NoteLedger(fd.get(), entry->made_at_ms, client.trusted);
  }
  if (!MayTakeBack(client, slot, entry)) {
    Refuse(client.fd(), Refusal::kSlotTaken,
           "slot " + std::to_string(slot) +
               " of UDP port 4791 was given to another process meanwhile");
    return Next::kClose;
  }
  client.restoring = true;
  trusted_restoring_ += client.trusted;
  return Grant(client, slot);
}

bool Server::MayTakeBack(const Client& client, uint16_t slot,
                         const std::optional<LedgerEntry>& entry) {
  const auto absent = absent_.find(slot);
  bool had_it =
      entry.has_value() && entry->main != 0 && entry->uid == client.uid;
  if (absent != absent_.end() && absent->second.uid == client.uid) {
    absent_.erase(absent);
    had_it = true;
  }
  return !InUse(slot) && (had_it || client.trusted);
}

// Ledgers are accepted from any client: one that our user created is a
// broker's. But it may be that of an earlier broker.
void Server::NoteLedger(int fd, int64_t made_at_ms, bool trusted) {
  if (former_ != nullptr && made_at_ms <= former_->made_at_ms) {
    former_trusted_ |= trusted && made_at_ms == former_->made_at_ms;
    return;
  }
  std::shared_ptr<const LedgerData> former = ReadLedger(fd);
  if (former == nullptr) return;
  former_ = std::move(former);
  former_trusted_ = trusted;
  if (!recovering_) return;
  std::vector<uint16_t> given_away;
  std::erase_if(absent_, [&](const auto& entry) {
    const auto& [slot, absent] = entry;
    if (!absent.holds) {
      ledger_.data().main[slot] = 0;
    } else if (former_->main[slot] != 0 && former_->uid[slot] == absent.uid) {
      return false;
    } else {
      given_away.push_back(slot);
    }
    return true;
  });
  for (const uint16_t slot : given_away) Free(slot);
  MergeLedger(*former_);
  for (uint32_t i = 0; i < former_->group_count; ++i) {
    Group* const group = Find(former_->groups[i].address);
    if (group != nullptr && group->adopted())
      group->MergeLedger(former_->groups[i]);
  }
}

// Merges the record into our own ledger at once, since we may be killed before
// all clients have come back. The first slot of a process may come back before
// its other slots, or without them, so these keep their own positions.
void Server::MergeLedger(const LedgerData& former) {
  LedgerData& ours = ledger_.data();
  ours.groups = former.groups;
  ours.group_count = former.group_count;
  for (uint16_t slot = 1; slot < kSlots; ++slot) {
    if (former.main[slot] == 0 || InUse(slot)) continue;
    ours.main[slot] = slot;
    ours.uid[slot] = former.uid[slot];
    AddAbsent(slot, former.uid[slot], /*holds=*/false);
  }
}

void Server::AddAbsent(uint16_t slot, uid_t uid, bool holds) {
  const auto added =
      absent_.emplace(slot, Absent{uid, holds, boost::asio::steady_timer(io_)});
  if (added.second) AwaitAbsent(slot);
}

void Server::AwaitAbsent(uint16_t slot) {
  boost::asio::steady_timer& deadline = absent_.at(slot).deadline;
  deadline.expires_after(kAbsentTime);
  deadline.async_wait([this, slot](error_code error) {
    if (!error) OnAbsentTooLong(slot);
  });
}

void Server::OnAbsentTooLong(uint16_t slot) {
  const auto absent = absent_.find(slot);
  // The process may have just come back.
  if (absent == absent_.end()) return;
  // A process that did not come back may still have its sockets in the groups.
  if (!absent->second.holds && AnyGaps()) return AwaitAbsent(slot);
  absent_.erase(absent);
  Free(slot);
  FreeUnusedGroups();
  EndRecoveryIfDone();
}

Server::Next Server::OnRestore(Client& client, Message& message) {
  const std::optional<Restore> restore = message.As<Restore>();
  if (!restore.has_value() || !client.restoring) return Next::kClose;
  client.wants_unverified |= restore->wants_unverified != 0;
  const LocalAddress local = Normalized(restore->address);
  UniqueFd socket = message.TakeFd(0);
  UniqueFd anchor = message.TakeFd(1);
  if (!client.trusted) anchor.Reset();
  const auto index = static_cast<uint16_t>(restore->index);
  Group* group = Find(local);
  if (group == nullptr) {
    const LedgerGroup* former = nullptr;
    if (former_ != nullptr) former = former_->Find(local);
    Group adopted = Group::ForAdoption(local, ledger_.data().main, former);
    if (!adopted.Adopt(*client.slot, client.uid, std::move(socket), index,
                       std::move(anchor))) {
      return Next::kClose;
    }
    groups_.emplace(local, std::move(adopted));
  } else if (!group->Adopt(*client.slot, client.uid, std::move(socket), index,
                           std::move(anchor))) {
    return Next::kClose;
  }
  settle_gaps_ = kSettleGaps;
  if (!settle_at_.has_value()) SettleAt(Clock::now() + kSettleDelay);
  return Next::kKeep;
}

// Accepts only connections that can be the client's: with an ID of its first
// slot, at an address of ours.
Server::Next Server::OnConnected(const ClientPtr& client, Message& message) {
  const std::optional<Connected> connected = message.As<Connected>();
  if (!connected.has_value() || connected->count > Connected::kMax) {
    return Next::kClose;
  }
  for (uint32_t i = 0; i < connected->count; ++i) {
    const auto connection = Validated(*client, connected->connections[i]);
    if (!connection.has_value()) continue;
    if (client->restoring) {
      connections_.Add(*client->slot, *connection);
    } else if (!client->listed.has_value()) {
      connections_.Confirm(*client->slot, *connection);
    } else if (client->listed->size() < OpenConnections::kMaxOpen) {
      client->listed->push_back(*connection);
    }
  }
  if (client->listed.has_value() && connected->last != 0) {
    connections_.Replace(*client->slot, *client->listed);
    client->listed.reset();
  }
  if (!client->restoring) AskConnected(client);
  return Next::kKeep;
}

std::optional<OpenConnection> Server::Validated(
    const Client& client, OpenConnection connection) const {
  if (transport::cm::PrefixOf(connection.local_id) != *client.slot) {
    return std::nullopt;
  }
  // The client does not name the interface of a link-local address.
  const auto group = std::ranges::find_if(groups_, [&](const auto& g) {
    return g.first.address == connection.local.address;
  });
  if (group == groups_.end()) return std::nullopt;
  connection.local = group->first;
  return connection;
}

void Server::EndRecoveryIfDone() {
  const bool all_back =
      absent_.empty() && std::ranges::none_of(clients_, [](const ClientPtr& c) {
        return c->restoring;
      });
  if (all_back && settle_at_.has_value()) SettleAt(Clock::now());
  if (!recovering_) return;
  // Without a trusted ledger, other clients may still come back.
  const bool in_time = Clock::now() < recovery_deadline_.expiry();
  if (in_time && !(all_back && former_trusted_)) return;
  recovering_ = false;
  recovery_deadline_.cancel();
  std::vector<ClientPtr> refused;
  for (const ClientPtr& client : clients_) {
    if (client->waiting_for_slot && GrantFreeSlot(*client) == Next::kClose) {
      refused.push_back(client);
    }
  }
  for (const ClientPtr& client : refused) Drop(client);
}

void Server::SettleAt(Clock::time_point when) {
  settle_at_ = when;
  AwaitSettling();
}

void Server::AwaitSettling() {
  if (settle_at_.has_value()) {
    settle_.expires_at(*settle_at_);
  } else if (!settle_again_.empty()) {
    settle_.expires_at(settle_again_.front());
  } else {
    return;
  }
  settle_.async_wait([this](error_code error) {
    if (!error) OnSettleTime();
  });
}

void Server::OnSettleTime() {
  const Clock::time_point now = Clock::now();
  if (settle_at_.has_value() && now >= *settle_at_) {
    settle_at_.reset();
    SettleGroups();
    settle_again_.clear();
    for (const milliseconds delay : kSettleAgain) {
      settle_again_.push_back(now + delay);
    }
  } else if (!settle_again_.empty() && now >= settle_again_.front()) {
    settle_again_.pop_front();
    SettleGroups();
  }
  if (settle_again_.empty() && AnyGaps()) {
    settle_again_.push_back(now + settle_gaps_);
  }
  AwaitSettling();
}

void Server::SettleGroups() {
  bool located = true;
  for (auto& [local, group] : groups_) {
    if (!group.adopted()) continue;
    if (!group.locating()) {
      located &= group.located();
      (void)group.StartLocating();
    }
    WatchManagement(group);
    Record(group);
  }
  settle_gaps_ =
      located ? kSettleGaps : std::min(2 * settle_gaps_, kMaxSettleGaps);
  // Requests for a group wait until it has settled.
  const std::vector<ClientPtr> clients(clients_.begin(), clients_.end());
  for (const ClientPtr& client : clients) {
    if (client->open.has_value()) RetryOpen(client);
  }
  AwaitLocating();
}

void Server::AwaitLocating() {
  if (locate_waits_ || std::ranges::none_of(groups_, [](const auto& g) {
        return g.second.locating();
      })) {
    return;
  }
  locate_waits_ = true;
  locate_timer_.expires_at(next_step_);
  locate_timer_.async_wait([this](error_code error) {
    locate_waits_ = false;
    if (!error) LocateNext();
  });
}

void Server::LocateNext() {
  // Groups of trusted programs come first, then the others in turn.
  auto next = groups_.end();
  bool behind = false, trusted = false;
  for (auto it = groups_.begin(); it != groups_.end() && !trusted; ++it) {
    if (!it->second.locating()) continue;
    trusted = it->second.HasSocketOf(0) || it->second.HasSocketOf(uid_);
    const bool is_behind = located_last_ < it->first;
    if (trusted || next == groups_.end() || (is_behind && !behind)) next = it;
    behind |= is_behind;
  }
  if (next == groups_.end()) return;
  const LocalAddress local = located_last_ = next->first;
  const Clock::time_point begin = Clock::now();
  next->second.Locate();
  const Clock::time_point end = Clock::now();
  next_step_ = end + 2 * (end - begin);
  if (!next->second.locating()) OnLocated(local);
  AwaitLocating();
}

void Server::OnLocated(const LocalAddress& local) {
  Group& group = groups_.at(local);
  WatchManagement(group);
  Record(group);
  const std::vector<ClientPtr> clients(clients_.begin(), clients_.end());
  for (const ClientPtr& client : clients) {
    if (client->open.has_value() && Normalized(client->open->local) == local) {
      RetryOpen(client);
    }
  }
  FreeUnusedGroups();
}

bool Server::AnyGaps() const {
  return std::ranges::any_of(groups_,
                             [](const auto& g) { return g.second.has_gaps(); });
}

}  // namespace rxe_user::broker
