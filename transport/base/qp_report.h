// Snapshot of a queue pair for `rxe-user stat`, taken under its lane's lock.
#ifndef TRANSPORT_BASE_QP_REPORT_H_
#define TRANSPORT_BASE_QP_REPORT_H_

#include <cstdint>

#include "transport/base/counters.h"
#include "transport/base/reason.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "wire/address.h"

namespace transport {

// What the oldest send work request waits for.
enum class WaitsFor : uint8_t {
  kNothing,
  kAck,      // an acknowledgement, or a response
  kRnr,      // the peer's RNR timer: it had no receive posted
  kCredits,  // end-to-end credits: the peer has no receive posted
  kWindow,   // the path's window, or its turn to transmit
  kResume,   // the program has moved the queue pair to SQD
};

struct QpReport {
  uint32_t qpn = 0;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;

  // The peer; meaningful from RTR on.
  uint32_t dest_qpn = 0;
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;  // UDP
  uint32_t path_mtu = 0;     // bytes

  // Requester: PSN of the next new packet, and of the oldest unacknowledged one
  // (equal if there is none).
  uint32_t send_psn = 0;
  uint32_t unacked_psn = 0;
  uint32_t send_queued = 0;  // work requests not yet completed
  // Responder.
  uint32_t expected_psn = 0;
  uint32_t recv_queued = 0;  // receives posted; 0 with an SRQ
  bool uses_srq = false;

  // Why the queue pair failed first; kNone: it has not.
  Reason first_error = Reason::kNone;
  // The oldest send work request, if there is one.
  uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  WaitsFor waits_for = WaitsFor::kNothing;
  Time waits_since = 0;  // the last progress, else the send; 0: unknown
  Time waits_until = 0;  // kRnr: the end of the timer
  // As set by ibv_modify_qp(3), in its encoding.
  uint8_t timeout = 0;
  uint8_t retry_cnt = 0;
  uint8_t rnr_retry = 0;
  uint8_t min_rnr_timer = 0;

  CqReport send_cq;
  CqReport recv_cq;

  // The path, shared by all queue pairs to the destination.
  uint64_t window = 0;     // bytes
  uint64_t in_flight = 0;  // bytes
  // Bytes that have left the network but still count in a window of less than
  // one packet (Path).
  uint64_t paused = 0;
  Time smoothed_rtt = 0;  // ns; 0: none measured

  QpCounters counters;
};

}  // namespace transport

#endif  // TRANSPORT_BASE_QP_REPORT_H_
