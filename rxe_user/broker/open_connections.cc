#include "rxe_user/broker/open_connections.h"

namespace rxe_user::broker {
namespace {

// Room for one more. IDs are random, hence so is which one goes.
template <typename Map>
void MakeRoom(Map& map, size_t most) {
  if (map.size() >= most) map.erase(map.begin());
}

}  // namespace

void OpenConnections::Note(uint8_t slot, const LocalAddress& local,
                           const wire::IpAddress& peer,
                           const wire::CmView& mad) {
  Slot& known = slots_[slot];
  const auto open = [&](uint32_t local_id, uint32_t remote_id, uint32_t qpn) {
    Add(slot, {.local = local,
               .peer = peer,
               .local_id = local_id,
               .remote_id = remote_id,
               .remote_qpn = qpn});
  };
  const PeersId peers_id = {peer, mad.local_comm_id()};
  switch (mad.attribute()) {
    case wire::CmAttribute::kReq:
      MakeRoom(known.requested, kMostRequested);
      known.requested[peers_id] = mad.req().local_qpn;
      break;
    case wire::CmAttribute::kRep: {
      const wire::CmRep rep = mad.rep();
      open(rep.remote_comm_id, rep.local_comm_id, rep.local_qpn);
      break;
    }
    case wire::CmAttribute::kRtu: {
      const auto request = known.requested.find(peers_id);
      if (request == known.requested.end()) break;
      open(mad.remote_comm_id(), mad.local_comm_id(), request->second);
      known.requested.erase(request);
      break;
    }
    case wire::CmAttribute::kRej:
    case wire::CmAttribute::kDreq:
    case wire::CmAttribute::kDrep: {
      known.requested.erase(peers_id);
      const auto found = known.open.find(mad.remote_comm_id());
      if (found != known.open.end() && found->second.peer == peer) {
        known.open.erase(found);
      }
      break;
    }
    default:
      break;
  }
}

void OpenConnections::Add(uint8_t slot, const Connection& connection) {
  Slot& known = slots_[slot];
  if (!known.open.contains(connection.local_id)) {
    MakeRoom(known.open, kMostOpen);
  }
  known.open[connection.local_id] = connection;
}

size_t OpenConnections::size() const {
  size_t size = 0;
  for (const auto& [number, slot] : slots_) size += slot.open.size();
  return size;
}

std::vector<OpenConnections::Connection> OpenConnections::Take(uint8_t slot) {
  std::vector<Connection> out;
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return out;
  for (const auto& [id, connection] : found->second.open) {
    out.push_back(connection);
  }
  slots_.erase(found);
  return out;
}

}  // namespace rxe_user::broker
