// Posting, segmentation, completions.
#include <cerrno>
#include <cstring>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr uint32_t kSignaled = kSendSignaled;

TEST(RequesterTest, SendsAMessageAndCompletesItWhenAcknowledged) {
  RequesterPeer peer;
  peer.Connect();
  EXPECT_EQ(peer.Send(7, 16), 0);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [16]");
  EXPECT_EQ(peer.payload, peer.Bytes(0, 16));
  EXPECT_EQ(peer.Completions(), "");
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "7 ok");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.in_flight(), 0u);
  EXPECT_EQ(peer.NextTimer(), kNever);
}

TEST(RequesterTest, CutsAMessageAtThePathMtu) {
  RequesterPeer peer;
  peer.Connect();
  ASSERT_EQ(peer.Post({.wr_id = 1,
                       .opcode = SendOpcode::kRdmaWriteWithImm,
                       .flags = kSendSignaled | kSendSolicited,
                       .imm_be = 9,
                       .remote_addr = 32},
                      {peer.Local(3, 601)}),
            0);
  ASSERT_EQ(peer.Send(2, 512, kSignaled | kSendSolicited), 0);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_FIRST 100 va 32 len 601 [256]; WRITE_MIDDLE 101 [256]; "
            "WRITE_LAST_WITH_IMMEDIATE 102 A S imm 9 [89]; "
            "SEND_FIRST 103 [256]; SEND_LAST 104 A S [256]");
  std::vector<uint8_t> expected = peer.Bytes(3, 601);
  const std::vector<uint8_t> second = peer.Bytes(0, 512);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(peer.payload, expected);
}

TEST(RequesterTest, SendsEveryOperation) {
  RequesterPeer peer;
  peer.Connect();
  const auto post = [&peer](SendOpcode opcode, uint32_t length) {
    ASSERT_EQ(peer.Post({.wr_id = 1,
                         .opcode = opcode,
                         .flags = kSignaled,
                         .imm_be = 5,
                         .invalidate_rkey = 6,
                         .compare_add = 3,
                         .swap = 4},
                        {peer.Local(0, length)}),
              0);
  };
  post(SendOpcode::kSendWithImm, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY_WITH_IMMEDIATE 100 A imm 5 [1]");
  post(SendOpcode::kSendWithInvalidate, 2);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY_WITH_INVALIDATE 101 A inv 6 [2]");
  post(SendOpcode::kRdmaWrite, 3);
  EXPECT_EQ(peer.Transmit(), "WRITE_ONLY 102 A va 0 len 3 [3]");
  post(SendOpcode::kRdmaWriteWithImm, 4);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_ONLY_WITH_IMMEDIATE 103 A va 0 len 4 imm 5 [4]");
  post(SendOpcode::kRdmaRead, 5);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 104 A va 0 len 5");
  post(SendOpcode::kCompareSwap, 8);
  EXPECT_EQ(peer.Transmit(), "COMPARE_SWAP 105 A va 0 compare 3 swap 4");
  post(SendOpcode::kFetchAdd, 8);
  EXPECT_EQ(peer.Transmit(), "FETCH_ADD 106 A va 0 add 3");
  post(SendOpcode::kAtomicWrite, 8);
  EXPECT_EQ(peer.Transmit(), "ATOMIC_WRITE 107 A va 0 len 8 [8]");
  EXPECT_EQ(peer.payload, peer.Bytes(0, 8));
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 104, 5);
  peer.AtomicAck(105, 0x0102030405060708);
  peer.AtomicAck(106, 17);
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 107, 0);
  EXPECT_EQ(peer.Completions(),
            "1 ok; 1 ok; 1 ok; 1 ok; 1 ok 5; 1 ok 8; 1 ok 8; 1 ok");
  uint64_t original;
  std::memcpy(&original, peer.local->bytes.data(), 8);
  EXPECT_EQ(original, 17u);
}

TEST(RequesterTest, Flush) {
  RequesterPeer peer;
  peer.Connect();
  const auto flush = [&peer](uint8_t placement, uint8_t selectivity,
                             uint64_t length) {
    return peer.Post({.wr_id = 1,
                      .opcode = SendOpcode::kFlush,
                      .flags = kSignaled,
                      .compare_add = length,
                      .swap = FlushOperand({.placement_type = placement,
                                            .selectivity = selectivity})},
                     {});
  };
  ASSERT_EQ(flush(2, 1, 5000), 0);
  EXPECT_EQ(peer.Transmit(), "FLUSH 100 A type 2 level 1 va 0 len 5000");
  ASSERT_EQ(flush(3, 0, 0), 0);
  EXPECT_EQ(peer.Transmit(), "FLUSH 101 A type 3 level 0 va 0 len 0");
  EXPECT_EQ(peer.Completions(), "");
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 100, 0);
  EXPECT_EQ(peer.Completions(), "1 ok");
  // An ACK is no response to a FLUSH.
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "");
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 101, 0);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(flush(0, 0, 8), EINVAL);
  EXPECT_EQ(flush(4, 0, 8), EINVAL);
  EXPECT_EQ(flush(1, 2, 8), EINVAL);
  EXPECT_EQ(flush(1, 0, uint64_t{wire::kMaxMessage} + 1), EINVAL);
}

TEST(RequesterTest, FlushAnsweredWithData) {
  RequesterPeer peer;
  peer.Connect();
  ASSERT_EQ(peer.Post({.wr_id = 1,
                       .opcode = SendOpcode::kFlush,
                       .swap = FlushOperand({1, 0})},
                      {}),
            0);
  peer.Transmit();
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 100, 4);
  EXPECT_EQ(peer.Completions(), "1 status 7");
}

TEST(RequesterTest, ZeroLengthNeedsNoKey) {
  RequesterPeer peer;
  peer.Connect();
  const Sge nothing = {.addr = 1, .length = 0, .lkey = 0xbad};
  for (SendOpcode opcode :
       {SendOpcode::kSend, SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    ASSERT_EQ(peer.Post({.opcode = opcode, .flags = kSignaled}, {nothing}), 0);
  }
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 100 [0]; WRITE_ONLY 101 va 0 len 0 [0]; "
            "READ_REQUEST 102 A va 0 len 0");
  peer.ReadResponse(wire::Operation::kReadResponseOnly, 102, 0);
  EXPECT_EQ(peer.Completions(), "0 ok; 0 ok; 0 ok");
  EXPECT_EQ(peer.memory.translations, 0);
}

TEST(RequesterTest, GathersAcrossSgesAndSpans) {
  RequesterPeer peer;
  peer.local->piece = 100;
  peer.Connect();
  ASSERT_EQ(peer.Post({.wr_id = 1, .flags = kSignaled},
                      {peer.Local(1000, 250), peer.Local(5, 0),
                       peer.Local(10, 7), peer.Local(500, 300)}),
            0);
  peer.Transmit();
  std::vector<uint8_t> expected = peer.Bytes(1000, 250);
  for (const auto& part : {peer.Bytes(10, 7), peer.Bytes(500, 300)}) {
    expected.insert(expected.end(), part.begin(), part.end());
  }
  EXPECT_EQ(peer.payload, expected);
}

TEST(RequesterTest, NextPacketsColdMemoryIsFetched) {
  using Hints = std::vector<bool>;
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 600);
  peer.Transmit();
  EXPECT_EQ(peer.memory.more(), Hints({false, false, false}));
  peer.local->cold = true;
  peer.memory.ForgetMore();
  peer.Write(2, 600);
  peer.Transmit();
  EXPECT_EQ(peer.memory.more(), Hints({true, true, false}));
  // Two SGEs: 200 and 56 bytes make the first packet, then 200.
  peer.memory.ForgetMore();
  peer.Post({.wr_id = 3}, {peer.Local(1000, 200), peer.Local(0, 256)});
  peer.Transmit();
  EXPECT_EQ(peer.memory.more(), Hints({false, true, false}));
}

TEST(RequesterTest, ChecksKeysOncePerGroupOfPackets) {
  RequesterPeer peer;
  peer.Connect();
  peer.Write(1, 32 * 256);
  peer.Transmit();
  EXPECT_EQ(peer.sent.size(), 32u);
  EXPECT_LE(peer.memory.translations, 3);
}

TEST(RequesterTest, CopiesInlineDataWhenPosted) {
  RequesterPeer peer;
  peer.Connect();
  uint8_t data[] = {1, 2, 3, 4, 5};
  const auto at = reinterpret_cast<uint64_t>(data);
  ASSERT_EQ(peer.Post({.flags = kSignaled | kSendInline},
                      {{at, 2, 0}, {at + 2, 3, 0}}),
            0);
  std::memset(data, 0, sizeof(data));
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [5]");
  EXPECT_EQ(peer.payload, (std::vector<uint8_t>{1, 2, 3, 4, 5}));
}

TEST(RequesterTest, RefusesWhatCannotBePosted) {
  RequesterPeer::Options options;
  options.capacity.max_send_wr = 2;
  RequesterPeer peer(options);
  peer.Connect();
  const Sge small = peer.Local(0, 1);
  const auto post = [&peer](SendOpcode opcode, std::vector<Sge> sges,
                            uint32_t flags = 0) {
    return peer.Post({.opcode = opcode, .flags = flags}, std::move(sges));
  };
  EXPECT_EQ(post(SendOpcode::kFlush, {}), EINVAL);
  EXPECT_EQ(post(static_cast<SendOpcode>(10), {small}), EINVAL);
  EXPECT_EQ(post(static_cast<SendOpcode>(200), {small}), EINVAL);
  EXPECT_EQ(post(SendOpcode::kSend, {small}, 1u << 4), EINVAL);
  EXPECT_EQ(post(SendOpcode::kSend, std::vector<Sge>(5, small)), EINVAL);
  EXPECT_EQ(post(SendOpcode::kSend, {{0, 65, 0}}, kSendInline), EINVAL);
  EXPECT_EQ(post(SendOpcode::kRdmaRead, {{0, 8, 0}}, kSendInline), EINVAL);
  EXPECT_EQ(post(SendOpcode::kSend, {{0, 1u << 31, 1}, {0, 1, 1}}), EINVAL);
  EXPECT_EQ(post(SendOpcode::kSend, {{0, 1u << 31, 1}}), 0);
  EXPECT_EQ(post(SendOpcode::kSend, {small}), 0);
  EXPECT_EQ(post(SendOpcode::kSend, {small}), ENOMEM);
}

// Payload whose ICRC is computed during the copy: in one piece and in two,
// padded, and where AckReq is set after the copy. The peer checks each ICRC.
TEST(RequesterTest, SendsBulkWithItsIcrc) {
  RequesterPeer peer;
  peer.attributes.path_mtu = 4096;
  peer.Connect();
  std::vector<uint8_t> posted;
  const auto post = [&](std::vector<Sge> sges) {
    for (const Sge& sge : sges) {
      const auto from = peer.local->bytes.begin() +
                        static_cast<ptrdiff_t>(sge.addr - peer.local->va);
      posted.insert(posted.end(), from, from + sge.length);
    }
    EXPECT_EQ(peer.Post({.opcode = SendOpcode::kRdmaWrite}, std::move(sges)),
              0);
  };
  post({peer.Local(0, 12288)});
  post({peer.Local(1, 5001), peer.Local(9000, 5002)});
  for (int i = 0; i < 10; ++i) post({peer.Local(i, 6145)});
  std::vector<uint8_t> sent;
  for (int round = 0; round < 4; ++round) {
    peer.Transmit();
    sent.insert(sent.end(), peer.payload.begin(), peer.payload.end());
    if (!peer.sent.empty()) peer.Ack(peer.sent.back().psn);
  }
  EXPECT_TRUE(sent == posted);
}

TEST(RequesterTest, CompletesInOrderAndOnlyWhatIsSignaled) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Send(2, 1, 0);
  peer.Send(3, 600);
  peer.Send(4, 1);
  peer.Transmit();
  peer.Ack(103);  // inside of 3
  EXPECT_EQ(peer.Completions(), "1 ok");
  peer.Ack(101);  // stale
  peer.Ack(106);  // ghost
  peer.Ack(99);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.qp->counters().dropped_window, 1u);
  peer.Ack(105);
  EXPECT_EQ(peer.Completions(), "3 ok; 4 ok");
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterTest, SqSigAllSignalsEverything) {
  RequesterPeer::Options options;
  options.signal_all = true;
  RequesterPeer peer(options);
  peer.Connect();
  peer.Send(1, 1, 0);
  peer.Transmit();
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok");
}

TEST(RequesterTest, WrapsPsns) {
  RequesterPeer peer;
  peer.attributes.sq_psn = 0xfffffe;
  peer.Connect();
  peer.Send(1, 1000);
  peer.Send(2, 1);
  EXPECT_EQ(peer.Transmit(),
            "SEND_FIRST 16777214 [256]; SEND_MIDDLE 16777215 [256]; "
            "SEND_MIDDLE 0 [256]; SEND_LAST 1 A [232]; SEND_ONLY 2 A [1]");
  peer.Ack(1);
  EXPECT_EQ(peer.Completions(), "1 ok");
  peer.Ack(2);
  EXPECT_EQ(peer.Completions(), "2 ok");
}

TEST(RequesterTest, GroupsPacketsOfOneSize) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 10 * 256 + 1);
  peer.Transmit();
  EXPECT_EQ(peer.bursts, 1);
  peer.Write(2, 10 * 256);  // its first packet is longer by a RETH
  peer.Transmit();
  EXPECT_EQ(peer.bursts, 2);
}

TEST(RequesterTest, BindsInTheOrderOfTheQueue) {
  RequesterPeer peer;
  FakeMemory::Region& window = peer.memory.Add(0x900000, 64, peer.kPd, 0);
  window.valid = false;
  window.rkey = RequesterPeer::kRkey;  // that of all requests
  peer.Connect();
  peer.Send(1, 1);
  ASSERT_EQ(peer.Post({.wr_id = 2,
                       .opcode = SendOpcode::kBindMw,
                       .flags = kSignaled,
                       .invalidate_rkey = 77,
                       .compare_add = 99,
                       .swap = kAccessRemoteRead},
                      {}),
            0);
  peer.Send(3, 1);
  // It is bound before a later SEND can tell the peer.
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  EXPECT_FALSE(window.valid);
  peer.Ack(100);
  EXPECT_TRUE(window.valid);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  ASSERT_EQ(peer.memory.bindings().size(), 1u);
  const WindowBinding& binding = peer.memory.bindings()[0];
  EXPECT_EQ(binding.region_key, 77u);
  EXPECT_EQ(binding.pd, peer.kPd);
  EXPECT_EQ(binding.qpn, peer.qp->qpn());
  EXPECT_EQ(binding.access, uint32_t{kAccessRemoteRead});
  EXPECT_EQ(binding.va, RequesterPeer::kRemoteVa);
  EXPECT_EQ(binding.length, 99u);
  // Bound already.
  peer.Ack(101);
  ASSERT_EQ(peer.Post({.wr_id = 4, .opcode = SendOpcode::kBindMw}, {}), 0);
  EXPECT_EQ(peer.Completions(), "3 ok; 4 status 6");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST(RequesterTest, ConfiguresMemoryKeysInTheOrderOfTheQueue) {
  using Layout = MkeyConfiguration::Layout;
  RequesterPeer peer;
  peer.memory.Add(0x900000, 64, peer.kPd, 0).rkey = RequesterPeer::kRkey;
  peer.Connect();
  const auto post = [&](uint64_t wr_id, const void* entries, uint32_t bytes,
                        uint64_t repeat, uint64_t operand) {
    return peer.Post({.wr_id = wr_id,
                      .opcode = SendOpcode::kConfigureMkey,
                      .flags = kSignaled | kSendInline,
                      .compare_add = repeat,
                      .swap = operand},
                     {{reinterpret_cast<uint64_t>(entries), bytes, 0}});
  };
  const Sge list[] = {{1, 2, 3}, {4, 5, 6}};
  const InterleavedPiece pieces[] = {{7, 8, 9, 10}};
  peer.Send(1, 1);
  ASSERT_EQ(post(2, list, sizeof(list), 0, MkeyOperand(Layout::kList, {})), 0);
  ASSERT_EQ(post(3, pieces, sizeof(pieces), 11,
                 MkeyOperand(Layout::kInterleaved, kAccessRemoteRead)),
            0);
  ASSERT_EQ(post(4, nullptr, 0, 0, MkeyOperand(Layout::kKeep, 0)), 0);
  peer.Send(5, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  EXPECT_TRUE(peer.memory.configured().empty());
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok; 3 ok; 4 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  const auto& configured = peer.memory.configured();
  ASSERT_EQ(configured.size(), 3u);
  EXPECT_EQ(configured[0].configuration.key, RequesterPeer::kRkey);
  EXPECT_EQ(configured[0].configuration.pd, peer.kPd);
  EXPECT_EQ(configured[0].configuration.access, std::nullopt);
  EXPECT_EQ(configured[0].configuration.layout, Layout::kList);
  ASSERT_EQ(configured[0].list.size(), 2u);
  EXPECT_EQ(configured[0].list[1].addr, 4u);
  EXPECT_EQ(configured[0].list[1].length, 5u);
  EXPECT_EQ(configured[0].list[1].lkey, 6u);
  EXPECT_EQ(configured[1].configuration.access, uint32_t{kAccessRemoteRead});
  EXPECT_EQ(configured[1].configuration.layout, Layout::kInterleaved);
  EXPECT_EQ(configured[1].configuration.repeat_count, 11u);
  ASSERT_EQ(configured[1].interleaved.size(), 1u);
  EXPECT_EQ(configured[1].interleaved[0].addr, 7u);
  EXPECT_EQ(configured[1].interleaved[0].bytes, 8u);
  EXPECT_EQ(configured[1].interleaved[0].skip, 9u);
  EXPECT_EQ(configured[1].interleaved[0].lkey, 10u);
  EXPECT_EQ(configured[2].configuration.layout, Layout::kKeep);
  EXPECT_EQ(configured[2].configuration.access, 0u);
}

// The completion is that of a failed binding, as with hardware.
TEST(RequesterTest, AConfigurationThatIsRefusedEndsTheQueuePair) {
  RequesterPeer peer;
  peer.Connect();
  ASSERT_EQ(peer.Post({.wr_id = 1,
                       .opcode = SendOpcode::kConfigureMkey,
                       .flags = kSendInline},
                      {}),
            0);
  EXPECT_EQ(peer.Completions(), "1 status 6");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST(RequesterTest, LocalInvalidateIsAloneAmongItsNeighbors) {
  RequesterPeer peer;
  FakeMemory::Region& region =
      peer.memory.Add(0x900000, 64, peer.kPd, kAccessLocalWrite);
  peer.Connect();
  const auto invalidate = [&](uint64_t wr_id, uint32_t rkey) {
    return peer.Post({.wr_id = wr_id,
                      .opcode = SendOpcode::kLocalInvalidate,
                      .flags = kSignaled,
                      .invalidate_rkey = rkey},
                     {});
  };
  peer.Send(1, 1);
  EXPECT_EQ(invalidate(2, region.rkey), 0);
  peer.Send(3, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  EXPECT_TRUE(region.valid);
  peer.Ack(100);
  EXPECT_FALSE(region.valid);
  ASSERT_EQ(peer.memory.invalidations().size(), 1u);
  EXPECT_FALSE(peer.memory.invalidations()[0].remote);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "3 ok");
  // With nothing before it, it is executed at once. A key that is not valid is
  // an error.
  EXPECT_EQ(invalidate(4, region.rkey), 0);
  EXPECT_EQ(peer.Completions(), "4 status 6");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST(RequesterTest, XrcInitiatorNamesTheSrq) {
  RequesterPeer peer;
  QpConfig config = peer.qp->config();
  config.type = QpType::kXrcInitiator;
  peer.qp.reset();
  peer.qp = MakeQueuePair(peer.endpoint, config);
  QpAttributes& a = peer.attributes;
  a.state = QpState::kInit;
  ASSERT_EQ(
      peer.qp->Modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags,
                      peer.now),
      0);
  a.state = QpState::kRtr;
  ASSERT_EQ(
      peer.qp->Modify(a, kQpState | kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn,
                      peer.now),
      0);
  a.state = QpState::kRts;
  ASSERT_EQ(peer.qp->Modify(a,
                            kQpState | kQpTimeout | kQpRetryCnt | kQpRnrRetry |
                                kQpSqPsn | kQpMaxQpRdAtomic,
                            peer.now),
            0);
  peer.Post({.wr_id = 1, .flags = kSignaled, .remote_srqn = 0x4321},
            {peer.Local(0, 300)});
  EXPECT_EQ(peer.Transmit(),
            "XRC_SEND_FIRST 100 srqn 17185 [256]; "
            "XRC_SEND_LAST 101 A srqn 17185 [44]");
}

}  // namespace
}  // namespace transport
