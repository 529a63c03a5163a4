// This process's slot of UDP port 4791 (docs/design/broker.md): the library's
// side of the port broker.
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

// A datagram that reached the wrong process's socket, or one handed on to us.
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
  // Takes a slot: connects to the broker of this network namespace, starting
  // one when there is none. Without a broker (none can be started, or it dies
  // as it comes up, as it does where the port cannot be shared) owns the port
  // of the addresses that it opens exclusively. Errors carry one clear line:
  // what holds the port, and what to do; kDeadlineExceeded when a broker has
  // not answered for half a minute. Safe from any thread; blocks for no longer
  // than that, and as long again for a broker to come up.
  static absl::StatusOr<std::unique_ptr<Slot>> Acquire();
  virtual ~Slot() = default;

  // Bits 23..16 of every queue pair number of this process; never 0.
  virtual uint8_t number() const = 0;

  // A socket of `address`'s reuseport group on port 4791 that receives what is
  // meant for this slot. Non-blocking, close-on-exec, owned by the caller; a
  // copy is kept to hand to a new broker. The options that receiving needs
  // (GRO, IP_RECVTOS, IP_PKTINFO, SO_RXQ_OVFL, UDP_NO_CHECK6_RX, buffer sizes)
  // are set by the caller; those that need privilege by the broker: where it
  // has CAP_NET_ADMIN the receive buffer is large already, so never set it to
  // less than it is. A socket may have had an owner before: set every option
  // that matters. A filter (SO_ATTACH_FILTER) does not survive a recovery of
  // the broker.
  // kUnavailable: the port is taken; the message says by what, and what to do.
  // kNotFound: no such address. kDeadlineExceeded: the broker has not answered
  // for half a minute.
  virtual absl::StatusOr<int> OpenAddress(const LocalAddress& local) = 0;
  // What OpenAddress has opened is not wanted any more: the caller has closed
  // its copies. Harmless if it was not open. Does not wait for the broker.
  virtual void CloseAddress(const LocalAddress& local) { (void)local; }

  // Whoever serves the slot waits until fd() is readable or retry_at() has
  // come, and then calls OnReadable soon (any thread; several take turns): the
  // broker has something to say or has died. Until all its clients have done
  // so, a new broker does not know where their sockets stand. It reconnects,
  // hands copies of the sockets to a new broker, and gives strays to `deliver`,
  // holding no lock.
  // fd() stays the same for as long as the slot lives, and is not readable
  // while there is no broker. It is -1 with an exclusive slot that has nothing
  // to say, and in a forked child, where the slot is dead (the descriptors kept
  // here are closed there). retry_at() may change in OnReadable and in
  // requests.
  using Clock = std::chrono::steady_clock;
  virtual int fd() const = 0;
  virtual Clock::time_point retry_at() const {
    return Clock::time_point::max();
  }
  virtual void OnReadable(const std::function<void(const Stray&)>& deliver) = 0;
  // `changed` is called when retry_at() has changed, by the thread that made it
  // change, which may hold locks of the slot. Set once, before the slot
  // is served.
  virtual void OnChange(std::function<void()> changed) { (void)changed; }

  // What the process has connected, for the next broker, which may have to tell
  // the peers that the process was killed. `connections` may be called by any
  // thread that finds the broker gone, with locks of the slot held. Set once,
  // before the slot is served.
  virtual void TellConnections(
      std::function<std::vector<OpenConnection>()> connections) {
    (void)connections;
  }

  // The RTU of `connection`, an ID of this slot, has come to the slot's socket:
  // the broker has not seen it. Waits for the broker's connection to have room,
  // some tenths of a second at most. Thread: the one that serves the slot.
  virtual void TellConnected(const OpenConnection& connection) {
    (void)connection;
  }

  // --- Queue pair 1, whose datagrams come as strays to whom they are for.

  // This slot is the one for queue pair 1 of this process: its others hand on
  // to it (Forward) where there is no broker. To be called before addresses are
  // opened; by one slot of a process at a time.
  virtual void TakeManagement() {}
  // Where such a slot finds what comes to queue pair 1 of an address that it
  // has opened. May change; it is asked again after OnReadable.
  enum class Management : uint8_t {
    kBroker,     // as strays, but for RTUs, which come to its socket
    kSocket,     // in its socket, which it has to read
    kOtherSlot,  // as strays, by another slot of this process, whose socket is
                 // the same and is not to be read by two
  };
  virtual Management ManagementOf(const LocalAddress& local) const {
    (void)local;
    return Management::kBroker;
  }

  // Keeps a service ID from other processes and, if it listens, asks for its
  // requests. `token` is the caller's name for it, not 0; with one of before
  // changes that one. kAlreadyExists: it is another's. May wait for the broker
  // for some seconds. A slot that shares the port with nobody has nobody to
  // keep it from.
  virtual absl::Status Reserve(uint32_t token, const Service& service) {
    (void)token, (void)service;
    return absl::OkStatus();
  }
  // When it returns others may have it.
  virtual void Unreserve(uint32_t token) { (void)token; }

  // Hands a datagram for a foreign slot to the broker. Never blocks; drops
  // what it cannot pass on.
  virtual void Forward(const Stray& stray) = 0;
};

// Whether a device could use the port of one of its addresses.
struct PortUse {
  // Who holds it, if that is nobody of ours: neither a broker nor a process
  // with a slot.
  std::string foreign_holder;
  // One clear line of what is wrong; empty if nothing is.
  std::string error;
};
// One answer for each of `addresses`. kPermissionDenied, with one clear line:
// the port broker that runs is another user's, so none can be used. Cheap, and
// it touches nothing: sockets are looked up, and the port is bound only where
// something foreign seems to hold it.
absl::StatusOr<std::vector<PortUse>> ProbePorts(
    std::span<const LocalAddress> addresses);

// Whether processes can share the port of an address. OK: a broker runs, or one
// would. kUnimplemented: the system does not steer datagrams, so one process at
// a time has an address. Other errors say why no broker can be used. Each with
// one clear line. Touches no socket of others.
absl::Status PortSharing();

// The line for addresses, as text, whose port `holder` has.
std::string PortTakenLine(const std::string& addresses,
                          const std::string& holder);

// ProbePorts for one address: kUnavailable if it could not.
absl::Status PortAvailable(const LocalAddress& local);

}  // namespace rxe_user

#endif  // RXE_USER_BROKER_SLOT_H_
