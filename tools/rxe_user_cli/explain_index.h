// The events and packets of a time line, by file and queue pair.
#ifndef TOOLS_RXE_USER_CLI_EXPLAIN_INDEX_H_
#define TOOLS_RXE_USER_CLI_EXPLAIN_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "tools/trace/timeline.h"
#include "wire/address.h"

namespace rxe_user_cli {

// One file. Everything is in the order of the time line, which must outlive
// this. Thread: one.
class FileIndex {
 public:
  struct QueuePair {
    std::vector<const trace::TimedEvent*> events;
    std::vector<const trace::Arrow*> sent;
    std::vector<const trace::Arrow*> received;
  };

  // All files of `timeline`, whose arrows are analyzed.
  static std::vector<FileIndex> OfFiles(const trace::Timeline& timeline);

  const trace::Recording& recording() const { return *recording_; }
  const std::map<uint32_t, QueuePair>& queue_pairs() const {
    return queue_pairs_;
  }
  const std::vector<const trace::TimedEvent*>& calls() const { return calls_; }
  // Fault rules.
  const std::vector<const trace::TimedEvent*>& rules() const { return rules_; }
  // The number of packets that full receive buffers dropped until `end`. The
  // kernel reports drops with the next packet that it can keep. So reports also
  // count that the process got while it read the packets that had arrived until
  // `end`, and one report after that.
  uint64_t OverflowUntil(int64_t end) const;
  // Times of the last event, and of the last event or packet; 0 if there is
  // none.
  int64_t last_event() const { return last_event_; }
  int64_t last() const { return last_; }
  // Whether a receive was posted to a shared receive queue until `end`.
  bool HasShared(int64_t end) const { return first_shared_ <= end; }
  // Whether, until `end`, there was a queue pair with a number of this slot,
  // and with this address or none yet.
  bool HasSlot(uint16_t slot, const wire::IpAddress& address,
               int64_t end) const;

 private:
  explicit FileIndex(const trace::Recording& recording)
      : recording_(&recording) {}
  void Add(const trace::TimedEvent& timed);
  void PacketsOf(uint32_t qpn,
                 std::vector<const trace::Arrow*> QueuePair::*list,
                 const trace::Arrow& arrow);
  void ExtendTo(int64_t time);

  const trace::Recording* recording_;
  std::map<uint32_t, QueuePair> queue_pairs_;
  std::vector<const trace::TimedEvent*> calls_;
  std::vector<const trace::TimedEvent*> rules_;
  std::vector<std::pair<int64_t, uint64_t>> overflows_;  // sum until each time
  // For each received packet, in the order of reading: when the process read
  // it, and the earliest arrival of this and all later packets.
  std::vector<std::pair<int64_t, int64_t>> reads_;
  int64_t last_event_ = 0;
  int64_t last_ = 0;
  int64_t first_shared_ = std::numeric_limits<int64_t>::max();
  // When a queue pair was first seen.
  std::map<std::pair<uint16_t, wire::IpAddress>, int64_t> slots_;
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_EXPLAIN_INDEX_H_
