#include "rxe_user/ports/memory_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

namespace rxe_user {
namespace {

using Bytes = std::vector<uint8_t>;

class MemoryRingTest : public ::testing::Test {
 protected:
  // Writes `bytes` of `fill`; false: the ring is full.
  bool Write(size_t bytes, uint8_t fill) {
    const std::span<uint8_t> space = writer.Reserve();
    if (space.size() < bytes) return false;
    std::fill_n(space.begin(), bytes, fill);
    writer.Commit({.bytes = static_cast<uint32_t>(bytes),
                   .segment_size = 64,
                   .source_port = fill});
    return true;
  }
  // The bytes of the next record; empty: none.
  Bytes Read() {
    Bytes out(RingWriter::kMaxBytes);
    out.resize(reader.Read(out, &header));
    return out;
  }

  std::unique_ptr<RingMemory> memory = std::make_unique<RingMemory>();
  RingWriter writer{memory.get()};
  RingReader reader{memory.get()};
  RecordHeader header;
};

TEST_F(MemoryRingTest, ARecordArrivesAsItWas) {
  EXPECT_FALSE(reader.HasRecord());
  EXPECT_TRUE(Read().empty());
  const std::span<uint8_t> space = writer.Reserve();
  EXPECT_EQ(space.size(), RingWriter::kMaxBytes);
  const RecordHeader sent = {.bytes = 3,
                             .segment_size = 2,
                             .source_port = 0xc001,
                             .traffic_class = 5,
                             .hop_limit = 6};
  space[0] = 1;
  space[1] = 2;
  space[2] = 3;
  EXPECT_FALSE(reader.HasRecord());
  writer.Commit(sent);
  EXPECT_TRUE(reader.HasRecord());
  EXPECT_EQ(Read(), (Bytes{1, 2, 3}));
  EXPECT_EQ(header, sent);
  EXPECT_FALSE(reader.HasRecord());
}

// A reservation need not be used, and can be repeated.
TEST_F(MemoryRingTest, AReservationNeedNotBeCommitted) {
  (void)writer.Reserve();
  ASSERT_TRUE(Write(10, 1));
  EXPECT_EQ(Read(), Bytes(10, 1));
  EXPECT_TRUE(Read().empty());
}

TEST_F(MemoryRingTest, EveryOrderOfLengthsAndReads) {
  std::mt19937 random(1);
  std::vector<std::pair<size_t, uint8_t>> expected;
  size_t written = 0, read = 0, full = 0;
  while (read < 20'000) {
    if (random() % 2 == 0) {
      const size_t space = writer.Reserve().size();
      if (space == 0) {
        ++full;
        // Nothing is lost in a ring: space that is not free can be read.
        ASSERT_LT(read, written);
      } else {
        EXPECT_GE(space, RingWriter::kMinBytes);
        EXPECT_LE(space, RingWriter::kMaxBytes);
        const size_t bytes = random() % 3 == 0 ? space : 1 + random() % space;
        expected.emplace_back(bytes, static_cast<uint8_t>(written++));
        ASSERT_TRUE(Write(bytes, expected.back().second));
      }
    } else if (read < written) {
      const auto [bytes, fill] = expected[read++];
      ASSERT_EQ(Read(), Bytes(bytes, fill));
      ASSERT_EQ(header.source_port, fill);
    } else {
      ASSERT_TRUE(Read().empty());
    }
  }
  EXPECT_GT(full, 100u);
  EXPECT_FALSE(writer.broken());
  EXPECT_FALSE(reader.broken());
}

TEST_F(MemoryRingTest, AFullRingHasRoomWhenHalfOfItIsRead) {
  size_t count = 0;
  while (Write(RingWriter::kMinBytes, 1)) ++count;
  EXPECT_GE(count * RingWriter::kMinBytes,
            RingMemory::kCapacity - 2 * RingWriter::kMinBytes);
  EXPECT_FALSE(writer.HasRoom());
  size_t read = 0;
  for (; !writer.HasRoom(); ++read) ASSERT_FALSE(Read().empty());
  EXPECT_NEAR(static_cast<double>(read), static_cast<double>(count) / 2, 1);
  EXPECT_FALSE(writer.Reserve().empty());
  // At every place of the ring.
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(Read().empty());
    ASSERT_TRUE(Write(RingWriter::kMinBytes - 100, 2)) << i;
  }
}

TEST_F(MemoryRingTest, ARecordThatDoesNotFitStays) {
  ASSERT_TRUE(Write(100, 1));
  Bytes small(99);
  EXPECT_EQ(reader.Read(small, &header), 0u);
  EXPECT_FALSE(reader.broken());
  EXPECT_TRUE(reader.HasRecord());
  EXPECT_EQ(Read(), Bytes(100, 1));
}

// --- What the other side may write.

TEST_F(MemoryRingTest, AHeadThatJumpsBreaksTheWriter) {
  for (const uint64_t head : {uint64_t{64}, uint64_t{1}, ~uint64_t{0}}) {
    RingWriter fresh{memory.get()};
    memory->head = head;
    EXPECT_TRUE(fresh.HasRoom());  // the next Reserve finds out
    EXPECT_TRUE(fresh.broken());
    EXPECT_TRUE(fresh.Reserve().empty() || fresh.broken());
  }
}

TEST_F(MemoryRingTest, AHeadThatGoesBackBreaksTheWriter) {
  while (Write(RingWriter::kMinBytes, 1)) {
  }
  while (!Read().empty()) {
  }
  EXPECT_TRUE(writer.HasRoom());
  ASSERT_FALSE(writer.broken());
  memory->head -= 64;
  (void)writer.HasRoom();
  EXPECT_TRUE(writer.broken());
}

TEST_F(MemoryRingTest, ATailThatJumpsBreaksTheReader) {
  for (const uint64_t tail :
       {uint64_t{RingMemory::kCapacity + 64}, uint64_t{65}, ~uint64_t{0},
        ~uint64_t{63}, uint64_t{1} << 63}) {
    RingReader fresh{memory.get()};
    memory->tail = tail;
    Bytes out(RingWriter::kMaxBytes);
    EXPECT_EQ(fresh.Read(out, &header), 0u);
    EXPECT_TRUE(fresh.broken()) << tail;
    EXPECT_FALSE(fresh.HasRecord());
  }
}

TEST_F(MemoryRingTest, LengthsBeyondTheRecordsBreakTheReader) {
  const RecordHeader headers[] = {
      {.bytes = 49, .segment_size = 1},  // 64 bytes have room for 48 of packets
      {.bytes = ~uint32_t{0}, .segment_size = 1},
      {.bytes = ~uint32_t{0} - 15, .segment_size = 1},
      {.bytes = RingWriter::kMaxBytes + 1, .segment_size = 1},
      {.bytes = 48, .segment_size = 0},
      {.bytes = 0},  // a skip that does not reach the end
  };
  for (const RecordHeader& bad : headers) {
    RingReader fresh{memory.get()};
    std::memcpy(memory->records, &bad, sizeof(bad));
    memory->tail = 64;
    Bytes out(2 * RingWriter::kMaxBytes);
    EXPECT_EQ(fresh.Read(out, &header), 0u);
    EXPECT_TRUE(fresh.broken()) << bad.bytes;
  }
}

// A ring of random bytes: there is no read outside it (a sanitizer would report
// that), no endless loop, and never more bytes than asked for.
TEST_F(MemoryRingTest, Noise) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    for (size_t at = 0; at < RingMemory::kCapacity; at += 64) {
      RecordHeader noise = {
          .bytes =
              random() % 4 == 0 ? 0u : static_cast<uint32_t>(random() % 40'000),
          .segment_size = static_cast<uint16_t>(random() % 100)};
      std::memcpy(memory->records + at, &noise, sizeof(noise));
    }
    RingReader fresh{memory.get()};
    memory->tail = random() % (RingMemory::kCapacity / 64 + 4) * 64;
    Bytes out(RingWriter::kMaxBytes);
    size_t reads = 0;
    while (const size_t bytes = fresh.Read(out, &header)) {
      ASSERT_LE(bytes, out.size());
      ASSERT_LT(++reads, RingMemory::kCapacity / 64 + 1);
    }
  }
}

// --- Both sides at once.

TEST_F(MemoryRingTest, TwoThreads) {
  constexpr uint32_t kRecords = 30'000;
  std::thread thread([this] {
    for (uint32_t i = 0; i < kRecords;) {
      const size_t bytes = 4 + i * 7919 % 5000;
      const std::span<uint8_t> space = writer.Reserve();
      ASSERT_FALSE(writer.broken());
      if (space.size() < bytes) {
        std::this_thread::yield();
        continue;
      }
      std::memset(space.data(), static_cast<int>(i & 0xff), bytes);
      std::memcpy(space.data(), &i, sizeof(i));
      writer.Commit({.bytes = static_cast<uint32_t>(bytes), .segment_size = 9});
      ++i;
    }
  });
  Bytes out(RingWriter::kMaxBytes);
  for (uint32_t i = 0; i < kRecords;) {
    const size_t bytes = reader.Read(out, &header);
    if (bytes == 0) {
      ASSERT_FALSE(reader.broken());
      std::this_thread::yield();
      continue;
    }
    ASSERT_EQ(bytes, 4 + i * 7919 % 5000);
    uint32_t number;
    std::memcpy(&number, out.data(), sizeof(number));
    ASSERT_EQ(number, i);
    ASSERT_EQ(out[bytes - 1] == (i & 0xff) || bytes == 4, true);
    ++i;
  }
  thread.join();
}

// --- Sleep and wake.

// Lets two threads run in turns. A step is what a thread does between two calls
// of Step; `order` says whose step is next. Steps of a thread that has ended
// are skipped.
class Turns {
 public:
  explicit Turns(std::vector<int> order) : order_(std::move(order)) {}

  void Step(int side) {
    std::unique_lock lock(mutex_);
    Release(side);
    changed_.wait(lock, [&] {
      while (next_ < order_.size() && ended_[order_[next_]]) ++next_;
      return running_ < 0 && (next_ == order_.size() || order_[next_] == side);
    });
    if (next_ < order_.size()) ++next_;
    running_ = side;
  }
  void End(int side) {
    const std::lock_guard lock(mutex_);
    ended_[side] = true;
    Release(side);
    changed_.notify_all();
  }

 private:
  void Release(int side) {
    if (running_ == side) running_ = -1;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::vector<int> order_;
  size_t next_ = 0;
  int running_ = -1;
  bool ended_[2] = {};
};

// A writer publishes one record; a reader checks and goes to sleep, twice;
// their steps run in every order. A reader that sleeps has read the record, or
// has been woken since it decided to sleep.
TEST_F(MemoryRingTest, NoOrderOfStepsLeavesARecordWithASleeper) {
  constexpr int kWriter = 0, kReader = 1;
  int sleeps = 0, wakes = 0, stays = 0;
  std::vector<int> order = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
  do {
    RingMemory& fresh = *(memory = std::make_unique<RingMemory>());
    writer = RingWriter(&fresh);
    reader = RingReader(&fresh);
    Doorbell doorbell{};
    Turns turns(order);
    bool woken = false, read = false, slept = false;  // by one side at a time
    std::thread thread([&] {
      const auto step = [&] { turns.Step(kWriter); };
      step();
      ASSERT_TRUE(Write(10, 1));
      step();
      doorbell.Ring(
          5,
          [&] {
            woken = true;
            ++wakes;
          },
          step);
      turns.End(kWriter);
    });
    const auto step = [&] { turns.Step(kReader); };
    step();
    for (const uint64_t number : {1, 2}) {
      if (doorbell.Take() != 0) read = !Read().empty();
      step();
      woken = false;
      step();
      slept = doorbell.Sleep(number, step);
    }
    turns.End(kReader);
    thread.join();
    if (slept) {
      EXPECT_TRUE(read || woken) << ::testing::PrintToString(order);
    }
    sleeps += slept ? 1 : 0;
    stays += slept ? 0 : 1;
    // A reader that takes the bits now gets the record.
    if (!read) {
      EXPECT_EQ(doorbell.Take(), uint64_t{1} << 5);
      EXPECT_EQ(Read(), Bytes(10, 1));
    }
  } while (std::ranges::next_permutation(order).found);
  EXPECT_GT(sleeps, 0);
  EXPECT_GT(wakes, 0);
  EXPECT_GT(stays, 0);
}

// A writer may be stopped between any two steps, for any time. By then the lane
// is awake, or other writers wake it.
TEST(DoorbellTest, AStoppedWriterDoesNotKeepOthersFromWaking) {
  for (int stopped_at = 0; stopped_at < 3; ++stopped_at) {
    Doorbell doorbell{};
    ASSERT_TRUE(doorbell.Sleep(1));
    bool woken = false;
    const auto wake = [&] { woken = true; };
    int step = 0;
    doorbell.Ring(5, wake, [&] {
      if (step++ != stopped_at) return;
      doorbell.Ring(6, wake);
      EXPECT_TRUE(woken) << stopped_at;
    });
    EXPECT_GT(step, stopped_at);
  }
}

// A stopped writer that continues does not end a sleep that it has not seen.
TEST(DoorbellTest, AStoppedWriterDoesNotEndALaterSleep) {
  Doorbell doorbell{};
  ASSERT_TRUE(doorbell.Sleep(1));
  int step = 0;
  doorbell.Ring(
      5, [] {},
      [&] {
        if (step++ != 2) return;
        EXPECT_NE(doorbell.Take(), 0u);
        EXPECT_TRUE(doorbell.Sleep(2));
      });
  EXPECT_EQ(step, 3);
  bool woken = false;
  doorbell.Ring(6, [&] { woken = true; });
  EXPECT_TRUE(woken);
}

// The same with real threads, many times, and with several writers. A reader
// that was not woken would wait for ever.
TEST_F(MemoryRingTest, SleepersAreWoken) {
  constexpr int kWriters = 3;
  constexpr int kEach = 50'000;
  Doorbell doorbell{};
  std::counting_semaphore<> wake(0);
  std::unique_ptr<RingMemory> memories[kWriters];
  std::vector<RingReader> readers;
  std::vector<std::thread> threads;
  for (int w = 0; w < kWriters; ++w) {
    memories[w] = std::make_unique<RingMemory>();
    readers.emplace_back(memories[w].get());
  }
  for (int w = 0; w < kWriters; ++w) {
    threads.emplace_back([&, w] {
      RingWriter out(memories[w].get());
      for (int i = 0; i < kEach;) {
        const std::span<uint8_t> space = out.Reserve();
        if (space.empty()) {
          std::this_thread::yield();
          continue;
        }
        space[0] = static_cast<uint8_t>(w);
        out.Commit({.bytes = 1, .segment_size = 1});
        doorbell.Ring(w, [&] { wake.release(); });
        ++i;
      }
    });
  }
  Bytes out(RingWriter::kMaxBytes);
  uint64_t slept = 0;
  for (int read = 0; read < kWriters * kEach;) {
    for (uint64_t bits = doorbell.Take(); bits != 0; bits &= bits - 1) {
      const int w = std::countr_zero(bits);
      while (readers[static_cast<size_t>(w)].Read(out, &header) != 0) {
        ASSERT_EQ(out[0], w);
        ++read;
      }
    }
    if (read == kWriters * kEach) break;
    // Empty it, like an eventfd: several writers may have woken the reader.
    while (wake.try_acquire()) {
    }
    if (doorbell.Sleep(++slept)) wake.acquire();
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rxe_user
