// Where a requester stands in the sequence of its packets.
//
// Sequence numbers are 64 bits wide and start at 0 with the first packet. The
// PSN on the wire is the initial PSN plus the sequence number, modulo 2^24 (IBA
// vol. 1, 9.2). A work request takes a range of them when it is begun: one for
// each request packet or, for a READ, one for each response packet.
//
//    una          nxt              max
//     |-- sent --->|-- to resend -->|-- never sent
#ifndef TRANSPORT_RC_SEND_SEQUENCE_H_
#define TRANSPORT_RC_SEND_SEQUENCE_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "transport/congestion/path.h"
#include "transport/qp/send_queue.h"
#include "wire/psn.h"

namespace transport {

// No sequence number, and no work request.
inline constexpr uint64_t kNoSequence = std::numeric_limits<uint64_t>::max();

// Costs are bytes as Path counts them, with Path::kPacketOverhead for each
// packet.
struct SendSequence {
  uint32_t initial_psn = 0;  // of sequence number 0
  uint32_t mtu = 1024;       // path MTU, bytes
  uint64_t una = 0;          // the oldest that is not acknowledged
  uint64_t nxt = 0;          // the next to send
  uint64_t nxt_index = 0;    // work request of `nxt`; `begun` at the very end
  uint64_t max = 0;          // the next that was never sent
  // The peer has received everything before this. READs and atomics before it
  // may lack their responses.
  uint64_t acknowledged = 0;
  // Work requests [head, begun) have sequence numbers; `begun` may be next.
  uint64_t begun = 0;
  uint64_t next_cost = 0;  // of everything that has been begun
  uint64_t una_cost = 0;   // of everything before `una`

  // Something is sent and not acknowledged. False after a rewind, until the
  // first packet is retransmitted.
  bool outstanding() const { return una < nxt; }

  uint32_t PsnOf(uint64_t seq) const {
    return wire::PsnAdd(initial_psn, static_cast<int64_t>(seq));
  }
  // The sequence number nearest to `una`; negative before the first.
  int64_t SeqOf(uint32_t psn) const {
    return static_cast<int64_t>(una) + wire::PsnDiff(psn, PsnOf(una));
  }
  // PSNs that `bytes` take; an empty message takes one.
  uint32_t PacketsOf(uint32_t bytes) const {
    return std::max<uint32_t>(
        1, static_cast<uint32_t>((uint64_t{bytes} + mtu - 1) / mtu));
  }

  // Gives the next work request its sequence numbers. Everything before it has
  // been sent.
  void Begin(SendWqe* wqe) {
    wqe->first = max;
    wqe->packets = PacketsOf(wqe->length);
    wqe->cost = next_cost;
    next_cost += CostOf(*wqe);
    ++begun;
  }

  uint64_t PacketCost() const { return mtu + Path::kPacketOverhead; }
  // The cost of all packets of `wqe`.
  static uint64_t CostOf(const SendWqe& wqe) {
    return wqe.length + wqe.packets * Path::kPacketOverhead;
  }
  // The cost of everything before `seq`, which lies in `wqe` or is its end.
  uint64_t CostBefore(const SendWqe& wqe, uint64_t seq) const {
    return seq >= wqe.end() ? wqe.cost + CostOf(wqe)
                            : wqe.cost + (seq - wqe.first) * PacketCost();
  }
  // The same for work request `index`, which may be `begun`.
  uint64_t CostBefore(const SendQueue& queue, uint64_t index,
                      uint64_t seq) const {
    return index == begun ? next_cost : CostBefore(queue.at(index), seq);
  }
  // The begun work request that contains `seq`, which is in [una, max).
  uint64_t IndexOf(const SendQueue& queue, uint64_t seq) const {
    uint64_t low = queue.head();
    uint64_t high = begun;
    while (high - low > 1) {
      const uint64_t middle = low + (high - low) / 2;
      (queue.at(middle).first <= seq ? low : high) = middle;
    }
    return low;
  }
};

}  // namespace transport

#endif  // TRANSPORT_RC_SEND_SEQUENCE_H_
