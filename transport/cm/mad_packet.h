// MADs as RoCEv2 carries them: a UD SEND ONLY between queue pairs 1
// (InfiniBand specification 3.9.4, 13.4; annex A17).
#ifndef TRANSPORT_CM_MAD_PACKET_H_
#define TRANSPORT_CM_MAD_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/address.h"
#include "wire/mad.h"
#include "wire/opcode.h"

namespace transport::cm {

// From BTH to ICRC: what UDP carries.
inline constexpr size_t kMadPacketSize =
    wire::kBthSize + wire::kDethSize + wire::kMadSize + wire::kIcrcSize;

// What the ICRC covers of IP and UDP headers; the destination port is 4791.
struct MadFlow {
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
};

// Writes the packet of a MAD. It is to be sent with IP identification 0 and
// DF. Both addresses are of one family.
void EmitMadPacket(const MadFlow& flow, uint32_t psn,
                   std::span<const uint8_t, wire::kMadSize> mad,
                   std::span<uint8_t, kMadPacketSize> out);

// Why a datagram brings no MAD to queue pair 1, in the order in which it is
// checked.
enum class MadPacketError : uint8_t {
  kOk,
  kMalformed,  // no packet, or not the size of one with a MAD
  kOtherQp,    // no datagram for queue pair 1
  kBadKey,     // P_Key other than the default partition's, or Q_Key
  kBadIcrc,
};

// Checks what came; on success, and if only the ICRC is wrong, `*mad` is the
// kMadSize bytes in there. Their content is not checked. Senders are not
// remembered, so over IPv4 any IP identification is believed.
MadPacketError ParseMadPacket(const MadFlow& flow,
                              std::span<const uint8_t> udp_payload,
                              std::span<const uint8_t>* mad);
// The ICRC alone, of a packet that ParseMadPacket has found no other fault
// with.
bool VerifyMadPacket(const MadFlow& flow, std::span<const uint8_t> udp_payload);

}  // namespace transport::cm

#endif  // TRANSPORT_CM_MAD_PACKET_H_
