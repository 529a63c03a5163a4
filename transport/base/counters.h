// Counters and how users read them. They are structs of plain integers; each
// has a table with name, unit and help text of every member (`rxe-user stat`).
// Guarded by the lane's lock.
//
// Names are those of `rdma statistic`, `ethtool -S` and the files below
// /sys/class/infiniband/*/ports/1/ for the same event: the kernel's rxe first,
// then mlx5 and efa.
#ifndef TRANSPORT_BASE_COUNTERS_H_
#define TRANSPORT_BASE_COUNTERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace transport {

enum class CounterUnit : uint8_t {
  kPackets,
  kMessages,
  kBytes,
  kWords,   // stored in bytes, read in units of 4 bytes (IBA vol. 1, 16.1.3.5)
  kEvents,  // everything else
};

// Describes a member of a counter struct: a uint64_t or a uint32_t.
struct Counter {
  std::string_view name;
  CounterUnit unit;
  std::string_view help;
  size_t offset;  // in the struct
  size_t size;

  // The value that users see, from the struct at `counters`.
  uint64_t Read(const void* counters) const {
    uint64_t value = 0;
    if (size == sizeof(uint64_t)) {
      std::memcpy(&value, static_cast<const char*>(counters) + offset, size);
    } else {
      uint32_t narrow;
      std::memcpy(&narrow, static_cast<const char*>(counters) + offset,
                  sizeof(narrow));
      value = narrow;
    }
    return unit == CounterUnit::kWords ? value / 4 : value;
  }
};

// Initializes `offset` and `size` of a Counter.
#define TRANSPORT_COUNTER(type, member) \
  offsetof(type, member), sizeof(type::member)

// Whether `table` names every member of a struct of `bytes` once, in order.
constexpr bool IsComplete(std::span<const Counter> table, size_t bytes) {
  size_t end = 0;
  for (const Counter& counter : table) {
    if (counter.offset != end) return false;
    if (counter.size != sizeof(uint64_t) && counter.size != sizeof(uint32_t)) {
      return false;
    }
    end += counter.size;
  }
  return bytes - end < sizeof(uint64_t);  // padding
}

// Kinds of send work requests in the counters.
enum class CountedAs : uint8_t { kSend, kWrite, kRead, kAtomic, kOther };
inline constexpr size_t kCountedKinds = 5;

// Counters of one queue pair.
struct QpCounters {
  uint64_t tx_packets = 0;
  uint64_t tx_bytes = 0;
  uint64_t rx_packets = 0;
  uint64_t rx_bytes = 0;
  uint64_t requests[kCountedKinds] = {};  // completed, by CountedAs
  uint64_t receives = 0;
  // Rare events; these wrap around.
  uint32_t retransmitted = 0;
  uint32_t timeouts = 0;
  uint32_t probes = 0;
  uint32_t retries_exceeded = 0;
  uint32_t rnr_retries_exceeded = 0;
  uint32_t sequence_naks_sent = 0;
  uint32_t sequence_naks_received = 0;
  uint32_t fatal_naks_sent = 0;
  uint32_t fatal_naks_received = 0;
  uint32_t rnr_naks_sent = 0;
  uint32_t rnr_naks_received = 0;
  uint32_t duplicates = 0;
  uint32_t stale_responses = 0;
  uint32_t out_of_order = 0;
  uint32_t dropped_source = 0;
  uint32_t dropped_port = 0;
  uint32_t dropped_state = 0;
  uint32_t dropped_type = 0;
  uint32_t dropped_pkey = 0;
  uint32_t dropped_qkey = 0;
  uint32_t out_of_buffer = 0;
  uint32_t dropped_window = 0;
  uint32_t dropped_response = 0;
  uint32_t dropped_conflict = 0;
  uint32_t dropped_held = 0;
  uint32_t dropped_message = 0;
  uint32_t cnps_sent = 0;
  uint32_t cnps_received = 0;
  uint32_t cnps_ignored = 0;
  uint32_t ecn_marked = 0;
  uint32_t send_errors = 0;
  uint32_t send_flushes = 0;
  uint32_t receive_errors = 0;
  uint32_t receive_flushes = 0;
};

inline constexpr Counter kQpCounters[] = {
    {"sent_pkts", CounterUnit::kPackets,
     "packets sent, retransmissions included",
     TRANSPORT_COUNTER(QpCounters, tx_packets)},
    {"sent_bytes", CounterUnit::kBytes, "bytes sent, BTH to ICRC",
     TRANSPORT_COUNTER(QpCounters, tx_bytes)},
    {"rcvd_pkts", CounterUnit::kPackets, "packets received",
     TRANSPORT_COUNTER(QpCounters, rx_packets)},
    {"rcvd_bytes", CounterUnit::kBytes, "bytes received, BTH to ICRC",
     TRANSPORT_COUNTER(QpCounters, rx_bytes)},
    {"rdma_sends", CounterUnit::kMessages,
     "SENDs acknowledged, or sent (UC, UD)",
     TRANSPORT_COUNTER(QpCounters, requests[0])},
    {"rdma_writes", CounterUnit::kMessages,
     "RDMA WRITEs acknowledged, or sent (UC)",
     TRANSPORT_COUNTER(QpCounters, requests[1])},
    {"rdma_reads", CounterUnit::kMessages, "RDMA READs completed",
     TRANSPORT_COUNTER(QpCounters, requests[2])},
    {"rdma_atomics", CounterUnit::kMessages, "atomic operations completed",
     TRANSPORT_COUNTER(QpCounters, requests[3])},
    {"other_wrs", CounterUnit::kMessages,
     "other send work requests that succeeded",
     TRANSPORT_COUNTER(QpCounters, requests[4])},
    {"rdma_recvs", CounterUnit::kMessages,
     "messages that consumed a receive, also with an error",
     TRANSPORT_COUNTER(QpCounters, receives)},
    {"retrans_pkts", CounterUnit::kPackets, "request packets retransmitted",
     TRANSPORT_COUNTER(QpCounters, retransmitted)},
    {"local_ack_timeout_err", CounterUnit::kEvents,
     "local ACK timeouts of the requester",
     TRANSPORT_COUNTER(QpCounters, timeouts)},
    {"loss_probes", CounterUnit::kEvents, "probes of an unacknowledged tail",
     TRANSPORT_COUNTER(QpCounters, probes)},
    {"retry_exceeded_err", CounterUnit::kEvents,
     "connections ended: retry_cnt exceeded",
     TRANSPORT_COUNTER(QpCounters, retries_exceeded)},
    {"retry_rnr_exceeded_err", CounterUnit::kEvents,
     "connections ended: rnr_retry exceeded",
     TRANSPORT_COUNTER(QpCounters, rnr_retries_exceeded)},
    {"out_of_seq_request", CounterUnit::kPackets,
     "NAKs sent: a request packet was missing",
     TRANSPORT_COUNTER(QpCounters, sequence_naks_sent)},
    {"rcvd_seq_err", CounterUnit::kPackets,
     "NAKs received: the peer missed a request packet",
     TRANSPORT_COUNTER(QpCounters, sequence_naks_received)},
    {"send_fatal_nak", CounterUnit::kPackets,
     "fatal NAKs sent: a request was refused",
     TRANSPORT_COUNTER(QpCounters, fatal_naks_sent)},
    {"rcvd_fatal_nak", CounterUnit::kPackets,
     "fatal NAKs received: the peer refused a request",
     TRANSPORT_COUNTER(QpCounters, fatal_naks_received)},
    {"send_rnr_err", CounterUnit::kPackets,
     "RNR NAKs sent: no receive was posted",
     TRANSPORT_COUNTER(QpCounters, rnr_naks_sent)},
    {"rcvd_rnr_err", CounterUnit::kPackets,
     "RNR NAKs received: the peer had no receive posted",
     TRANSPORT_COUNTER(QpCounters, rnr_naks_received)},
    {"duplicate_request", CounterUnit::kPackets, "duplicate request packets",
     TRANSPORT_COUNTER(QpCounters, duplicates)},
    {"duplicate_response", CounterUnit::kPackets,
     "response packets for requests that were already answered",
     TRANSPORT_COUNTER(QpCounters, stale_responses)},
    {"out_of_sequence", CounterUnit::kPackets,
     "request packets received out of order",
     TRANSPORT_COUNTER(QpCounters, out_of_order)},
    {"rx_drop_source", CounterUnit::kPackets,
     "dropped: not from the connected peer",
     TRANSPORT_COUNTER(QpCounters, dropped_source)},
    {"rx_drop_port", CounterUnit::kPackets,
     "dropped: from the peer's address, but not its UDP source port",
     TRANSPORT_COUNTER(QpCounters, dropped_port)},
    {"rx_drop_state", CounterUnit::kPackets,
     "dropped: not accepted in the queue pair's state",
     TRANSPORT_COUNTER(QpCounters, dropped_state)},
    {"rx_drop_type", CounterUnit::kPackets,
     "dropped: opcode of another transport service",
     TRANSPORT_COUNTER(QpCounters, dropped_type)},
    {"rx_drop_pkey", CounterUnit::kPackets, "dropped: wrong P_Key",
     TRANSPORT_COUNTER(QpCounters, dropped_pkey)},
    {"rx_drop_qkey", CounterUnit::kPackets, "dropped: wrong Q_Key (UD)",
     TRANSPORT_COUNTER(QpCounters, dropped_qkey)},
    {"out_of_buffer", CounterUnit::kPackets,
     "dropped: no receive was posted (UD)",
     TRANSPORT_COUNTER(QpCounters, out_of_buffer)},
    {"rx_drop_psn", CounterUnit::kPackets,
     "dropped: PSN neither expected nor of a duplicate",
     TRANSPORT_COUNTER(QpCounters, dropped_window)},
    {"rx_drop_response", CounterUnit::kPackets,
     "dropped: response without an outstanding request",
     TRANSPORT_COUNTER(QpCounters, dropped_response)},
    {"rx_drop_conflict", CounterUnit::kPackets,
     "dropped: packets after a gap with one PSN and different contents",
     TRANSPORT_COUNTER(QpCounters, dropped_conflict)},
    {"rx_drop_held", CounterUnit::kPackets,
     "dropped: buffered after a gap that was not filled",
     TRANSPORT_COUNTER(QpCounters, dropped_held)},
    {"rx_drop_message", CounterUnit::kPackets,
     "dropped: part of a message that is not delivered (UC, UD)",
     TRANSPORT_COUNTER(QpCounters, dropped_message)},
    {"np_cnp_sent", CounterUnit::kPackets,
     "congestion notification packets sent",
     TRANSPORT_COUNTER(QpCounters, cnps_sent)},
    {"rp_cnp_handled", CounterUnit::kPackets,
     "congestion notification packets received",
     TRANSPORT_COUNTER(QpCounters, cnps_received)},
    {"rp_cnp_ignored", CounterUnit::kPackets,
     "of these, ignored: sooner than a receiver may send them",
     TRANSPORT_COUNTER(QpCounters, cnps_ignored)},
    {"np_ecn_marked_roce_packets", CounterUnit::kPackets,
     "packets received with an ECN mark",
     TRANSPORT_COUNTER(QpCounters, ecn_marked)},
    {"req_cqe_error", CounterUnit::kEvents,
     "send work requests completed with an error, without flushed ones",
     TRANSPORT_COUNTER(QpCounters, send_errors)},
    {"req_cqe_flush_error", CounterUnit::kEvents, "send work requests flushed",
     TRANSPORT_COUNTER(QpCounters, send_flushes)},
    {"resp_cqe_error", CounterUnit::kEvents,
     "receives completed with an error, without flushed ones",
     TRANSPORT_COUNTER(QpCounters, receive_errors)},
    {"resp_cqe_flush_error", CounterUnit::kEvents, "receives flushed",
     TRANSPORT_COUNTER(QpCounters, receive_flushes)},
};
static_assert(IsComplete(kQpCounters, sizeof(QpCounters)));

// Sums over many queue pairs, ordered as kQpCounters.
struct QpCounterTotals {
  std::array<uint64_t, std::size(kQpCounters)> values{};

  void Add(const QpCounters& counters) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] += kQpCounters[i].Read(&counters);
    }
  }
  void Add(const QpCounterTotals& totals) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += totals.values[i];
  }
};

// What happened to a datagram; each kind of drop has a counter. A packet that
// reached its queue pair is kDelivered, even if the queue pair dropped it (see
// QpCounters).
enum class Disposition : uint8_t {
  kTooShort,
  kUnknownOpcode,
  kBadLength,
  kBadHeader,    // version, pad
  kBadSyndrome,  // of an AETH
  kBadIcrc,
  kUnknownQp,  // another process or QP1 may own it: the caller decides
  kDelivered,
};
inline constexpr size_t kDropKinds =
    static_cast<size_t>(Disposition::kDelivered);

// Counters of one endpoint, over all queue pairs.
struct EndpointCounters {
  uint64_t rx_datagrams = 0;
  uint64_t rx_bytes = 0;
  uint64_t tx_datagrams = 0;
  uint64_t tx_bursts = 0;
  uint64_t tx_bytes = 0;
  uint64_t dropped[kDropKinds] = {};  // by Disposition
  uint64_t translated_dropped = 0;
  uint64_t translated_peers = 0;
  uint64_t dc_connects = 0;
  uint64_t dc_evicted = 0;
  uint64_t dc_key_violations = 0;
};

inline constexpr Counter kEndpointCounters[] = {
    {"port_rcv_packets", CounterUnit::kPackets,
     "packets received, good and bad",
     TRANSPORT_COUNTER(EndpointCounters, rx_datagrams)},
    {"port_rcv_data", CounterUnit::kWords,
     "received, BTH to ICRC, in units of 4 bytes",
     TRANSPORT_COUNTER(EndpointCounters, rx_bytes)},
    {"port_xmit_packets", CounterUnit::kPackets, "packets sent",
     TRANSPORT_COUNTER(EndpointCounters, tx_datagrams)},
    {"tx_bursts", CounterUnit::kEvents, "bursts sent, of one or more packets",
     TRANSPORT_COUNTER(EndpointCounters, tx_bursts)},
    {"port_xmit_data", CounterUnit::kWords,
     "sent, BTH to ICRC, in units of 4 bytes",
     TRANSPORT_COUNTER(EndpointCounters, tx_bytes)},
    {"rx_drop_too_short", CounterUnit::kPackets,
     "dropped: shorter than its headers",
     TRANSPORT_COUNTER(EndpointCounters, dropped[0])},
    {"rx_drop_opcode", CounterUnit::kPackets, "dropped: unknown opcode",
     TRANSPORT_COUNTER(EndpointCounters, dropped[1])},
    {"rx_drop_length", CounterUnit::kPackets,
     "dropped: length not a multiple of 4, or an ACK with payload",
     TRANSPORT_COUNTER(EndpointCounters, dropped[2])},
    {"rx_drop_header", CounterUnit::kPackets,
     "dropped: wrong version or pad count",
     TRANSPORT_COUNTER(EndpointCounters, dropped[3])},
    {"rx_drop_syndrome", CounterUnit::kPackets,
     "dropped: AETH syndrome reserved, or wrong for the opcode",
     TRANSPORT_COUNTER(EndpointCounters, dropped[4])},
    {"rx_icrc_encapsulated", CounterUnit::kPackets, "dropped: wrong ICRC",
     TRANSPORT_COUNTER(EndpointCounters, dropped[5])},
    {"rx_drop_unknown_qp", CounterUnit::kPackets,
     "no such queue pair in this lane; forwarded if another process has it",
     TRANSPORT_COUNTER(EndpointCounters, dropped[6])},
    {"rx_drop_translated", CounterUnit::kPackets,
     "of those with a wrong ICRC: right for the peer's own address, which is "
     "translated on the way (not every packet is checked)",
     TRANSPORT_COUNTER(EndpointCounters, translated_dropped)},
    {"translated_peers", CounterUnit::kEvents,
     "times that a peer was found at a translated address or port "
     "(RXE_USER_NAT)",
     TRANSPORT_COUNTER(EndpointCounters, translated_peers)},
    {"dc_connects", CounterUnit::kEvents,
     "connections that DC targets have accepted",
     TRANSPORT_COUNTER(EndpointCounters, dc_connects)},
    {"dc_evicted", CounterUnit::kEvents,
     "of these, closed while idle to make space for others",
     TRANSPORT_COUNTER(EndpointCounters, dc_evicted)},
    {"dc_key_violations", CounterUnit::kEvents,
     "DC connects with a wrong access key, dropped",
     TRANSPORT_COUNTER(EndpointCounters, dc_key_violations)},
};
static_assert(IsComplete(kEndpointCounters, sizeof(EndpointCounters)));
static_assert(static_cast<size_t>(Disposition::kBadIcrc) == 5 &&
              kDropKinds == 7);

}  // namespace transport

#endif  // TRANSPORT_BASE_COUNTERS_H_
