// Many queue pairs behind one lane: demultiplexes what arrives, gives queue
// pairs their turns to transmit, and knows the next timer of all.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/qp/queue_pair.h"

namespace transport {

class HoldPool;
class Path;

// What one receive call brings: a UDP datagram, or several that GRO merged,
// one after the other.
struct Train {
  std::span<const uint8_t> bytes;  // UDP payloads
  size_t segment_size = 0;         // bytes of each but the last; > 0
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
};

// One of them.
struct Datagram {
  std::span<const uint8_t> bytes;  // UDP payload: BTH to ICRC
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  // Place among the segments of one merged datagram: the first guess at its
  // IP ID (docs/architecture.md, "The IP identification").
  uint16_t segment_index = 0;
};

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
  // Fills `burst` with packets of one queue pair, the next in turn (Turns).
  // False when nothing can be sent now.
  bool PollTransmit(Time now, Burst* burst);
  // When OnTimer wants to be called; kNever for not at all.
  Time NextTimeout() const;
  // Something is ready for PollTransmit.
  bool HasTransmit() const;
  // About how many queue pairs have something ready, one at least if any has.
  size_t Transmitters() const;

  const EndpointCounters& counters() const { return counters_; }
  // Null when there is none.
  QueuePair* Find(uint32_t qpn) const;

 private:
  friend class QueuePair;
  friend class Requester;
  friend class Responder;

  // --- For queue pairs and their halves.
  void Register(QueuePair* qp);
  // Forgets `qp` wherever it is noted. From here on nothing refers to it.
  void Unregister(QueuePair* qp);
  // `qp` may have requests or READ responses to transmit: it gets a turn.
  // Idempotent.
  void Activate(QueuePair* qp);
  // `qp` has an acknowledgement to transmit, or the like. Idempotent.
  void Answer(QueuePair* qp);
  // `qp` has nothing to transmit any more. Idempotent.
  void Deactivate(QueuePair* qp);
  // `qp`'s NextTimeout() has changed.
  void TimerChanged(QueuePair* qp);
  // `qp` has data but its path's window is full: it gets a turn when
  // WindowOpened is called for that path.
  void WaitForWindow(QueuePair* qp);
  // `qp` leaves its path: it waits no longer.
  void StopWaiting(QueuePair* qp);
  void WindowOpened(Path* path);
  // The turn of `qp`, or its next one, is over: others come first.
  void EndTurn(QueuePair* qp);
  // While `qp` has its turn, and has put `bytes` into its burst: the turn is
  // over, and others are to have theirs, or wait for the window of its path.
  bool TurnIsOver(const QueuePair* qp, size_t bytes) const;
  // The path to `destination`, made when new; counted.
  Path* AcquirePath(const wire::IpAddress& destination);
  void ReleasePath(Path* path);
  // A packet with payload came for `qp`.
  void NoteReceivedData(QueuePair* qp, Time now);
  HoldPool* hold_pool();

  // A packet. Its queue pair is not updated until another one has its turn, or
  // FinishUpdate is called.
  Disposition Take(const Datagram& datagram, Time now, StraySink* strays);
  void FinishUpdate(Time now);
  bool VerifyIcrc(const Datagram& datagram, QueuePair* qp, Time now);
  Disposition Drop(Disposition why);

  struct Impl;
  EndpointCounters counters_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_H_
