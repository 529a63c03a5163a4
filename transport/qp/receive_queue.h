// A queue pair's own receive queue.
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
  // Bytes of memory that it needs.
  static size_t Size(uint32_t max_wr, uint32_t max_sge);

  // Its receives' keys are checked against `pd`. `memory` outlives it; null: it
  // allocates.
  ReceiveQueue(PdId pd, uint32_t max_wr, uint32_t max_sge,
               std::byte* memory = nullptr);
  ~ReceiveQueue() override;
  ReceiveQueue(const ReceiveQueue&) = delete;
  ReceiveQueue& operator=(const ReceiveQueue&) = delete;

  // 0; EINVAL for too many SGEs; ENOMEM when full.
  int Post(const ReceiveRequest& request);
  bool Pop(ReceiveWqe* out) override;
  QueueSlot TakenSlot() override { return outstanding_.SlotBefore(taken()); }
  // Drops all receives.
  void Clear();

  // Receives not yet taken.
  uint32_t size() const { return size_; }
  // Receives taken so far, modulo 2^32: the end of the last one.
  uint32_t taken() const { return posted_ - size_; }
  Outstanding& outstanding() { return outstanding_; }

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };

  // SGEs of entry `index`, max_sge_ of them.
  Sge* sges_of(size_t index) const {
    return reinterpret_cast<Sge*>(entries_ + max_wr_) + index * max_sge_;
  }

  const PdId pd_;
  const uint32_t max_wr_;
  const uint8_t max_sge_;
  const bool owns_memory_;
  Entry* const entries_;  // array of max_wr_, followed by the SGEs
  uint32_t head_ = 0;     // oldest receive
  uint32_t size_ = 0;
  uint32_t posted_ = 0;  // total, modulo 2^32
  Outstanding outstanding_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_RECEIVE_QUEUE_H_
