// What a sender of unreliable connections knows of what it has sent, if its
// peer says (docs/design/transport.md, "Unreliable connections"): some packets
// ask, a peer like us answers by the PSN of the last one that did, and what was
// sent up to there is no longer in flight. Nothing is ever sent again.
//
// A peer that has never answered, or has not for a while, leaves it open:
// then the path sets the pace, and packets go on asking.
#ifndef TRANSPORT_UC_UC_FLIGHT_H_
#define TRANSPORT_UC_UC_FLIGHT_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/types.h"
#include "transport/congestion/path.h"
#include "wire/headers.h"

namespace transport {

class UcFlight {
 public:
  // After so many time-outs in a row, each twice as long as the one before it
  // but none longer than kLongestWait, the peer does not answer any more: 127
  // ms at least, 2 s at most. What is in flight meanwhile keeps others from the
  // window of the path, and nobody learns more by waiting longer.
  static constexpr int kMostTimeouts = 7;
  static constexpr Time kLongestWait = 250 * kMillisecond;
  // Asked and not answered, at once.
  static constexpr size_t kMostAsked = 8;
  // A peer that does not answer is asked so many times in this interval, then
  // in one twice as long, and so on: one that is like us was silent for half of
  // the time until it is asked again, and others do not have to do with it.
  static constexpr Time kAskInterval = 100 * kMillisecond;
  static constexpr int kMostDoublings = 10;

  // The AETH of an answer: its credit count is not one of messages, but of two
  // to its power KiB, which are in the receive buffer.
  static wire::Aeth Answer(uint64_t receive_buffer, uint32_t missed);

  // --- Getters.
  // The peer answers: the path's window says what may be sent.
  bool closed_loop() const { return answers_; }
  // In a closed loop: more may be sent without an answer, window permitting.
  bool open() const {
    return bytes_ == 0 || (timeouts_ == 0 && bytes_ < limit_);
  }
  // How many packets of `cost` bytes may be sent, one behind the other; in an
  // open loop whatever the path's pace leaves to.
  uint64_t PacketsAllowed(const Path& path, uint64_t cost) const;
  // After how many of them, at least one, one asks.
  uint64_t PacketsToAsk(const Path& path, uint64_t cost, Time now) const;
  // Whether the last one of packets that cost so much in sum asks. `more`:
  // others follow at once.
  bool WantsAsk(const Path& path, uint64_t cost, bool more, Time now) const;
  // When OnTimer wants to be called.
  Time Deadline(const Path& path) const {
    return bytes_ == 0 ? kNever
                       : since_ + std::min(path.ProbeTimeout() << timeouts_,
                                           kLongestWait);
  }
  // Whether an answer that names `psn` is one to a packet that asked.
  bool Expects(uint32_t psn) const { return Find(psn) < asked_; }

  // --- Inputs. Costs are bytes with Path::kPacketOverhead for every packet.
  void OnSent(Path* path, uint64_t cost, Time now);
  void OnAsked(uint32_t psn, Time now);  // by the last packet of OnSent
  // The peer has received `psn`, and missed as many packets since it began as
  // MSN says, each of which cost up to `cost`. False if it was not asked.
  bool OnAnswer(Path* path, uint32_t psn, const wire::Aeth& aeth, uint64_t cost,
                Time now);
  void OnTimer(Path* path, Time now);
  // Nothing is in flight any more, and whatever may be answered late does not
  // count.
  void Leave(Path* path);

 private:
  struct Asked {
    uint32_t psn = 0;
    uint64_t bytes = 0;  // in flight, from the one before it
    Time sent = 0;
  };

  Asked& at(size_t index) { return ring_[(first_ + index) % kMostAsked]; }
  const Asked& at(size_t index) const {
    return ring_[(first_ + index) % kMostAsked];
  }
  bool MayAsk(Time now) const {
    return asked_ < kMostAsked ||
           (answers_ ? at(0).bytes == 0  // given up
                     : now - at(0).sent >= kAskInterval << doublings_);
  }
  size_t Find(uint32_t psn) const;  // asked_: not there
  void Forget(size_t count);        // the oldest
  static uint64_t AskEvery(const Path& path);

  std::array<Asked, kMostAsked> ring_;
  size_t first_ = 0;
  size_t asked_ = 0;
  uint64_t bytes_ = 0;    // in flight
  uint64_t unasked_ = 0;  // sent since the last one that asked
  Time since_ = 0;        // the last answer, or since when any are in flight
  uint64_t limit_ = Path::kInitialWindow;  // of bytes_: the peer's socket
  uint32_t missed_ = 0;                    // as the peer has last said
  int timeouts_ = 0;                       // in a row
  int doublings_ = 0;                      // of kAskInterval
  bool answers_ = false;
  bool asks_next_ = false;  // what was before is gone unasked
};

}  // namespace transport

#endif  // TRANSPORT_UC_UC_FLIGHT_H_
