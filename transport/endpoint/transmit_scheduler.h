// The order in which queue pairs transmit (docs/design/transport.md, "Transmit
// scheduler"): deficit round robin over bytes (Shreedhar and Varghese, 1995),
// in which those that have been idle go before those that always have something
// to send, and acknowledgements wait for nobody else's data.
#ifndef TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_
#define TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint/endpoint_link.h"

namespace transport {

// Does not own the links that are in its lists, nor the lists of those that
// wait for a window, one for each path.
class TransmitScheduler {
 public:
  // What a queue pair may send before others have their turns, in bytes on the
  // wire: four messages of 64 KiB, since a queue pair's state, and often its
  // memory, is cold for the first only. 1,024 queue pairs carry a third more so
  // than by turns of one message.
  static constexpr int32_t kQuantum = 256 * 1024;
  // The same for one that has been idle, whose turn goes before those of all
  // others, even in their midst: one message.
  static constexpr int32_t kFirstQuantum = 64 * 1024;

  // No queue pair may transmit; about how many may, one at least if any may.
  bool empty() const { return active_.empty() && acks_.empty(); }
  size_t size() const { return std::max(active_.size(), acks_.size()); }
  // No queue pair is to have a turn, but for acknowledgements.
  bool active_empty() const { return active_.empty(); }

  // `link` may have requests or READ responses to send: it gets a turn.
  // Idempotent.
  void Activate(EndpointLink* link);
  // It has an acknowledgement to send, or the like. Idempotent.
  void AddAcks(EndpointLink* link);
  // It has data, and goes on when Wake is called for `waiting`. Idempotent.
  void Wait(EndpointLink* link, ScheduleList* waiting);
  // The first one that waits gets its turn.
  void Wake(ScheduleList* waiting);
  // It waits no longer. Idempotent.
  void StopWaiting(EndpointLink* link);
  // It has no data to send. Whether it was the next to use its path's window:
  // then another one is to be woken. Idempotent.
  bool Deactivate(EndpointLink* link);
  // It has no acknowledgement to send. Idempotent.
  void RemoveAcks(EndpointLink* link);
  // Its turn is over, whatever it has sent; also in its midst. The next one is
  // of one burst.
  void EndTurn(EndpointLink* link);
  // It has nothing to send. Idempotent.
  void Remove(EndpointLink* link);

  // The one that is to transmit now; null: none.
  struct Next {
    EndpointLink* link = nullptr;
    bool acks_only = false;  // it is another one's turn to send data
  };
  Next Peek() const;
  // Takes out what Peek has returned, not null.
  void Take(const Next& next);
  // It has transmitted `bytes` in its turn; `more`: it has more to send at
  // once. Not for a turn of acknowledgements only.
  void Transmitted(EndpointLink* link, size_t bytes, bool more);

 private:
  bool MayGoNow(const EndpointLink& link) const;
  void UseUp(EndpointLink* link);   // its turn: others have theirs
  void Unlist(EndpointLink* link);  // but not from the ACKs
  // `in_front` of those of its priority.
  void List(EndpointLink* link, Schedule schedule, ScheduleList* waiting,
            bool in_front);

  ScheduleList active_;
  AckList acks_;
  uint32_t listed_ = 0;  // active, or waiting for a window
  uint32_t ended_ = 0;   // turns that were used up, but for first ones
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TRANSMIT_SCHEDULER_H_
