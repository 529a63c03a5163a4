// A ring of bursts in memory that two lanes share, and the doorbell by which a
// lane learns which of its rings have records.
//
// One lane writes (RingWriter), one reads (RingReader). Positions are bytes
// since the ring was made and only grow. Each side keeps its own position and
// trusts nothing in the shared memory. The reader copies a record, each byte
// once, before it examines it. It checks the record's lengths against its own
// position. An impossible position of the other side ends the ring.
//
// A record is a RecordHeader and the packets of a burst, in one piece. Records
// begin at multiples of 64 bytes. A record without packets skips the space that
// is left at the end of the ring.
#ifndef RXE_USER_PORTS_MEMORY_RING_H_
#define RXE_USER_PORTS_MEMORY_RING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rxe_user {

// The header of a burst in the ring.
struct RecordHeader {
  uint32_t bytes = 0;         // of the packets; 0: skip to the ring's start
  uint16_t segment_size = 0;  // of each packet but the last
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 0;
  uint8_t unused[6] = {};

  bool operator==(const RecordHeader&) const = default;
};
static_assert(sizeof(RecordHeader) == 16);

// The shared memory of a ring. Its first page has the positions, each on its
// own cache lines.
struct RingMemory {
  static constexpr size_t kCapacity = 128 << 10;  // bytes of records
  static constexpr size_t kAlign = 64;            // of records

  alignas(128) std::atomic<uint64_t> tail;  // by the writer: the records' end
  alignas(128) std::atomic<uint64_t> head;  // by the reader: their start
  alignas(4096) uint8_t records[kCapacity];

  // The ring in `bytes`, which has the size of a RingMemory.
  static RingMemory* In(std::span<uint8_t> bytes) {
    return reinterpret_cast<RingMemory*>(bytes.data());
  }
};
static_assert(sizeof(RingMemory) == 4096 + RingMemory::kCapacity);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class RingWriter {
 public:
  // Bytes of packets in a burst: the most, and the least that Reserve returns.
  static constexpr size_t kMaxBytes = 34 << 10;
  static constexpr size_t kMinBytes = 8 << 10;

  // `memory` outlives the writer.
  explicit RingWriter(RingMemory* memory) : memory_(memory) {}

  // Space for the packets of the next burst, between the two limits; empty:
  // the ring is full, or broken(). Stays free until Commit.
  std::span<uint8_t> Reserve();
  // Publishes the first `header.bytes` (not 0) of the last Reserve.
  void Commit(const RecordHeader& header);
  // Whether at least half of the ring is free, or it is broken().
  bool HasRoom();
  // The reader's position was impossible. The ring cannot be used any more.
  bool broken() const { return broken_; }
  // The end of what has been published.
  uint64_t tail() const { return tail_; }
  // Whether the reader has read all that has been published.
  bool IsRead();
  // The reader's position when it was last looked up.
  uint64_t head() const { return head_; }

 private:
  // Bytes free from tail_ on, and before the ring's end.
  size_t Free() const {
    return RingMemory::kCapacity - static_cast<size_t>(tail_ - head_);
  }
  static size_t At(uint64_t position) {
    return static_cast<size_t>(position % RingMemory::kCapacity);
  }
  size_t ToEnd() const { return RingMemory::kCapacity - At(tail_); }
  // How many bytes of packets a record at tail_ may have, after a skip if the
  // end is near. 0: fewer than kMinBytes.
  size_t Room(bool* skip) const;
  void ReadHead();

  RingMemory* memory_;
  uint64_t tail_ = 0;
  uint64_t head_ = 0;   // the reader's, may be old
  bool skips_ = false;  // the reserved space follows a skip
  bool broken_ = false;
};

class RingReader {
 public:
  // `memory` outlives the reader.
  explicit RingReader(RingMemory* memory) : memory_(memory) {}

  // Copies the packets of the next record to `out`, and frees their space.
  // Returns their number of bytes; 0 if there is no record, if it does not fit
  // into `out`, or if the ring is broken(). RingWriter::kMaxBytes always
  // suffice for `out`.
  size_t Read(std::span<uint8_t> out, RecordHeader* header);
  // Whether there is a record.
  bool HasRecord() const {
    return !broken_ && memory_->tail.load(std::memory_order_acquire) != head_;
  }
  // The writer has written something impossible.
  bool broken() const { return broken_; }

 private:
  size_t Break() {
    broken_ = true;
    return 0;
  }

  RingMemory* memory_;
  uint64_t head_ = 0;
  bool broken_ = false;
};

// --- Waking a lane.
//
// A lane has one Doorbell, which it shares with all lanes that write to it. It
// has a bit for each ring of the lane, and says whether the lane's threads
// sleep. A writer rings it after each burst; the reader checks it before it
// sleeps:
//
//   writer, Ring()                       reader, Sleep()
//   W1 publishes the record (release)    R1 asleep = n, a new number (seq_cst)
//   W2 sets the ring's bit (seq_cst)     R2 reads the bits (seq_cst);
//   W3 reads asleep (seq_cst); not 0:       some are set: stays awake
//      wakes the lane                    R3 sleeps
//   W4 asleep = 0 if it is what W3 read
//
// No burst is left with a reader that sleeps. The seq_cst operations have one
// order that agrees with each thread's (C++20 [atomics.order]). If W2 is before
// R2, R2 finds the bit, unless the reader has taken it since, and then it has
// read the record: W2 is also a release, and the reader takes bits by an
// acquire. Else R2 is before W2, and so R1 before W3. If W3 finds n, the writer
// wakes the lane. If it finds a later number, this holds for the R2 of that
// one. If it finds 0, W4 of another writer came in between, and that writer has
// woken the lane from sleep n before.
//
// A writer may be stopped or killed at any step. It wakes the lane before it
// clears `asleep`, so other writers also wake the lane until it is awake,
// perhaps once too often. W4 does not end a later sleep, however late it is.
//
// On aarch64 these are load-acquire and store-release, which are not reordered
// with each other; a relaxed or acquire load in W3 or R2 could be executed
// before the store.
struct Doorbell {
  static constexpr int kRings = 64;

  alignas(128) std::atomic<uint64_t> bits;
  std::atomic<uint64_t> asleep;  // 0: awake

  static Doorbell* In(std::span<uint8_t> bytes) {
    return reinterpret_cast<Doorbell*>(bytes.data());
  }

  // The default for `Between`, which tests replace to act between the steps.
  struct Nothing {
    void operator()() const {}
  };

  // The writer of ring `ring` has published a record. Calls `wake` (a write to
  // the lane's eventfd) if the lane sleeps.
  template <typename Wake, typename Between = Nothing>
  void Ring(int ring, Wake wake, Between between = {}) {
    bits.fetch_or(uint64_t{1} << ring);
    between();
    uint64_t sleep = asleep.load();
    if (sleep == 0) return;
    between();
    wake();
    between();
    asleep.compare_exchange_strong(sleep, 0);
  }
  // For the reader: returns the bits of the rings that may have records, and
  // clears them.
  uint64_t Take() {
    if (bits.load(std::memory_order_relaxed) == 0) return 0;
    return bits.exchange(0);
  }
  // For the reader, which is about to sleep for the `number`th time (from 1
  // on). False: it must not sleep, since a ring may have a record.
  template <typename Between = Nothing>
  bool Sleep(uint64_t number, Between between = {}) {
    asleep.store(number);
    between();
    return bits.load() == 0;
  }
};

// Bytes of the file of a doorbell: a page.
inline constexpr size_t kDoorbellBytes = 4096;

}  // namespace rxe_user

#endif  // RXE_USER_PORTS_MEMORY_RING_H_
