// Memory keys with block signatures: what a transfer makes of them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/mkey_fixture.h"
#include "rxe_user/memory/signature/form_for_tests.h"

namespace rxe_user::mkey_test {
namespace {

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

}  // namespace
}  // namespace rxe_user::mkey_test
