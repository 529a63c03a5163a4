// Recovers a UDP source port that a capturing device has overwritten by 4791.
//
// Some switches and network cards that mirror RoCE packets overwrite the source
// port. The ICRC still covers the original port. CRCs are linear, so the
// difference between the ICRC in the packet and the computed one gives that
// port, if a port can explain it.
#ifndef TOOLS_TRACE_SOURCE_PORT_H_
#define TOOLS_TRACE_SOURCE_PORT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <tuple>

#include "wire/frame.h"

namespace trace {

// The source port with which the ICRC of `udp_payload`, a whole packet, is
// correct. One in 65,536 damaged packets has such a port, too.
std::optional<uint16_t> SolveSourcePort(const wire::FrameHeaders& headers,
                                        std::span<const uint8_t> udp_payload);

// A flow is the packets from one address to one queue pair of a connected
// service (RC, UC, XRC), and has one source port. Once the port is known, other
// ports are not accepted, so the check is as strong as without recovery. UD, DC
// and CNP packets are not in flows: each may have its own port.
class SourcePorts {
 public:
  // Records a valid packet. If it was sent from port 4791, so is its flow.
  void Note(const wire::FrameHeaders& headers,
            std::span<const uint8_t> udp_payload);
  // The source port with which the packet is valid; absent if it is damaged.
  std::optional<uint16_t> Find(const wire::FrameHeaders& headers,
                               std::span<const uint8_t> udp_payload);

 private:
  using Flow = std::tuple<wire::IpAddress, wire::IpAddress, uint32_t>;
  std::map<Flow, uint16_t> ports_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_SOURCE_PORT_H_
