// What a UC sender has in flight, if its peer reports it
// (docs/design/transport.md, "Unreliable connections"). Some packets request a
// report. A peer like ours answers with the last PSN that did; packets up to it
// are no longer in flight. Nothing is retransmitted.
//
// If the peer has never answered, or no longer does, the loop is open: the path
// paces the packets, and some still request reports.
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
  // After this many timeouts in a row, the peer counts as not reporting. Each
  // timeout is twice the previous one, up to kLongestWait: 127 ms to 2 s in
  // total. Meanwhile its bytes in flight take the path's window from others.
  static constexpr int kMaxTimeouts = 7;
  static constexpr Time kLongestWait = 250 * kMillisecond;
  // Maximum of requests for a report that are outstanding.
  static constexpr size_t kMaxAsked = 8;
  // A peer that does not report gets at most kMaxAsked requests for a report
  // in this interval, then in twice the interval, and so on. So a peer like
  // ours that was silent is asked again after at most twice its silence.
  static constexpr Time kAskInterval = 100 * kMillisecond;
  static constexpr int kMaxDoublings = 10;

  // The AETH of a report. Its credit field is the log2 of the receive buffer in
  // KiB, not a number of messages.
  static wire::Aeth Report(uint64_t receive_buffer, uint32_t missed);

  // --- Getters.
  // The peer sends reports, so the path's window limits the flight.
  bool closed_loop() const { return reports_; }
  // In a closed loop: more may be sent without a report, if the window permits.
  bool open() const {
    return bytes_ == 0 || (timeouts_ == 0 && bytes_ < limit_);
  }
  // How many packets of `cost` bytes may be sent now; not limited here in an
  // open loop, where the path paces.
  uint64_t PacketsAllowed(const Path& path, uint64_t cost) const;
  // Number of packets, at least one, until one should request a report.
  uint64_t PacketsToAsk(const Path& path, uint64_t cost, Time now) const;
  // Whether the last of packets that cost `cost` in total should request a
  // report. `more`: other packets follow at once.
  bool WantsAsk(const Path& path, uint64_t cost, bool more, Time now) const;
  // When OnTimer must be called.
  Time Deadline(const Path& path) const {
    return bytes_ == 0 ? kNever
                       : since_ + std::min(path.ProbeTimeout() << timeouts_,
                                           kLongestWait);
  }
  // Whether a report of `psn` answers an outstanding request.
  bool Expects(uint32_t psn) const { return Find(psn) < asked_; }

  // --- Inputs. Costs are bytes, with Path::kPacketOverhead added for every
  // packet.
  void OnSent(Path* path, uint64_t cost, Time now);
  void OnAsked(uint32_t psn, Time now);  // for the last packet of OnSent
  // The peer reports `psn`, and in the MSN field the packets that it has missed
  // since it began, each of at most `cost`. False if no report of `psn` was
  // requested.
  bool OnReport(Path* path, uint32_t psn, const wire::Aeth& aeth, uint64_t cost,
                Time now);
  void OnTimer(Path* path, Time now);
  // Removes everything from the flight. A late report returns no bytes.
  void Leave(Path* path);

 private:
  struct Asked {
    uint32_t psn = 0;
    uint64_t bytes = 0;  // in flight since the previous request
    Time sent = 0;
  };

  Asked& at(size_t index) { return ring_[(first_ + index) % kMaxAsked]; }
  const Asked& at(size_t index) const {
    return ring_[(first_ + index) % kMaxAsked];
  }
  bool MayAsk(Time now) const {
    return asked_ < kMaxAsked ||
           (reports_ ? at(0).bytes == 0  // timed out
                     : now - at(0).sent >= kAskInterval << doublings_);
  }
  size_t Find(uint32_t psn) const;  // asked_ if absent
  void Forget(size_t count);        // the oldest ones
  static uint64_t AskEvery(const Path& path);

  std::array<Asked, kMaxAsked> ring_;
  size_t first_ = 0;
  size_t asked_ = 0;
  uint64_t bytes_ = 0;    // in flight
  uint64_t unasked_ = 0;  // sent since the last request for a report
  Time since_ = 0;        // last report, or start of the flight
  // Limit of bytes_, by the peer's receive buffer.
  uint64_t limit_ = Path::kInitialWindow;
  uint32_t missed_ = 0;  // from the last report
  int timeouts_ = 0;     // in a row
  int doublings_ = 0;    // of kAskInterval
  bool reports_ = false;
  bool asks_next_ = false;  // the flight timed out without a request
};

}  // namespace transport

#endif  // TRANSPORT_UC_UC_FLIGHT_H_
