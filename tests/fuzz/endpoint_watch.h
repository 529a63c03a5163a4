// The invariants of one queue pair of endpoint_fuzz.cc.
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

// Each end sends from the upper half of its buffer; it arrives in the peer's
// lower half at the same offset.
inline constexpr uint32_t kHalf = 12 * 1024;  // bytes

// Aborts if `condition` is false, as libFuzzer expects.
void Require(bool condition, std::string_view what);

// Everything that a packet could change.
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
  // `peer_port`: the source port of the peer.
  Watch(sim::Pair::Side& side, uint16_t peer_port)
      : side_(&side), peer_port_(peer_port) {}

  // --- Calls for actions of the application.
  uint64_t NextWrId() const { return posted_; }
  void NotePosted(int error) { posted_ += error == 0; }
  uint64_t NextReceiveId() const { return receives_posted_; }
  void NoteReceivePosted(int error) { receives_posted_ += error == 0; }
  // Bytes at `offset` of the peer's buffer will be overwritten by this end, or
  // the peer has read this end's bytes into its own buffer.
  void NoteWritten(uint32_t offset, uint32_t length) {
    written_.push_back({offset, length});
  }
  void NoteReadBy(uint32_t offset, uint32_t length) {
    NoteWritten(offset, length);
  }
  void OnReset();

  // --- Calls for results.
  // A batch was received since `before`. `to_drop`: all of it must be dropped.
  void NoteReceived(const Snapshot& before, bool to_drop, transport::Time now);
  // Takes completions and checks all invariants.
  void Check(transport::Time now);
  // Whether the peer's port is pinned, so that packets from other ports are
  // dropped.
  bool PortIsPinned(transport::Time now) const;
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
  // The last sign of life of the peer, or an earlier time.
  uint64_t seen_packets_ = 0;
  transport::Time checked_ = 0;
  transport::Time heard_ = 0;
};

}  // namespace fuzz

#endif  // TESTS_FUZZ_ENDPOINT_WATCH_H_
