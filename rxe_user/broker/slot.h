// A slot of UDP port 4791 (docs/design/broker.md): the library's side of the
// port broker.
#ifndef RXE_USER_BROKER_SLOT_H_
#define RXE_USER_BROKER_SLOT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/broker/open_connection.h"
#include "rxe_user/broker/service_table.h"
#include "wire/address.h"

namespace rxe_user {

// A datagram that arrived at another process's socket, or that was forwarded to
// this one.
struct Stray {
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  std::span<const uint8_t> bytes;  // UDP payload, one packet
};

class Slot {
 public:
  // Acquires a slot from the broker of this network namespace, after starting a
  // broker if none runs. If none can be started, or it dies while starting, as
  // where the port cannot be shared, the slot owns the port of its addresses
  // exclusively. An error is one clear line that says who holds the port and
  // what to do. kDeadlineExceeded: a broker has not replied for half a minute.
  // Thread: any. Blocks up to half a minute for the reply, and as long again
  // for a broker to start.
  static absl::StatusOr<std::unique_ptr<Slot>> Acquire();
  virtual ~Slot() = default;

  // The first slot: bits 23..12 of queue pair numbers of this process, and the
  // upper bits of its communication IDs. Never 0.
  virtual uint16_t number() const = 0;
  // Acquires a further slot, whose datagrams arrive at the same sockets, and
  // returns its number. kResourceExhausted: there is none for this process.
  // Other errors as Acquire. Blocks up to half a minute.
  virtual absl::StatusOr<uint16_t> Extend() {
    return absl::ResourceExhaustedError("no further slots");
  }
  // Whether `number` is this slot's or a further one's. Thread: any.
  virtual bool Owns(uint16_t number) const { return number == this->number(); }

  // Returns a socket of the address's reuseport group on port 4791. It receives
  // the datagrams for this slot. Non-blocking, close-on-exec, owned by the
  // caller; the slot keeps a copy for the next broker.
  //
  // The caller sets the options that receiving needs (GRO, IP_RECVTOS,
  // IP_PKTINFO, SO_RXQ_OVFL, UDP_NO_CHECK6_RX, buffer sizes), and must set
  // every option that matters, since the socket may have had another owner. The
  // broker sets those that need privilege: with CAP_NET_ADMIN the receive
  // buffer is large already, so never shrink it. A filter (SO_ATTACH_FILTER)
  // does not survive a recovery of the broker.
  //
  // kUnavailable: the port is taken; the message says by what, and what to do.
  // kNotFound: no such address. kDeadlineExceeded: the broker has not replied
  // for half a minute.
  virtual absl::StatusOr<int> OpenAddress(const LocalAddress& local) = 0;
  // Returns the socket of OpenAddress to the broker. The caller must have
  // closed its copies. An address that is not open is allowed. Does not wait
  // for the broker.
  virtual void CloseAddress(const LocalAddress& local) { (void)local; }

  // Call OnReadable soon after fd() has become readable or retry_at() has
  // passed: the broker has sent something or has died. Thread: any; several may
  // take turns. OnReadable reconnects, hands copies of the sockets to a new
  // broker, and passes strays to `deliver`, holding no lock. A new broker knows
  // the positions of the sockets only when all its clients have done so.
  //
  // fd() is the same for the slot's lifetime, and not readable while there is
  // no broker. It is -1 for an exclusive slot without management, and in a
  // forked child, where the slot is dead and its descriptors are closed.
  // OnReadable and requests may change retry_at().
  using Clock = std::chrono::steady_clock;
  virtual int fd() const = 0;
  virtual Clock::time_point retry_at() const {
    return Clock::time_point::max();
  }
  virtual void OnReadable(const std::function<void(const Stray&)>& deliver) = 0;
  // `changed` is called when retry_at() has changed, by the thread that changed
  // it, which may hold the slot's locks. Set it once, before the slot is
  // served.
  virtual void OnChange(std::function<void()> changed) { (void)changed; }

  // Sets the function that lists the process's connections for the next broker,
  // which disconnects them if the process is killed. `connections` is called by
  // any thread that finds the broker gone, with the slot's locks held. Set it
  // once, before the slot is served.
  virtual void TellConnections(
      std::function<std::vector<OpenConnection>()> connections) {
    (void)connections;
  }

  // Reports that the RTU of `connection`, whose local ID is of this slot, has
  // arrived at the slot's socket without passing the broker. Waits for space in
  // the broker's connection, some tenths of a second at most. Thread: the one
  // that serves the slot.
  virtual void TellConnected(const OpenConnection& connection) {
    (void)connection;
  }

  // --- Queue pair 1. Its datagrams arrive as strays at the process for which
  // they are meant.

  // Makes this slot receive the datagrams for queue pair 1. Without a broker
  // the process's other slots forward theirs to it. Call it before addresses
  // are opened, for one slot of a process at a time.
  virtual void TakeManagement() {}
  // How such a slot receives the datagrams for queue pair 1 of an address that
  // it has opened. May change: ask again after OnReadable.
  enum class Management : uint8_t {
    kBroker,     // as strays; RTUs arrive at its socket
    kSocket,     // in its socket, which it must read
    kOtherSlot,  // as strays, from another slot of this process that has the
                 // same socket and reads it
  };
  virtual Management ManagementOf(const LocalAddress& local) const {
    (void)local;
    return Management::kBroker;
  }

  // Reserves a service ID. If the service listens, its requests arrive here.
  // `token` is the caller's name for the reservation, not 0; a known token
  // changes its reservation. kAlreadyExists: another process has it. May wait
  // some seconds for the broker. An exclusive slot always succeeds.
  virtual absl::Status Reserve(uint32_t token, const Service& service) {
    (void)token, (void)service;
    return absl::OkStatus();
  }
  // On return, other processes may reserve the service ID.
  virtual void Unreserve(uint32_t token) { (void)token; }

  // Sends a datagram for another slot to the broker. Never blocks; drops what
  // it cannot send.
  virtual void Forward(const Stray& stray) = 0;
};

// Whether a device can use the port at one of its addresses.
struct PortUse {
  // The foreign holder of the port: neither a broker nor a process with a slot.
  // Empty if there is none.
  std::string foreign_holder;
  // One line that says what is wrong. Empty if nothing is.
  std::string error;
};
// One result for each of `addresses`. kPermissionDenied, with one clear line:
// the running broker is another user's and cannot be used. Cheap and without
// side effects: it looks sockets up, and binds the port only where a foreign
// socket seems to hold it.
absl::StatusOr<std::vector<PortUse>> ProbePorts(
    std::span<const LocalAddress> addresses);

// Whether processes can share the port of an address. OK: a broker runs, or one
// would. kUnimplemented: the system does not steer datagrams, so an address
// serves one process at a time. Other errors: no broker can be used. All with
// one clear line. Does not touch other sockets.
absl::Status PortSharing();

// The error line for `addresses` whose port `holder` has.
std::string PortTakenLine(const std::string& addresses,
                          const std::string& holder);

}  // namespace rxe_user

#endif  // RXE_USER_BROKER_SLOT_H_
