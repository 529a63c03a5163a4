// The state of one connection or service ID resolution, with preallocated
// entries for every index. Used by ConnectionManager only.
#ifndef TRANSPORT_CM_CONNECTION_H_
#define TRANSPORT_CM_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "transport/cm/reserved_index.h"
#include "transport/cm/types.h"

namespace transport::cm {

// By time.
using TimeIndex = ReservedIndex<std::pair<Time, CmId>>;
// By peer, then by request time or by a sequence number.
using TurnIndex = ReservedIndex<std::tuple<wire::IpAddress, Time, CmId>>;
// By address, CA GUID, and communication ID or queue pair number.
using RemoteIndex =
    ReservedIndex<std::tuple<wire::IpAddress, uint64_t, uint32_t>>;
// By CA GUID and queue pair number: each device numbers its own queue pairs.
using LocalQpnIndex = ReservedIndex<std::pair<uint64_t, uint32_t>>;
// By address, request ID and service ID.
using SidrIndex =
    ReservedIndex<std::tuple<wire::IpAddress, uint32_t, uint64_t>>;

// State of all connections with one address.
struct Peer {
  size_t connections = 0;
  size_t half_open = 0;
  size_t unanswered = 0;  // requests that it has not answered
};

struct Connection {
  CmId id = 0;
  State state = State::kIdle;
  bool active = false;
  bool xrc = false;        // REPs carry the queue pair in the EE context field
  bool owned = true;       // not destroyed by the application
  bool half_open = false;  // counts toward the half-open limits
  bool waiting = false;    // counts toward its listener's backlog
  // The application has seen it, which frees its backlog slot.
  bool seen = false;
  bool remembered = false;  // kept only to answer duplicates
  // The peer has withdrawn its request. The application has neither tried to
  // answer it nor destroyed it, and may not know yet.
  bool withdrawn = false;
  bool qp_used = false;  // the peer may have sent to the queue pair
  ListenerId listener = 0;
  wire::IpAddress local;
  wire::IpAddress remote;
  Via via;               // last translated address of `remote`
  Peer* peer = nullptr;  // of `remote`
  uint64_t transaction_id = 0;
  // 0 while unknown. SIDR: the peer's request ID.
  uint32_t remote_comm_id = 0;
  uint64_t local_ca_guid = 0;
  uint64_t remote_ca_guid = 0;
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  uint64_t service_id = 0;
  uint64_t mad_transaction_id = 0;  // of the last DREQ received

  Time started = 0;
  Time destroyed_at = 0;  // when the application destroyed it
  Time round_trip = 0;    // added to an MRA's service timeout
  Time wait = 0;          // for an answer, until retransmission
  Time time_wait = 0;
  Time refused_hold = 0;  // how long the peer may repeat the request
  Time mra_wait = 0;      // how long an MRA made the peer wait
  uint8_t max_retries = 0;
  uint8_t retries_left = 0;
  uint8_t service_timeout = 0;  // in the MRA that was sent
  Time deadline = kNever;
  Time replied = kNever;  // when the first REP was sent
  // From this time on a newer request may replace it; kNever: not replaceable.
  Time yields_at = kNever;
  uint8_t undelivered = 0;  // how often the request was reported as undelivered
  // Original deadline during such a retry, or a reminder (cm_send.cc).
  Time regular_deadline = kNever;
  // Start of its time in the peer's quota; kNever: not counted.
  Time unanswered_since = kNever;
  bool held_back = false;  // waits until the peer has answered other requests
  Time turn = 0;           // position among those held back

  // The last message sent, for retransmission and as the answer to duplicates;
  // absent: none. MRAs are rebuilt instead.
  std::optional<wire::CmAttribute> sent_attribute;
  Mad sent{};

  TimeIndex::Entry by_deadline;
  TimeIndex::Entry by_yielding;
  TurnIndex::Entry by_yielding_of_peer;
  TimeIndex::Entry by_destroyed;
  TurnIndex::Entry by_turn;  // unanswered, or held back
  RemoteIndex::Entry by_remote_id;
  RemoteIndex::Entry by_remote_qp;
  LocalQpnIndex::Entry by_local_qpn;
  SidrIndex::Entry by_sidr;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CONNECTION_H_
