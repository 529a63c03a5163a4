#include "transport/qp/request.h"

#include "transport/base/types.h"

namespace transport {
namespace {

constexpr size_t kAtomicWriteBytes = 8;

}  // namespace

RequestKind KindOf(wire::Operation operation) {
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

bool LengthIsValid(const wire::PacketView& packet, RequestKind kind,
                   uint32_t mtu) {
  const size_t bytes = packet.payload().size();
  const wire::OpcodeInfo& info = packet.info();
  if (kind == RequestKind::kAtomicWrite) return bytes == kAtomicWriteBytes;
  if (!info.carries_payload) return bytes == 0;
  if (info.full_mtu_payload) return bytes == mtu;
  if (!info.starts_message && bytes == 0) return false;  // LAST packet
  return bytes <= mtu;
}

bool IsPermitted(RequestKind kind, uint32_t access_flags) {
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
