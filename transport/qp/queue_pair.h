// A queue pair: the requester and the responder halves, and the state machine
// that holds them together.
//
// Nothing here does I/O, reads a clock or takes a lock: all calls for one
// queue pair, and for one Endpoint, are made by one thread at a time (the
// engine holds the lane's lock). The calls come in four kinds, kept apart
// below: getters, calls by the application, inputs, outputs.
//
// The sinks and memory that it calls back may post to it and may destroy other
// queue pairs, but not the one that is calling, nor call its other methods.
#ifndef TRANSPORT_QP_QUEUE_PAIR_H_
#define TRANSPORT_QP_QUEUE_PAIR_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "transport/base/burst.h"
#include "transport/base/memory.h"
#include "transport/base/types.h"
#include "transport/base/work.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/rc/requester.h"
#include "transport/rc/responder.h"
#include "wire/packet.h"

namespace transport {

class Endpoint;
class Path;
class ReceiveQueue;

// struct ibv_qp_cap.
struct QpCapacity {
  uint32_t max_send_wr = 0;
  uint32_t max_recv_wr = 0;
  uint32_t max_send_sge = 0;
  uint32_t max_recv_sge = 0;
  uint32_t max_inline_data = 0;  // bytes
};

// What is fixed at creation. Pointers are borrowed and outlive the queue pair.
struct QpConfig {
  QpType type = QpType::kRc;
  uint32_t qpn = 0;
  PdId pd = 0;
  QpCapacity capacity;
  bool signal_all = false;  // sq_sig_all
  Memory* memory = nullptr;
  CompletionSink* send_cq = nullptr;
  CompletionSink* recv_cq = nullptr;
  ReceiveSource* srq = nullptr;  // null: the queue pair's own receive queue
  EventSink* events = nullptr;
  void* user = nullptr;  // the owner's; the transport ignores it
};

// Attributes that ibv_modify_qp sets (struct ibv_qp_attr).
struct QpAttributes {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;  // only checked, with kQpCurState
  uint32_t path_mtu = 1024;                 // bytes
  uint32_t qkey = 0;
  uint32_t rq_psn = 0;
  uint32_t sq_psn = 0;
  uint32_t dest_qpn = 0;
  uint32_t access_flags = 0;  // Access
  AddressVector av;
  AddressVector alt_av;
  uint16_t pkey_index = 0;
  uint16_t alt_pkey_index = 0;
  bool en_sqd_async_notify = false;
  bool sq_draining = false;  // out only
  uint8_t max_rd_atomic = 0;
  uint8_t max_dest_rd_atomic = 0;
  uint8_t min_rnr_timer = 0;  // RNR timer code
  uint8_t port_num = 1;
  uint8_t alt_port_num = 0;
  uint8_t timeout = 0;  // local ACK timeout code; 0 = wait for ever
  uint8_t alt_timeout = 0;
  uint8_t retry_cnt = 0;
  uint8_t rnr_retry = 0;  // 7 = for ever
  uint8_t path_mig_state = 0;
};

// Attribute mask bits (IBV_QP_*).
enum QpAttrMask : uint32_t {
  kQpState = 1u << 0,
  kQpCurState = 1u << 1,
  kQpEnSqdAsyncNotify = 1u << 2,
  kQpAccessFlags = 1u << 3,
  kQpPkeyIndex = 1u << 4,
  kQpPort = 1u << 5,
  kQpQkey = 1u << 6,
  kQpAv = 1u << 7,
  kQpPathMtu = 1u << 8,
  kQpTimeout = 1u << 9,
  kQpRetryCnt = 1u << 10,
  kQpRnrRetry = 1u << 11,
  kQpRqPsn = 1u << 12,
  kQpMaxQpRdAtomic = 1u << 13,
  kQpAltPath = 1u << 14,
  kQpMinRnrTimer = 1u << 15,
  kQpSqPsn = 1u << 16,
  kQpMaxDestRdAtomic = 1u << 17,
  kQpPathMigState = 1u << 18,
  kQpCap = 1u << 19,
  kQpDestQpn = 1u << 20,
};

// A packet as it came from the network, ICRC verified.
struct Received {
  const wire::PacketView* packet = nullptr;
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  bool congestion_experienced = false;  // ECN CE
};

// Counters of one queue pair; packets unless said otherwise. Names are the
// ones that `rxe-user stat` shows.
struct QpCounters {
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;  // BTH to ICRC
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  // These are rare, and wrap around.
  uint32_t retransmitted = 0;
  uint32_t timeouts = 0;
  uint32_t probes = 0;
  uint32_t naks_sent = 0;
  uint32_t naks_received = 0;
  uint32_t rnr_naks_sent = 0;
  uint32_t rnr_naks_received = 0;
  uint32_t duplicates = 0;
  uint32_t out_of_order = 0;
  uint32_t dropped_source = 0;  // not from the connected peer
  uint32_t dropped_state = 0;   // the state takes no packets
  uint32_t dropped_type = 0;    // opcode of another transport
  uint32_t dropped_pkey = 0;
  uint32_t dropped_window = 0;  // PSN neither expected nor duplicate, or a
                                // duplicate that can no longer be answered
  uint32_t cnps_sent = 0;
  uint32_t cnps_received = 0;
};

class QueuePair {
 public:
  // Registers itself with `endpoint`, which outlives it. State RESET.
  QueuePair(Endpoint& endpoint, const QpConfig& config);
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  // --- Getters.
  const QpConfig& config() const { return config_; }
  uint32_t qpn() const { return config_.qpn; }
  QpState state() const { return attributes_.state; }
  const QpAttributes& attributes() const { return attributes_; }
  const QpCounters& counters() const { return counters_; }
  const Path* path() const { return path_; }  // null before RTR

  // --- Calls by the application. All return 0 or an errno value.

  // Manual page ibv_modify_qp(3): checks `mask` against the transition table
  // (state_table.h) and every value against its range, then changes all or
  // nothing. EINVAL. To ERR flushes both queues; to RESET empties them without
  // completions and forgets everything.
  int Modify(const QpAttributes& attributes, uint32_t mask, Time now);

  // Queues one send work request. EINVAL (state, opcode, flags, lengths, too
  // many SGEs, inline too long), ENOMEM (queue full).
  int PostSend(const SendRequest& request, Time now);
  // What PostSend would answer if there were room, and how many requests there
  // is room for: so that several are posted together or not at all.
  int CheckSend(const SendRequest& request) const;
  uint32_t SendRoom() const;
  // Queues one receive. EINVAL, ENOMEM; EINVAL when an SRQ is attached. `now`
  // counts in the error state only, where it completes at once.
  int PostReceive(const ReceiveRequest& request, Time now);

  // --- Inputs.

  // Called when NextTimeout() has come; harmless when early.
  void OnTimer(Time now);
  // The CQ `cq` has overrun or been lost: to the error state.
  void OnCqError(Time now);

  // --- Outputs, driven by Endpoint.

  // Adds as many packets as fit to `burst` (begun for this queue pair's flow,
  // or not yet begun). Returns whether there is more to send at once.
  bool Transmit(Time now, Burst* burst);
  // The same while it is another one's turn: acknowledgements and CNPs alone,
  // unless a READ response goes before them.
  bool TransmitAnswers(Time now, Burst* burst);
  // When OnTimer wants to be called; kNever for not at all.
  Time NextTimeout() const;

 private:
  friend class Requester;
  friend class Responder;
  friend class Endpoint;

  // At most one congestion notification packet per queue pair in this time.
  static constexpr Time kCnpInterval = 50 * kMicrosecond;

  // Moves to ERR because of something the halves found: flushes both queues.
  // What the responder owes its peer, a NAK above all, is still transmitted.
  // Raises `event`, if any. Harmless when there already.
  void EnterError(Time now, std::optional<QpEvent> event = std::nullopt);
  void RaiseEvent(QpEvent event);

  // Modify, in parts (queue_pair_modify.cc).
  int CheckValues(const QpAttributes& attributes, uint32_t mask,
                  QpState to) const;
  void Assign(const QpAttributes& attributes, uint32_t mask);
  void EnterReset();
  // Takes attributes_.av: flow and path.
  void JoinPath();
  void LeavePath();

  // A packet whose destination is this queue pair. Update is to follow.
  void OnPacket(const Received& received, Time now);
  // In parts:
  bool Admit(const Received& received);
  void NoteCongestion(const Received& received, Time now);
  // A CNP is due to the peer, unless one was sent just now.
  void RequestCnp(Time now);
  void TransmitCnp(Burst* burst);
  bool TransmitParts(Time now, Burst* burst, bool data);
  bool TransmitHalves(Time now, Burst* burst);
  // After any input: takes a turn if there is something to transmit, and tells
  // the endpoint of the next timer.
  void Update(Time now);

  Endpoint& endpoint_;
  const QpConfig config_;
  QpAttributes attributes_;
  QpCounters counters_;
  EndpointLink link_;         // the endpoint's
  std::optional<Flow> flow_;  // from RTR on
  Path* path_ = nullptr;      // from RTR on; owned by the endpoint
  bool communication_established_ = false;
  bool cnp_due_ = false;
  // The responder had to wait for the requester in the last burst.
  bool responder_first_ = false;
  Time last_cnp_ = std::numeric_limits<Time>::min() / 2;
  std::unique_ptr<ReceiveQueue> receive_queue_;  // null with an SRQ
  Requester requester_;
  Responder responder_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_QUEUE_PAIR_H_
