// What must hold for one of the queue pairs of endpoint_fuzz.cc.
#ifndef TESTS_FUZZ_ENDPOINT_WATCH_H_
#define TESTS_FUZZ_ENDPOINT_WATCH_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/base/counters.h"
#include "transport/base/qp_report.h"
#include "transport/sim/pair.h"

namespace fuzz {

// The upper half of each buffer is what its owner sends; the peer's lower half
// is where it arrives, at the same offset.
inline constexpr uint32_t kHalf = 12 * 1024;  // bytes

// Ends the process, as libFuzzer wants it.
void Require(bool condition, std::string_view what);

// All that a packet could change.
struct Snapshot {
  explicit Snapshot(const sim::Pair::Side& side);

  const sim::Pair::Side* side;
  transport::QpReport report;
  transport::EndpointCounters endpoint;
  uint64_t copied_from;
  uint64_t copied_to;
  uint64_t atomics;
  uint64_t completions;
  bool has_transmit;
  transport::Time next_timeout;
};

class Watch {
 public:
  // `peer_port`: from which the peer sends.
  Watch(sim::Pair::Side& side, uint16_t peer_port)
      : side_(&side), peer_port_(peer_port) {}

  // --- What the application does.
  uint64_t NextWrId() const { return posted_; }
  void NotePosted(int error) { posted_ += error == 0; }
  uint64_t NextReceiveId() const { return receives_posted_; }
  void NoteReceivePosted(int error) { receives_posted_ += error == 0; }
  // The bytes at `offset` of the peer's buffer will be ours; the peer has read
  // ours into its own.
  void NoteWritten(uint32_t offset, uint32_t length) {
    written_.push_back({offset, length});
  }
  void NoteReadBy(uint32_t offset, uint32_t length) {
    NoteWritten(offset, length);
  }
  void OnReset();

  // --- What has happened.
  // A batch has been received since `before`. `to_drop`: all of it is.
  void NoteReceived(const Snapshot& before, bool to_drop, transport::Time now);
  // Takes completions, and looks at everything.
  void Check(transport::Time now);
  // The peer's port is known, and what comes from another one is not believed.
  bool PortIsSure(transport::Time now) const;
  bool AllCompleted() const { return completed_ == posted_; }
  uint64_t receives_left() const {
    return receives_posted_ - receives_completed_;
  }
  int errors() const { return errors_; }
  void RequireWritten(const sim::Pair::Side& peer) const;

 private:
  void TakeCompletions();

  sim::Pair::Side* side_;
  uint16_t peer_port_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t receives_posted_ = 0;
  uint64_t receives_completed_ = 0;
  int errors_ = 0;
  // Since the last reset.
  bool send_failed_ = false;
  bool receive_failed_ = false;
  std::vector<std::pair<uint32_t, uint32_t>> written_;
  // When the peer was heard of last, or earlier than that.
  uint64_t seen_packets_ = 0;
  transport::Time checked_ = 0;
  transport::Time heard_ = 0;
};

}  // namespace fuzz

#endif  // TESTS_FUZZ_ENDPOINT_WATCH_H_
