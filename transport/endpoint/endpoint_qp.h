// A queue pair as its endpoint sees it, and what it wants of the endpoint.
#ifndef TRANSPORT_ENDPOINT_ENDPOINT_QP_H_
#define TRANSPORT_ENDPOINT_ENDPOINT_QP_H_

#include <cstddef>
#include <cstdint>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/datagram.h"
#include "transport/endpoint/endpoint_link.h"

namespace transport {

// What a queue pair wants after a call. The endpoint's lists are made to agree
// with it: what is not wanted is taken out of them.
struct Interests {
  bool data = false;  // a turn, to send requests
  bool window_wait =
      false;  // for that: the window is closed (of Transmit only)
  // A turn, to send what does not wait for the path's window: READ responses,
  // requests that are sent again.
  bool unwindowed = false;
  bool acks = false;  // to send acknowledgements, and the like
  // This turn, or the next one, ends: others come first.
  bool end_turn = false;
  bool received_data = false;  // packets with payload have come
  Time deadline = kNever;      // when to call OnTimer
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

  // --- Inputs. TakeInterests is called after one or several of them.
  // A packet whose destination is this queue pair.
  virtual void OnPacket(const Received& received, Time now) = 0;
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
