// READs and atomics whose responses a requester waits for.
#ifndef TRANSPORT_RC_OUTSTANDING_READS_H_
#define TRANSPORT_RC_OUTSTANDING_READS_H_

#include <cstdint>
#include <memory>

namespace transport {

// READ requests and atomics that have been sent and are not fully answered, in
// order; at most max_rd_atomic. A long READ is several of them.
class OutstandingReads {
 public:
  struct Entry {
    uint64_t first = 0;
    uint64_t end = 0;
    // Asked for more than once: the positions (first, middle, last) of its
    // response packets are no longer certain.
    bool replayed = false;
  };

  void Allocate(uint32_t capacity);  // only while empty
  uint32_t capacity() const { return capacity_; }
  uint32_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == capacity_; }
  Entry& front() { return entries_[head_]; }
  const Entry& front() const { return entries_[head_]; }
  // Whether one contains `seq`; usually the first does.
  bool Contains(uint64_t seq) const {
    if (empty()) return false;
    const Entry& first = front();
    return (first.first <= seq && seq < first.end) || Find(seq) != nullptr;
  }
  // The one that contains `seq`, or null.
  Entry* Find(uint64_t seq);
  const Entry* Find(uint64_t seq) const;
  // The first one that ends beyond `seq`, or null.
  const Entry* FindFrom(uint64_t seq) const;
  void Push(uint64_t first, uint64_t end);
  void PopFront();
  void MarkReplayed();  // all
  void Clear() { size_ = 0; }

 private:
  std::unique_ptr<Entry[]> entries_;
  // max_rd_atomic, an attribute of eight bits, limits them.
  uint16_t capacity_ = 0;
  uint16_t head_ = 0;
  uint16_t size_ = 0;
};

}  // namespace transport

#endif  // TRANSPORT_RC_OUTSTANDING_READS_H_
