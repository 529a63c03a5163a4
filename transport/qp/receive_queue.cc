#include "transport/qp/receive_queue.h"

#include <algorithm>
#include <cerrno>

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
      max_sge_(std::min<uint32_t>(max_sge, kMaxSge)),
      own_memory_(memory == nullptr
                      ? std::make_unique_for_overwrite<std::byte[]>(
                            Size(max_wr, max_sge))
                      : nullptr),
      entries_(reinterpret_cast<Entry*>(memory == nullptr ? own_memory_.get()
                                                          : memory)),
      sges_(reinterpret_cast<Sge*>(entries_ + max_wr)) {}

int ReceiveQueue::Post(const ReceiveRequest& request) {
  if (request.sges.size() > max_sge_) return EINVAL;
  if (size_ == max_wr_) return ENOMEM;
  size_t index = size_t{head_} + size_;
  if (index >= max_wr_) index -= max_wr_;
  entries_[index] = {request.wr_id, static_cast<uint32_t>(request.sges.size())};
  std::copy(request.sges.begin(), request.sges.end(), sges_ + index * max_sge_);
  ++size_;
  return 0;
}

bool ReceiveQueue::Pop(ReceiveWqe* out) {
  if (size_ == 0) return false;
  const Entry& entry = entries_[head_];
  const Sge* sges = sges_ + size_t{head_} * max_sge_;
  if (!out->SetSges({sges, entry.num_sge})) return false;
  out->wr_id = entry.wr_id;
  out->pd = pd_;
  head_ = head_ + 1 == max_wr_ ? 0 : head_ + 1;
  --size_;
  return true;
}

void ReceiveQueue::Clear() {
  head_ = 0;
  size_ = 0;
}

}  // namespace transport
