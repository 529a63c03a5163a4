// Counters of a port. Guarded by its lane's lock.
#ifndef RXE_USER_PORTS_PORT_COUNTERS_H_
#define RXE_USER_PORTS_PORT_COUNTERS_H_

#include <cstdint>

#include "transport/base/counters.h"

namespace rxe_user {

struct PortCounters {
  uint64_t rx_calls = 0;
  uint64_t rx_arrivals = 0;
  uint64_t rx_truncated = 0;
  uint64_t rx_overflow = 0;
  uint64_t rx_errors = 0;
  uint64_t tx_calls = 0;
  uint64_t tx_bursts = 0;
  uint64_t tx_blocked = 0;
  uint64_t tx_split = 0;
  uint64_t tx_too_long = 0;
  uint64_t tx_unreachable = 0;
  uint64_t tx_errors = 0;
  uint64_t memory_rx_batches = 0;
  uint64_t memory_rx_bytes = 0;
  uint64_t memory_tx_bursts = 0;
  uint64_t memory_tx_bytes = 0;
  uint64_t memory_tx_full = 0;
  uint64_t memory_tx_dropped = 0;
  uint64_t memory_wakes = 0;
  uint64_t memory_broken = 0;
};

inline constexpr transport::Counter kPortCounters[] = {
    {"rx_calls", transport::CounterUnit::kEvents,
     "system calls that ask for datagrams",
     TRANSPORT_COUNTER(PortCounters, rx_calls)},
    {"rx_batches", transport::CounterUnit::kEvents,
     "received datagrams, each as merged by GRO",
     TRANSPORT_COUNTER(PortCounters, rx_arrivals)},
    {"rx_drop_too_long", transport::CounterUnit::kPackets,
     "dropped: longer than any RoCE packet",
     TRANSPORT_COUNTER(PortCounters, rx_truncated)},
    {"rx_socket_overflow", transport::CounterUnit::kPackets,
     "dropped: the socket's receive buffer was full",
     TRANSPORT_COUNTER(PortCounters, rx_overflow)},
    {"rx_err", transport::CounterUnit::kEvents,
     "receive calls that returned an error",
     TRANSPORT_COUNTER(PortCounters, rx_errors)},
    {"tx_calls", transport::CounterUnit::kEvents, "system calls that send",
     TRANSPORT_COUNTER(PortCounters, tx_calls)},
    {"tx_sends", transport::CounterUnit::kEvents, "bursts handed to the port",
     TRANSPORT_COUNTER(PortCounters, tx_bursts)},
    {"tx_blocked", transport::CounterUnit::kEvents,
     "times that a send had to wait for space in a socket buffer",
     TRANSPORT_COUNTER(PortCounters, tx_blocked)},
    {"tx_split", transport::CounterUnit::kEvents,
     "bursts that had to be sent in smaller parts",
     TRANSPORT_COUNTER(PortCounters, tx_split)},
    {"tx_drop_too_long", transport::CounterUnit::kEvents,
     "sends dropped: longer than the MTU of the path",
     TRANSPORT_COUNTER(PortCounters, tx_too_long)},
    {"tx_drop_unreachable", transport::CounterUnit::kEvents,
     "sends dropped: no route to the destination",
     TRANSPORT_COUNTER(PortCounters, tx_unreachable)},
    {"send_err", transport::CounterUnit::kEvents,
     "sends dropped: refused by the system for another reason",
     TRANSPORT_COUNTER(PortCounters, tx_errors)},
    {"memory_rx_batches", transport::CounterUnit::kEvents,
     "bursts that arrived through memory shared with another process",
     TRANSPORT_COUNTER(PortCounters, memory_rx_batches)},
    {"memory_rx_bytes", transport::CounterUnit::kBytes,
     "bytes of their packets, BTH to ICRC",
     TRANSPORT_COUNTER(PortCounters, memory_rx_bytes)},
    {"memory_tx_sends", transport::CounterUnit::kEvents,
     "bursts sent through memory shared with another process",
     TRANSPORT_COUNTER(PortCounters, memory_tx_bursts)},
    {"memory_tx_bytes", transport::CounterUnit::kBytes,
     "bytes of their packets, BTH to ICRC",
     TRANSPORT_COUNTER(PortCounters, memory_tx_bytes)},
    {"memory_tx_full", transport::CounterUnit::kEvents,
     "times that a send had to wait for space in that memory",
     TRANSPORT_COUNTER(PortCounters, memory_tx_full)},
    {"memory_tx_dropped", transport::CounterUnit::kEvents,
     "bursts dropped: the other process did not read for long",
     TRANSPORT_COUNTER(PortCounters, memory_tx_dropped)},
    {"memory_wakes", transport::CounterUnit::kEvents,
     "system calls that wake the receiver of such bursts",
     TRANSPORT_COUNTER(PortCounters, memory_wakes)},
    {"memory_broken", transport::CounterUnit::kEvents,
     "such memory given up: what the other process wrote was impossible",
     TRANSPORT_COUNTER(PortCounters, memory_broken)},
};
static_assert(transport::IsComplete(kPortCounters, sizeof(PortCounters)));

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_PORT_COUNTERS_H_
