// The connections of all DC targets of a lane.
//
// A CONNECT proves little: its key is the same for all initiators, and often a
// constant of the program. Its source address may be forged, and the answer
// goes to that address alone. So:
//
// - A second CONNECT of one initiator creates a second connection. The first
//   one ends when data arrive on the second, which prove that their sender has
//   got the answer.
// - Connections that wait for data are limited for each address. A CONNECT
//   beyond that limit is dropped. So is one beyond kMax connections, unless
//   the least recently used connection has been idle for kIdle: that one is
//   closed. Otherwise no connection of another initiator ends.
// - Sessions and numbers are random, and a connection accepts one UDP source
//   port, that of its CONNECT.
// - A READ is answered only if its sender has got the answer to the CONNECT:
//   nothing long is sent to a forged address.
//
// A CONNECT that is not accepted is not answered.
#ifndef TRANSPORT_DC_DC_CONNECTIONS_H_
#define TRANSPORT_DC_DC_CONNECTIONS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/base/types.h"
#include "transport/dc/dc_connection.h"
#include "transport/dc/dc_lane.h"
#include "transport/endpoint/endpoint.h"

namespace transport {

class DctQueuePair;

// Guarded by the lane's lock.
class DcConnections {
 public:
  static constexpr size_t kMax = 2048;
  // An initiator that was idle for half of this connects anew (DciQueuePair).
  static constexpr Time kIdle = 2 * kSecond;
  // For each address: connections without data yet.
  static constexpr size_t kMaxWaiting = 512;

  // Both outlive it. Targets must be destroyed before. `max_connections`:
  // connections at a time.
  DcConnections(Endpoint& endpoint, DcLane& lane, size_t max_connections = kMax)
      : endpoint_(endpoint), lane_(lane), max_connections_(max_connections) {}
  ~DcConnections();
  DcConnections(const DcConnections&) = delete;
  DcConnections& operator=(const DcConnections&) = delete;

  DcLane& lane() { return lane_; }
  size_t size() const { return by_use_.size(); }

  // --- Calls by a target: a CONNECT to it with the right key, or data that
  // name the target instead of a connection.
  void OnConnect(DctQueuePair& target, const Received& connect, Time now);
  void OnEarlyData(const Received& data, Time now);
  // The target no longer receives. Receives in use are flushed at `now`, or
  // dropped if there is none.
  void CloseAll(const DctQueuePair& target, std::optional<Time> now);

  // --- Calls by a connection.
  // Data have arrived on it, which prove that their sender has got the answer;
  // or it sends responses to such data.
  void OnUsed(DcConnection* connection, Time now);

 private:
  struct Peer {
    wire::IpAddress address;
    uint32_t initiator = 0;

    bool operator==(const Peer&) const = default;
  };
  struct PeerHash {
    size_t operator()(const Peer& peer) const;
  };

  static Peer PeerOf(const DcConnection& connection) {
    return {connection.peer(), connection.initiator()};
  }
  bool IsIdle(const DcConnection& connection, Time now) const;
  // Whether another connection from `address` may be made. May close one.
  bool MakeSpace(const wire::IpAddress& address, Time now);
  // Closes the connection that was used least recently, if it is idle.
  bool EvictLast(Time now);
  void Open(DctQueuePair& target, const Received& connect, Time now);
  void ForgetWaiting(DcConnection* connection);
  void Close(DcConnection* connection, Time now);
  void Remove(DcConnection* connection);
  uint32_t NewSession();

  Endpoint& endpoint_;
  DcLane& lane_;
  const size_t max_connections_;
  // The most recently used connection comes first.
  std::list<std::unique_ptr<DcConnection>> by_use_;
  // Not Abseil's maps: they break if an allocation throws.
  std::unordered_map<Peer, std::vector<DcConnection*>, PeerHash> by_peer_;
  // Connections without data yet, the oldest first.
  std::unordered_map<wire::IpAddress, std::deque<DcConnection*>> waiting_;
  uint32_t last_session_ = wire::kNoDcSession;
};

}  // namespace transport

#endif  // TRANSPORT_DC_DC_CONNECTIONS_H_
