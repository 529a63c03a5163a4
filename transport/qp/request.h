// Kinds of request packets, and the checks that need no state.
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
  kReserved,  // reserved opcode: never permitted
};
// Only for request opcodes.
RequestKind KindOf(wire::Operation operation);

// Whether the payload length is valid for the opcode (IBA vol. 1, 9.7.4.1.6).
// `mtu`: path MTU in bytes.
bool LengthIsValid(const wire::PacketView& packet, RequestKind kind,
                   uint32_t mtu);
// Whether a queue pair with `access_flags` permits this operation. If not, it
// is an invalid request, whatever its key (IBA vol. 1, 11.6.2, "operation is
// not supported by this receive queue").
bool IsPermitted(RequestKind kind, uint32_t access_flags);

}  // namespace transport

#endif  // TRANSPORT_QP_REQUEST_H_
