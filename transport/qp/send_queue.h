// The send queue of a queue pair: rings of work requests, SGEs and inline bytes
// in one piece of memory.
#ifndef TRANSPORT_QP_SEND_QUEUE_H_
#define TRANSPORT_QP_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/outstanding.h"
#include "transport/base/work.h"
#include "transport/qp/attributes.h"
#include "transport/qp/send_operation.h"

namespace transport {

// A posted work request. The requester sets `first`, `packets`, `cost` and
// `message` when it begins the request.
struct SendWqe {
  uint64_t wr_id;
  uint64_t remote_addr;
  uint64_t compare_add;  // as in SendRequest
  uint64_t swap;
  uint64_t first;    // sequence number of its first packet
  uint64_t cost;     // bytes (as Path counts) of all earlier packets
  uint32_t length;   // bytes; 8 for an atomic
  uint32_t packets;  // number of its PSNs
  uint32_t rkey;
  // Immediate data, or SendRequest::invalidate_rkey.
  uint32_t imm_be_or_rkey;
  uint32_t remote_srqn;      // XRC
  uint32_t message;          // its SSN, from 1, modulo 2^24
  const SendOperation* row;  // table row of `opcode`, looked up once
  SendOpcode opcode;
  uint8_t flags;    // SendFlag
  uint8_t num_sge;  // without those of length 0

  const SendOperation& operation() const { return *row; }
  uint64_t end() const { return first + packets; }
};

class SendQueue {
 public:
  // Bytes of memory that it needs.
  static size_t Size(const QpCapacity& capacity);

  // `memory` outlives it; null: it allocates.
  SendQueue(const QpCapacity& capacity, std::byte* memory);
  ~SendQueue();
  SendQueue(const SendQueue&) = delete;
  SendQueue& operator=(const SendQueue&) = delete;

  // Work requests have increasing indices; those in [head, tail) are queued.
  // Earlier ones may still occupy their slots.
  uint64_t head() const { return head_; }
  uint64_t tail() const { return tail_; }
  bool empty() const { return head_ == tail_; }
  bool full() const { return held() >= max_wr_; }
  // Number of free slots.
  uint32_t room() const { return max_wr_ - held(); }

  SendWqe& at(uint64_t index) { return wqes_[index & mask_]; }
  const SendWqe& at(uint64_t index) const { return wqes_[index & mask_]; }
  std::span<const Sge> sges(uint64_t index) const {
    return {sges_ + (index & mask_) * max_sge_, at(index).num_sge};
  }
  const uint8_t* inline_data(uint64_t index) const {
    return inline_ + (index & mask_) * max_inline_;
  }

  // The checks that depend neither on the queue pair's state nor on free slots.
  // 0 or EINVAL: opcode, flags, lengths, too many SGEs, inline too long.
  int Check(const SendRequest& request) const;
  // Checks `request` and queues a copy. 0, EINVAL as Check, or ENOMEM (full).
  // Inline data is plain memory of the caller; its keys are not checked.
  int Push(const SendRequest& request);
  // The oldest request has been executed.
  void Pop() { ++head_; }
  // Drops all requests.
  void Clear() {
    head_ = tail_;
    outstanding_.Settle(static_cast<uint32_t>(tail_));
  }

  // Numbered by the low half of the index.
  Outstanding& outstanding() { return outstanding_; }

 private:
  // What Examine finds.
  struct Shape {
    int error = 0;  // of Check; if not 0, the rest is not set
    const SendOperation* operation = nullptr;
    std::span<const Sge> sges = {};  // empty without a local buffer
    uint64_t length = 0;             // of all SGEs
    bool is_inline = false;
  };
  Shape Examine(const SendRequest& request) const;

  uint32_t held() const {
    return static_cast<uint32_t>(tail_) - outstanding_.retired();
  }
  Sge* sges_of(uint64_t index) { return sges_ + (index & mask_) * max_sge_; }
  uint8_t* inline_of(uint64_t index) {
    return inline_ + (index & mask_) * max_inline_;
  }

  uint64_t head_ = 0;
  uint64_t tail_ = 0;
  Outstanding outstanding_;
  const uint32_t max_wr_;
  const uint32_t mask_;
  const uint16_t max_inline_;
  const uint8_t max_sge_;
  const bool owns_memory_;
  SendWqe* wqes_;  // start of the memory
  Sge* sges_;
  uint8_t* inline_;
};

}  // namespace transport

#endif  // TRANSPORT_QP_SEND_QUEUE_H_
