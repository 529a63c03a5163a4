// MADs as RoCEv2 packets: UD SEND ONLY between queue pairs 1 (InfiniBand
// specification 3.9.4, 13.4; annex A17).
#ifndef TRANSPORT_CM_MAD_PACKET_H_
#define TRANSPORT_CM_MAD_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/address.h"
#include "wire/mad.h"
#include "wire/opcode.h"

namespace transport::cm {

// UDP payload: BTH to ICRC.
inline constexpr size_t kMadPacketSize =
    wire::kBthSize + wire::kDethSize + wire::kMadSize + wire::kIcrcSize;

// The IP and UDP fields that the ICRC covers; the destination port is 4791.
struct MadFlow {
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
};

// Writes the packet of a MAD. It must be sent with IP identification 0 and DF.
// Both addresses are of one family.
void EmitMadPacket(const MadFlow& flow, uint32_t psn,
                   std::span<const uint8_t, wire::kMadSize> mad,
                   std::span<uint8_t, kMadPacketSize> out);

// Why a datagram has no MAD for queue pair 1, in order of the checks.
enum class MadPacketError : uint8_t {
  kOk,
  kMalformed,  // not a packet, or not of the size of a MAD packet
  kOtherQp,    // not a UD packet for queue pair 1
  kBadKey,     // wrong Q_Key, or P_Key of another partition
  kBadIcrc,
};

// Checks a datagram. On success, and if only the ICRC is wrong, `*mad` is its
// kMadSize bytes, whose content is not checked. Over IPv4 any IP identification
// is accepted, since senders are not remembered.
MadPacketError ParseMadPacket(const MadFlow& flow,
                              std::span<const uint8_t> udp_payload,
                              std::span<const uint8_t>* mad);
// Checks only the ICRC, of a packet that ParseMadPacket found good otherwise.
bool VerifyMadPacket(const MadFlow& flow, std::span<const uint8_t> udp_payload);

}  // namespace transport::cm

#endif  // TRANSPORT_CM_MAD_PACKET_H_
