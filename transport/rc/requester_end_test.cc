// What work requests wait for, and how they end: fences, draining, local
// errors, lost completion queues, flushing, RESET.
#include <cerrno>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

constexpr uint32_t kSignaled = kSendSignaled;

TEST(RequesterTest, FenceWaitsForReadsAndAtomics) {
  RequesterPeer peer;
  peer.Connect();
  peer.Read(1, 300);
  peer.FetchAdd(2, 1);
  peer.Send(3, 1, kSignaled | kSendFence);
  peer.Send(4, 1);
  EXPECT_EQ(peer.Transmit(),
            "READ_REQUEST 100 A va 0 len 300; FETCH_ADD 102 A va 0 add 1");
  peer.ReadResponse(wire::Operation::kReadResponseFirst, 100, 256);
  peer.ReadResponse(wire::Operation::kReadResponseLast, 101, 44);
  EXPECT_EQ(peer.Transmit(), "");
  peer.AtomicAck(102, 0);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 [1]; SEND_ONLY 104 A [1]");
}

TEST(RequesterTest, FenceDoesNotWaitForSends) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
  peer.Send(2, 1, kSignaled | kSendFence);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 101 A [1]");
}

TEST(RequesterTest, DrainFinishesWhatHasBegun) {
  RequesterPeer::Options options;
  options.max_segments = 1;
  RequesterPeer peer(options);
  peer.Connect();
  peer.Send(1, 600);
  peer.Send(2, 1);
  EXPECT_EQ(peer.TransmitOne(), "SEND_FIRST 100 [256]");
  ASSERT_EQ(peer.Drain(/*notify=*/true), 0);
  EXPECT_EQ(peer.Transmit(), "SEND_MIDDLE 101 [256]; SEND_LAST 102 A [88]");
  peer.Send(3, 1);  // held
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Events(), "");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.Events(), "5");
  EXPECT_EQ(peer.Transmit(), "");
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 103 [1]; SEND_ONLY 104 A [1]");
  peer.Ack(104);
  EXPECT_EQ(peer.Completions(), "2 ok; 3 ok");
  EXPECT_EQ(peer.Events(), "");
}

TEST(RequesterTest, DrainOfAnIdleQueueIsDoneAtOnce) {
  RequesterPeer peer;
  peer.Connect();
  ASSERT_EQ(peer.Drain(/*notify=*/true), 0);
  EXPECT_EQ(peer.Events(), "5");
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  ASSERT_EQ(peer.Drain(/*notify=*/false), 0);
  EXPECT_EQ(peer.Events(), "");
}

TEST(RequesterTest, LocalErrorWaitsForWhatIsBeforeIt) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Send(2, 1, 0);
  peer.Post({.wr_id = 3}, {{peer.kVa, 1, 0xbad}});  // not even signaled
  peer.Send(4, 1);
  // The last good packet is retransmitted with AckReq: it was sent without,
  // since another one was to follow.
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 100 [1]; SEND_ONLY 101 [1]; SEND_ONLY 101 A [1]");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Completions(), "");
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 ok; 3 status 4; 4 status 5");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.in_flight(), 0u);
}

TEST(RequesterTest, AtomicWriteAndFlushOnlyIfTheDeviceHasThem) {
  RequesterPeer::Options options;
  options.memory_placement = false;
  RequesterPeer peer(options);
  peer.Connect();
  EXPECT_EQ(peer.Post({.wr_id = 1, .opcode = SendOpcode::kAtomicWrite},
                      {peer.Local(0, 8)}),
            EINVAL);
  EXPECT_EQ(peer.Post({.wr_id = 1,
                       .opcode = SendOpcode::kFlush,
                       .swap = FlushOperand({1, 0})},
                      {}),
            EINVAL);
}

TEST(RequesterTest, LocalErrorInMidMessage) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Post({.wr_id = 2}, {peer.Local(0, 256), {peer.kVa, 256, 0xbad}});
  EXPECT_EQ(peer.Transmit(),
            "SEND_ONLY 100 [1]; SEND_FIRST 101 [256]; SEND_ONLY 100 A [1]");
  peer.Ack(100);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 status 4");
}

TEST(RequesterTest, LocalErrorWithNothingBeforeItIsAtOnce) {
  RequesterPeer peer;
  peer.Connect();
  peer.Post({.wr_id = 1}, {{peer.kVa + (1 << 20) - 1, 2, peer.local->lkey}});
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 4");
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
}

TEST(RequesterTest, FaultIsALocalProtectionError) {
  RequesterPeer peer;
  peer.Connect();
  peer.local->faulty = true;
  peer.Send(1, 1);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 4");
}

TEST(RequesterTest, AtomicNeedsEightBytes) {
  RequesterPeer peer;
  peer.Connect();
  peer.Post({.wr_id = 1, .opcode = SendOpcode::kFetchAdd},
            {peer.Local(0, 4), peer.Local(8, 3)});
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.Completions(), "1 status 1");
}

TEST(RequesterTest, AtomicResultMayBeScattered) {
  RequesterPeer peer;
  peer.Connect();
  peer.Post({.wr_id = 1, .opcode = SendOpcode::kFetchAdd, .flags = kSignaled},
            {peer.Local(0, 4), peer.Local(100, 12)});
  peer.Transmit();
  peer.AtomicAck(100, 0x8877665544332211);
  EXPECT_EQ(peer.Completions(), "1 ok 8");
  EXPECT_EQ(peer.Bytes(0, 4), (std::vector<uint8_t>{0x11, 0x22, 0x33, 0x44}));
  EXPECT_EQ(peer.Bytes(100, 5),
            (std::vector<uint8_t>{0x55, 0x66, 0x77, 0x88, 104}));
}

TEST(RequesterTest, PostingInErrorFlushes) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1, 0);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Completions(), "1 status 5");
  EXPECT_EQ(peer.Send(2, 1, 0), 0);
  EXPECT_EQ(peer.Completions(), "2 status 5");
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(peer.NextTimer(), kNever);
}

class OverrunCq : public CompletionSink {
 public:
  bool Push(const Completion& completion) override {
    ids.push_back(completion.wr_id);
    if (ids.size() == 2) return false;
    completion.slot.Free();
    return true;
  }
  std::vector<uint64_t> ids;
};

TEST(RequesterTest, LostCompletionQueueEndsTheQueuePair) {
  RequesterPeer peer;
  OverrunCq cq;
  QpConfig config = peer.qp->config();
  config.send_cq = &cq;
  peer.qp.reset();
  peer.qp = MakeQueuePair(peer.endpoint, config);
  peer.Connect();
  for (int i = 1; i <= 4; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Ack(102);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(cq.ids, (std::vector<uint64_t>{1, 2}));  // and no more
  EXPECT_EQ(peer.events.Take(), std::vector<QpEvent>{QpEvent::kFatal});
}

// The completion of the request that failed is the lost one.
TEST(RequesterTest, LostCompletionOfAFailure) {
  RequesterPeer peer;
  OverrunCq cq;
  QpConfig config = peer.qp->config();
  config.send_cq = &cq;
  peer.qp.reset();
  peer.qp = MakeQueuePair(peer.endpoint, config);
  peer.Connect();
  for (int i = 1; i <= 2; ++i) peer.Send(i, 1);
  peer.Transmit();
  peer.Nak(101, wire::NakCode::kRemoteOperational);
  EXPECT_EQ(peer.qp->state(), QpState::kErr);
  EXPECT_EQ(cq.ids, (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(peer.events.Take(), std::vector<QpEvent>{QpEvent::kFatal});
}

// A sink may post when it gets a completion, even of a flush.
class PostingCq : public CompletionSink {
 public:
  bool Push(const Completion& completion) override {
    ids.push_back(completion.wr_id);
    completion.slot.Free();
    if (completion.wr_id < 10) {
      peer->Send(completion.wr_id + 10, 1, kSignaled);
    }
    return true;
  }
  RequesterPeer* peer = nullptr;
  std::vector<uint64_t> ids;
};

TEST(RequesterTest, TheSinkMayPost) {
  RequesterPeer::Options options;
  options.capacity.max_send_wr = 2;
  RequesterPeer peer(options);
  PostingCq cq;
  cq.peer = &peer;
  QpConfig config = peer.qp->config();
  config.send_cq = &cq;
  peer.qp.reset();
  peer.qp = MakeQueuePair(peer.endpoint, config);
  peer.Connect();
  peer.Send(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  peer.Ack(101);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 [1]; SEND_ONLY 103 A [1]");
  peer.Ack(103);
  EXPECT_EQ(cq.ids, (std::vector<uint64_t>{1, 2, 11, 12}));
  peer.Send(3, 1);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(cq.ids, (std::vector<uint64_t>{1, 2, 11, 12, 3, 13}));
}

TEST(RequesterTest, ResetForgetsEverything) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 5000);
  peer.Read(2, 5000);
  peer.Transmit();
  EXPECT_GT(peer.in_flight(), 10000u);
  // Another queue pair keeps the path.
  QpConfig config = peer.qp->config();
  config.qpn = 0x3333;
  const auto other = MakeQueuePair(peer.endpoint, config);
  QpAttributes a = peer.attributes;
  a.state = QpState::kInit;
  ASSERT_EQ(other->Modify(a, kQpState | kQpPkeyIndex | kQpPort | kQpAccessFlags,
                          peer.now),
            0);
  a.state = QpState::kRtr;
  ASSERT_EQ(other->Modify(a,
                          kQpState | kQpAv | kQpPathMtu | kQpDestQpn |
                              kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer,
                          peer.now),
            0);
  ASSERT_EQ(peer.Modify(QpState::kReset), 0);
  EXPECT_EQ(other->path()->in_flight(), 0u);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.NextTimer(), kNever);
  // It can be connected again.
  peer.attributes.sq_psn = 7;
  peer.Connect();
  peer.Send(3, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 7 A [1]");
  peer.Ack(7);
  EXPECT_EQ(peer.Completions(), "3 ok");
  // Destruction gives back what is in flight as well.
  peer.Send(4, 1000);
  peer.Transmit();
  EXPECT_GT(other->path()->in_flight(), 0u);
  peer.qp.reset();
  EXPECT_EQ(other->path()->in_flight(), 0u);
}

}  // namespace
}  // namespace transport
