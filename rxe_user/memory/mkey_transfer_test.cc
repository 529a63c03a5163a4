// Memory keys under real queue pairs: two ends, between which the test carries
// the packets, move data between random layouts. The result is compared byte
// for byte with a separate copy; nothing else may change.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/memory/region_table.h"
#include "rxe_user/memory/signature/form_for_tests.h"
#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/recorders.h"

namespace rxe_user {
namespace {

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

constexpr transport::PdId kPd = 7;
constexpr size_t kArena = 6 << 20;  // bytes
constexpr uint32_t kAll = transport::kMkeyRights;
constexpr int kRegions = 3;

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
    const bool sent = a.SendTo(b, now, random, loss_percent_) |
                      b.SendTo(a, now, random, loss_percent_);
    if (!sent) {
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

class MkeyTransferTest : public testing::TestWithParam<Case> {};

// SGEs of random parts of random keys, `bytes` bytes in total.
struct Buffer {
  std::vector<Sge> sges;
  std::vector<uint32_t> places;
};
Buffer MakeBuffer(End& end, uint64_t bytes, Random& random) {
  Buffer buffer;
  const uint64_t most = random.Percent(50) ? 1 : random.Between(2, 32);
  while (buffer.places.size() < bytes) {
    const uint64_t left = bytes - buffer.places.size();
    const uint64_t wanted =
        buffer.sges.size() + 1 == most
            ? left
            : random.Between(1, std::min(left, bytes / 2 + 1));
    const Key key = random.Percent(80) ? end.Mkey(wanted + 100, random)
                                       : end.Plain(wanted, random);
    const uint64_t offset = random.Between(0, key.places.size() - wanted);
    buffer.sges.push_back(
        {key.va + offset, static_cast<uint32_t>(wanted), key.key});
    const auto from = key.places.begin() + static_cast<ptrdiff_t>(offset);
    buffer.places.insert(buffer.places.end(), from,
                         from + static_cast<ptrdiff_t>(wanted));
  }
  return buffer;
}

TEST_P(MkeyTransferTest, EqualsACopy) {
  const Case& c = GetParam();
  Pair pair(c.type, c.path_mtu, c.seed, c.loss_percent);
  const bool reliable = c.type == QpType::kRc;
  for (int round = 0; round < 40; ++round) {
    SCOPED_TRACE(round);
    pair.a.FreeAll();
    pair.b.FreeAll();
    Random& random = pair.random;
    const uint64_t bytes =
        random.Percent(30) ? random.Between(1, 200) : random.Between(1, 20'000);
    const Buffer local = MakeBuffer(pair.a, bytes, random);
    const SendOpcode opcodes[] = {SendOpcode::kSend, SendOpcode::kRdmaWrite,
                                  SendOpcode::kRdmaWriteWithImm,
                                  SendOpcode::kRdmaRead};
    const SendOpcode opcode = opcodes[random.Below(reliable ? 4 : 3)];
    std::vector<uint8_t> of_a = pair.a.arena;
    std::vector<uint8_t> of_b = pair.b.arena;
    SendRequest request{.opcode = opcode, .flags = transport::kSendSignaled};
    std::vector<uint32_t> remote;
    const bool receives =
        opcode == SendOpcode::kSend || opcode == SendOpcode::kRdmaWriteWithImm;
    if (receives) {
      const Buffer receive = MakeBuffer(pair.b, bytes, random);
      ASSERT_EQ(pair.b.qp->PostReceive({.wr_id = 1, .sges = receive.sges},
                                       pair.a.now),
                0);
      remote = receive.places;
    }
    if (opcode != SendOpcode::kSend) {
      const Key key = random.Percent(80) ? pair.b.Mkey(bytes + 100, random)
                                         : pair.b.Plain(bytes, random);
      const uint64_t offset = random.Between(0, key.places.size() - bytes);
      const auto from = key.places.begin() + static_cast<ptrdiff_t>(offset);
      remote = {from, from + static_cast<ptrdiff_t>(bytes)};
      request.rkey = key.key;
      request.remote_addr = key.va + offset;
    }
    for (uint64_t i = 0; i < bytes; ++i) {
      if (opcode == SendOpcode::kRdmaRead) {
        of_a[local.places[i]] = of_b[remote[i]];
      } else {
        of_b[remote[i]] = of_a[local.places[i]];
      }
    }
    ASSERT_EQ(pair.a.Post(request, local.sges), 0);
    ASSERT_EQ(pair.Wait().status, WcStatus::kSuccess);
    if (!reliable) pair.Settle();
    if (receives) {
      const std::vector<Completion> received = pair.b.receives.Take();
      ASSERT_EQ(received.size(), 1u);
      ASSERT_EQ(received[0].status, WcStatus::kSuccess);
      ASSERT_EQ(received[0].byte_len, bytes);
    }
    ASSERT_TRUE(pair.a.arena == of_a);
    ASSERT_TRUE(pair.b.arena == of_b);
  }
}

// --- Block signatures.

class SignatureTransferTest : public testing::TestWithParam<Case> {
 protected:
  static SignatureDomain Domain(Random& random) {
    constexpr uint16_t kSizes[] = {512, 520, 4048, 4096, 4160};
    SignatureDomain domain;
    domain.guard = static_cast<GuardKind>(random.Below(6));
    if (domain.guard == GuardKind::kNone) return domain;
    domain.block_size = kSizes[random.Below(5)];
    domain.ones_seed = random.Percent(50);
    domain.counts_up = random.Percent(50);
    domain.app_tag = static_cast<uint16_t>(random.Below(0xffff));
    domain.ref_tag = static_cast<uint32_t>(random.Below(UINT32_MAX));
    return domain;
  }
  // A key of `bytes` bytes of memory in random pieces.
  static Key Signed(End& end, uint64_t bytes, const SignatureConfig& config,
                    Random& random) {
    Key key;
    key.key = end.table.AddMkey(kPd, 64, {.signatures = true});
    std::vector<Sge> list;
    for (uint64_t left = bytes; left > 0;) {
      const uint64_t size =
          list.size() == 63 ? left
                            : random.Between(1, std::min(left, bytes / 4 + 1));
      const Key piece = end.Plain(size, random);
      list.push_back({piece.va, static_cast<uint32_t>(size), piece.key});
      key.places.insert(key.places.end(), piece.places.begin(),
                        piece.places.end());
      left -= size;
    }
    std::array<uint8_t, kPackedSignatureConfig> packed;
    Pack(config, packed);
    EXPECT_EQ(end.table.ConfigureMkey(
                  {.key = key.key,
                   .pd = kPd,
                   .access = kAll,
                   .layout = Layout::kList,
                   .list = list,
                   .change = transport::MkeyConfiguration::Transform::kSet,
                   .transform = packed}),
              transport::MemoryStatus::kOk);
    return key;
  }
  static SignatureError::Kind Check(End& end, const Key& key,
                                    SignatureError* error) {
    EXPECT_EQ(end.table.TakeMkeyError(key.key, error), 0);
    return error->kind;
  }
};

// Moves data from one key to another over a lossy network, by SEND, WRITE and
// READ. The keys have different memory forms and the same wire form.
TEST_P(SignatureTransferTest, EqualsItsForms) {
  const Case& c = GetParam();
  Pair pair(c.type, c.path_mtu, c.seed, c.loss_percent);
  Random& random = pair.random;
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    pair.a.FreeAll();
    pair.b.FreeAll();
    const SendOpcode opcodes[] = {SendOpcode::kSend, SendOpcode::kRdmaWrite,
                                  SendOpcode::kRdmaRead};
    const SendOpcode opcode = opcodes[random.Below(3)];
    End& from = opcode == SendOpcode::kRdmaRead ? pair.b : pair.a;
    End& to = opcode == SendOpcode::kRdmaRead ? pair.a : pair.b;
    testing_form::Bytes data(random.Between(1, 30'000));
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random.Below(256));
    const SignatureDomain wire = Domain(random);
    SignatureConfig source = {
        .memory = Domain(random), .wire = wire, .check_mask = 0xff};
    SignatureConfig target = {
        .memory = Domain(random), .wire = wire, .check_mask = 0xff};
    // A configuration has at least one signature.
    for (SignatureConfig* config : {&source, &target}) {
      if (!IsValid(*config)) {
        config->memory = {.guard = GuardKind::kCrc32c, .block_size = 512};
      }
    }
    testing_form::Bytes memory = testing_form::Form(source.memory, data);
    const testing_form::Bytes expected =
        testing_form::Form(target.memory, data);
    const uint64_t length = testing_form::Form(wire, data).size();
    const Key source_key = Signed(from, memory.size(), source, random);
    const Key target_key = Signed(to, expected.size(), target, random);
    // In some rounds, flips a bit of a complete block.
    const BlockForm form(source.memory);
    const uint64_t complete =
        form.has_signatures() ? data.size() / form.data() * form.size() : 0;
    const bool wrong = complete > 0 && random.Percent(40);
    const uint64_t at = wrong ? random.Below(complete) : 0;
    if (wrong) memory[at] ^= static_cast<uint8_t>(1 << random.Below(8));
    for (size_t i = 0; i < memory.size(); ++i) {
      from.arena[source_key.places[i]] = memory[i];
    }
    const Key& local = &from == &pair.a ? source_key : target_key;
    const Key& remote = &from == &pair.a ? target_key : source_key;
    const Sge sge = {0, static_cast<uint32_t>(length), local.key};
    if (opcode == SendOpcode::kSend) {
      const Sge receive = {0, static_cast<uint32_t>(length), remote.key};
      ASSERT_EQ(pair.b.qp->PostReceive({.wr_id = 1, .sges = {&receive, 1}},
                                       pair.a.now),
                0);
    }
    ASSERT_EQ(pair.a.Post({.opcode = opcode,
                           .flags = transport::kSendSignaled,
                           .rkey = remote.key},
                          {sge}),
              0);
    ASSERT_EQ(pair.Wait().status, WcStatus::kSuccess);
    pair.b.receives.Take();
    SignatureError error;
    EXPECT_EQ(Check(to, target_key, &error), SignatureError::Kind::kNone);
    if (wrong) {
      EXPECT_NE(Check(from, source_key, &error), SignatureError::Kind::kNone);
      EXPECT_EQ(error.offset, at / form.size() * form.size());
    } else {
      EXPECT_EQ(Check(from, source_key, &error), SignatureError::Kind::kNone);
      ASSERT_EQ(to.Read(target_key.places), expected);
    }
    from.table.RemoveMkey(source_key.key);
    to.table.RemoveMkey(target_key.key);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SignatureTransferTest,
                         testing::Values(Case{QpType::kRc, 256, 0, 1},
                                         Case{QpType::kRc, 1024, 10, 2},
                                         Case{QpType::kRc, 4096, 0, 3},
                                         Case{QpType::kRc, 4096, 10, 4},
                                         Case{QpType::kRc, 512, 5, 5}));

// --- Single cases.

constexpr uint32_t kMtu = 1024;  // bytes

class MkeyOverRcTest : public testing::Test {
 protected:
  MkeyOverRcTest() : pair_(QpType::kRc, kMtu, 9), a_(pair_.a), b_(pair_.b) {}

  // A memory key of `end` made of these pieces.
  static Key Listed(End& end, const std::vector<Key>& pieces) {
    Key key;
    key.key = end.table.AddMkey(kPd, 64, {.remote_invalidate = true});
    for (const Key& piece : pieces) {
      key.places.insert(key.places.end(), piece.places.begin(),
                        piece.places.end());
    }
    Relist(end, key.key, pieces);
    return key;
  }
  static void Relist(End& end, uint32_t key, std::span<const Key> pieces) {
    std::vector<Sge> list;
    for (const Key& piece : pieces) list.push_back(All(piece));
    ASSERT_EQ(end.table.ConfigureMkey({.key = key,
                                       .pd = kPd,
                                       .access = kAll,
                                       .layout = Layout::kList,
                                       .list = list}),
              transport::MemoryStatus::kOk);
  }
  // A key for a piece of region `region`.
  static Key PieceIn(End& end, int region, uint32_t offset, uint32_t bytes) {
    const uint32_t at = static_cast<uint32_t>(region) * End::kRegion + offset;
    Key key{end.RegionOf(at), End::VaOf(at), {}};
    for (uint32_t i = 0; i < bytes; ++i) key.places.push_back(at + i);
    return key;
  }
  static Sge All(const Key& key) {
    return {key.va, static_cast<uint32_t>(key.places.size()), key.key};
  }
  int Post(SendOpcode opcode, const Sge& local, const Key& remote,
           uint64_t offset = 0) {
    return a_.Post({.opcode = opcode,
                    .flags = transport::kSendSignaled,
                    .remote_addr = remote.va + offset,
                    .rkey = remote.key},
                   {local});
  }
  WcStatus Do(SendOpcode opcode, const Sge& local, const Key& remote,
              uint64_t offset = 0) {
    EXPECT_EQ(Post(opcode, local, remote, offset), 0);
    return pair_.Wait().status;
  }

  Pair pair_;
  End& a_;
  End& b_;
};

// Later requests of the same queue pair can use the key at once.
TEST_F(MkeyOverRcTest, IsUsedWithoutWaitingForItsConfiguration) {
  const uint32_t key = a_.table.AddMkey(kPd, 4, {});
  const Key target = PieceIn(b_, 0, 0, 300);
  for (uint32_t i = 0; i < 3; ++i) {
    const Key first = PieceIn(a_, 0, 1000 * i, 100);
    const Key second = PieceIn(a_, 1, 1000 * i + 7, 200);
    const Sge list[] = {All(first), All(second)};
    const Sge inline_list = {reinterpret_cast<uint64_t>(list), sizeof(list), 0};
    ASSERT_EQ(a_.Post({.opcode = SendOpcode::kConfigureMkey,
                       .flags = transport::kSendInline,
                       .rkey = key,
                       .swap = transport::MkeyOperand(Layout::kList, kAll)},
                      {inline_list}),
              0);
    ASSERT_EQ(Do(SendOpcode::kRdmaWrite, {0, 300, key}, target),
              WcStatus::kSuccess);
    std::vector<uint8_t> expected = a_.Read(first.places);
    const std::vector<uint8_t> rest = a_.Read(second.places);
    expected.insert(expected.end(), rest.begin(), rest.end());
    EXPECT_EQ(b_.Read(target.places), expected);
  }
}

TEST_F(MkeyOverRcTest, Atomics) {
  const Key aligned = PieceIn(b_, 0, 64, 24);
  const Key odd = PieceIn(b_, 0, 1028, 24);  // 4 bytes off
  const Key short_piece = PieceIn(b_, 1, 0, 4);
  const Key key = Listed(b_, {aligned, aligned, odd, short_piece, short_piece});
  const Key result = PieceIn(a_, 0, 0, 8);
  const uint64_t value = 0x1122334455667788;
  std::memcpy(&b_.arena[aligned.places[8]], &value, 8);
  const auto fetch_add = [&](uint64_t offset) {
    EXPECT_EQ(a_.Post({.opcode = SendOpcode::kFetchAdd,
                       .flags = transport::kSendSignaled,
                       .remote_addr = offset,
                       .rkey = key.key,
                       .compare_add = 5},
                      {All(result)}),
              0);
    return pair_.Wait().status;
  };
  ASSERT_EQ(fetch_add(8), WcStatus::kSuccess);
  uint64_t word;
  std::memcpy(&word, &a_.arena[result.places[0]], 8);
  EXPECT_EQ(word, value);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, value + 5);
  // The second piece names the same memory.
  ASSERT_EQ(fetch_add(24 + 8), WcStatus::kSuccess);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, value + 10);
  ASSERT_EQ(a_.Post({.opcode = SendOpcode::kCompareSwap,
                     .flags = transport::kSendSignaled,
                     .remote_addr = 8,
                     .rkey = key.key,
                     .compare_add = value + 10,
                     .swap = 77},
                    {All(result)}),
            0);
  ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
  std::memcpy(&word, &b_.arena[aligned.places[8]], 8);
  EXPECT_EQ(word, 77u);

  // Aligned in the key but not in memory.
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(fetch_add(48), WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
}

TEST_F(MkeyOverRcTest, AnAtomicStaysInOnePiece) {
  const Key halves = Listed(b_, {PieceIn(b_, 0, 0, 4), PieceIn(b_, 0, 4, 4)});
  const Key result = PieceIn(a_, 0, 0, 8);
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(Do(SendOpcode::kFetchAdd, All(result), halves),
            WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
}

// The result of an atomic may be split over pieces.
TEST_F(MkeyOverRcTest, AnAtomicsResultIsInPieces) {
  const Key halves = Listed(a_, {PieceIn(a_, 0, 3, 3), PieceIn(a_, 1, 100, 5)});
  const Key word = PieceIn(b_, 0, 0, 8);
  const std::vector<uint8_t> before = b_.Read(word.places);
  ASSERT_EQ(Do(SendOpcode::kFetchAdd, {0, 8, halves.key}, word),
            WcStatus::kSuccess);
  EXPECT_EQ(a_.Read(halves.places), before);
}

TEST_F(MkeyOverRcTest, BeyondItsLengthNothingIsWritten) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 3000), PieceIn(b_, 1, 0, 1)});
  const std::vector<uint8_t> before = b_.arena;
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key, 2),
            WcStatus::kRemoteAccessError);
  EXPECT_EQ(b_.arena, before);
  EXPECT_EQ(b_.events.Take(),
            std::vector<transport::QpEvent>{transport::QpEvent::kAccessError});
}

TEST_F(MkeyOverRcTest, LocallyBeyondItsLength) {
  const Key key = Listed(a_, {PieceIn(a_, 0, 0, 100)});
  EXPECT_EQ(
      Do(SendOpcode::kRdmaWrite, {1, 100, key.key}, PieceIn(b_, 0, 0, 100)),
      WcStatus::kLocalProtectionError);
}

// A region that was deregistered while a memory key names it fails the access.
// With many pieces, the packet that needs that region fails.
TEST_F(MkeyOverRcTest, WriteToARegionThatIsGone) {
  const Key key =
      Listed(b_, {PieceIn(b_, 0, 0, 3000), PieceIn(b_, 1, 0, 3000)});
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key),
            WcStatus::kSuccess);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, 3000)), key, 2000),
            WcStatus::kRemoteAccessError);
}

TEST_F(MkeyOverRcTest, ReadOfARegionThatIsGone) {
  std::vector<Key> pieces;
  for (uint32_t i = 0; i < 63; ++i) {
    pieces.push_back(PieceIn(b_, 0, 200 * i, 100));
  }
  pieces.push_back(PieceIn(b_, 1, 0, 100));
  const Key key = Listed(b_, pieces);
  const Sge local = All(PieceIn(a_, 0, 0, 6400));
  EXPECT_EQ(Do(SendOpcode::kRdmaRead, local, key), WcStatus::kSuccess);
  EXPECT_EQ(a_.Read(PieceIn(a_, 0, 0, 6400).places), b_.Read(key.places));
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kRdmaRead, local, key),
            WcStatus::kRemoteAccessError);
}

TEST_F(MkeyOverRcTest, SendFromARegionThatIsGone) {
  const Key key = Listed(a_, {PieceIn(a_, 1, 0, 100)});
  ASSERT_EQ(a_.table.Remove(a_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kSend, {0, 100, key.key}, {}),
            WcStatus::kLocalProtectionError);
}

TEST_F(MkeyOverRcTest, ReceiveIntoARegionThatIsGone) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 100), PieceIn(b_, 1, 0, 100)});
  const Sge receive = {0, 200, key.key};
  ASSERT_EQ(b_.qp->PostReceive({.wr_id = 1, .sges = {&receive, 1}}, b_.now), 0);
  ASSERT_EQ(b_.table.Remove(b_.regions[1]), 0);
  EXPECT_EQ(Do(SendOpcode::kSend, All(PieceIn(a_, 0, 0, 200)), {}),
            WcStatus::kRemoteOperationalError);
  const std::vector<Completion> received = b_.receives.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].status, WcStatus::kLocalProtectionError);
}

TEST_F(MkeyOverRcTest, ThePeerInvalidatesIt) {
  const Key key = Listed(b_, {PieceIn(b_, 0, 0, 100)});
  const Sge local = All(PieceIn(a_, 0, 0, 100));
  ASSERT_EQ(Do(SendOpcode::kRdmaWrite, local, key), WcStatus::kSuccess);
  ASSERT_EQ(b_.qp->PostReceive({.wr_id = 1, .sges = {}}, b_.now), 0);
  ASSERT_EQ(a_.Post({.opcode = SendOpcode::kSendWithInvalidate,
                     .flags = transport::kSendSignaled,
                     .invalidate_rkey = key.key},
                    {}),
            0);
  ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
  const std::vector<Completion> received = b_.receives.Take();
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].flags, uint32_t{transport::kWcWithInvalidate});
  EXPECT_EQ(received[0].imm_be_or_rkey, key.key);
  EXPECT_EQ(Do(SendOpcode::kRdmaWrite, local, key),
            WcStatus::kRemoteAccessError);
}

// Messages of many packets, while the target key changes its layout. Every byte
// goes where one of the two layouts puts it.
TEST_F(MkeyOverRcTest, ConfiguredUnderTraffic) {
  constexpr uint32_t kBytes = 500'000;
  const Key source = PieceIn(a_, 0, 0, kBytes);
  const Key places[] = {PieceIn(b_, 0, 0, kBytes), PieceIn(b_, 1, 0, kBytes)};
  const Key key = Listed(b_, {places[0]});
  for (int round = 0; round < 10; ++round) {
    const std::vector<uint8_t> before = b_.arena;
    ASSERT_EQ(Post(SendOpcode::kRdmaWrite, All(source), key), 0);
    for (int steps = 0; a_.sends.completions.empty(); ++steps) {
      ASSERT_LT(steps, 100'000);
      Relist(b_, key.key, {&places[steps % 2], 1});
      pair_.Step();
    }
    ASSERT_EQ(pair_.Wait().status, WcStatus::kSuccess);
    std::vector<uint8_t> after = b_.arena;
    for (uint32_t i = 0; i < kBytes; ++i) {
      const uint8_t byte = a_.arena[source.places[i]];
      ASSERT_TRUE(after[places[0].places[i]] == byte ||
                  after[places[1].places[i]] == byte)
          << i;
    }
    // Nothing outside of the two places has changed.
    for (const Key& place : places) {
      for (const uint32_t at : place.places) after[at] = before[at];
    }
    ASSERT_TRUE(after == before);
    for (const uint32_t at : source.places) ++a_.arena[at];
  }
}

TEST_F(MkeyOverRcTest, InvalidatedUnderTraffic) {
  constexpr uint32_t kBytes = 500'000;
  const Key target = PieceIn(b_, 0, 0, kBytes);
  const Key key = Listed(b_, {target});
  ASSERT_EQ(Post(SendOpcode::kRdmaWrite, All(PieceIn(a_, 0, 0, kBytes)), key),
            0);
  pair_.Step();
  ASSERT_EQ(b_.Post({.opcode = SendOpcode::kLocalInvalidate,
                     .flags = transport::kSendSignaled,
                     .invalidate_rkey = key.key},
                    {}),
            0);
  const std::vector<Completion> done = b_.sends.Take();
  ASSERT_EQ(done.size(), 1u);
  ASSERT_EQ(done[0].status, WcStatus::kSuccess);
  const std::vector<uint8_t> then = b_.arena;
  EXPECT_EQ(pair_.Wait().status, WcStatus::kRemoteAccessError);
  EXPECT_TRUE(b_.arena == then);
}

INSTANTIATE_TEST_SUITE_P(All, MkeyTransferTest,
                         testing::Values(Case{QpType::kRc, 4096, 0, 1},
                                         Case{QpType::kRc, 1024, 0, 2},
                                         Case{QpType::kRc, 256, 0, 3},
                                         Case{QpType::kRc, 1024, 5, 4},
                                         Case{QpType::kRc, 4096, 10, 5},
                                         Case{QpType::kUc, 1024, 0, 6},
                                         Case{QpType::kUc, 4096, 0, 7}));

}  // namespace
}  // namespace rxe_user
