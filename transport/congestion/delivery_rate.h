// At what rate a path delivers, and how much it loses.
#ifndef TRANSPORT_CONGESTION_DELIVERY_RATE_H_
#define TRANSPORT_CONGESTION_DELIVERY_RATE_H_

#include <cstdint>

#include "transport/base/types.h"

namespace transport {

class DeliveryRate {
 public:
  // Bytes that are delivered in `interval` ns.
  uint64_t BytesIn(Time interval) const {
    return bytes_per_ms_ * static_cast<uint64_t>(interval) / kMillisecond;
  }
  // More is lost than by chance on a link.
  bool HasHeavyLoss() const;

  // `bytes` were acknowledged. `smoothed_rtt`: ns, or 0.
  void OnAcknowledged(uint64_t bytes, Time smoothed_rtt, Time now) {
    bytes_ += bytes;
    if (now - since_ >= kMinInterval) Measure(smoothed_rtt, now);
  }
  void OnLost(uint64_t bytes) { lost_ += bytes; }

 private:
  // Answers come in batches.
  static constexpr Time kMinInterval = 200 * kMicrosecond;

  void Measure(Time smoothed_rtt, Time now);

  uint64_t bytes_ = 0;  // acknowledged since since_
  Time since_ = 0;
  uint64_t bytes_per_ms_ = 0;  // before since_, smoothed
  // Bytes lost, and acknowledged, recently.
  uint64_t lost_ = 0;
  uint64_t acknowledged_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_CONGESTION_DELIVERY_RATE_H_
