// Finds the two ends of connections in recordings, and attributes on which they
// should agree but do not: lints 20 to 23 of docs/lints.md.
#ifndef TOOLS_TRACE_ENDS_H_
#define TOOLS_TRACE_ENDS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/trace/recording.h"
#include "transport/base/types.h"
#include "wire/address.h"

namespace trace {

// A queue pair of RC, UC or XRC, from RTR until it is reset or destroyed, with
// its attributes as in ibv_modify_qp(3).
struct ConnectionEnd {
  size_t file = 0;      // as passed to EndsOf
  std::string program;  // empty: unknown
  transport::QpType type = transport::QpType::kRc;
  uint32_t qpn = 0;
  uint32_t dest_qpn = 0;
  wire::IpAddress source = {};  // the address of sgid_index
  wire::IpAddress destination = {};
  uint32_t path_mtu = 0;  // bytes
  uint32_t receive_psn = 0;
  uint32_t send_psn = 0;
  bool sends = false;  // it reached RTS, so send_psn is valid
  // On the clock of the file, ns since 1970.
  int64_t begin = 0;
  int64_t end = 0;
};

// The names of the lints, from number 20.
inline constexpr std::string_view kEndLints[] = {"peer-qpn", "peer-gid",
                                                 "peer-psn", "peer-mtu"};

struct EndFinding {
  uint16_t lint = 0;  // its number
  std::string_view name;
  // The end whose attribute does not match that of `peer`.
  const ConnectionEnd* end = nullptr;
  const ConnectionEnd* peer = nullptr;
  std::string what;  // one line
};

std::vector<ConnectionEnd> EndsOf(const Recording& recording, size_t file);

// Two ends belong to one connection if one of them has number and address of
// the other as its destination, and if they existed at the same time. The
// clocks of two files may differ by a second. Ends whose peer is not in `ends`
// cause no finding.
std::vector<EndFinding> CompareEnds(std::span<const ConnectionEnd> ends);

}  // namespace trace

#endif  // TOOLS_TRACE_ENDS_H_
