// Many queue pairs behind one lane: demultiplexes what arrives, gives queue
// pairs their turns to transmit, and knows the next timer of all. It knows them
// only as EndpointQp: each of their calls ends with what they want (Interests),
// and Apply is the one place where that is entered in lists and timers.
//
// Nothing here does I/O, reads a clock or takes a lock: all calls for an
// endpoint and its queue pairs are made by one thread at a time (the engine
// holds the lane's lock).
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/path.h"

namespace transport {

class PacketArenaPool;

// What became of a datagram; each kind has a counter. Whatever a queue pair
// does with a packet of its own, this is kDelivered: see QpCounters.
enum class Disposition : uint8_t {
  kDelivered,
  kTooShort,
  kUnknownOpcode,
  kBadHeader,  // version, pad
  kBadIcrc,
  kUnknownQp,  // the caller may know another owner (stray, QP1)
};
inline constexpr size_t kDispositions = 6;

struct EndpointCounters {
  uint64_t rx_datagrams = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_datagrams = 0;
  uint64_t tx_bursts = 0;
  uint64_t tx_bytes = 0;
  uint64_t dropped[kDispositions] = {};  // by Disposition
};

// Hears of good packets for queue pairs that this endpoint does not have.
class StraySink {
 public:
  virtual ~StraySink() = default;
  virtual void OnStray(const Datagram& datagram, uint32_t qpn) = 0;
};

class Endpoint {
 public:
  Endpoint();
  // All queue pairs have been destroyed.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // --- Inputs.
  // All packets of a train. An acknowledgement that ends it is heard of before
  // the requests that it shares it with. `strays` may be null.
  void OnTrain(const Train& train, Time now, StraySink* strays);
  Disposition OnDatagram(const Datagram& datagram, Time now);
  // Runs every timer that is due.
  void OnTimer(Time now);
  // The receive socket dropped datagrams (SO_RXQ_OVFL): our peers are too
  // fast. Answered like a congestion mark, by CNPs to active peers.
  void OnReceiveOverflow(Time now);

  // --- Outputs.
  // Fills `burst` with packets of one queue pair, the next in turn
  // (TransmitScheduler). False when nothing can be sent now.
  bool PollTransmit(Time now, Burst* burst);
  // When OnTimer wants to be called; kNever for not at all.
  Time NextTimeout() const;
  // Something is ready for PollTransmit.
  bool HasTransmit() const;
  // About how many queue pairs have something ready, one at least if any has.
  size_t Transmitters() const;

  const EndpointCounters& counters() const { return counters_; }
  // Null when there is none.
  EndpointQp* Find(uint32_t qpn) const;

  // --- Calls by queue pairs, which outlive none of this.
  void Register(EndpointQp* qp);
  // Forgets `qp` wherever it is noted. From here on nothing refers to it.
  void Unregister(EndpointQp* qp);
  // `qp` speaks with one peer from here on, by `flow`, which stays where it is
  // until Disconnect. Queue pairs that speak with one address share its path.
  Path* Connect(EndpointQp* qp, const Flow* flow);
  void Disconnect(EndpointQp* qp);  // harmless when not connected
  // After a call by the application: what `qp` wants may have changed.
  void Update(EndpointQp* qp, Time now);
  PacketArenaPool* arena_pool();

 private:
  // A packet. Its queue pair is not asked what it wants until another one has
  // its turn, or FinishUpdate is called.
  Disposition Take(const Datagram& datagram, Time now, StraySink* strays);
  void FinishUpdate(Time now);
  Disposition Drop(Disposition why);

  struct Impl;
  EndpointCounters counters_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_H_
