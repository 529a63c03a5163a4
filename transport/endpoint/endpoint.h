// The queue pairs of one lane: demultiplexes packets, gives queue pairs turns
// to transmit, and keeps their timers. It knows them only as EndpointQp: each
// of their calls returns what they want (Interests), and only Apply acts on
// that.
//
// No I/O, clocks or locks: one thread at a time calls an endpoint and its queue
// pairs (the engine holds the lane's lock).
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/base/burst.h"
#include "transport/base/counters.h"
#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/datagram.h"
#include "transport/endpoint/endpoint_qp.h"
#include "transport/endpoint/translation.h"

namespace transport {

class PacketArenaPool;
class PacketObserver;
struct SharedPath;

// Receives good packets for queue pairs that this endpoint does not have.
class StraySink {
 public:
  virtual ~StraySink() = default;
  virtual void OnStray(const Datagram& datagram, uint32_t qpn) = 0;
};

class Endpoint {
 public:
  Endpoint();
  // Requires that all queue pairs have been destroyed.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // --- Inputs.
  // Processes a GRO batch. An ACK at its end is processed before its requests.
  // `strays` may be null.
  void OnGroBatch(const GroBatch& batch, Time now, StraySink* strays);
  Disposition OnDatagram(const Datagram& datagram, Time now);
  // Runs every due timer.
  void OnTimer(Time now);
  // Flows that the sink refused alone (BurstSink::only_that_flow) may send
  // again.
  void OnRoom(Time now);
  // The receive socket dropped datagrams (SO_RXQ_OVFL), `packets` of them: the
  // observer is told. Handled like a congestion mark: sends CNPs to active
  // peers.
  void OnReceiveOverflow(Time now, uint64_t packets = 1);

  // --- Outputs.
  // Fills a burst of `sink` with packets of the next queue pair
  // (TransmitScheduler), or of two (TransmitAnswers). Null when nothing can be
  // sent now or the sink has no burst. If the sink has none, the queue pair
  // keeps its turn, or waits for OnRoom if only its flow was refused.
  Burst* PollTransmit(Time now, BurstSink* sink);
  // The same for `qp` alone, out of turn, and even if a sink has refused its
  // flow: for packets that would otherwise never be sent.
  Burst* PollTransmitOf(EndpointQp* qp, Time now, BurstSink* sink);
  // Time of the next OnTimer call; kNever for none.
  Time NextTimeout() const;
  // Whether PollTransmit may have something to send.
  bool HasTransmit() const;
  // Approximate number of queue pairs with something to send; 0 only if none
  // has.
  size_t Transmitters() const;

  // The smallest receive buffer of the sockets, in bytes as the kernel counts
  // them (socket(7), SO_RCVBUF); 0: unknown.
  uint64_t receive_buffer() const { return receive_buffer_; }
  void NoteReceiveBuffer(uint64_t bytes) {  // of a socket; 0: unknown
    if (bytes == 0) return;
    if (receive_buffer_ == 0 || bytes < receive_buffer_) {
      receive_buffer_ = bytes;
    }
  }

  // Reports peers with translated addresses to `sink` (null: none). `take`:
  // accept their packets (translation.h); otherwise drop them for a wrong ICRC.
  // `sink` outlives the endpoint or the next call.
  void WatchTranslations(TranslationSink* sink, bool take) {
    translations_.Watch(sink, take);
  }

  const EndpointCounters& counters() const { return counters_; }
  // Counters of destroyed queue pairs.
  const QpCounterTotals& retired() const { return retired_; }
  // Numbers of all queue pairs, in no particular order.
  std::vector<uint32_t> QueuePairNumbers() const;
  // Null if there is no such queue pair.
  EndpointQp* Find(uint32_t qpn) const;
  // Calls EndpointQp::ForEachAddress of every queue pair.
  void ForEachAddress(const EndpointQp::VisitAddress& visit) const;

  // Shows all further packets to `observer`; null for none. It outlives the
  // endpoint or the next call.
  void Observe(PacketObserver* observer) { observer_ = observer; }

  // --- Calls by queue pairs; the endpoint outlives them.
  void Register(EndpointQp* qp);
  // The counters in counters() that services increment.
  EndpointCounters& service_counters() { return counters_; }
  // Removes all references to `qp`. Its counters are added to retired().
  void Unregister(EndpointQp* qp, const QpCounters& counters);
  // `qp` has one peer from now on and sends by `flow`, which must not move
  // until Disconnect. Queue pairs with the same destination share its path.
  Path* Connect(EndpointQp* qp, const Flow* flow);
  void Disconnect(EndpointQp* qp);  // no effect if not connected
  // For a queue pair without a peer: `flow` is for its next packets. `flow`
  // stays valid until the next call, and until the burst begun for it is sent.
  // The queue pair joins and leaves paths itself and never waits for a window.
  void Direct(EndpointQp* qp, const Flow* flow);
  Path* JoinPath(const wire::IpAddress& destination);
  void LeavePath(Path* path);
  // `qp` transmits ACKs, and has begun the empty `burst` for them. The queue
  // pair with the next turn for data transmits into it first, provided that it
  // was idle, that its packets may be in that burst, and that they leave space
  // for an ACK.
  void TransmitAnswers(EndpointQp* qp, Time now, Burst* burst);
  // From now on `qp` gets the datagrams to `group`, each of them once even if
  // it is attached repeatedly.
  void Attach(EndpointQp* qp, const wire::IpAddress& group);
  void Detach(EndpointQp* qp, const wire::IpAddress& group);
  bool IsAttached(const EndpointQp* qp, const wire::IpAddress& group) const;
  std::vector<wire::IpAddress> GroupsOf(const EndpointQp* qp) const;
  // Updates the interests of `qp` after a call by the application.
  void Update(EndpointQp* qp, Time now);
  PacketArenaPool* arena_pool();

 private:
  // PollTransmit while a queue pair may have something to send.
  [[gnu::noinline]] Burst* TransmitNext(Time now, BurstSink* sink);
  // Counts one more queue pair of a path; creates the path if it is the first.
  SharedPath* Join(const wire::IpAddress& destination);
  // Processes a packet. Its queue pair's interests are updated when a packet
  // for another one arrives, or by FinishUpdate.
  template <bool kHasIcrc>
  Disposition Take(const Datagram& datagram, Time now, StraySink* strays);
  template <bool kHasIcrc>
  void TakeBatch(const GroBatch& batch, Time now, StraySink* strays);
  // A good packet to a number that no queue pair has. A DC packet may name its
  // target in DCETH alone.
  Disposition TakeUnaddressed(const Received& received, Time now,
                              StraySink* strays);
  // Delivers a good multicast packet to all attached queue pairs.
  Disposition TakeMulticast(const Received& received, Time now);
  void FinishUpdate(Time now);
  // Handles a packet whose ICRC is wrong for its addresses.
  Disposition TakeTranslated(EndpointQp* qp, const wire::PacketView& packet,
                             const Datagram& datagram, Time now,
                             StraySink* strays);
  // Whether the packet may be one of the connected peer. Does not check the
  // ICRC.
  static bool FitsConnection(EndpointQp& qp, const wire::PacketView& packet,
                             const Datagram& datagram);
  // The sender's own address, of a UD packet.
  std::optional<TrueSource> TrueSourceOfDatagram(const Datagram& datagram);
  // Returns the result of OnPacket.
  bool Deliver(EndpointQp* qp, const Received& received, Time now);
  Disposition Drop(Disposition why);
  void ShowReceived(const Datagram& datagram, Disposition disposition,
                    Time now);
  void ShowTransmitted(const Burst& burst, Time now);
  Burst* Transmitted(Burst* burst, Time now);  // counts and shows it

  struct Impl;
  EndpointCounters counters_;
  QpCounterTotals retired_;
  PacketObserver* observer_ = nullptr;
  uint64_t receive_buffer_ = 0;
  Translations translations_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_H_
