// Which datagrams are dropped, and which errors stop a queue.
#include <cerrno>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/ud_fixture.h"

namespace transport {
namespace {

TEST_F(UdTest, OtherPacketsAreDropped) {
  ASSERT_EQ(b.Receive(1, 200), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  const Sent good = All(a).at(0);
  const auto changed = [&good](size_t at, uint8_t value) {
    Sent sent = good;
    sent.bytes[at] = value;
    wire::IcrcFlow(sent.av.source, sent.av.destination, sent.av.source_port,
                   wire::kRoceUdpPort)
        .Store(sent.bytes, 0);
    return sent;
  };
  EXPECT_EQ(Deliver(b, changed(0, 0x24)), Disposition::kDelivered);  // UC
  EXPECT_EQ(b.qp->counters().dropped_type, 1u);
  EXPECT_EQ(Deliver(b, changed(3, 0xfe)), Disposition::kDelivered);
  EXPECT_EQ(b.qp->counters().dropped_pkey, 1u);
  Sent damaged = good;
  damaged.bytes[30] ^= 1;
  EXPECT_EQ(Deliver(b, damaged), Disposition::kBadIcrc);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(Deliver(b, good), Disposition::kDelivered);
  EXPECT_EQ(b.Received(), "1 ok 140 from 17");
  EXPECT_EQ(Deliver(b, good), Disposition::kDelivered);
  EXPECT_EQ(b.qp->counters().out_of_buffer, 1u);
  // Longer than the port's MTU.
  ASSERT_EQ(b.Receive(2, 2048), 0);
  Host jumbo(99, "10.0.0.9");
  jumbo.config.qpn = 100;
  jumbo.config.port_mtu = 4096;
  const auto large = MakeQueuePair(jumbo.endpoint, jumbo.config);
  ASSERT_EQ(BringUp(*large, jumbo.attributes, jumbo.now), 0);
  const AddressVector to = jumbo.To(b);
  const Sge sge = {kVa, kMtu + 1, jumbo.region->lkey};
  ASSERT_EQ(large->PostSend({.sges = {&sge, 1},
                             .ah = &to,
                             .remote_qpn = 34,
                             .remote_qkey = kQkey},
                            jumbo.now),
            0);
  Deliver(All(jumbo));
  EXPECT_EQ(b.qp->counters().dropped_message, 1u);
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
}

TEST_F(UdTest, ReceivesThatAreTooShort) {
  ASSERT_EQ(b.Receive(1, 139), 0);
  ASSERT_EQ(b.Receive(2, 140), 0);
  for (uint64_t i = 10; i < 12; ++i) ASSERT_EQ(a.Send(i, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "");
  EXPECT_EQ(b.At(1)[20], 0) << "nothing of it is placed";
  EXPECT_EQ(b.qp->counters().dropped_message, 2u);
  ASSERT_EQ(a.Send(12, b, 99), 0);
  ASSERT_EQ(a.Send(13, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 ok 139 from 17; 2 ok 140 from 17");
  EXPECT_EQ(b.qp->state(), QpState::kRts);
  EXPECT_EQ(b.qp->counters().receive_errors, 0u);
}

TEST_F(UdTest, ReceiveThatCannotBeWrittenEndsTheQueuePair) {
  const Sge bad = {kVa, 200, 0x999};
  ASSERT_EQ(b.qp->PostReceive({1, {&bad, 1}}, b.now), 0);
  ASSERT_EQ(b.Receive(2, 200), 0);
  ASSERT_EQ(a.Send(10, b, 100), 0);
  Exchange();
  EXPECT_EQ(b.Received(), "1 status 4; 2 status 5");
  EXPECT_EQ(b.qp->state(), QpState::kErr);
}

TEST_F(UdTest, ErrorsOfSendsStopTheSendQueueOnly) {
  const Sge bad = {kVa, 600, 0x999};
  const AddressVector to = a.To(b);
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(a.Send(10, b, kMtu), 0);
    if (round == 0) {
      ASSERT_EQ(a.Send(11, b, kMtu + 1), 0);
    } else {
      ASSERT_EQ(a.qp->PostSend({.wr_id = 11,
                                .sges = {&bad, 1},
                                .ah = &to,
                                .remote_qpn = 34,
                                .remote_qkey = kQkey},
                               a.now),
                0);
    }
    ASSERT_EQ(a.Send(12, b, 100), 0);
    ASSERT_EQ(b.Receive(1, 2048), 0);
    ASSERT_EQ(b.Receive(2, 2048), 0);
    ASSERT_EQ(a.Receive(5, 2048), 0);
    Exchange();
    EXPECT_EQ(a.Sent(), round == 0 ? "10 ok; 11 status 1; 12 status 5"
                                   : "10 ok; 11 status 4; 12 status 5");
    EXPECT_EQ(a.qp->state(), QpState::kSqe);
    EXPECT_TRUE(a.events.Take().empty());
    ASSERT_EQ(a.Send(13, b, 100), 0);
    EXPECT_EQ(a.Sent(), "13 status 5");
    // It still receives.
    ASSERT_EQ(b.Send(20, a, 10), 0);
    Exchange();
    EXPECT_EQ(a.Received(), "5 ok 50 from 34");
    ASSERT_EQ(a.Modify(QpState::kRts), 0);
    ASSERT_EQ(a.Send(14, b, 100), 0);
    Exchange();
    EXPECT_EQ(a.Sent(), "14 ok");
    EXPECT_EQ(b.Received(), "1 ok 1064 from 17; 2 ok 140 from 17");
  }
}

TEST_F(UdTest, RejectsUnsupportedOperations) {
  const AddressVector to = a.To(b);
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm,
        SendOpcode::kRdmaRead, SendOpcode::kCompareSwap, SendOpcode::kFetchAdd,
        SendOpcode::kSendWithInvalidate, SendOpcode::kLocalInvalidate,
        SendOpcode::kAtomicWrite}) {
    EXPECT_EQ(a.Post({.opcode = opcode, .remote_qpn = 34}, to, 8), EINVAL);
    EXPECT_EQ(a.qp->CheckSend({.opcode = opcode, .ah = &to}), EINVAL);
  }
  EXPECT_EQ(a.qp->PostSend({.remote_qpn = 34}, a.now), EINVAL);  // no address
  EXPECT_EQ(a.qp->CheckSend({.remote_qpn = 34}), EINVAL);
  EXPECT_EQ(a.Post({.remote_qpn = 1 << 24}, to, 8), EINVAL);
  EXPECT_TRUE(All(a).empty());
}

TEST_F(UdTest, StatesThatReceiveNothing) {
  ASSERT_EQ(a.Send(9, b, 1), 0);
  const Sent sent = All(a).at(0);
  EXPECT_EQ(a.Sent(), "9 ok");
  for (const QpState state : {QpState::kErr, QpState::kReset}) {
    ASSERT_EQ(b.Modify(state), 0);
    EXPECT_EQ(Deliver(b, sent), Disposition::kDelivered);
  }
  EXPECT_EQ(b.qp->counters().dropped_state, 2u);
  // Receives from RTR on; the Q_Key may be changed meanwhile.
  b.attributes.qkey = kQkey + 1;
  ASSERT_EQ(b.Modify(QpState::kInit, kQpPkeyIndex | kQpPort | kQpQkey), 0);
  ASSERT_EQ(b.Receive(1, 200), 0);
  b.attributes.qkey = kQkey;
  ASSERT_EQ(b.Modify(QpState::kRtr, kQpQkey), 0);
  EXPECT_EQ(Deliver(b, sent), Disposition::kDelivered);
  EXPECT_EQ(b.Received(), "1 ok 41 from 17");
  EXPECT_EQ(b.Send(1, a, 1), EINVAL);
  // With work queued, in SQD.
  ASSERT_EQ(a.Modify(QpState::kSqd), 0);
  ASSERT_EQ(a.Send(10, b, 1), 0);
  ASSERT_EQ(a.Modify(QpState::kErr), 0);
  EXPECT_EQ(a.Sent(), "10 status 5");
  EXPECT_TRUE(All(a).empty());
  ASSERT_EQ(a.Modify(QpState::kReset), 0);
  ASSERT_EQ(BringUp(*a.qp, a.attributes, a.now), 0);
  ASSERT_EQ(a.Send(11, b, 1), 0);
  EXPECT_EQ(All(a).size(), 1u);
}

// The completion queue overruns: no more completions, state ERR.
TEST_F(UdTest, LostCompletions) {
  a.sends.capacity = 0;
  ASSERT_EQ(a.Send(10, b, 1), 0);
  ASSERT_EQ(a.Send(11, b, 1), 0);
  All(a);
  EXPECT_EQ(a.qp->state(), QpState::kErr);
  EXPECT_EQ(a.events.Take(), std::vector<QpEvent>{QpEvent::kFatal});
}

}  // namespace
}  // namespace transport
