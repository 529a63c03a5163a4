// The order in which queue pairs transmit (docs/architecture.md, "Transmit"):
// deficit round robin over bytes (Shreedhar and Varghese, 1995), in which those
// that have been idle go before those that always have something to send, and
// acknowledgements wait for nobody else's data.
#ifndef TRANSPORT_ENDPOINT_TURNS_H_
#define TRANSPORT_ENDPOINT_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint/endpoint_link.h"

namespace transport {

// Does not own the links that are in its lists, nor the lists of those that
// wait for a window, one for each path.
class Turns {
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
  bool empty() const { return active_.empty() && answers_.empty(); }
  size_t size() const { return std::max(active_.size(), answers_.size()); }
  // No queue pair is to have a turn, but for acknowledgements.
  bool active_empty() const { return active_.empty(); }

  // `link` may have requests or READ responses to send: it gets a turn.
  // Idempotent.
  void Activate(EndpointLink* link);
  // It has an acknowledgement to send, or the like. Idempotent.
  void Answer(EndpointLink* link);
  // It has data, and goes on when Wake is called for `waiting`. Idempotent.
  void Wait(EndpointLink* link, TurnList* waiting);
  // The first one that waits gets its turn.
  void Wake(TurnList* waiting);
  // It waits no longer. Idempotent.
  void StopWaiting(EndpointLink* link);
  // Its turn is over, whatever it has sent; also in its midst. The next one is
  // of one burst.
  void End(EndpointLink* link);
  // It has nothing to send. Idempotent.
  void Remove(EndpointLink* link);

  // Takes out the one that is to transmit now; null: none.
  struct Next {
    EndpointLink* link = nullptr;
    bool answers_only = false;  // it is another one's turn to send data
  };
  Next Take();
  // It has transmitted so many bytes in its turn, and has more to send at once.
  // Not for answers.
  void Transmitted(EndpointLink* link, size_t bytes, bool more);

 private:
  bool MayGoNow(const EndpointLink& link) const;
  void UseUp(EndpointLink* link);  // its turn: others have theirs
  void RemoveFromAnswers(EndpointLink* link);
  void Unlist(EndpointLink* link);  // but not from the answers
  // `in_front` of those of its place.
  void List(EndpointLink* link, Turn turn, TurnList* waiting, bool in_front);

  TurnList active_;
  AnswerList answers_;
  uint32_t listed_ = 0;  // active, or waiting for a window
  uint32_t ended_ = 0;   // turns that were used up, but for first ones
};

}  // namespace transport

#endif  // TRANSPORT_ENDPOINT_TURNS_H_
