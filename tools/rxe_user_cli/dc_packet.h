// Packets of the dynamically connected transport (DC) of ConnectX cards. There
// is no public specification; the layout follows captures. DC has the
// operations of RC at opcodes 0x40 to 0x57, with a header of 20 bytes after
// BTH, and two operations of its own that open a connection.
#ifndef TOOLS_RXE_USER_CLI_DC_PACKET_H_
#define TOOLS_RXE_USER_CLI_DC_PACKET_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "wire/describe.h"
#include "wire/packet.h"

namespace rxe_user_cli {

// The opcode block of DC. InfiniBand assigns it to reliable datagrams.
inline constexpr uint8_t kFirstDcOpcode = 0x40;
constexpr bool IsDc(uint8_t opcode) {
  return opcode >= kFirstDcOpcode && opcode <= 0x57;
}

class DcPacket {
 public:
  // Bytes from the start of BTH to the start of the payload. `opcode`: one of
  // DC.
  static size_t HeadersSize(uint8_t opcode);
  // Parses `udp_payload`, whose opcode is one of DC. Returns an empty string,
  // or the reason why it cannot be parsed.
  std::string Parse(std::span<const uint8_t> udp_payload);
  // Like wire::VisitFields, with the fields of DC after those of BTH.
  void VisitFields(const wire::FieldVisitor& visit) const;

 private:
  void VisitDcHeader(const wire::FieldVisitor& visit) const;

  std::string name_;
  std::vector<uint8_t> as_rc_;  // the packet without the DC header
  wire::PacketView packet_;     // points into `as_rc_`
  bool connects_ = false;
  // --- Fields of the DC header.
  bool from_initiator_ = false;
  uint32_t source_qpn_ = 0;
  uint32_t initiator_session_ = 0;
  uint32_t responder_session_ = 0;
  uint32_t dct_ = 0;
  uint64_t access_key_ = 0;  // of a connect
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_DC_PACKET_H_
