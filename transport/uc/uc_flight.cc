#include "transport/uc/uc_flight.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "wire/aeth.h"
#include "wire/psn.h"

namespace transport {
namespace {

// Maximum bytes between requests for a report: little overhead for the
// receiver. Smaller windows use a quarter.
constexpr uint64_t kMaxUnasked = 64 * 1024;
// More than a peer can miss between two reports.
constexpr uint32_t kMaxMissed = 1 << 16;

// Window limit for a receive buffer of 2^`code` KiB. The kernel charges a
// packet up to 2.4 times its cost in the window (Path).
uint64_t LimitOf(uint8_t code) {
  if (code == wire::kCreditNone) return Path::kInitialWindow;
  return std::clamp((uint64_t{1024} << code) * 2 / 5, Path::kInitialWindow,
                    Path::kMaxWindow);
}

}  // namespace

wire::Aeth UcFlight::Report(uint64_t receive_buffer, uint32_t missed) {
  const uint64_t kib = receive_buffer / 1024;
  const int code =
      std::min<int>(static_cast<int>(std::bit_width(kib)), wire::kCreditNone) -
      1;
  return {.syndrome = wire::MakeAckSyndrome(
              kib == 0 ? wire::kCreditNone : static_cast<uint8_t>(code)),
          .msn = missed & wire::kPsnMask};
}

uint64_t UcFlight::AskEvery(const Path& path) {
  return std::min(path.window() / 4, kMaxUnasked);
}

uint64_t UcFlight::PacketsAllowed(const Path& path, uint64_t cost) const {
  if (!reports_) return std::numeric_limits<uint64_t>::max();
  if (timeouts_ > 0) return bytes_ == 0 && path.MaySend(cost) ? 1 : 0;
  if (!open()) return 0;
  const uint64_t own =
      bytes_ < limit_ ? (limit_ - bytes_ + cost - 1) / cost : 1;
  return std::min(path.MaySendPackets(cost), own);
}

uint64_t UcFlight::PacketsToAsk(const Path& path, uint64_t cost,
                                Time now) const {
  if (!MayAsk(now)) return std::numeric_limits<uint64_t>::max();
  const uint64_t every = AskEvery(path);
  return every > unasked_ ? (every - unasked_ + cost - 1) / cost : 1;
}

bool UcFlight::WantsAsk(const Path& path, uint64_t cost, bool more,
                        Time now) const {
  if (!MayAsk(now)) return false;
  if (timeouts_ > 0 || asks_next_ || unasked_ + cost >= AskEvery(path)) {
    return true;
  }
  // Otherwise other queue pairs might wait for bytes that are never reported.
  return reports_ && !more && path.in_flight() + cost >= path.window() / 4;
}

void UcFlight::OnSent(Path* path, uint64_t cost, Time now) {
  unasked_ += cost;
  if (!reports_) return;
  if (bytes_ == 0) since_ = now;
  bytes_ += cost;
  path->OnSent(cost);
}

void UcFlight::OnAsked(uint32_t psn, Time now) {
  if (asked_ == kMaxAsked) {
    if (!reports_) doublings_ = std::min(doublings_ + 1, kMaxDoublings);
    Forget(reports_ ? 1 : kMaxAsked);
  }
  at(asked_) = {.psn = psn, .bytes = reports_ ? unasked_ : 0, .sent = now};
  ++asked_;
  unasked_ = 0;
  asks_next_ = false;
}

size_t UcFlight::Find(uint32_t psn) const {
  size_t index = 0;
  while (index < asked_ && at(index).psn != psn) ++index;
  return index;
}

void UcFlight::Forget(size_t count) {
  first_ = (first_ + count) % kMaxAsked;
  asked_ -= count;
}

bool UcFlight::OnReport(Path* path, uint32_t psn, const wire::Aeth& aeth,
                        uint64_t cost, Time now) {
  const size_t index = Find(psn);
  if (index == asked_ ||
      wire::AethKindOf(aeth.syndrome) != wire::AethKind::kAck) {
    return false;
  }
  limit_ = LimitOf(wire::AethValueOf(aeth.syndrome));
  uint64_t bytes = 0;
  for (size_t i = 0; i <= index; ++i) bytes += at(i).bytes;
  const Time sent = at(index).sent;
  Forget(index + 1);
  path->OnRttSample(now - sent, now);
  since_ = now;
  timeouts_ = doublings_ = 0;
  bytes_ -= bytes;
  path->OnGone(bytes);
  path->OnAnswered(bytes, limit_, now);
  const uint32_t lost = (aeth.msn - missed_) & wire::kPsnMask;
  missed_ = aeth.msn;
  if (reports_ && lost != 0 && lost <= kMaxMissed) {
    path->OnLost(lost * cost);
    path->OnLoss(now);
  }
  if (!reports_) unasked_ = 0;  // paced bytes do not count
  reports_ = true;
  return true;
}

void UcFlight::OnTimer(Path* path, Time now) {
  if (bytes_ == 0 || now < Deadline(*path)) return;
  const bool asked = asked_ > 0 && at(asked_ - 1).bytes != 0;
  Leave(path);
  // A flight without a request for a report does not show a silent peer.
  asks_next_ = true;
  if (!asked) return;
  if (++timeouts_ <= kMaxTimeouts) return;
  timeouts_ = 0;
  reports_ = false;
}

void UcFlight::Leave(Path* path) {
  if (bytes_ != 0) path->OnGone(bytes_);
  bytes_ = unasked_ = 0;
  // A report of these still shows that the peer is alive.
  for (size_t i = 0; i < asked_; ++i) at(i).bytes = 0;
}

}  // namespace transport
