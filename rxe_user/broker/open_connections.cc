#include "rxe_user/broker/open_connections.h"

namespace rxe_user::broker {
void OpenConnections::Note(uint16_t slot, const LocalAddress& local,
                           const wire::IpAddress& peer,
                           const wire::CmView& mad) {
  Slot& known = slots_[slot];
  const auto open = [&](uint32_t local_id, uint32_t remote_id, uint32_t qpn) {
    Claim(known, {.local = local,
                  .peer = peer,
                  .local_id = local_id,
                  .remote_id = remote_id,
                  .remote_qpn = qpn});
  };
  const PeersId peers_id = {peer, mad.local_comm_id()};
  switch (mad.attribute()) {
    case wire::CmAttribute::kReq:
      if (known.requested.size() < kMaxRequested ||
          known.requested.contains(peers_id)) {
        known.requested[peers_id] = mad.req().local_qpn;
      }
      break;
    case wire::CmAttribute::kRep: {
      const wire::CmRep rep = mad.rep();
      open(rep.remote_comm_id, rep.local_comm_id, rep.local_qpn);
      break;
    }
    case wire::CmAttribute::kRtu: {
      // Not steered: the process has no socket at this address yet.
      const auto request = known.requested.find(peers_id);
      Confirm(slot,
              {.local = local,
               .peer = peer,
               .local_id = mad.remote_comm_id(),
               .remote_id = mad.local_comm_id(),
               .remote_qpn =
                   request == known.requested.end() ? 0 : request->second});
      break;
    }
    case wire::CmAttribute::kRej:
    case wire::CmAttribute::kDreq:
    case wire::CmAttribute::kDrep: {
      known.requested.erase(peers_id);
      const auto found = known.open.find(mad.remote_comm_id());
      if (found != known.open.end() && found->second.connection.peer == peer) {
        known.open.erase(found);
      }
      break;
    }
    default:
      break;
  }
}

bool OpenConnections::AwaitsRtu(uint16_t slot) const {
  const auto known = slots_.find(slot);
  return known != slots_.end() && !known->second.requested.empty();
}

void OpenConnections::Confirm(uint16_t slot, const Connection& connection) {
  Slot& known = slots_[slot];
  const auto request =
      known.requested.find({connection.peer, connection.remote_id});
  if (request == known.requested.end()) {
    // A duplicate, or the request was dropped for lack of space, or has ended.
    known.must_ask |= !known.open.contains(connection.local_id);
    return;
  }
  Claim(known, connection);
  known.requested.erase(request);
}

void OpenConnections::Add(uint16_t slot, const Connection& connection) {
  Slot& known = slots_[slot];
  if (known.open.size() == kMaxOpen &&
      !known.open.contains(connection.local_id)) {
    return;
  }
  known.open[connection.local_id] = {connection, known.asked};
}

void OpenConnections::Claim(Slot& slot, const Connection& connection) {
  const auto known = slot.open.find(connection.local_id);
  if (known != slot.open.end()) {
    const Connection& before = known->second.connection;
    slot.must_ask |= before.peer != connection.peer ||
                     before.remote_id != connection.remote_id;
  } else if (slot.open.size() == kMaxOpen) {
    slot.must_ask = true;
  } else {
    slot.open[connection.local_id] = {connection, slot.asked};
  }
}

bool OpenConnections::MustAsk(uint16_t slot) const {
  const auto known = slots_.find(slot);
  return known != slots_.end() && known->second.must_ask;
}

void OpenConnections::Ask(uint16_t slot) {
  Slot& known = slots_[slot];
  ++known.asked;
  known.must_ask = false;
}

void OpenConnections::Replace(uint16_t slot,
                              const std::vector<Connection>& all) {
  Slot& known = slots_[slot];
  std::erase_if(known.open, [&known](const auto& open) {
    return open.second.asked != known.asked;
  });
  for (const Connection& connection : all) Add(slot, connection);
}

size_t OpenConnections::size() const {
  size_t size = 0;
  for (const auto& [number, slot] : slots_) size += slot.open.size();
  return size;
}

std::vector<OpenConnections::Connection> OpenConnections::Take(uint16_t slot) {
  std::vector<Connection> out;
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return out;
  for (const auto& [id, open] : found->second.open) {
    out.push_back(open.connection);
  }
  slots_.erase(found);
  return out;
}

}  // namespace rxe_user::broker
