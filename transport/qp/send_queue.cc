#include "transport/qp/send_queue.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <new>
#include <type_traits>

namespace transport {
namespace {

constexpr uint32_t kKnownFlags =
    kSendFence | kSendSignaled | kSendSolicited | kSendInline | kSendIpChecksum;

static_assert(std::is_trivially_default_constructible_v<SendWqe>);
static_assert(alignof(SendWqe) <= alignof(std::max_align_t));
static_assert(sizeof(SendWqe) % alignof(Sge) == 0);

}  // namespace

namespace {

// Rounded up to a power of two. Unused slots of a large ring take no memory,
// since they are never touched.
size_t Slots(const QpCapacity& capacity) {
  return std::bit_ceil(std::max(capacity.max_send_wr, 1u));
}
size_t WqesSize(const QpCapacity& capacity) {
  return Slots(capacity) * sizeof(SendWqe);
}
size_t SgesSize(const QpCapacity& capacity) {
  return Slots(capacity) * capacity.max_send_sge * sizeof(Sge);
}

}  // namespace

size_t SendQueue::Size(const QpCapacity& capacity) {
  return WqesSize(capacity) + SgesSize(capacity) +
         Slots(capacity) * capacity.max_inline_data;
}

SendQueue::SendQueue(const QpCapacity& capacity, std::byte* memory)
    : max_wr_(capacity.max_send_wr),
      mask_(static_cast<uint32_t>(Slots(capacity)) - 1),
      max_inline_(static_cast<uint16_t>(capacity.max_inline_data)),
      max_sge_(static_cast<uint8_t>(capacity.max_send_sge)),
      owns_memory_(memory == nullptr) {
  if (owns_memory_) {
    memory = static_cast<std::byte*>(::operator new(Size(capacity)));
  }
  wqes_ = reinterpret_cast<SendWqe*>(memory);
  memory += WqesSize(capacity);
  sges_ = reinterpret_cast<Sge*>(memory);
  inline_ = reinterpret_cast<uint8_t*>(memory + SgesSize(capacity));
}

SendQueue::~SendQueue() {
  if (owns_memory_) ::operator delete(wqes_);
}

namespace {

bool IsValidFlush(const SendRequest& request) {
  return IsValid(FethOf(request.swap)) &&
         request.compare_add <= wire::kMaxMessage;
}

// mlx5dv_wr_post(3).
bool IsValidConfiguration(const SendRequest& request) {
  using Layout = MkeyConfiguration::Layout;
  using Transform = MkeyConfiguration::Transform;
  uint64_t bytes = TotalLength(request.sges);
  const Transform change = MkeyTransformOf(request.swap);
  if (change > Transform::kSet) return false;
  if (change == Transform::kSet) {
    if (bytes < kMkeyTransformSize) return false;
    bytes -= kMkeyTransformSize;
  }
  if ((request.flags & kSendInline) == 0 || bytes % kMkeyEntrySize != 0 ||
      bytes / kMkeyEntrySize > kMaxMkeyEntries ||
      (MkeyAccessOf(request.swap).value_or(0) & ~kMkeyRights) != 0) {
    return false;
  }
  switch (MkeyLayoutOf(request.swap)) {
    case Layout::kKeep:
      return bytes == 0;
    case Layout::kList:
      return true;
    case Layout::kInterleaved:
      return request.compare_add != 0 && request.compare_add <= UINT32_MAX;
  }
  return false;
}

bool IsValidMemcpy(const SendRequest& request) {
  return request.swap != 0 && request.swap <= kMaxMemcpy;
}

// kFlush and local operations. Not inline: rare.
[[gnu::noinline]] bool IsValidOther(const SendRequest& request,
                                    const SendOperation& operation) {
  if (operation.kind == SendKind::kFlush) return IsValidFlush(request);
  if (operation.has_inline_layout) return IsValidConfiguration(request);
  return operation.opcode != SendOpcode::kMemcpy || IsValidMemcpy(request);
}

}  // namespace

inline SendQueue::Shape SendQueue::Examine(const SendRequest& request) const {
  const SendOperation& operation = GetSendOperation(request.opcode);
  if (operation.kind == SendKind::kUnsupported) return {.error = EINVAL};
  if ((request.flags & ~kKnownFlags) != 0) return {.error = EINVAL};
  if (operation.kind >= SendKind::kFlush) {
    if (!IsValidOther(request, operation)) return {.error = EINVAL};
    if (!operation.has_inline_layout) return {.operation = &operation};
  }
  const bool is_inline = (request.flags & kSendInline) != 0;
  if (is_inline ? !operation.sends_payload && !operation.has_inline_layout
                : request.sges.size() > max_sge_) {
    return {.error = EINVAL};
  }
  const uint64_t max_length = is_inline ? max_inline_ : wire::kMaxMessage;
  uint64_t length = 0;
  for (const Sge& sge : request.sges) {
    length += sge.length;
    if (length > max_length) return {.error = EINVAL};
  }
  return {.operation = &operation,
          .sges = request.sges,
          .length = length,
          .is_inline = is_inline};
}

int SendQueue::Check(const SendRequest& request) const {
  return Examine(request).error;
}

int SendQueue::Push(const SendRequest& request) {
  const Shape shape = Examine(request);
  if (shape.error != 0) return shape.error;
  if (full()) return ENOMEM;
  const SendOperation& operation = *shape.operation;
  uint64_t length = shape.length;
  // An atomic uses the first 8 bytes. Fewer fail at completion.
  if (operation.kind == SendKind::kAtomic) {
    length = std::min<uint64_t>(length, kAtomicSize);
  }

  uint8_t num_sge = 0;
  if (shape.is_inline) {
    uint8_t* to = inline_of(tail_);
    for (const Sge& sge : shape.sges) {
      if (sge.length == 0) continue;
      std::memcpy(to, reinterpret_cast<const void*>(sge.addr), sge.length);
      to += sge.length;
    }
  } else {
    Sge* const to = sges_of(tail_);
    for (const Sge& sge : shape.sges) {
      if (sge.length != 0) to[num_sge++] = sge;
    }
  }
  at(tail_) = {
      .wr_id = request.wr_id,
      .remote_addr = request.remote_addr,
      .compare_add = request.compare_add,
      .swap = request.swap,
      .first = 0,
      .cost = 0,
      .length = static_cast<uint32_t>(length),
      .packets = 0,
      .rkey = request.rkey,
      .imm_be_or_rkey =
          operation.has_immediate ? request.imm_be : request.invalidate_rkey,
      .remote_srqn = request.remote_srqn,
      .message = 0,
      .row = &operation,
      .opcode = operation.opcode,
      .flags = static_cast<uint8_t>(request.flags),
      .num_sge = num_sge,
  };
  ++tail_;
  return 0;
}

}  // namespace transport
