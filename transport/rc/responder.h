// The responder half of a reliable connection (IBA vol. 1, 9.7.4): executes
// requests in PSN order, answers them, and remembers what it must answer again.
#ifndef TRANSPORT_RC_RESPONDER_H_
#define TRANSPORT_RC_RESPONDER_H_

#include <cstdint>
#include <memory>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/base/work.h"

namespace transport {

class QueuePair;
struct Received;

class Responder {
 public:
  explicit Responder(QueuePair& qp);
  ~Responder();

  // --- Calls by the queue pair.
  // To RTR: the first expected PSN is attributes().rq_psn.
  void Start(Time now);
  void Reset();
  // State ERR: gives back the receive that a message had taken (flushed), then
  // flushes the receive queue; with an SRQ reports kLastWqeReached, once. What
  // has been executed is still acknowledged, and a NAK that is due still sent.
  void Flush(Time now);

  // attributes().max_dest_rd_atomic has changed.
  void ResizeResources();

  // --- Inputs: request packets whose source and P_Key have been checked.
  void OnRequest(const Received& received, Time now);
  void OnTimer(Time now);

  // --- Outputs.
  // Adds response packets, up to the first READ response if `answers_only`;
  // true when more could be sent at once.
  bool Transmit(Time now, Burst* burst, bool answers_only);
  // What it has to transmit, in the order of PSNs.
  struct Output {
    bool answers = false;  // an acknowledgement of one packet comes first
    bool reads = false;    // a READ response is among them
  };
  Output output() const;
  Time NextTimeout() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace transport

#endif  // TRANSPORT_RC_RESPONDER_H_
