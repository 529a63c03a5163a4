// Appends the blocks of a recording (trace_events.h) to a buffer. Used by the
// device's recorder and by tests. No I/O and, if the buffer has enough
// capacity, no allocation.
#ifndef RXE_USER_OBSERVE_TRACE_BLOCKS_H_
#define RXE_USER_OBSERVE_TRACE_BLOCKS_H_

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "rxe_user/observe/trace_events.h"
#include "wire/pcapng.h"

namespace rxe_user::trace {

// Sets the members of the header that follow from the type of the event.
template <typename Event>
void Complete(Event* event) {
  event->header.magic = kMagic;
  event->header.type = static_cast<uint16_t>(Event::kType);
  event->header.size = sizeof(Event);
}

template <typename Event>
std::span<const uint8_t> BytesOf(const Event& event) {
  return {reinterpret_cast<const uint8_t*>(&event), sizeof(Event)};
}

// Copies `text` into a text member. Text that does not fit is cut between UTF-8
// characters and ends with "...".
template <size_t kSize>
void SetText(std::string_view text, char (&member)[kSize]) {
  constexpr std::string_view kCut = "...";
  static_assert(kSize > kCut.size());
  size_t size = text.size();
  std::memset(member, 0, kSize);
  if (size >= kSize) {
    size = kSize - 1 - kCut.size();
    while (size > 0 && (text[size] & 0xc0) == 0x80) --size;
    std::memcpy(member + size, kCut.data(), kCut.size());
  }
  std::memcpy(member, text.data(), size);
}

// Begins a file or a section with the event `recording`. An interface for each
// device must follow (wire::pcapng::AppendInterface).
inline void AppendBeginning(RecordingEvent recording,
                            std::vector<uint8_t>* out) {
  wire::pcapng::AppendSection("rxe_user", out);
  Complete(&recording);
  wire::pcapng::AppendCustom(kEnterprise, BytesOf(recording), out);
}

// Appends any event but a packet.
template <typename Event>
void AppendEvent(Event event, std::vector<uint8_t>* out) {
  Complete(&event);
  wire::pcapng::AppendCustom(kEnterprise, BytesOf(event), out);
}

// Appends a packet with its event. `event.header.time` is the packet's time and
// `event.what` its direction. Set these members of `packet`: `interface`,
// `headers`, `rest`, `original_size` and `comment`.
inline void AppendPacketEvent(PacketEvent event, wire::pcapng::Packet packet,
                              std::vector<uint8_t>* out) {
  Complete(&event);
  packet.time = event.header.time;
  packet.direction = event.what == static_cast<uint8_t>(PacketOutcome::kSent)
                         ? wire::pcapng::Direction::kSent
                         : wire::pcapng::Direction::kReceived;
  packet.enterprise = kEnterprise;
  packet.custom = BytesOf(event);
  wire::pcapng::AppendPacket(packet, out);
}

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_BLOCKS_H_
