// The order in which queue pairs transmit (docs/architecture.md, "Transmit"):
// deficit round robin over bytes (Shreedhar and Varghese, 1995), in which those
// that have been idle go before those that always have something to send, and
// acknowledgements wait for nobody's data.
#ifndef TRANSPORT_TURNS_H_
#define TRANSPORT_TURNS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "transport/endpoint_link.h"

namespace transport {

// Does not own the links that are in its lists, nor the lists of those that
// wait for a window, one for each path.
class Turns {
 public:
  // What a queue pair may send before others have their turns, in bytes on the
  // wire: four messages of 64 KiB, since what they read, a queue pair's state
  // and often its memory, is cold for the first only. A turn of 64 KiB gave
  // 1,024 queue pairs 0.7 of this one's bandwidth.
  static constexpr int32_t kQuantum = 256 * 1024;

  // No queue pair may transmit; how many may.
  bool empty() const { return active_.empty() && answers_.empty(); }
  size_t size() const { return std::max(active_.size(), answers_.size()); }
  // No queue pair is to have a turn, but for acknowledgements.
  bool active_empty() const { return active_.empty(); }

  // `link` may have requests or READ responses to send: it gets a turn, at once
  // if it has been idle and has not had its share since. Idempotent.
  void Activate(EndpointLink* link);
  // It has an acknowledgement to send, or the like. Idempotent.
  void Answer(EndpointLink* link);
  // It has data, and goes on when Wake is called for `waiting`. Idempotent.
  void Wait(EndpointLink* link, TurnList* waiting);
  // The first one that waits gets its turn.
  void Wake(TurnList* waiting);
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
  void Unlist(EndpointLink* link);  // but not from the answers
  // `resumes`: in the midst of its turn, and before others that are.
  void List(EndpointLink* link, Turn turn, TurnList* waiting, bool resumes);

  TurnList active_;
  AnswerList answers_;
  uint32_t listed_ = 0;  // active, or waiting for a window
  uint32_t ended_ = 0;   // turns: shares that were used up
};

}  // namespace transport

#endif  // TRANSPORT_TURNS_H_
