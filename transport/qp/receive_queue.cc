#include "transport/qp/receive_queue.h"

#include <algorithm>
#include <cerrno>

namespace transport {

ReceiveQueue::ReceiveQueue(PdId pd, uint32_t max_wr, uint32_t max_sge)
    : pd_(pd),
      max_sge_(std::min<uint32_t>(max_sge, kMaxSge)),
      entries_(max_wr),
      sges_(size_t{max_wr} * max_sge_) {}

int ReceiveQueue::Post(const ReceiveRequest& request) {
  if (request.sges.size() > max_sge_) return EINVAL;
  if (size_ == entries_.size()) return ENOMEM;
  size_t index = size_t{head_} + size_;
  if (index >= entries_.size()) index -= entries_.size();
  entries_[index] = {request.wr_id, static_cast<uint32_t>(request.sges.size())};
  std::copy(request.sges.begin(), request.sges.end(),
            sges_.begin() + index * max_sge_);
  ++size_;
  return 0;
}

bool ReceiveQueue::Pop(ReceiveWqe* out) {
  if (size_ == 0) return false;
  const Entry& entry = entries_[head_];
  out->wr_id = entry.wr_id;
  out->pd = pd_;
  const Sge* sges = sges_.data() + size_t{head_} * max_sge_;
  out->sges.assign(sges, sges + entry.num_sge);
  head_ = head_ + 1 == entries_.size() ? 0 : head_ + 1;
  --size_;
  return true;
}

void ReceiveQueue::Clear() {
  head_ = 0;
  size_ = 0;
}

}  // namespace transport
