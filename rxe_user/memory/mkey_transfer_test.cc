// Transfers between random layouts of memory keys. The result is compared byte
// for byte with a separate copy; nothing else may change.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/mkey_fixture.h"

namespace rxe_user::mkey_test {
namespace {

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

INSTANTIATE_TEST_SUITE_P(All, MkeyTransferTest,
                         testing::Values(Case{QpType::kRc, 4096, 0, 1},
                                         Case{QpType::kRc, 1024, 0, 2},
                                         Case{QpType::kRc, 256, 0, 3},
                                         Case{QpType::kRc, 1024, 5, 4},
                                         Case{QpType::kRc, 4096, 10, 5},
                                         Case{QpType::kUc, 1024, 0, 6},
                                         Case{QpType::kUc, 4096, 0, 7}));

}  // namespace
}  // namespace rxe_user::mkey_test
