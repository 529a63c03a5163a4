// A queue pair as its endpoint sees it, and what it wants of the endpoint.
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

// What a queue pair wants after a call. The endpoint's lists are made to agree
// with it: what is not wanted is taken out of them.
struct Interests {
  enum Want : uint32_t {
    kData = 1u << 0,  // a turn, to send requests
    // The same, when the path's window opens (from Transmit only).
    kWindow = 1u << 1,
    // A turn, to send what does not wait for the path's window: READ responses,
    // requests that are sent again.
    kUnwindowed = 1u << 2,
    kAcks = 1u << 3,  // to send acknowledgements, and the like
    // This turn, or the next one, ends: others come first.
    kEndTurn = 1u << 4,
    kReceivedData = 1u << 5,  // noted: packets with payload have come
  };
  uint32_t wants = 0;      // Want
  Time deadline = kNever;  // when to call OnTimer

  bool Has(uint32_t any) const { return (wants & any) != 0; }
  // What both want.
  void Add(const Interests& other) {
    wants |= other.wants;
    deadline = std::min(deadline, other.deadline);
  }
};

// What a turn to transmit is good for.
struct TransmitTurn {
  bool acks_only = false;  // it is another one's turn to send data
  // From so many bytes on in the burst others are to have their turns.
  size_t bytes = 0;
};

// Called by its endpoint only.
class EndpointQp {
 public:
  explicit EndpointQp(uint32_t qpn) : qpn_(qpn) { link_.qp = this; }
  virtual ~EndpointQp() = default;
  EndpointQp(const EndpointQp&) = delete;
  EndpointQp& operator=(const EndpointQp&) = delete;

  uint32_t qpn() const { return qpn_; }
  // The endpoint's notes.
  EndpointLink& link() { return link_; }
  // For people who look.
  virtual QpReport Report() const = 0;
  // Calls `visit` with what it may still send by, as far as it is known yet.
  using VisitAddress = std::function<void(const AddressVector&)>;
  virtual void ForEachAddress(const VisitAddress& visit) const {
    if (link_.flow != nullptr) visit(link_.flow->av);
  }

  // --- Inputs. TakeInterests is called after one or several of them.
  // A packet whose destination is this queue pair. True if it is the peer's, as
  // far as can be told, and its PSN within the window: from here on its port is
  // the peer's.
  virtual bool OnPacket(const Received& received, Time now) = 0;
  // True only if OnPacket would return true of it from the peer's port.
  virtual bool WouldTake(const wire::PacketView& packet) const = 0;
  // Whether it is a datagram from anybody that would be taken: state, P_Key and
  // Q_Key are right.
  virtual bool TakesDatagram(const wire::PacketView& packet) const = 0;
  // The peer's own, from RTR on; packets may go elsewhere (GoBy).
  virtual const wire::IpAddress& peer_address() const = 0;
  // A packet of its peer's has come by `via`: what it sends goes there.
  virtual void GoBy(const Via& via) = 0;
  // `deadline` has come; harmless when early.
  virtual void OnTimer(Time now) = 0;
  // The receive socket has dropped datagrams, and this one's may be among them.
  virtual void OnReceiveOverflow(Time now) = 0;

  // --- Outputs.
  virtual Interests TakeInterests(Time now) = 0;
  // Adds packets to `burst`, which has been begun for the link's flow if it has
  // one. Returns what TakeInterests would.
  virtual Interests Transmit(Time now, const TransmitTurn& turn,
                             Burst* burst) = 0;

 private:
  const uint32_t qpn_;
  EndpointLink link_;
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_ENDPOINT_QP_H_
