// Kinds of request packets, and the checks that need no state.
#ifndef TRANSPORT_QP_REQUEST_H_
#define TRANSPORT_QP_REQUEST_H_

#include <cstddef>
#include <cstdint>

#include "transport/base/types.h"
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
constexpr RequestKind KindOf(wire::Operation operation) {
  using enum wire::Operation;
  switch (operation) {
    case kWriteFirst:
    case kWriteMiddle:
    case kWriteLast:
    case kWriteLastImm:
    case kWriteOnly:
    case kWriteOnlyImm:
      return RequestKind::kWrite;
    case kReadRequest:
      return RequestKind::kRead;
    case kCompareSwap:
    case kFetchAdd:
      return RequestKind::kAtomic;
    case kAtomicWrite:
      return RequestKind::kAtomicWrite;
    case kFlush:
      return RequestKind::kFlush;
    case kReserved15:
    case kReserved18:
    case kReserved19:
    case kReserved1a:
    case kReserved1b:
    case kReserved1e:
    case kReserved1f:
      return RequestKind::kReserved;
    default:
      return RequestKind::kSend;
  }
}

// Whether the payload length is valid for the opcode (IBA vol. 1, 9.7.4.1.6).
// `mtu`: path MTU in bytes.
inline bool LengthIsValid(const wire::PacketView& packet, RequestKind kind,
                          uint32_t mtu) {
  constexpr size_t kAtomicWriteBytes = 8;
  const size_t bytes = packet.payload().size();
  const wire::OpcodeInfo& info = packet.info();
  if (kind == RequestKind::kAtomicWrite) return bytes == kAtomicWriteBytes;
  if (!info.carries_payload) return bytes == 0;
  if (info.full_mtu_payload) return bytes == mtu;
  if (!info.starts_message && bytes == 0) return false;  // LAST packet
  return bytes <= mtu;
}

// Whether a queue pair with `access_flags` permits this operation. If not, it
// is an invalid request, whatever its key (IBA vol. 1, 11.6.2, "operation is
// not supported by this receive queue").
constexpr bool IsPermitted(RequestKind kind, uint32_t access_flags) {
  uint32_t needed = 0;
  switch (kind) {
    case RequestKind::kSend:
      return true;
    case RequestKind::kWrite:
    case RequestKind::kAtomicWrite:
      needed = kAccessRemoteWrite;
      break;
    case RequestKind::kRead:
      needed = kAccessRemoteRead;
      break;
    case RequestKind::kAtomic:
      needed = kAccessRemoteAtomic;
      break;
    case RequestKind::kFlush:
      needed = kAccessFlushGlobal | kAccessFlushPersistent;
      break;
    case RequestKind::kReserved:
      return false;
  }
  return (access_flags & needed) != 0;
}

}  // namespace transport

#endif  // TRANSPORT_QP_REQUEST_H_
