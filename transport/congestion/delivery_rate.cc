#include "transport/congestion/delivery_rate.h"

namespace transport {
namespace {

// The rate is measured over this many round trips, at least.
constexpr Time kRoundTrips = 2;
// At most one byte in this many is lost by chance.
constexpr uint64_t kBytesPerChanceLoss = 16;
// HasHeavyLoss looks at about this many acknowledged bytes,
constexpr uint64_t kLossMemory = 4 * 1024 * 1024;
// and needs more lost bytes than this.
constexpr uint64_t kMinLost = 64 * 1024;

}  // namespace

bool DeliveryRate::HasHeavyLoss() const {
  return lost_ > kMinLost && lost_ * kBytesPerChanceLoss > acknowledged_;
}

void DeliveryRate::Measure(Time smoothed_rtt, Time now) {
  const Time interval = now - since_;
  if (interval < kRoundTrips * smoothed_rtt) return;
  const uint64_t rate = bytes_ * static_cast<uint64_t>(kMillisecond) /
                        static_cast<uint64_t>(interval);
  bytes_per_ms_ = since_ == 0 ? rate : (3 * bytes_per_ms_ + rate) / 4;
  acknowledged_ += bytes_;
  if (acknowledged_ > kLossMemory) {
    acknowledged_ /= 2;
    lost_ /= 2;
  }
  bytes_ = 0;
  since_ = now;
}

}  // namespace transport
