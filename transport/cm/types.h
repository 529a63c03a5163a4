// What users of the connection manager see: options, events, results.
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

// Names a connection, or one service ID resolution; its communication ID on
// this side. Never 0. Owned by the application until it calls Destroy.
using CmId = uint32_t;

// Who gave an ID out, where several managers share an address (Config).
constexpr uint8_t PrefixOf(CmId id) { return static_cast<uint8_t>(id >> 24); }
using ListenerId = uint32_t;

// Where communication IDs come from: nobody outside may be able to guess them.
class RandomSource {
 public:
  virtual ~RandomSource() = default;
  virtual uint32_t Next32() = 0;
};

using Mad = std::array<uint8_t, wire::kMadSize>;

// A MAD for queue pair 1 of `remote`, to be sent from queue pair 1 of `local`.
struct OutgoingMad {
  wire::IpAddress local;
  wire::IpAddress remote;
  Mad bytes;
  Via via = {};  // where that is, as IncomingMad::via said
};

// A MAD that queue pair 1 of `local` received. `bytes` are looked at during the
// call only.
struct IncomingMad {
  wire::IpAddress local;
  wire::IpAddress remote;  // the sender's own address
  std::span<const uint8_t> bytes;
  // Where it was seen, if something between translates addresses. Answers go
  // there, and so does what follows on the connection.
  Via via = {};
};

// The states of 12.9.5 and 12.9.6, with those of service ID resolution.
enum class State : uint8_t {
  kIdle,
  kReqSent,
  kRepWait,      // MRA for the REQ received
  kReqReceived,  // the application is to answer
  kMraReqSent,
  kRepSent,
  kRtuWait,      // MRA for the REP received
  kRepReceived,  // the application is to send the RTU
  kMraRepSent,
  kEstablished,
  kDreqSent,
  kDreqReceived,  // the application is to send the DREP
  kTimeWait,
  kSidrReqSent,
  kSidrReqReceived,  // the application is to answer
};

// A connection, by what both ends call it.
struct ConnectedPeer {
  wire::IpAddress local;
  wire::IpAddress remote;
  CmId id = 0;
  uint32_t remote_comm_id = 0;
  uint32_t remote_qpn = 0;
};

enum class EventKind : uint8_t {
  // Passive: a REQ for a listener, with a new id. Accept, Reject or Delay.
  kRequest,
  // Active: the REP. Establish, Reject or Delay.
  kReply,
  // Passive: the RTU, or NotifyEstablished.
  kEstablished,
  // A REJ before the connection was established: it will not be. Without a MAD
  // it was the REP that was rejected, by this side: kStaleConnection.
  kRejected,
  // The peer did not answer as often as it was asked.
  kUnreachable,
  // The connection is no more: a DREQ (Disconnect sends the DREP), the DREP, no
  // answer to the DREQ, or a REJ from a peer that had not heard of its being
  // established. Passive, it may come in place of kEstablished.
  kDisconnected,
  // The queue pair may be used again. After kDisconnected, or after a failure
  // for which the peer may have used it.
  kTimeWaitExit,
  // A SIDR_REQ for a listener, with a new id. AnswerService.
  kServiceRequest,
  kServiceReply,
};

// Something for the application to know. Each comes once, in order.
struct Event {
  EventKind kind;
  CmId id = 0;
  // Of kRequest and kServiceRequest.
  ListenerId listener = 0;
  // The addresses of the MAD or of the connection.
  wire::IpAddress local;
  wire::IpAddress remote;
  // The MAD that brought it, if one did: wire::CmView reads it.
  bool has_mad = false;
  Mad mad{};
};

// What became of a call.
enum class Result : uint8_t {
  kOk,
  kUnknownId,
  kWrongState,
  kQpnInUse,      // in another connection, or not out of timewait
  kServiceInUse,  // by another listener
  kInvalid,       // an argument
};

struct ListenOptions {
  uint64_t service_id = 0;
  // Bits that count. All of them: this service ID alone.
  uint64_t mask = ~uint64_t{0};
  // Unspecified: all local addresses; 0.0.0.0 (mapped): those of IPv4.
  wire::IpAddress local;
  // With ::, those of IPv6 only.
  bool ipv6_only = false;
  // Requests of which the application has not said that it has seen them
  // (ConnectionManager::Seen), and which it has not answered, those included
  // that the peer has taken back since; more are dropped, and come again by the
  // peer's retransmission. What was seen counts as half open (Config).
  size_t backlog = 128;
};

struct ConnectOptions {
  wire::IpAddress local;
  wire::IpAddress remote;
  // Of the path, one way, 5-bit exponent. With the REQ's remote CM response
  // timeout it makes the time after which the REQ is sent again.
  uint8_t packet_life_time = 16;
  // Of enhanced connection establishment, with the REQ's vendor ID: its
  // options, which the header's attribute modifier carries (12.6.5).
  uint32_t ece_options = 0;
  // Communication ID and transaction ID are filled in.
  wire::CmReq req;
};

// Whether a request asks for an extended reliable connection.
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
  Time timeout = 4 * kSecond;  // for each try
  uint8_t max_retries = 15;
  // The request ID is filled in.
  wire::CmSidrReq req;
};

struct Config {
  // The upper 8 bits of all communication IDs that are given out. Empty: they
  // are as random as the others.
  std::optional<uint8_t> id_prefix = std::nullopt;
  // Passive connections, and service ID resolutions, that are not established
  // or over, and those that the application has seen and not answered and their
  // peer has taken back: in all, and for each peer. Beyond that a request takes
  // the place of the oldest one that yields, of that peer or of all, or is
  // dropped.
  size_t max_half_open = 4096;
  size_t max_half_open_for_peer = 1024;
  // Whatever time-outs a peer asks for, a REP is sent again after `reminder`,
  // and after twice that without an answer the connection yields: who is there
  // has sent an RTU or an MRA by then. With an MRA it yields when that has
  // expired, and `longest_yield` after the first REP at the latest.
  Time reminder = kSecond;
  Time longest_yield = 6 * kSecond;
  // What the application has destroyed and is not over: in timewait, or with a
  // DREQ that the peer has not answered. With one more the oldest of them ends.
  size_t max_left = 16384;
  // Bounds of what a peer may ask us to wait, whatever its exponents say.
  Time shortest_wait = 10 * kMillisecond;
  Time longest_wait = 60 * kSecond;
  Time longest_service_wait = 300 * kSecond;  // MRA
  Time longest_time_wait = 60 * kSecond;
  // When a request is sent again of which it is known that nobody took it, each
  // time after twice as long; beyond that as any other.
  Time undelivered_wait = 100 * kMillisecond;
  uint8_t undelivered_tries = 5;
  // REQs, SIDR_REQs and DREQs that a peer has not answered: more wait until it
  // does, or has had some time, so that its buffers are not overrun.
  size_t max_unanswered = 256;
  Time unanswered_hold = 100 * kMillisecond;
  // For how long the REJ of a request is kept for its duplicates.
  Time longest_refused_hold = 120 * kSecond;
  // The service timeout of MRAs that the connection manager sends by itself,
  // for an application that has not answered when the peer asks again: 4.3 s.
  // Longer, and an RTU that is lost after one is missed for as long.
  uint8_t mra_service_timeout = 20;
  // For how long the answer of a SIDR_REQ is kept for its duplicates.
  Time sidr_hold = 10 * kSecond;
  // Answers to an address about what we know nothing of.
  uint32_t answers_per_second = 1000;
  uint32_t answer_burst = 200;
  // What is sent to an address by time-outs for connections that it has asked
  // for and then been silent about: REPs again, and the REJs that end them. A
  // REQ may be forged.
  uint32_t replies_again_per_second = 100;
  uint32_t replies_again_burst = 400;
};

// Messages of a kind, by attribute ID from kReq on: as the kernel counts them
// under /sys/class/infiniband/*/ports/*/cm_*.
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

// Everything that was received ends in one of these or in a state's change.
struct Counters {
  uint64_t received = 0;
  uint64_t sent = 0;
  uint64_t retransmitted = 0;
  uint64_t undelivered = 0;  // of these, since nobody took what was sent
  uint64_t held_back = 0;    // for the peer to answer others first
  uint64_t duplicates = 0;   // of REQ, REP, DREQ, SIDR_REQ
  uint64_t malformed = 0;    // no CM message
  uint64_t unknown_id = 0;   // no such connection
  uint64_t wrong_peer = 0;   // from another address or id than the peer's
  uint64_t wrong_state = 0;  // what the state does not expect
  uint64_t no_listener = 0;
  uint64_t backlog_full = 0;
  uint64_t half_open_full = 0;
  uint64_t half_open_given_up = 0;  // for a newer request
  uint64_t stale = 0;
  uint64_t answers_limited = 0;  // not sent
  uint64_t no_memory = 0;        // messages dropped or not sent for want of it
  MessageCounts tx_msgs;
  MessageCounts tx_retries;
  MessageCounts rx_msgs;
  MessageCounts rx_duplicates;
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_TYPES_H_
