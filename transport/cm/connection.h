// What the connection manager knows of one connection, or of one service ID
// resolution, and the memory for all that it will ever be found by.
// ConnectionManager is the only user.
#ifndef TRANSPORT_CM_CONNECTION_H_
#define TRANSPORT_CM_CONNECTION_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>

#include "transport/cm/reserved_index.h"
#include "transport/cm/types.h"

namespace transport::cm {

// By time.
using TimeIndex = ReservedIndex<std::pair<Time, CmId>>;
// By peer, then by when it was asked, or by a number that counts up.
using TurnIndex = ReservedIndex<std::tuple<wire::IpAddress, Time, CmId>>;
// By address, CA GUID, and communication ID or queue pair number.
using RemoteIndex =
    ReservedIndex<std::tuple<wire::IpAddress, uint64_t, uint32_t>>;
// By queue pair number.
using LocalQpnIndex = ReservedIndex<uint32_t>;
// By address, request ID, service ID.
using SidrIndex =
    ReservedIndex<std::tuple<wire::IpAddress, uint32_t, uint64_t>>;

// What all connections with one address share.
struct Peer {
  size_t connections = 0;
  size_t half_open = 0;
  size_t unanswered = 0;  // what it is to answer
};

struct Connection {
  CmId id = 0;
  State state = State::kIdle;
  bool active = false;
  bool xrc = false;         // REPs have the queue pair where EE contexts stand
  bool owned = true;        // the application has not destroyed it
  bool half_open = false;   // counts against the caps
  bool waiting = false;     // counts against its listener's backlog
  bool seen = false;        // it no longer does: the application knows of it
  bool remembered = false;  // an answer kept for duplicates
  // The peer has taken its request back, and the application, which may not
  // know of it yet, has neither tried to answer nor destroyed it.
  bool withdrawn = false;
  bool qp_used = false;  // the peer may have sent to the queue pair
  ListenerId listener = 0;
  wire::IpAddress local;
  wire::IpAddress remote;
  Via via;               // where `remote` was seen last
  Peer* peer = nullptr;  // of `remote`
  uint64_t transaction_id = 0;
  // 0 while it is unknown. Of SIDR: the peer's request ID.
  uint32_t remote_comm_id = 0;
  uint64_t local_ca_guid = 0;
  uint64_t remote_ca_guid = 0;
  uint32_t local_qpn = 0;
  uint32_t remote_qpn = 0;
  uint64_t service_id = 0;
  uint64_t mad_transaction_id = 0;  // of the last DREQ received

  Time started = 0;
  Time left = 0;        // when the application has destroyed it
  Time round_trip = 0;  // added to an MRA's service timeout
  Time wait = 0;        // for an answer, before the message is sent again
  Time time_wait = 0;
  Time refused_hold = 0;  // for how long the peer may ask again
  Time mra_wait = 0;      // for how long an MRA has made the peer wait
  uint8_t max_retries = 0;
  uint8_t retries_left = 0;
  uint8_t service_timeout = 0;  // of the MRA that was sent
  Time deadline = kNever;
  Time replied = kNever;  // when the first REP was sent
  // From when on it may be given up for a newer request; kNever: not at all.
  Time yields_at = kNever;
  uint8_t undelivered = 0;  // how often nobody took the request
  // While `deadline` is that of such a try, or of a reminder (cm_send.cc).
  Time regular_deadline = kNever;
  Time unanswered_since = kNever;  // counts to those that the peer is to answer
  bool held_back = false;          // until it has answered others
  Time turn = 0;                   // which one it is of those

  // The last message sent, for retransmission and for duplicates of what it
  // answered. MRAs are made anew.
  bool has_sent = false;
  wire::CmAttribute sent_attribute = wire::CmAttribute::kReq;
  Mad sent{};

  TimeIndex::Entry by_deadline;
  TimeIndex::Entry by_yielding;
  TurnIndex::Entry by_yielding_of_peer;
  TimeIndex::Entry by_leaving;
  TurnIndex::Entry by_turn;  // among the unanswered or those held back
  RemoteIndex::Entry by_remote_id;
  RemoteIndex::Entry by_remote_qp;
  LocalQpnIndex::Entry by_local_qpn;
  SidrIndex::Entry by_sidr;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_CONNECTION_H_
