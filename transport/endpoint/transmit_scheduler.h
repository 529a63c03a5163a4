// The order in which queue pairs transmit (docs/design/transport.md, "Transmit
// scheduler"): deficit round robin over bytes (Shreedhar and Varghese, 1995).
// Queue pairs that were idle go before those that always have data. ACKs do not
// wait for other queue pairs' data. They may end the first burst of a queue
// pair that was idle (Endpoint::TransmitAnswers).
#ifndef TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_
#define TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint/endpoint_link.h"

namespace transport {

// Does not own the links, nor the per-path lists of links that wait for a
// window.
class TransmitScheduler {
 public:
  // Quantum of a turn in wire bytes: four messages of 64 KiB. A queue pair's
  // state, and often its memory, is cold only for the first message: 1,024
  // queue pairs carry a third more than with turns of one message.
  static constexpr int32_t kQuantum = 256 * 1024;
  // Quantum of a queue pair that was idle: one message. Its turn comes before
  // those of all others, and interrupts a turn that has begun.
  static constexpr int32_t kFirstQuantum = 64 * 1024;

  // Whether no link may transmit.
  bool empty() const { return active_.empty() && acks_.empty(); }
  // About how many links may transmit; 0 only if none may.
  size_t size() const { return std::max(active_.size(), acks_.size()); }
  // Whether no link has a turn for data.
  bool active_empty() const { return active_.empty(); }

  // `link` may have requests or READ responses to send: it gets a turn.
  // Idempotent.
  void Activate(EndpointLink* link);
  // `link` has an ACK, NAK or CNP to send. Idempotent.
  void AddAcks(EndpointLink* link) {
    if (link->acks) return;
    link->acks = true;
    acks_.InsertBehind(acks_.back(), link);
  }
  // `link` has data, but waits until Wake is called for `waiting`. Idempotent.
  void Wait(EndpointLink* link, ScheduleList* waiting);
  // Gives the first waiting link its turn.
  void Wake(ScheduleList* waiting);
  // Takes `link` out of its waiting list. Idempotent.
  void StopWaiting(EndpointLink* link);
  // `link` has no data to send. True if it was the next to use its path's
  // window: the caller must wake another one. Idempotent.
  bool Deactivate(EndpointLink* link);
  // `link` has no ACKs to send. Idempotent.
  void RemoveAcks(EndpointLink* link) {
    if (!link->acks) return;
    link->acks = false;
    acks_.Remove(link);
  }
  // Ends the turn of `link`, even in its middle. Its next turn is one burst.
  void EndTurn(EndpointLink* link);
  // `link` has nothing to send. Idempotent.
  void Remove(EndpointLink* link);

  // The link to transmit now; null: none.
  struct Next {
    EndpointLink* link = nullptr;
    bool acks_only = false;  // another link has the turn for data
  };
  Next Peek() const {
    EndpointLink* const acks = acks_.front();
    if (acks == nullptr) return {.link = active_.front()};
    return {.link = acks, .acks_only = !MayTransmitNow(*acks)};
  }
  // The link with the next turn for data, if it was idle before; null: none.
  EndpointLink* NextFresh() const {
    EndpointLink* const next = active_.front();
    return next != nullptr && next->priority == Priority::kFresh ? next
                                                                 : nullptr;
  }
  // Removes the non-null result of Peek from its lists.
  void Take(const Next& next) {
    if (!next.acks_only) Unlist(next.link);
    RemoveAcks(next.link);
  }
  // `link` has transmitted `bytes` in its turn; `more`: it has more to send
  // now. Not called for turns of ACKs only.
  void Transmitted(EndpointLink* link, size_t bytes, bool more);

 private:
  bool MayTransmitNow(const EndpointLink& link) const;
  void FinishTurn(EndpointLink* link);  // ends its turn
  void Unlist(EndpointLink* link);      // but not from acks_
  // `in_front`: before others of its priority.
  void List(EndpointLink* link, Schedule schedule, ScheduleList* waiting,
            bool in_front);

  ScheduleList active_;
  AckList acks_;
  uint32_t listed_ = 0;  // links that are active or wait for a window
  uint32_t ended_ = 0;   // turns that were used up, without first ones
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_
