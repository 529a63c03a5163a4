// How far the peers at one address have got in answering what was sent to them.
#ifndef TRANSPORT_CONGESTION_ANSWER_ORDER_H_
#define TRANSPORT_CONGESTION_ANSWER_ORDER_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "transport/base/types.h"

namespace transport {

// A peer in software processes packets in the order in which its socket
// received them. While it answers packets that were sent before a given one,
// that one is not lost but waits for its turn. An address has several sockets,
// each with its own thread: the upper bits of the queue pair number tell them
// apart. Sockets that share an entry are confused: one of them may then be
// considered silent too early, as it would be without this class, or too late,
// because of the other's answers.
class AnswerOrder {
 public:
  // Queue pair `qpn` of the peer has answered at `now` what was sent at `sent`.
  void OnAnswer(uint32_t qpn, Time sent, Time now) {
    Entry& entry = entries_[IndexOf(qpn)];
    entry.sent = std::max(entry.sent, sent);
    entry.answered = now;
  }
  // The time since which a packet to queue pair `qpn`, sent at `sent`, counts
  // as unanswered: `sent`, or the last answer after it if no packet that was
  // sent later has been answered (its turn had not come).
  Time SilentSince(uint32_t qpn, Time sent) const {
    const Entry& entry = entries_[IndexOf(qpn)];
    return entry.sent <= sent ? std::max(sent, entry.answered) : sent;
  }

 private:
  static constexpr int kSlotShift = 12;  // of a queue pair number
  static constexpr size_t kEntries = 8;

  struct Entry {
    Time sent = -1;  // the latest that was answered
    Time answered = -1;
  };
  static size_t IndexOf(uint32_t qpn) { return (qpn >> kSlotShift) % kEntries; }

  std::array<Entry, kEntries> entries_;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_ANSWER_ORDER_H_
