// Public types of the connection manager: options, events, results.
#ifndef TRANSPORT_CM_TYPES_H_
#define TRANSPORT_CM_TYPES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/base/types.h"
#include "wire/address.h"
#include "wire/cm.h"

namespace transport::cm {

// A connection or a service ID resolution: its local communication ID. Never 0.
// The application owns it until it calls Destroy.
using CmId = uint32_t;

// The manager that assigned an ID, if several share an address (Config).
constexpr uint16_t PrefixOf(CmId id) { return static_cast<uint16_t>(id >> 20); }
using ListenerId = uint32_t;

// Source of communication IDs, which must not be predictable.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual uint32_t Next32() = 0;
};

using Mad = std::array<uint8_t, wire::kMadSize>;

// A MAD from queue pair 1 of `local` to queue pair 1 of `remote`.
struct OutgoingMad {
  wire::IpAddress local;
  wire::IpAddress remote;
  Mad bytes;
  Via via = {};  // its translated address, from IncomingMad::via
};

// A MAD that queue pair 1 of `local` received. `bytes` are read during the call
// only.
struct IncomingMad {
  wire::IpAddress local;
  wire::IpAddress remote;  // the sender's own address
  std::span<const uint8_t> bytes;
  // Translated address of the sender. Answers go there, and so do later
  // messages of the connection.
  Via via = {};
};

// The states of 12.9.5 and 12.9.6, and those of service ID resolution.
enum class State : uint8_t {
  kIdle,
  kReqSent,
  kRepWait,      // received an MRA for the REQ
  kReqReceived,  // the application must answer
  kMraReqSent,
  kRepSent,
  kRtuWait,      // received an MRA for the REP
  kRepReceived,  // the application must send the RTU
  kMraRepSent,
  kEstablished,
  kDreqSent,
  kDreqReceived,  // the application must send the DREP
  kTimeWait,
  kSidrReqSent,
  kSidrReqReceived,  // the application must answer
};

// A connection with the IDs of both ends.
struct ConnectedPeer {
  wire::IpAddress local;
  wire::IpAddress remote;
  CmId id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t remote_qpn = 0;
};

enum class EventKind : uint8_t {
  // Passive: a REQ for a listener, with a new id. Answer by Accept, Reject or
  // Delay.
  kRequest,
  // Active: the REP. Answer by Establish, Reject or Delay.
  kReply,
  // Passive: the RTU, or NotifyEstablished.
  kEstablished,
  // A REJ before the connection was established, which ends it. Without a MAD,
  // this side has rejected the REP: kStaleConnection.
  kRejected,
  // The peer did not answer any of the tries.
  kUnreachable,
  // The connection has ended: a DREQ (answer by Disconnect, which sends the
  // DREP), the DREP, no answer to the DREQ, or a REJ from a peer that did not
  // consider it established. On the passive side it may come instead of
  // kEstablished.
  kDisconnected,
  // The queue pair may be used again. Follows kDisconnected, or a failure after
  // which the peer may have used the queue pair.
  kTimeWaitExit,
  // A SIDR_REQ for a listener, with a new id. Answer by AnswerService.
  kServiceRequest,
  kServiceReply,
};

// An event for the application. Delivered once, in order.
struct Event {
  EventKind kind;
  CmId id = 0;
  // For kRequest and kServiceRequest.
  ListenerId listener = 0;
  // Addresses of the MAD or of the connection.
  wire::IpAddress local;
  wire::IpAddress remote;
  // The MAD that caused the event, if any; read it with wire::CmView.
  bool has_mad = false;
  Mad mad{};
};

// Result of a call.
enum class Result : uint8_t {
  kOk,
  kUnknownId,
  kWrongState,
  kQpnInUse,      // in another connection, or in timewait
  kServiceInUse,  // by another listener
  kInvalid,       // bad argument
};

struct ListenOptions {
  uint64_t service_id = 0;
  // Mask of the bits that are compared. All ones: exactly this service ID.
  uint64_t mask = ~uint64_t{0};
  // Unspecified: all local addresses; 0.0.0.0 (mapped): all of IPv4.
  wire::IpAddress local;
  // With ::, IPv6 only.
  bool ipv6_only = false;
  // Limit of requests that the application has neither reported as seen
  // (ConnectionManager::Seen) nor answered, including those that the peer has
  // withdrawn. Further requests are dropped; the peer retransmits them.
  // Requests that were seen count as half open (Config).
  size_t backlog = 128;
};

struct ConnectOptions {
  wire::IpAddress local;
  wire::IpAddress remote;
  // One-way packet lifetime of the path, 5-bit exponent. Together with the
  // REQ's remote CM response timeout it gives the REQ's retransmission timeout.
  uint8_t packet_life_time = 16;
  // Options of enhanced connection establishment, with the REQ's vendor ID. The
  // header's attribute modifier carries them (12.6.5).
  uint32_t ece_options = 0;
  // The communication ID and transaction ID are filled in.
  wire::CmReq req;
};

// Whether a REQ requests an extended reliable connection.
inline bool IsXrc(const wire::CmReq& req) {
  return req.service == wire::CmService::kExtended &&
         req.extended_transport == wire::kCmExtendedXrc;
}

struct RejectOptions {
  wire::CmRejectReason reason = wire::CmRejectReason::kConsumer;
  std::span<const uint8_t> additional_info;
  std::span<const uint8_t> private_data;
};

struct ResolveOptions {
  wire::IpAddress local;
  wire::IpAddress remote;
  Time timeout = 4 * kSecond;  // per try
  uint8_t max_retries = 15;
  // The request ID is filled in.
  wire::CmSidrReq req;
};

struct Config {
  // The upper 12 bits of all assigned communication IDs. Empty: random.
  std::optional<uint16_t> id_prefix = std::nullopt;
  // Limits of half-open entries, in total and per peer. Half open are: passive
  // connections before they are established, resolutions before they are
  // answered, and withdrawn requests that the application has seen but not
  // answered. Beyond a limit, a further request replaces the oldest entry of
  // that peer, or of all, that yields (see `reminder`). It is dropped if none
  // does.
  size_t max_half_open = 4096;
  size_t max_half_open_for_peer = 1024;
  // Whatever timeouts a peer asks for, a REP is retransmitted after `reminder`;
  // after twice `reminder` without an answer the connection yields. A live peer
  // has sent an RTU or MRA by then. After an MRA the connection yields when the
  // MRA expires, but no later than `longest_yield` after the first REP.
  Time reminder = kSecond;
  Time longest_yield = 6 * kSecond;
  // Limit of destroyed connections that have not finished: in timewait, or with
  // an unanswered DREQ. Beyond it the oldest one ends.
  size_t max_destroyed = 16384;
  // Limits of the waits that a peer's exponents may request.
  Time shortest_wait = 10 * kMillisecond;
  Time longest_wait = 60 * kSecond;
  Time longest_service_wait = 300 * kSecond;  // MRA
  Time longest_time_wait = 60 * kSecond;
  // Retransmission of a request that was reported as undelivered: the wait
  // doubles each time. After `undelivered_tries`, the normal timeout applies.
  Time undelivered_wait = 100 * kMillisecond;
  uint8_t undelivered_tries = 5;
  // Limit of unanswered REQs, SIDR_REQs and DREQs per peer, which protects its
  // receive buffers. Further ones wait until it answers, or the oldest has been
  // unanswered for `unanswered_hold`.
  size_t max_unanswered = 256;
  Time unanswered_hold = 100 * kMillisecond;
  // Maximum time for which the REJ of a request is kept for its duplicates.
  Time longest_refused_hold = 120 * kSecond;
  // Service timeout of the MRAs that the connection manager sends on its own,
  // when a peer repeats a request that the application has not answered: 4.3 s.
  // A longer value would delay the recovery of a lost RTU after the MRA.
  uint8_t mra_service_timeout = 20;
  // How long the answer to a SIDR_REQ is kept for its duplicates.
  Time sidr_hold = 10 * kSecond;
  // Limit per address of answers without a connection.
  uint32_t answers_per_second = 1000;
  uint32_t answer_burst = 200;
  // Limit per address of timeout-driven messages to peers that have been silent
  // since their request: retransmitted REPs, and the REJs that end them. Such a
  // REQ may be forged.
  uint32_t retransmissions_per_second = 100;
  uint32_t retransmission_burst = 400;
};

// Counts by message type, indexed by attribute ID from kReq on, like the
// kernel's in /sys/class/infiniband/*/ports/*/cm_*.
inline constexpr size_t kCmMessageKinds =
    static_cast<size_t>(wire::CmAttribute::kApr) -
    static_cast<size_t>(wire::CmAttribute::kReq) + 1;
class MessageCounts {
 public:
  void Count(wire::CmAttribute kind) { ++counts_[IndexOf(kind)]; }
  uint64_t Of(wire::CmAttribute kind) const { return counts_[IndexOf(kind)]; }

 private:
  static size_t IndexOf(wire::CmAttribute kind) {
    return static_cast<size_t>(kind) -
           static_cast<size_t>(wire::CmAttribute::kReq);
  }
  std::array<uint64_t, kCmMessageKinds> counts_{};
};

// Each received message is counted in one of these or changes a state.
struct Counters {
  uint64_t sent = 0;
  uint64_t retransmitted = 0;
  // Retransmissions of requests that were reported as undelivered.
  uint64_t undelivered = 0;
  uint64_t held_back = 0;    // until the peer had answered other requests
  uint64_t malformed = 0;    // not a CM message
  uint64_t unknown_id = 0;   // no such connection
  uint64_t wrong_peer = 0;   // address or ID differs from the peer's
  uint64_t wrong_state = 0;  // unexpected in the state
  uint64_t no_listener = 0;
  uint64_t backlog_full = 0;
  uint64_t half_open_full = 0;
  uint64_t half_open_given_up = 0;  // dropped for a newer request
  uint64_t stale = 0;
  uint64_t answers_limited = 0;  // not sent: rate limit
  uint64_t no_memory = 0;        // messages dropped or not sent
  MessageCounts tx_msgs;
  MessageCounts tx_retries;
  MessageCounts rx_msgs;
  MessageCounts rx_duplicates;  // of REQ, REP, RTU, DREQ, SIDR_REQ
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_TYPES_H_
