// READs and atomics that a responder has executed and may have to answer again
// (IBA vol. 1, 9.7.4.4: responder resources).
#ifndef TRANSPORT_RC_RESPONDER_RESOURCES_H_
#define TRANSPORT_RC_RESPONDER_RESOURCES_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "transport/base/types.h"
#include "wire/opcode.h"

namespace transport {

// A READ, an atomic, an ATOMIC WRITE or a FLUSH, from its execution on for as
// long as it may be requested again.
struct Resource {
  wire::Operation operation = wire::Operation::kReadRequest;
  // A response must be sent: the first one, or a repeated one.
  bool pending = false;
  bool answered = false;   // in full, at least once
  bool owes_ack = false;   // for earlier requests; its first packet is that ACK
  uint32_t msn = 0;        // after this request
  uint64_t first_psn = 0;  // of the original request's responses
  uint64_t last_psn = 0;
  PdId pd = 0;  // of the R_Key: an XRC target's changes
  uint64_t va = 0;
  uint32_t rkey = 0;
  uint32_t length = 0;    // bytes; READ
  uint64_t original = 0;  // what an atomic found

  uint64_t start_psn = 0;  // of this response's first packet
  uint64_t next_psn = 0;   // of its next packet
  uint32_t stop = 0;       // where it ends, in bytes from `va`; READ
  // If a replay of an earlier part has interrupted a response: where the rest
  // of it begins, in packets from first_psn, and where it ends (as `stop`). 0:
  // there is no rest.
  uint32_t rest = 0;
  uint32_t rest_stop = 0;
};

// The newest max_dest_rd_atomic of them, in the order of their PSNs; a ring.
class ResponderResources {
 public:
  // Forgets all. Throws std::bad_alloc, having changed nothing.
  void Allocate(size_t capacity);
  // Keeps the newest that fit. Throws as Allocate does.
  void Resize(size_t capacity);
  void Clear() { head_ = size_ = first_pending_ = 0; }

  size_t size() const { return size_; }
  // By age; 0 is the oldest.
  Resource& at(size_t index) { return ring_[(head_ + index) % capacity_]; }
  const Resource& at(size_t index) const {
    return ring_[(head_ + index) % capacity_];
  }
  // The one whose PSNs include `psn`, or null.
  Resource* Find(uint64_t psn);

  // A new one, which replaces the oldest if the limit is reached; it counts
  // from Add on. Null: the oldest has not been answered, so the requester has
  // more outstanding than agreed.
  Resource* New();
  void Add() { ++size_; }

  // --- Pending ones.
  // None before this index is pending.
  size_t first_pending() const { return first_pending_; }
  bool any_pending() const { return first_pending_ != size_; }  // or may be
  // The first that is pending, or null.
  Resource* NextPending() {
    for (; first_pending_ < size_; ++first_pending_) {
      if (at(first_pending_).pending) return &at(first_pending_);
    }
    return nullptr;
  }
  // The response of `resource`, one of these, must be sent.
  void SetPending(Resource* resource);

 private:
  std::unique_ptr<Resource[]> ring_;
  // max_dest_rd_atomic, an attribute of eight bits, limits them.
  uint16_t capacity_ = 0;
  uint16_t head_ = 0;
  uint16_t size_ = 0;
  uint16_t first_pending_ = 0;  // counted as `at` does
};

}  // namespace transport

#endif  // TRANSPORT_RC_RESPONDER_RESOURCES_H_
