// What is in flight (FlightAccount), computed from the sequence numbers.
#include <algorithm>

#include "transport/endpoint/packet_arena.h"
#include "transport/rc/requester.h"

namespace transport {
namespace {

// One part in this many is added to the bytes that leave the network in a round
// trip, since the measured rate tends to be too low.
constexpr uint64_t kRoundTripMargin = 8;
// Headers, pad and ICRC of a request with payload.
constexpr size_t kMaxPacketOverhead = 128;

}  // namespace

uint64_t Requester::NotArrived(uint64_t sent_to) const {
  uint64_t sent = sent_to - snd_.una_cost;
  if (HasMissing() && snd_.nxt >= missing_->known_to()) {
    const uint64_t known = missing_->known_to();
    const uint64_t beyond =
        sent_to - snd_.CostBefore(queue().at(IndexOf(known - 1)), known);
    sent = std::min(sent, beyond + missing_->missing() * snd_.PacketCost());
  }
  return sent - std::min<uint64_t>(peer_.buffered_bytes, sent / 8 * 7);
}

void Requester::BeginFlight() {
  if (phase_.running) flight_.Begin(*path(), snd_.max == snd_.una);
}

void Requester::NoteAnswer(bool good) {
  flight_.OnAnswer(path());
  // What this queue pair sent has arrived, so the timeouts of other queue pairs
  // were not the path's fault.
  if (good && loss_.probes() == 0 && !loss_.timed_out) path()->UndoTimeout();
}

// How much of what was sent beyond a gap has arrived is unknown. But while the
// gap is being filled, which takes a round trip, a round trip's worth of bytes
// leaves the network, and as much may be sent. More would queue ahead of the
// packets that fill the next gap; less would leave the network idle. The peer
// buffers it, as far as its arena has space.
void Requester::CountBuffered() {
  peer_.buffered_bytes = 0;
  SyncFlight();
  const uint64_t in_flight = std::max<uint64_t>(path()->in_flight(), 1);
  const uint64_t round_trip =
      path()->round_trip_bytes() * flight_.bytes() / in_flight;
  const uint64_t capacity =
      std::min(PacketArena::kBytes / (snd_.mtu + kMaxPacketOverhead),
               PacketArena::kMaxPackets);
  const uint64_t buffered = snd_.nxt - snd_.una;
  const uint64_t more = std::min(
      round_trip + round_trip / kRoundTripMargin,
      capacity > buffered ? (capacity - buffered) * snd_.PacketCost() : 0);
  const uint64_t limit = path()->window() - std::min(path()->window(), more);
  if (in_flight > limit) {
    peer_.buffered_bytes = static_cast<uint32_t>(in_flight - limit);
  }
  SyncFlight();
}

}  // namespace transport
