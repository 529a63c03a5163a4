#include "transport/dc/dc_connections.h"

#include <cassert>
#include <new>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/hash/hash.h"
#include "transport/dc/dct_queue_pair.h"

namespace transport {

size_t DcConnections::PeerHash::operator()(const Peer& peer) const {
  return absl::HashOf(peer.address, peer.initiator);
}

DcConnections::~DcConnections() { assert(by_use_.empty()); }

uint32_t DcConnections::NewSession() {
  uint32_t session;
  do {
    session = lane_.Random() & wire::kQpnMask;
  } while (session == 0 || session == wire::kNoDcSession ||
           session == last_session_);
  return last_session_ = session;
}

void DcConnections::OnConnect(DctQueuePair& target, const Received& connect,
                              Time now) {
  const wire::DcEth dc = connect.packet->dceth();
  const Peer peer = {connect.datagram->source, dc.src_qpn};
  if (const auto known = by_peer_.find(peer); known != by_peer_.end()) {
    for (DcConnection* const connection : known->second) {
      if (!connection->IsCopy(connect)) continue;
      connection->AnswerAgain();
      endpoint_.Update(connection, now);
      return;
    }
  }
  if (!MakeSpace(peer.address, now)) return target.CountUnaccepted();
  try {
    Open(target, connect, now);
  } catch (const std::bad_alloc&) {
    target.CountUnaccepted();
  }
}

bool DcConnections::IsIdle(const DcConnection& connection, Time now) const {
  return connection.dead() || now - connection.used_ >= kIdle;
}

bool DcConnections::MakeSpace(const wire::IpAddress& address, Time now) {
  const auto waiting = waiting_.find(address);
  if (waiting != waiting_.end() && waiting->second.size() >= kMaxWaiting) {
    DcConnection* const oldest = waiting->second.front();
    if (!IsIdle(*oldest, now)) return false;
    ++endpoint_.service_counters().dc_evicted;
    Close(oldest, now);
  }
  return by_use_.size() < max_connections_ || EvictLast(now);
}

bool DcConnections::EvictLast(Time now) {
  if (by_use_.empty() || !IsIdle(*by_use_.back(), now)) return false;
  ++endpoint_.service_counters().dc_evicted;
  Close(by_use_.back().get(), now);
  return true;
}

void DcConnections::Open(DctQueuePair& target, const Received& connect,
                         Time now) {
  std::optional<uint32_t> number = lane_.AllocateNumber();
  if (!number && EvictLast(now)) number = lane_.AllocateNumber();
  if (!number) return target.CountUnaccepted();
  absl::Cleanup release = [&] { lane_.ReleaseNumber(*number); };
  const std::optional<uint16_t> port =
      lane_.SourcePort(target.attributes().av, connect);
  if (!port) return target.CountUnaccepted();
  auto made = std::make_unique<DcConnection>(
      endpoint_, target.ConnectionConfig(), *number, *this);
  DcConnection* const connection = made.get();
  connection->Accept(target.attributes(), connect, NewSession(), *port);
  connection->used_ = now;
  by_use_.push_front(std::move(made));
  connection->place_ = by_use_.begin();
  // From here on Close releases the number.
  std::move(release).Cancel();
  absl::Cleanup close = [&] { Close(connection, now); };
  by_peer_[PeerOf(*connection)].push_back(connection);
  waiting_[connection->peer()].push_back(connection);
  std::move(close).Cancel();
  ++endpoint_.service_counters().dc_connects;
  endpoint_.Update(connection, now);
}

void DcConnections::OnEarlyData(const Received& data, Time now) {
  const wire::DcEth dc = data.packet->dceth();
  const auto known = by_peer_.find({data.datagram->source, dc.src_qpn});
  if (known == by_peer_.end()) return;
  for (DcConnection* const connection : known->second) {
    if (!connection->TakesEarly(data)) continue;
    // As if the data had been sent to the connection: their port is pinned, and
    // the next packets come from there.
    PeerIcrc& icrc = connection->link().peer_icrc;
    const bool knows = icrc.Knows(data.datagram->source_port);
    const bool good = knows ? icrc.Verify(*data.datagram, now)
                            : icrc.VerifyOther(*data.datagram);
    Received early = data;
    early.origin = knows ? Origin::kPeerPort : Origin::kPeerAddress;
    if (connection->OnPacket(early, now) && good) {
      icrc.Learn(*data.datagram, now);
    }
    // OnUsed may have closed others, but not this one.
    endpoint_.Update(connection, now);
    return;
  }
}

void DcConnections::OnUsed(DcConnection* connection, Time now) {
  connection->used_ = now;
  if (connection->place_ != by_use_.begin()) {
    by_use_.splice(by_use_.begin(), by_use_, connection->place_);
  }
  if (connection->established_) return;
  connection->established_ = true;
  ForgetWaiting(connection);
  // An initiator has one connection at a time, whatever its targets.
  std::vector<DcConnection*>& all = by_peer_.find(PeerOf(*connection))->second;
  while (all.size() > 1) {
    Close(all.front() != connection ? all.front() : all.back(), now);
  }
}

void DcConnections::ForgetWaiting(DcConnection* connection) {
  const auto waiting = waiting_.find(connection->peer());
  if (waiting == waiting_.end()) return;
  std::erase(waiting->second, connection);
  if (waiting->second.empty()) waiting_.erase(waiting);
}

void DcConnections::Close(DcConnection* connection, Time now) {
  connection->Close(now);
  Remove(connection);
}

void DcConnections::Remove(DcConnection* connection) {
  ForgetWaiting(connection);
  if (const auto known = by_peer_.find(PeerOf(*connection));
      known != by_peer_.end()) {
    std::erase(known->second, connection);
    if (known->second.empty()) by_peer_.erase(known);
  }
  const uint32_t number = connection->qpn();
  by_use_.erase(connection->place_);
  lane_.ReleaseNumber(number);
}

void DcConnections::CloseAll(const DctQueuePair& target,
                             std::optional<Time> now) {
  for (auto it = by_use_.begin(); it != by_use_.end();) {
    DcConnection* const connection = it->get();
    ++it;
    if (connection->target() != target.qpn()) continue;
    now ? Close(connection, *now) : Remove(connection);
  }
}

}  // namespace transport
