// The reason of a failed work request, and what one that has not failed waits
// for.
#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

// Lets timers run until the queue pair has failed; calls `answer` in between.
template <typename Answer>
void RunUntilItFails(RequesterPeer* peer, Answer&& answer) {
  for (int i = 0; i < 10'000 && peer->qp->state() == QpState::kRts; ++i) {
    ASSERT_NE(peer->NextTimer(), kNever);
    peer->At(peer->NextTimer());
    peer->Transmit();
    answer();
  }
}

// The first completion failed with `status` for `reason`, the others were
// flushed for the same one.
void ExpectReason(RequesterPeer* peer, WcStatus status, Reason reason) {
  const std::vector<Completion> completions = peer->send_cq.Take();
  ASSERT_FALSE(completions.empty());
  EXPECT_EQ(completions[0].status, status);
  for (const Completion& completion : completions) {
    EXPECT_EQ(completion.reason, reason);
  }
  EXPECT_EQ(peer->qp->Report().first_error, reason);
}

TEST(RequesterReasonTest, SuccessHasNone) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100);
  const std::vector<Completion> completions = peer.send_cq.Take();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].reason, Reason::kNone);
}

TEST(RequesterReasonTest, PeerThatNeverAnswered) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Send(2, 1);
  peer.Transmit();
  RunUntilItFails(&peer, [] {});
  ExpectReason(&peer, WcStatus::kRetryExceeded, Reason::kNeverAnswered);
}

TEST(RequesterReasonTest, PeerThatFellSilent) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.Ack(100);
  peer.send_cq.Take();
  peer.Send(2, 1);
  peer.Transmit();
  RunUntilItFails(&peer, [] {});
  ExpectReason(&peer, WcStatus::kRetryExceeded, Reason::kPeerSilent);
}

// The peer answers, but reports each time that it misses the same packet.
TEST(RequesterReasonTest, AnswersWithoutProgress) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  for (Time at = 0; peer.qp->state() == QpState::kRts; at += kMillisecond) {
    ASSERT_LT(at, 10 * kSecond);
    peer.At(at);
    peer.Transmit();
    peer.Nak(100);
  }
  ExpectReason(&peer, WcStatus::kRetryExceeded, Reason::kNoProgress);
}

// Without an ACK timeout, repeated NAKs of one gap use up retry_cnt.
TEST(RequesterReasonTest, RepeatedGap) {
  RequesterPeer peer;
  peer.attributes.timeout = 0;
  peer.Connect();
  peer.Send(1, 1);
  for (Time at = 0; peer.qp->state() == QpState::kRts; at += kSecond) {
    ASSERT_LT(at, 1000 * kSecond);
    peer.At(at);
    peer.Transmit();
    peer.Nak(100);
  }
  ExpectReason(&peer, WcStatus::kRetryExceeded, Reason::kGapRepeated);
}

TEST(RequesterReasonTest, RnrRetries) {
  RequesterPeer peer;
  peer.attributes.rnr_retry = 1;
  peer.Connect();
  peer.Send(1, 1);
  peer.Transmit();
  peer.RnrNak(100, 1);
  const QpReport waiting = peer.qp->Report();
  EXPECT_EQ(waiting.waits_for, WaitsFor::kRnr);
  EXPECT_EQ(waiting.waits_until, peer.now + wire::RnrTimerNanos(1));
  RunUntilItFails(&peer, [&] { peer.RnrNak(100, 1); });
  ExpectReason(&peer, WcStatus::kRnrRetryExceeded, Reason::kRnrRetriesExceeded);
}

TEST(RequesterReasonTest, Naks) {
  const struct {
    wire::NakCode code;
    WcStatus status;
    Reason reason;
  } cases[] = {
      {wire::NakCode::kRemoteAccess, WcStatus::kRemoteAccessError,
       Reason::kNakAccess},
      {wire::NakCode::kInvalidRequest, WcStatus::kRemoteInvalidRequest,
       Reason::kNakInvalidRequest},
      {wire::NakCode::kRemoteOperational, WcStatus::kRemoteOperationalError,
       Reason::kNakOperational},
  };
  for (const auto& each : cases) {
    RequesterPeer peer;
    peer.Connect();
    peer.Write(1, 1);
    peer.Write(2, 1);
    peer.Transmit();
    peer.Nak(100, each.code);
    ExpectReason(&peer, each.status, each.reason);
  }
}

TEST(RequesterReasonTest, ModifiedToError) {
  RequesterPeer peer;
  peer.Connect();
  peer.Send(1, 1);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  ExpectReason(&peer, WcStatus::kFlushed, Reason::kModifiedToError);
}

TEST(RequesterReasonTest, WaitsForAnAck) {
  RequesterPeer peer;
  peer.Connect();
  EXPECT_EQ(peer.qp->Report().waits_for, WaitsFor::kNothing);
  peer.Send(41, 1);
  peer.Transmit();
  const QpReport report = peer.qp->Report();
  EXPECT_EQ(report.waits_for, WaitsFor::kAck);
  EXPECT_EQ(report.waits_since, peer.now);
  EXPECT_EQ(report.wr_id, 41u);
}

TEST(RequesterReasonTest, WhyModifyRefused) {
  RequesterPeer peer;
  peer.Connect();
  QpAttributes attributes;
  attributes.state = QpState::kRtr;
  EXPECT_EQ(peer.qp->WhyModifyRefused(attributes, kQpState),
            "IBV_QP_STATE: no transition from RTS to RTR");
  EXPECT_EQ(peer.qp->WhyModifyRefused(attributes, kQpQkey | kQpTimeout),
            "IBV_QP_QKEY, IBV_QP_TIMEOUT: not permitted from RTS to RTS");
  attributes.min_rnr_timer = 32;
  EXPECT_EQ(peer.qp->WhyModifyRefused(attributes, kQpMinRnrTimer),
            "IBV_QP_MIN_RNR_TIMER: the value is not valid");
  attributes.min_rnr_timer = 3;
  EXPECT_EQ(peer.qp->WhyModifyRefused(attributes, kQpMinRnrTimer), "");
}

}  // namespace
}  // namespace transport
