// The receive queue that a queue pair has for itself.
#ifndef TRANSPORT_QP_RECEIVE_QUEUE_H_
#define TRANSPORT_QP_RECEIVE_QUEUE_H_

#include <cstddef>
#include <cstdint>

#include "transport/base/outstanding.h"
#include "transport/base/types.h"
#include "transport/base/work.h"

namespace transport {

// A ring of posted receives.
class ReceiveQueue final : public ReceiveSource {
 public:
  // Bytes of memory that it takes.
  static size_t Size(uint32_t max_wr, uint32_t max_sge);

  // Keys of its receives are checked against `pd`. In `memory`, which outlives
  // it, or for null in memory of its own.
  ReceiveQueue(PdId pd, uint32_t max_wr, uint32_t max_sge,
               std::byte* memory = nullptr);
  ~ReceiveQueue() override;
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // 0; EINVAL for too many SGEs; ENOMEM when full.
  int Post(const ReceiveRequest& request);
  bool Pop(ReceiveWqe* out) override;
  Place TakenPlace() override { return outstanding_.PlaceBefore(taken()); }
  // Forgets all of them.
  void Clear();

  // Those that no message has taken yet.
  uint32_t size() const { return size_; }
  // How many were taken ever, modulo 2^32: the end of the last one.
  uint32_t taken() const { return posted_ - size_; }
  Outstanding& outstanding() { return outstanding_; }

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };

  // max_sge_ of the entry `index`.
  Sge* sges_of(size_t index) const {
    return reinterpret_cast<Sge*>(entries_ + max_wr_) + index * max_sge_;
  }

  const PdId pd_;
  const uint32_t max_wr_;
  const uint8_t max_sge_;
  const bool owns_memory_;
  Entry* const entries_;  // max_wr_ of them, then their SGEs
  uint32_t head_ = 0;     // the oldest
  uint32_t size_ = 0;
  uint32_t posted_ = 0;  // ever, modulo 2^32
  Outstanding outstanding_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_RECEIVE_QUEUE_H_
