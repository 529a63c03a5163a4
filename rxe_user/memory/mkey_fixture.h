// Memory keys under real queue pairs: two ends, between which the test carries
// the packets.
#ifndef RXE_USER_MEMORY_MKEY_FIXTURE_H_
#define RXE_USER_MEMORY_MKEY_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/region_table.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/recorders.h"

namespace rxe_user::mkey_test {

using transport::Completion;
using transport::InterleavedPiece;
using transport::QpType;
using transport::SendOpcode;
using transport::SendRequest;
using transport::Sge;
using transport::Time;
using transport::WcOpcode;
using transport::WcStatus;
using Layout = transport::MkeyConfiguration::Layout;

inline constexpr transport::PdId kPd = 7;
inline constexpr size_t kArena = 6 << 20;  // bytes
inline constexpr uint32_t kAll = transport::kMkeyRights;
inline constexpr int kRegions = 3;

class Random {
 public:
  explicit Random(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t end) { return random_() % end; }
  uint64_t Between(uint64_t least, uint64_t most) {
    return least + Below(most - least + 1);
  }
  bool Percent(uint64_t percent) { return Below(100) < percent; }

 private:
  std::mt19937_64 random_;
};

// A key, and the arena offset of each of its bytes.
struct Key {
  uint32_t key = 0;
  uint64_t va = 0;  // of byte 0
  std::vector<uint32_t> places;
};

class End {
 public:
  End(QpType type, uint32_t qpn, const char* address)
      : address_(*wire::IpAddress::Parse(address)), arena(kArena) {
    for (int i = 0; i < kRegions; ++i) {
      Region region;
      region.pd = kPd;
      region.access = kAll;
      region.host = arena.data() + i * kRegion;
      region.length = kRegion;
      region.iova = VaOf(i * kRegion);
      regions[i] = table.Add(region);
    }
    transport::QpConfig config;
    config.type = type;
    config.qpn = qpn;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 64,
                       .max_recv_wr = 64,
                       .max_send_sge = transport::kMaxSge,
                       .max_recv_sge = transport::kMaxSge,
                       .max_inline_data = 1024};
    config.memory = &table;
    config.send_cq = &sends;
    config.recv_cq = &receives;
    config.events = &events;
    qp = transport::MakeQueuePair(endpoint, config);
  }

  void Connect(const End& peer, uint32_t path_mtu) {
    transport::QpAttributes to =
        transport::ConnectionTo(peer.qp->qpn(), address_, peer.address_);
    to.av.source_port = 0xc001;
    to.path_mtu = path_mtu;
    to.sq_psn = to.rq_psn = 0xffff00;
    ASSERT_EQ(transport::BringUp(*qp, to, 0), 0);
  }

  // Bytes of the arena that no other call has returned.
  uint32_t Allocate(uint64_t bytes, Random& random, uint32_t align = 1) {
    uint32_t at = used_ + static_cast<uint32_t>(random.Below(16));
    at = (at + align - 1) / align * align;
    // The bytes must be within one region.
    if (at / kRegion != (at + bytes - 1) / kRegion) {
      at = (at / kRegion + 1) * kRegion;
    }
    used_ = at + static_cast<uint32_t>(bytes);
    EXPECT_LE(used_, kRegions * kRegion);
    return at;
  }
  void FreeAll() { used_ = 0; }
  static uint64_t VaOf(uint32_t place) { return 0x7000'0000 + place; }
  uint32_t RegionOf(uint32_t place) const { return regions[place / kRegion]; }

  Key Plain(uint64_t bytes, Random& random, uint32_t align = 1) {
    const uint32_t at = Allocate(bytes, random, align);
    Key key{RegionOf(at), VaOf(at), {}};
    for (uint32_t i = 0; i < bytes; ++i) key.places.push_back(at + i);
    return key;
  }

  // A new memory key of at least `bytes` bytes with a random layout.
  Key Mkey(uint64_t bytes, Random& random) {
    Key key;
    key.key = table.AddMkey(kPd, 64, {.remote_invalidate = true});
    Configure(&key, bytes, random);
    return key;
  }
  // Changes the layout of a key.
  void Configure(Key* key, uint64_t bytes, Random& random) {
    if (random.Percent(50)) {
      List(key, bytes, random);
    } else {
      Interleave(key, bytes, random);
    }
  }

  std::vector<uint8_t> Read(const std::vector<uint32_t>& places) const {
    std::vector<uint8_t> bytes;
    for (const uint32_t place : places) bytes.push_back(arena[place]);
    return bytes;
  }

  int Post(SendRequest request, std::vector<Sge> sges) {
    request.sges = sges;
    return qp->PostSend(request, now);
  }

  // Sends everything that is due. Returns whether there was anything.
  bool SendTo(End& peer, Time now, Random& random, uint64_t loss_percent) {
    bool any = false;
    while (const transport::Burst* burst = endpoint.PollTransmit(now, &sink_)) {
      any = true;
      if (random.Percent(loss_percent)) continue;
      transport::GroBatch batch;
      batch.bytes = burst->bytes();
      batch.segment_size = burst->segment_size();
      batch.source = address_;
      batch.destination = peer.address_;
      batch.source_port = burst->flow()->av.source_port;
      batch.hop_limit = 64;
      peer.endpoint.OnGroBatch(batch, now, nullptr);
    }
    return any;
  }

  static constexpr uint32_t kRegion = kArena / kRegions / 4096 * 4096;

 private:
  wire::IpAddress address_;

 public:
  std::vector<uint8_t> arena;
  RegionTable table;
  uint32_t regions[kRegions];
  transport::RecordingCq sends;
  transport::RecordingCq receives;
  transport::RecordingEvents events;
  transport::Endpoint endpoint;
  std::unique_ptr<transport::QueuePair> qp;
  Time now = transport::kSecond;

 private:
  // Uses a work request of the queue pair if that is possible.
  void Configure(uint32_t key, Layout layout, const void* entries, size_t bytes,
                 uint32_t repeat) {
    if (qp->config().type == QpType::kRc) {
      ASSERT_EQ(
          Post({.opcode = SendOpcode::kConfigureMkey,
                .flags = transport::kSendInline | transport::kSendSignaled,
                .rkey = key,
                .compare_add = repeat,
                .swap = transport::MkeyOperand(layout, kAll)},
               {{reinterpret_cast<uint64_t>(entries),
                 static_cast<uint32_t>(bytes), 0}}),
          0);
      const std::vector<Completion> done = sends.Take();
      ASSERT_EQ(done.size(), 1u);
      ASSERT_EQ(done[0].status, WcStatus::kSuccess);
      ASSERT_EQ(done[0].opcode, WcOpcode::kConfigureMkey);
      return;
    }
    transport::MkeyConfiguration configuration{
        .key = key, .pd = kPd, .access = kAll, .layout = layout};
    if (layout == Layout::kList) {
      configuration.list = {static_cast<const Sge*>(entries),
                            bytes / sizeof(Sge)};
    } else {
      configuration.interleaved = {
          static_cast<const InterleavedPiece*>(entries),
          bytes / sizeof(InterleavedPiece)};
      configuration.repeat_count = repeat;
    }
    ASSERT_EQ(table.ConfigureMkey(configuration), transport::MemoryStatus::kOk);
  }

  void List(Key* key, uint64_t bytes, Random& random) {
    const uint64_t most = random.Between(1, 64);
    std::vector<Key> pieces;
    for (uint64_t left = bytes; left > 0;) {
      const uint64_t piece =
          pieces.size() + 1 == most
              ? left
              : random.Between(1, std::min(left, 2 * bytes / most + 1));
      pieces.push_back(Plain(piece, random));
      left -= piece;
    }
    std::shuffle(pieces.begin(), pieces.end(), random_);
    std::vector<Sge> list;
    key->places.clear();
    for (const Key& piece : pieces) {
      list.push_back(
          {piece.va, static_cast<uint32_t>(piece.places.size()), piece.key});
      key->places.insert(key->places.end(), piece.places.begin(),
                         piece.places.end());
    }
    Configure(key->key, Layout::kList, list.data(),
              list.size() * sizeof(list[0]), 1);
  }

  void Interleave(Key* key, uint64_t bytes, Random& random) {
    const uint64_t entries = random.Between(1, 4);
    const uint64_t most = random.Percent(40)   ? 2
                          : random.Percent(50) ? 300
                                               : 5000;
    std::vector<InterleavedPiece> pieces;
    uint64_t round = 0;
    for (uint64_t i = 0; i < entries; ++i) {
      pieces.push_back({.bytes = static_cast<uint16_t>(random.Between(1, most)),
                        .skip = static_cast<uint16_t>(random.Below(20))});
      round += pieces.back().bytes;
    }
    const auto repeat = static_cast<uint32_t>(bytes / round + 1);
    for (InterleavedPiece& piece : pieces) {
      const uint32_t at =
          Allocate(uint64_t{repeat} * (piece.bytes + piece.skip), random);
      piece.addr = VaOf(at);
      piece.lkey = RegionOf(at);
    }
    key->places.clear();
    for (uint32_t r = 0; r < repeat; ++r) {
      for (const InterleavedPiece& piece : pieces) {
        for (uint32_t i = 0; i < piece.bytes; ++i) {
          key->places.push_back(static_cast<uint32_t>(
              piece.addr - VaOf(0) + r * (piece.bytes + piece.skip) + i));
        }
      }
    }
    Configure(key->key, Layout::kInterleaved, pieces.data(),
              pieces.size() * sizeof(pieces[0]), repeat);
  }

  uint32_t used_ = 0;
  std::mt19937_64 random_{5};
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(65507);
  transport::OneBurst sink_{buffer_, 64};
};

// Both ends and the clock.
class Pair {
 public:
  Pair(QpType type, uint32_t path_mtu, uint64_t seed, uint64_t loss_percent = 0)
      : a(type, 0x0a0001, "10.0.0.1"),
        b(type, 0x0b0002, "10.0.0.2"),
        random(seed),
        loss_percent_(loss_percent) {
    PrepareGuardedAccess();
    a.Connect(b, path_mtu);
    b.Connect(a, path_mtu);
    for (End* end : {&a, &b}) {
      for (size_t i = 0; i < kArena; i += sizeof(uint64_t)) {
        const uint64_t word = random.Below(UINT64_MAX);
        std::memcpy(&end->arena[i], &word, sizeof(word));
      }
    }
  }

  // One exchange. If nothing was sent, time then passes until the next timer.
  void Step() {
    Time now = a.now + transport::kMicrosecond;
    const bool a_sent = a.SendTo(b, now, random, loss_percent_);
    const bool b_sent = b.SendTo(a, now, random, loss_percent_);
    if (!a_sent && !b_sent) {
      const Time next =
          std::min(a.endpoint.NextTimeout(), b.endpoint.NextTimeout());
      if (next != transport::kNever) now = std::max(now, next);
    }
    for (End* end : {&a, &b}) {
      end->now = now;
      if (end->endpoint.NextTimeout() <= now) end->endpoint.OnTimer(now);
    }
  }
  // The next send completion of `a`.
  Completion Wait() {
    for (int steps = 0; a.sends.completions.empty(); ++steps) {
      if (steps == 100'000) {
        ADD_FAILURE() << "nothing completes";
        return {};
      }
      Step();
    }
    const std::vector<Completion> all = a.sends.Take();
    EXPECT_EQ(all.size(), 1u);
    return all[0];
  }
  // Lets everything in flight arrive.
  void Settle() {
    for (int i = 0; i < 20; ++i) Step();
  }

  End a;
  End b;
  Random random;

 private:
  const uint64_t loss_percent_;
};

struct Case {
  QpType type;
  uint32_t path_mtu;
  uint64_t loss_percent;
  uint64_t seed;
};

}  // namespace rxe_user::mkey_test

#endif  // RXE_USER_MEMORY_MKEY_FIXTURE_H_
