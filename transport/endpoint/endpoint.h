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
  // All packets of a batch. An acknowledgement that ends it is heard of before
  // the requests that it shares it with. `strays` may be null.
  void OnGroBatch(const GroBatch& batch, Time now, StraySink* strays);
  Disposition OnDatagram(const Datagram& datagram, Time now);
  // Runs every timer that is due.
  void OnTimer(Time now);
  // The receive socket dropped datagrams (SO_RXQ_OVFL): our peers are too
  // fast. Answered like a congestion mark, by CNPs to active peers.
  void OnReceiveOverflow(Time now);

  // --- Outputs.
  // Fills a burst of `sink` with packets of one queue pair, the next in turn
  // (TransmitScheduler). Null when nothing can be sent now, or the sink takes
  // nothing: then the queue pair whose turn it is keeps it.
  Burst* PollTransmit(Time now, BurstSink* sink);
  // When OnTimer wants to be called; kNever for not at all.
  Time NextTimeout() const;
  // Something is ready for PollTransmit.
  bool HasTransmit() const;
  // About how many queue pairs have something ready, one at least if any has.
  size_t Transmitters() const;

  // The least of the sockets' receive buffers, in bytes as the kernel counts
  // them (socket(7), SO_RCVBUF); 0: not known.
  uint64_t receive_buffer() const { return receive_buffer_; }
  void NoteReceiveBuffer(uint64_t bytes) {  // of a socket; 0: not known
    if (bytes == 0) return;
    if (receive_buffer_ == 0 || bytes < receive_buffer_) {
      receive_buffer_ = bytes;
    }
  }

  // `sink` hears of peers whose addresses something between translates; null
  // for nobody. `take`: their packets are taken (translation.h), else dropped
  // as ones with a wrong ICRC. It outlives the endpoint, or the next call.
  void WatchTranslations(TranslationSink* sink, bool take) {
    translations_.Watch(sink, take);
  }

  const EndpointCounters& counters() const { return counters_; }
  // Of queue pairs that are gone.
  const QpCounterTotals& retired() const { return retired_; }
  // The numbers of those that there are, in no order.
  std::vector<uint32_t> QueuePairNumbers() const;
  // Null when there is none.
  EndpointQp* Find(uint32_t qpn) const;
  // What its queue pairs may still send by: EndpointQp::ForEachAddress of all.
  void ForEachAddress(const EndpointQp::VisitAddress& visit) const;

  // Sees all packets from here on; null for none. It outlives the endpoint, or
  // the next call of this.
  void Observe(PacketObserver* observer) { observer_ = observer; }

  // --- Calls by queue pairs, which outlive none of this.
  void Register(EndpointQp* qp);
  // Forgets `qp` wherever it is noted. From here on nothing refers to it; what
  // it has counted stays.
  void Unregister(EndpointQp* qp, const QpCounters& counters);
  // `qp` speaks with one peer from here on, by `flow`, which stays where it is
  // until Disconnect. Queue pairs that speak with one address share its path.
  Path* Connect(EndpointQp* qp, const Flow* flow);
  void Disconnect(EndpointQp* qp);  // harmless when not connected
  // A queue pair without a peer: what it sends next goes by `flow`, which stays
  // until the next call, and until the burst that was begun for it is sent. It
  // knows the paths itself, each from JoinPath to LeavePath, and never waits
  // for a window.
  void Direct(EndpointQp* qp, const Flow* flow);
  Path* JoinPath(const wire::IpAddress& destination);
  void LeavePath(Path* path);
  // Datagrams to `group` come to `qp`, too. Once, however often it is attached.
  void Attach(EndpointQp* qp, const wire::IpAddress& group);
  void Detach(EndpointQp* qp, const wire::IpAddress& group);
  bool IsAttached(const EndpointQp* qp, const wire::IpAddress& group) const;
  std::vector<wire::IpAddress> GroupsOf(const EndpointQp* qp) const;
  // After a call by the application: what `qp` wants may have changed.
  void Update(EndpointQp* qp, Time now);
  PacketArenaPool* arena_pool();

 private:
  // One queue pair more sends to it: made with the first.
  SharedPath* Join(const wire::IpAddress& destination);
  // A packet. Its queue pair is not asked what it wants until another one has
  // its turn, or FinishUpdate is called.
  Disposition Take(const Datagram& datagram, Time now, StraySink* strays);
  // A good packet to a group: for all queue pairs that are attached to it.
  Disposition TakeMulticast(const Received& received, Time now);
  void FinishUpdate(Time now);
  // One whose ICRC is wrong for the addresses that it came with.
  Disposition TakeTranslated(EndpointQp* qp, const wire::PacketView& packet,
                             const Datagram& datagram, Time now,
                             StraySink* strays);
  // Whose it is, if it is its peer's, or one that anybody may send.
  std::optional<TrueSource> TrueSourceOfPeer(EndpointQp& qp,
                                             const wire::PacketView& packet,
                                             const Datagram& datagram);
  std::optional<TrueSource> TrueSourceOfDatagram(const EndpointQp& qp,
                                                 const wire::PacketView& packet,
                                                 const Datagram& datagram);
  // What OnPacket returns.
  bool Give(EndpointQp* qp, const Received& received, Time now);
  Disposition Drop(Disposition why);
  void ShowReceived(const Datagram& datagram, Disposition disposition,
                    Time now);
  void ShowTransmitted(const Burst& burst, Time now);

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
