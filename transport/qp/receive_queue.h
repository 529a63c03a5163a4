// The receive queue that a queue pair has for itself.
#ifndef TRANSPORT_QP_RECEIVE_QUEUE_H_
#define TRANSPORT_QP_RECEIVE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/types.h"
#include "transport/base/work.h"

namespace transport {

// A ring of posted receives.
class ReceiveQueue : public ReceiveSource {
 public:
  // Bytes of memory that it takes.
  static size_t Size(uint32_t max_wr, uint32_t max_sge);

  // Keys of its receives are checked against `pd`. In `memory`, which outlives
  // it, or for null in memory of its own.
  ReceiveQueue(PdId pd, uint32_t max_wr, uint32_t max_sge,
               std::byte* memory = nullptr);

  // 0; EINVAL for too many SGEs; ENOMEM when full.
  int Post(const ReceiveRequest& request);
  bool Pop(ReceiveWqe* out) override;
  // Forgets all of them.
  void Clear();

  uint32_t size() const { return size_; }

 private:
  struct Entry {
    uint64_t wr_id;
    uint32_t num_sge;
  };

  const PdId pd_;
  const uint32_t max_wr_;
  const uint32_t max_sge_;
  const std::unique_ptr<std::byte[]> own_memory_;
  Entry* const entries_;  // max_wr_ of them
  Sge* const sges_;       // max_sge_ for each entry
  uint32_t head_ = 0;     // the oldest
  uint32_t size_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_QP_RECEIVE_QUEUE_H_
