// The messages between the library and the port broker.
//
// Transport: an AF_UNIX SOCK_SEQPACKET connection to an abstract name, so there
// is one broker for each network namespace and no file. One record is one
// message, with descriptors as SCM_RIGHTS. Integers are in host order,
// addresses in network order; both ends are on one machine.
//
//   client                                   broker
//   Hello(slot 0)                        ->
//                                        <-  HelloReply(slot) + ledger
//   Open(address)                        ->
//                                        <-  OpenReply(index) + socket, anchor
//   Close(address)                       ->  (no reply)
//   Stray(datagram of another slot)      ->
//                                        <-  Stray(datagram of this slot, or
//                                            for its queue pair 1)
//   Extend(slot 0)                       ->
//                                        <-  ExtendReply(slot)
//   Reserve(token, service ID)           ->
//                                        <-  ReserveReply(token)
//   Unreserve(token)                     ->
//                                        <-  ReserveReply(token)
//   Connected(one)                       ->  (the peer's RTU has arrived)
//                                        <-  ListConnected
//   Connected(open connections)          ->  (64 at a time)
// To the next broker after one has died; it grants the same slot:
//   Hello(own slot) + ledger             ->
//                                        <-  HelloReply(slot) + new ledger
//   Extend(slot)                               (once per further slot)
//   Restore(address, index) + socket, anchor   (once per address)
//   Reserve(token, service ID)                 (once per service ID)
//   Connected(open connections)                (64 at a time)
//   RestoreEnd                           ->
//
// The *anchor socket* is a copy of slot 0's socket, the first of its group.
// Clients keep it open so that the other sockets keep their positions when the
// broker dies. The *ledger* (ledger.h) is the dead broker's record of the
// owners of slots.
//
// Closing the connection returns the slot.
#ifndef RXE_USER_BROKER_PROTOCOL_H_
#define RXE_USER_BROKER_PROTOCOL_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "rxe_user/base/local_address.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/broker/open_connection.h"
#include "rxe_user/broker/service_table.h"

namespace rxe_user::broker {

// Incremented with every change of this file or of ledger.h. A broker refuses a
// library of another version, with a text that names both.
inline constexpr uint16_t kProtocolVersion = 7;
// The same for all versions since 6, so that a broker and a library of
// different versions find each other.
inline constexpr std::string_view kSocketName = "rxe_user/port-broker/6";

inline constexpr uint32_t kMagic = 0x52584542;  // "RXEB"

enum class Type : uint16_t {
  kHello = 1,
  kHelloReply = 2,
  kOpen = 3,
  kOpenReply = 4,
  kRestore = 5,
  kRestoreEnd = 6,
  kStray = 7,
  kReserve = 8,
  kReserveReply = 9,
  kUnreserve = 10,
  kConnected = 11,
  kClose = 12,
  kListConnected = 13,
  kExtend = 14,
  kExtendReply = 15,
};

// Why a request was refused. The reply's `text` explains it to the user.
enum class Refusal : uint32_t {
  kNone = 0,
  kVersion = 1,    // another protocol version
  kUser = 2,       // the broker does not serve this user
  kFull = 3,       // no free slot, or this user is at its quota
  kSlotTaken = 4,  // the reclaimed slot belongs to another process by now
  kPortTaken = 5,  // a foreign socket holds the port at this address
  kNoAddress = 6,  // no such local address
  kOther = 7,
  kServiceTaken = 8,  // another process has the service ID
};

struct Header {
  uint32_t magic = kMagic;
  uint16_t version = kProtocolVersion;
  Type type{};
};

struct Text {
  char text[400] = {};  // zero-terminated
};

struct Hello {
  Header header{.type = Type::kHello};
  uint32_t slot = 0;  // 0: a new slot; else the one held under the last broker
};

struct HelloReply {
  Header header{.type = Type::kHelloReply};
  Refusal refusal = Refusal::kNone;
  uint32_t slot = 0;
  Text text;
};

// A further slot for the client's sockets, when the queue pair numbers of its
// slots are in use.
struct Extend {
  static constexpr uint32_t kMax = 15;  // of a client
  Header header{.type = Type::kExtend};
  // 0: a new slot. Else, while the client restores, the one that it held under
  // the last broker; there is a reply only to refuse it.
  uint32_t slot = 0;
};

struct ExtendReply {
  Header header{.type = Type::kExtendReply};
  Refusal refusal = Refusal::kNone;
  uint32_t slot = 0;
  Text text;
};

struct Open {
  Header header{.type = Type::kOpen};
  // 1: an address translator (NAT) is in use. The client then also wants the
  // datagrams to queue pair 1 whose ICRC is wrong for their addresses
  // (Management::Holder::kWantsUnverified).
  uint32_t wants_unverified = 0;
  LocalAddress address;
};

struct OpenReply {
  Header header{.type = Type::kOpenReply};
  Refusal refusal = Refusal::kNone;
  uint32_t index = 0;  // the socket's position in its group
  LocalAddress address;
  Text text;
};

// Returns the socket of an address. The client has closed its copies.
struct Close {
  Header header{.type = Type::kClose};
  LocalAddress address;
};

struct Restore {
  Header header{.type = Type::kRestore};
  uint32_t wants_unverified = 0;  // as in Open
  uint32_t index = 0;
  LocalAddress address;
};

struct RestoreEnd {
  Header header{.type = Type::kRestoreEnd};
};

// Reserves a service ID. If the client listens, it gets the requests for it.
// With the token of an earlier reservation, changes that one.
struct Reserve {
  Header header{.type = Type::kReserve};
  uint32_t token = 0;  // the client's name for the reservation
  // Copied to the reply. 0: reply only to refuse.
  uint32_t sequence = 0;
  Service service;
};

struct ReserveReply {
  Header header{.type = Type::kReserveReply};
  Refusal refusal = Refusal::kNone;
  uint32_t token = 0;
  uint32_t sequence = 0;
  Text text;
};

struct Unreserve {
  Header header{.type = Type::kUnreserve};
  uint32_t token = 0;
  uint32_t sequence = 0;
};

// Asks the client for its connections.
struct ListConnected {
  Header header{.type = Type::kListConnected};
};

// Connections of the client. If the client is killed, the broker disconnects
// them.
struct Connected {
  static constexpr uint32_t kMax = 64;
  Header header{.type = Type::kConnected};
  uint32_t count = 0;
  uint32_t last = 0;  // 1: the last message of an answer to ListConnected
  OpenConnection connections[kMax];
};

// Followed by `length` bytes of UDP payload. Its destination queue pair names
// the slot.
struct StrayHead {
  Header header{.type = Type::kStray};
  uint8_t source[16] = {};
  uint8_t destination[16] = {};
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint32_t length = 0;
};

// The largest RoCE packet (4096 and headers) fits.
inline constexpr size_t kMaxStrayBytes = 5000;
inline constexpr size_t kMaxMessageBytes = 6144;
inline constexpr int kMaxMessageFds = 2;

static_assert(std::is_trivially_copyable_v<HelloReply> &&
              std::is_trivially_copyable_v<ExtendReply> &&
              std::is_trivially_copyable_v<OpenReply> &&
              std::is_trivially_copyable_v<Restore> &&
              std::is_trivially_copyable_v<Close> &&
              std::is_trivially_copyable_v<Connected> &&
              std::is_trivially_copyable_v<StrayHead> &&
              std::is_trivially_copyable_v<Reserve> &&
              std::is_trivially_copyable_v<ReserveReply>);
static_assert(sizeof(Connected) <= kMaxMessageBytes);
static_assert(sizeof(StrayHead) + kMaxStrayBytes <= kMaxMessageBytes);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PROTOCOL_H_
