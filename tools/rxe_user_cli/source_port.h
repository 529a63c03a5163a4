// The UDP source port that a capturing device has overwritten with 4791.
//
// Some switches and network cards that mirror RoCE packets put 4791 in the
// place of the source port. The ICRC at the end of the packet is that of the
// port that was sent: CRCs are linear, so what is missing says which port it
// was, if one explains it.
#ifndef TOOLS_RXE_USER_CLI_SOURCE_PORT_H_
#define TOOLS_RXE_USER_CLI_SOURCE_PORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "wire/frame.h"

namespace rxe_user_cli {

// The source port with which the ICRC of `udp_payload`, a whole packet, is
// right; one in 65,536 damaged packets has one, too.
std::optional<uint16_t> SolveSourcePort(const wire::FrameHeaders& headers,
                                        std::span<const uint8_t> udp_payload);

// A flow, here what goes from one address to one queue pair of a connected
// service (RC, UC, XRC) of another, has one source port. Once it is known, only
// that is believed: the check is as strong as it was. Of others, datagrams, DC
// and CNPs, each packet may have a port of its own.
class SourcePorts {
 public:
  // A packet from port 4791 is good as it is: so is its flow.
  void Note(const wire::FrameHeaders& headers,
            std::span<const uint8_t> udp_payload);
  // The port with which the packet is good; nothing if it is bad.
  std::optional<uint16_t> Find(const wire::FrameHeaders& headers,
                               std::span<const uint8_t> udp_payload);

 private:
  using Flow = std::tuple<wire::IpAddress, wire::IpAddress, uint32_t>;
  std::map<Flow, uint16_t> ports_;
};

}  // namespace rxe_user_cli

#endif  // TOOLS_RXE_USER_CLI_SOURCE_PORT_H_
