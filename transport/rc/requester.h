// The requester half of a reliable connection (IBA vol. 1, 9.7.5): takes send
// work requests, sends their packets, and completes them in order.
#ifndef TRANSPORT_RC_REQUESTER_H_
#define TRANSPORT_RC_REQUESTER_H_

#include <cstdint>
#include <memory>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/base/work.h"

namespace transport {

class QueuePair;
struct Received;

// The local ACK timeout T of a queue pair allows the requester to wait for T to
// 4 T (IBA vol. 1, 9.7.6.1.3). A peer in software may have to wait for a core,
// and what is lost is found by probes much sooner: so it waits for 3 T, and is
// not late even when it has to wait itself.
inline constexpr int kAckPatience = 3;

class Requester {
 public:
  explicit Requester(QueuePair& qp);
  ~Requester();

  // --- Calls by the queue pair.
  int Post(const SendRequest& request, Time now);  // 0 or errno
  int Check(const SendRequest& request) const;     // 0 or errno, room aside
  uint32_t room() const;  // work requests that can still be posted
  // To RTS: PSNs start at attributes().sq_psn.
  void Start(Time now);
  // To RESET: forgets everything without completions.
  void Reset();
  // Completes what is queued with kFlushed (state ERR).
  void Flush(Time now);
  // State SQD entered or left.
  void Drain(Time now);
  void Resume(Time now);
  bool drained() const;

  // --- Inputs: response packets (ACK, NAK, RNR NAK, READ response, atomic ACK)
  // whose source and P_Key have been checked.
  void OnResponse(const Received& received, Time now);
  void OnCongestionNotification(Time now);
  void OnTimer(Time now);

  // --- Outputs.
  // Adds request packets to `burst`, which has been begun for the queue pair's
  // flow; true when more could be sent at once. When the path's window is full
  // it has called Endpoint::WaitForWindow.
  bool Transmit(Time now, Burst* burst);
  // Whether a turn is wanted: to send, or to wait for the window.
  bool HasTransmit(Time now) const;
  Time NextTimeout() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transport

#endif  // TRANSPORT_RC_REQUESTER_H_
