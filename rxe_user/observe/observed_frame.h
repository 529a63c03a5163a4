// Writes the headers of an observed packet for a file of LINKTYPE_LINUX_SLL.
// This link type has the packet's direction and needs no Ethernet addresses.
#ifndef RXE_USER_OBSERVE_OBSERVED_FRAME_H_
#define RXE_USER_OBSERVE_OBSERVED_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "transport/endpoint/packet_observer.h"
#include "wire/frame.h"

namespace rxe_user {

inline constexpr size_t kMaxFrameHeaders =
    wire::kCookedSize + wire::kMaxIpUdpSize;

// Writes at most kMaxFrameHeaders bytes to `out`; returns their number.
// `is_whole`: with the IP identification that the ICRC covers and with the UDP
// checksum, which takes a pass over the packet. Otherwise the former is the
// packet's index in its batch, and the latter is 0.
size_t EmitFrameHeaders(const transport::ObservedPacket& packet, bool is_whole,
                        uint8_t* out);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_OBSERVED_FRAME_H_
