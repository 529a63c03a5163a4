// A queue pair as its endpoint sees it, and its requests to the endpoint.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_QP_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_QP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "transport/base/burst.h"
#include "transport/base/flow.h"
#include "transport/base/qp_report.h"
#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "transport/endpoint/endpoint_link.h"

namespace transport {

// What a queue pair wants after a call. The endpoint updates its lists
// accordingly: a queue pair leaves those that it does not name.
struct Interests {
  enum Want : uint32_t {
    kData = 1u << 0,  // a turn to send requests
    // The same, once the path's window opens (from Transmit only).
    kWindow = 1u << 1,
    // A turn for packets that the window does not limit: READ responses and
    // retransmissions.
    kUnwindowed = 1u << 2,
    kAcks = 1u << 3,  // to send ACKs, NAKs and CNPs
    // Ends this turn (or the next one): other queue pairs come first.
    kEndTurn = 1u << 4,
    kReceivedData = 1u << 5,  // packets with payload have arrived
  };
  // Want. 64 bits: without padding, a copy is two words.
  uint64_t wants = 0;
  Time deadline = kNever;  // of the next OnTimer

  bool Has(uint32_t any) const { return (wants & any) != 0; }
  // Union of both.
  void Add(const Interests& other) {
    wants |= other.wants;
    deadline = std::min(deadline, other.deadline);
  }
};

// Limits of one transmit turn.
struct TransmitTurn {
  bool acks_only = false;  // another queue pair has the turn for data
  // Quantum: end the turn at the next message boundary after this many bytes.
  size_t bytes = 0;
};

// Only its endpoint calls it.
class EndpointQp {
 public:
  explicit EndpointQp(uint32_t qpn) : qpn_(qpn) { link_.qp = this; }
  virtual ~EndpointQp() = default;
  EndpointQp(const EndpointQp&) = delete;
  EndpointQp& operator=(const EndpointQp&) = delete;

  uint32_t qpn() const { return qpn_; }
  // The endpoint's bookkeeping.
  EndpointLink& link() { return link_; }
  // Snapshot for `rxe-user stat`.
  virtual QpReport Report() const = 0;
  // Calls `visit` with every address that it may still send to or from, as far
  // as known.
  using VisitAddress = std::function<void(const AddressVector&)>;
  virtual void ForEachAddress(const VisitAddress& visit) const {
    if (link_.flow != nullptr) visit(link_.flow->av);
  }

  // --- Inputs. The endpoint calls TakeInterests after one or several of them.
  //
  // A packet to this queue pair. True if it comes from the peer, as far as can
  // be told, and its PSN is within the window: its port then becomes the
  // peer's.
  virtual bool OnPacket(const Received& received, Time now) = 0;
  // True only if OnPacket would return true for the packet from the peer's
  // port.
  virtual bool WouldTake(const wire::PacketView& packet) const = 0;
  // Whether it is a UD packet that would be accepted: state, P_Key and Q_Key
  // are good.
  virtual bool TakesDatagram(const wire::PacketView& packet) const = 0;
  // The peer's queue pair, if a burst to its slot may have packets of this
  // queue pair and of others. 0: there is no peer, or a burst may not.
  virtual uint32_t SharesBurstsTo() const = 0;
  // The peer's own address, from RTR on; packets may go elsewhere (SetVia).
  virtual const wire::IpAddress& peer_address() const = 0;
  // The peer's packets come from `via`, so this queue pair sends to it from now
  // on.
  virtual void SetVia(const Via& via) = 0;
  // `deadline` has expired; an early call has no effect.
  virtual void OnTimer(Time now) = 0;
  // The receive socket dropped datagrams, perhaps for this queue pair.
  virtual void OnReceiveOverflow(Time now) = 0;

  // --- Outputs.
  virtual Interests TakeInterests(Time now) = 0;
  // Adds packets to `burst`, begun for the link's flow if it has one. Returns
  // what TakeInterests would.
  virtual Interests Transmit(Time now, const TransmitTurn& turn,
                             Burst* burst) = 0;

 private:
  const uint32_t qpn_;
  EndpointLink link_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_QP_H_
