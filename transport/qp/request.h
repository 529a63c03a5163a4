// What a request packet asks for, and the checks that need no state.
#ifndef TRANSPORT_QP_REQUEST_H_
#define TRANSPORT_QP_REQUEST_H_

#include <cstdint>

#include "wire/packet.h"

namespace transport {

enum class RequestKind : uint8_t {
  kSend,
  kWrite,
  kRead,
  kAtomic,
  kAtomicWrite,
  kFlush,
  kReserved,  // of a reserved opcode: offered by nobody
};
// Only for opcodes that are requests.
RequestKind KindOf(wire::Operation operation);

// Whether the payload has a length that its packet's opcode may have (IBA vol.
// 1, 9.7.4.1.6). `mtu`: the path's, in bytes.
bool LengthIsValid(const wire::PacketView& packet, RequestKind kind,
                   uint32_t mtu);
// Whether a queue pair with `access_flags` offers this at all. What it does not
// offer is an invalid request, whatever the key (IBA vol. 1, 11.6.2, "operation
// is not supported by this receive queue").
bool IsPermitted(RequestKind kind, uint32_t access_flags);

}  // namespace transport

#endif  // TRANSPORT_QP_REQUEST_H_
