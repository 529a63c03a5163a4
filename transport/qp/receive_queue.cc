#include "transport/qp/receive_queue.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace transport {

size_t ReceiveQueue::Size(uint32_t max_wr, uint32_t max_sge) {
  static_assert(sizeof(Entry) % alignof(Sge) == 0);
  return max_wr *
         (sizeof(Entry) + std::min<size_t>(max_sge, kMaxSge) * sizeof(Sge));
}

ReceiveQueue::ReceiveQueue(PdId pd, uint32_t max_wr, uint32_t max_sge,
                           std::byte* memory)
    : pd_(pd),
      max_wr_(max_wr),
      max_sge_(static_cast<uint8_t>(std::min<uint32_t>(max_sge, kMaxSge))),
      owns_memory_(memory == nullptr),
      entries_(static_cast<Entry*>(owns_memory_
                                       ? ::operator new(Size(max_wr, max_sge))
                                       : static_cast<void*>(memory))) {}

ReceiveQueue::~ReceiveQueue() {
  if (owns_memory_) ::operator delete(entries_);
}

int ReceiveQueue::Post(const ReceiveRequest& request) {
  if (request.sges.size() > max_sge_) return EINVAL;
  if (posted_ - outstanding_.retired() >= max_wr_) return ENOMEM;
  size_t index = size_t{head_} + size_;
  if (index >= max_wr_) index -= max_wr_;
  entries_[index] = {request.wr_id, static_cast<uint32_t>(request.sges.size())};
  std::copy(request.sges.begin(), request.sges.end(), sges_of(index));
  ++size_;
  ++posted_;
  return 0;
}

bool ReceiveQueue::Pop(ReceiveWqe* out) {
  if (size_ == 0) return false;
  const Entry& entry = entries_[head_];
  if (!out->SetSges({sges_of(head_), entry.num_sge})) return false;
  out->wr_id = entry.wr_id;
  out->pd = pd_;
  head_ = head_ + 1 == max_wr_ ? 0 : head_ + 1;
  --size_;
  return true;
}

void ReceiveQueue::Clear() {
  head_ = 0;
  size_ = 0;
  outstanding_.Settle(posted_);
}

}  // namespace transport
