// Connections between two hosts, as transcripts.
#include "transport/cm/connection_manager.h"

#include "transport/cm/connection_fixture.h"

namespace transport::cm {
namespace {

TEST_F(ConnectionManagerTest, ConnectAndDisconnect) {
  Establish();
  EXPECT_EQ(a_->state(active_), State::kEstablished);
  EXPECT_EQ(b_->state(passive_), State::kEstablished);
  EXPECT_EQ(a_->NextTimeout(), kNever);
  EXPECT_EQ(b_->NextTimeout(), kNever);

  EXPECT_EQ(a_->Disconnect(active_, {}, now_), Result::kOk);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_DREQ ");
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  EXPECT_EQ(b_->Disconnect(passive_, {}, now_), Result::kOk);
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_DREP ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});

  EXPECT_EQ(a_->NextTimeout(), kTimeWait);
  EXPECT_EQ(b_->NextTimeout(), kTimeWait);
  a_->OnTimer(kTimeWait - 1);
  EXPECT_EQ(a_.Events(), Kinds{});
  a_->OnTimer(kTimeWait);
  b_->OnTimer(kTimeWait);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kTimeWaitExit});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kTimeWaitExit});
  EXPECT_EQ(a_->state(active_), State::kIdle);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, MessagesCarryMatchingIds) {
  b_.Listen();
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.private_data[0] = 0x77;
  a_->Connect(options, 0, &active_);
  const auto sent = a_.Sent();
  ASSERT_TRUE(sent);
  EXPECT_EQ(sent->local, a_.address());
  EXPECT_EQ(sent->remote, b_.address());
  wire::CmView req;
  ASSERT_EQ(wire::CmView::Parse(sent->bytes, &req), wire::CmParseError::kOk);
  EXPECT_EQ(req.req().local_comm_id, active_);
  b_.Receive(*sent, 0);
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->mad, sent->bytes);
  EXPECT_EQ(event->mad[wire::kMadHeaderSize + 140], 0x77);

  b_.Accept(event->id, 0x22, 0);
  const auto answer = b_.Sent();
  ASSERT_TRUE(answer);
  wire::CmView rep;
  ASSERT_EQ(wire::CmView::Parse(answer->bytes, &rep), wire::CmParseError::kOk);
  EXPECT_EQ(rep.rep().local_comm_id, event->id);
  EXPECT_EQ(rep.rep().remote_comm_id, active_);
  EXPECT_EQ(rep.transaction_id(), req.transaction_id());
  a_.Receive(*answer, 0);
  const uint8_t data[] = {1, 2, 3};
  a_->Establish(active_, data);
  const auto last = a_.Sent();
  ASSERT_TRUE(last);
  wire::CmView rtu;
  ASSERT_EQ(wire::CmView::Parse(last->bytes, &rtu), wire::CmParseError::kOk);
  EXPECT_EQ(rtu.transaction_id(), req.transaction_id());
  EXPECT_EQ(rtu.rtu().private_data[2], 3);
  EXPECT_EQ(rtu.remote_comm_id(), event->id);
}

// --- Loss and duplicates.

TEST_F(ConnectionManagerTest, LostMessagesAreRetransmitted) {
  b_.Listen();
  active_ = a_.Connect(b_, 0x11, 0);
  EXPECT_EQ(a_.Drop(), "CM_REQ ");
  EXPECT_EQ(a_->NextTimeout(), kReqWait);
  a_->OnTimer(kReqWait);
  EXPECT_EQ(a_.SendTo(b_, kReqWait), "CM_REQ ");
  passive_ = b_.NextEvent()->id;
  b_.Accept(passive_, 0x22, kReqWait);
  EXPECT_EQ(b_.Drop(), "CM_REP ");
  EXPECT_EQ(b_->NextTimeout(), kReqWait + kRepWait);
  b_->OnTimer(kReqWait + kRepWait);
  EXPECT_EQ(b_.SendTo(a_, kReqWait + kRepWait), "CM_REP ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kReply});
  a_->Establish(active_, {});
  EXPECT_EQ(a_.Drop(), "CM_RTU ");
  // An RTU has no answer: a retransmitted REP requests it again.
  now_ = b_->NextTimeout();
  b_->OnTimer(now_);
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REP ");
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_RTU ");
  EXPECT_EQ(a_.Events(), Kinds{});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, DuplicatesAreAnsweredFromState) {
  b_.Listen();
  active_ = a_.Connect(b_, 0x11, 0);
  const OutgoingMad req = *a_.Sent();
  b_.Receive(req, 0);
  passive_ = b_.NextEvent()->id;
  // The application has not answered: an MRA requests more time.
  b_.Receive(req, 0);
  EXPECT_EQ(b_.Drop(), "CM_MRA ");
  b_.Accept(passive_, 0x22, 0);
  const OutgoingMad rep = *b_.Sent();
  b_.Receive(req, 0);
  EXPECT_EQ(b_.Drop(), "CM_REP ");

  a_.Receive(rep, 0);
  a_.Receive(rep, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kReply});
  EXPECT_EQ(a_.Drop(), "CM_MRA ");
  a_->Establish(active_, {});
  const OutgoingMad rtu = *a_.Sent();
  b_.Receive(rtu, 0);
  b_.Receive(rtu, 0);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  b_.Receive(req, 0);
  EXPECT_EQ(b_.Drop(), "");

  a_->Disconnect(active_, {}, 0);
  const OutgoingMad dreq = *a_.Sent();
  b_.Receive(dreq, 0);
  b_.Receive(dreq, 0);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  b_->Disconnect(passive_, {}, 0);
  const OutgoingMad drep = *b_.Sent();
  b_.Receive(dreq, 0);
  EXPECT_EQ(b_.Drop(), "CM_DREP ");
  a_.Receive(drep, 0);
  a_.Receive(drep, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  ExpectNothingLeft();
  // A DREQ for an unknown connection is still answered.
  b_.Receive(dreq, now_);
  EXPECT_EQ(b_.Drop(), "CM_DREP ");
}

TEST_F(ConnectionManagerTest, AnUnansweredRequestTimesOut) {
  active_ = a_.Connect(b_, 0x11, 0);
  a_.Drop();
  LetRetry(a_, "CM_REQ ", 15);
  const OutgoingMad rej = *a_.Sent();
  EXPECT_EQ(RejOf(rej.bytes).reason, CmRejectReason::kTimeout);
  EXPECT_EQ(RejOf(rej.bytes).answered, wire::CmAnswered::kOther);
  EXPECT_EQ(RejOf(rej.bytes).info_length, 8);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kUnreachable});
  EXPECT_EQ(a_->NextTimeout(), kNever);
  EXPECT_EQ(now_, 16 * kReqWait);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, ATimedOutRequestIsRejectedByItsGuid) {
  Request();
  LetRetry(a_, "CM_REQ ", 15);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REJ ");
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->kind, EventKind::kRejected);
  EXPECT_EQ(event->id, passive_);
  EXPECT_EQ(b_->half_open(), 0u);
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, ALateDuplicateRequestIsNotNew) {
  b_.Listen();
  active_ = a_.Connect(b_, 0x11, 0);
  const OutgoingMad req = *a_.Sent();
  b_.Receive(req, 0);
  a_->Destroy(active_, 0);
  EXPECT_EQ(a_.SendTo(b_, 0), "CM_REJ ");
  EXPECT_EQ(b_.Events(), (Kinds{EventKind::kRequest, EventKind::kRejected}));
  b_.Receive(req, 0);
  EXPECT_EQ(b_.Events(), Kinds{});
  EXPECT_EQ(RejOf(b_.Sent()->bytes).reason, CmRejectReason::kStaleConnection);
}

TEST_F(ConnectionManagerTest, AnUnansweredReplyTimesOut) {
  Request();
  b_.Accept(passive_, 0x22, now_);
  b_.Drop();
  LetRetry(b_, "CM_REP ", 15);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kUnreachable});
  EXPECT_EQ(b_->state(passive_), State::kTimeWait);
  // The peer received the first REP and learns that it answers too late.
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REJ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});
  now_ += kTimeWait;
  b_->OnTimer(now_);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kTimeWaitExit});
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, AnEstablishedEndIsToldThatThePeerTimedOut) {
  Request();
  Reply();
  a_->Establish(active_, {});
  const OutgoingMad rtu = *a_.Sent();
  LetRetry(b_, "CM_REP ", 15);
  EXPECT_EQ(b_.Drop(), "CM_REJ ");
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kUnreachable});
  // The REJ was lost and the RTU is late: the REJ is sent again.
  b_.Receive(rtu, now_);
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REJ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, AnUnansweredDisconnectEnds) {
  Establish();
  a_->Disconnect(active_, {}, now_);
  a_.Drop();
  LetRetry(a_, "CM_DREQ ", 15);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  EXPECT_EQ(a_->state(active_), State::kTimeWait);
}

TEST_F(ConnectionManagerTest, TheRequestLimitsTheRetries) {
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  options.req.max_cm_retries = 2;
  a_->Connect(options, 0, &active_);
  a_.Drop();
  LetRetry(a_, "CM_REQ ", 2);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kUnreachable});
}

// --- MRA.

TEST_F(ConnectionManagerTest, AnMraMakesThePeerWait) {
  Request();
  EXPECT_EQ(b_->Delay(passive_, 14), Result::kOk);
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_MRA ");
  EXPECT_EQ(a_->state(active_), State::kRepWait);
  EXPECT_EQ(a_->NextTimeout(), wire::CmTimeNanos(14) + 2 * kUnit);
  // Then it repeats the request, as often as without the MRA.
  now_ = a_->NextTimeout();
  a_->OnTimer(now_);
  EXPECT_EQ(a_->state(active_), State::kReqSent);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_REQ ");
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_MRA ");
  EXPECT_EQ(a_->state(active_), State::kRepWait);
  Reply();
  // The same for the sender of the REP.
  EXPECT_EQ(a_->Delay(active_, 14), Result::kOk);
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_MRA ");
  EXPECT_EQ(b_->state(passive_), State::kRtuWait);
  EXPECT_EQ(b_->NextTimeout(), now_ + wire::CmTimeNanos(14) + 2 * kUnit);
  a_->Establish(active_, {});
  a_.SendTo(b_, now_);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, WaitsRequestedByAPeerAreBounded) {
  Request();
  b_->Delay(passive_, 31);
  b_.SendTo(a_, now_);
  EXPECT_EQ(a_->NextTimeout(), Config{}.longest_service_wait + 2 * kUnit);

  TestHost c(3);
  ConnectOptions options = c.OptionsFor(b_, 0x31);
  options.req.local_cm_response_timeout = 31;
  options.req.primary.local_ack_timeout = 31;
  CmId id;
  c->Connect(options, 0, &id);
  c.SendTo(b_, 0);
  b_.Accept(b_.NextEvent()->id, 0x32, 0);
  // The reminder before that does not count as a try.
  const Time reminder = Config{}.reminder;
  EXPECT_EQ(b_->NextTimeout(), reminder);
  b_->OnTimer(reminder);
  EXPECT_EQ(b_.Drop(), "CM_REP CM_REP ");
  EXPECT_EQ(b_->NextTimeout(), Config{}.longest_wait);
  TestHost d(4);
  options = d.OptionsFor(b_, 0x41);
  options.req.local_cm_response_timeout = 0;
  options.req.primary.local_ack_timeout = 0;
  d->Connect(options, reminder, &id);
  d.SendTo(b_, reminder);
  b_.Accept(b_.NextEvent()->id, 0x42, reminder);
  EXPECT_EQ(b_->NextTimeout(), reminder + Config{}.shortest_wait);
}

// --- Crossing messages.

TEST_F(ConnectionManagerTest, DisconnectsCross) {
  Establish();
  a_->Disconnect(active_, {}, now_);
  b_->Disconnect(passive_, {}, now_);
  const OutgoingMad from_a = *a_.Sent();
  const OutgoingMad from_b = *b_.Sent();
  b_.Receive(from_a, now_);
  a_.Receive(from_b, now_);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  EXPECT_EQ(a_.SendTo(b_, now_), "CM_DREP ");
  EXPECT_EQ(b_.SendTo(a_, now_), "CM_DREP ");
  EXPECT_EQ(a_.Events(), Kinds{});
  ExpectNothingLeft();
}

TEST_F(ConnectionManagerTest, RequestsCross) {
  a_.Listen();
  b_.Listen();
  const CmId a_to_b = a_.Connect(b_, 0x11, 0);
  const CmId b_to_a = b_.Connect(a_, 0x22, 0);
  const OutgoingMad from_a = *a_.Sent();
  const OutgoingMad from_b = *b_.Sent();
  b_.Receive(from_a, 0);
  a_.Receive(from_b, 0);
  const CmId at_b = b_.NextEvent()->id;
  const CmId at_a = a_.NextEvent()->id;
  // The queue pair of its own request is in use.
  EXPECT_EQ(b_.Accept(at_b, 0x22, 0), Result::kQpnInUse);
  EXPECT_EQ(b_.Accept(at_b, 0x23, 0), Result::kOk);
  EXPECT_EQ(a_.Accept(at_a, 0x12, 0), Result::kOk);
  a_.SendTo(b_, 0);
  b_.SendTo(a_, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kReply});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kReply});
  a_->Establish(a_to_b, {});
  b_->Establish(b_to_a, {});
  a_.SendTo(b_, 0);
  b_.SendTo(a_, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kEstablished});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
}

TEST_F(ConnectionManagerTest, AHostConnectsToItself) {
  a_.Listen();
  active_ = a_.Connect(a_, 0x11, 0);
  EXPECT_EQ(a_.SendTo(a_, 0), "CM_REQ ");
  passive_ = a_.NextEvent()->id;
  EXPECT_EQ(a_.Accept(passive_, 0x12, 0), Result::kOk);
  a_.SendTo(a_, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kReply});
  a_->Establish(active_, {});
  a_.SendTo(a_, 0);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kEstablished});
  a_->Disconnect(passive_, {}, 0);
  a_.SendTo(a_, 0);
  const auto event = a_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, active_);
  EXPECT_EQ(event->kind, EventKind::kDisconnected);
  a_->Disconnect(active_, {}, 0);
  a_.SendTo(a_, 0);
  EXPECT_EQ(a_.NextEvent()->id, passive_);
  a_->Destroy(active_, 0);
  a_->Destroy(passive_, 0);
  a_->OnTimer(kTimeWait);
  EXPECT_EQ(a_->size(), 0u);
}

TEST_F(ConnectionManagerTest, DataBeforeTheRtuEstablishes) {
  Request();
  Reply();
  EXPECT_EQ(b_->NotifyEstablished(passive_), Result::kOk);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  EXPECT_EQ(b_->NextTimeout(), kNever);
  a_->Establish(active_, {});
  a_.SendTo(b_, now_);
  EXPECT_EQ(b_.Events(), Kinds{});
  EXPECT_EQ(b_->NotifyEstablished(passive_), Result::kWrongState);
}

TEST_F(ConnectionManagerTest, ADisconnectOvertakesTheRtu) {
  Request();
  Reply();
  a_->Establish(active_, {});
  const OutgoingMad rtu = *a_.Sent();
  a_->Disconnect(active_, {}, now_);
  a_.SendTo(b_, now_);
  b_.Receive(rtu, now_);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  b_->Disconnect(passive_, {}, now_);
  b_.SendTo(a_, now_);
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  ExpectNothingLeft();
}

// --- Timewait and stale connections.

TEST_F(ConnectionManagerTest, AQueuePairIsNotUsedAgainBeforeTimewaitIsOver) {
  Establish();
  a_->Disconnect(active_, {}, 0);
  a_.SendTo(b_, 0);
  b_->Disconnect(passive_, {}, 0);
  b_.SendTo(a_, 0);
  CmId id;
  EXPECT_EQ(a_->Connect(a_.OptionsFor(b_, 0x11), 0, &id), Result::kQpnInUse);
  // If this end has forgotten the connection, the other end rejects the queue
  // pair.
  a_->Destroy(active_, 0);
  a_->OnTimer(kTimeWait);
  ASSERT_EQ(a_->Connect(a_.OptionsFor(b_, 0x11), 0, &id), Result::kOk);
  a_.SendTo(b_, kTimeWait - 1);
  EXPECT_EQ(RejOf(b_.Sent()->bytes).reason, CmRejectReason::kStaleConnection);
  b_->OnTimer(kTimeWait);
  a_->Destroy(id, kTimeWait);
  a_.Drop();
  now_ = kTimeWait;
  b_.Events();
  ASSERT_NO_FATAL_FAILURE(Request());
}

TEST_F(ConnectionManagerTest, AQueuePairInAConnectionIsInUse) {
  Establish();
  CmId id;
  EXPECT_EQ(a_->Connect(a_.OptionsFor(b_, 0x11), 0, &id), Result::kQpnInUse);
  ASSERT_NO_FATAL_FAILURE(Request(0x33));
  EXPECT_EQ(b_.Accept(passive_, 0x22, 0), Result::kQpnInUse);
  EXPECT_EQ(b_.Accept(passive_, 0x44, 0), Result::kOk);
}

// Each device of a host numbers its own queue pairs.
TEST_F(ConnectionManagerTest, AnotherDeviceMayHaveTheSameQueuePairNumber) {
  Establish();
  ConnectOptions options = a_.OptionsFor(b_, 0x11);
  ++options.req.local_ca_guid;
  CmId id;
  ASSERT_EQ(a_->Connect(options, 0, &id), Result::kOk);
  a_.SendTo(b_, 0);
  const auto request = b_.NextEvent();
  ASSERT_TRUE(request);
  wire::CmRep rep = {.local_qpn = 0x22, .local_ca_guid = b_.guid() + 1};
  EXPECT_EQ(b_->Accept(request->id, rep, 0), Result::kOk);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_REP ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kReply});
  // The number is free only once on this device.
  CmId third;
  EXPECT_EQ(a_->Connect(options, 0, &third), Result::kQpnInUse);
  // The end of one leaves the other's number in use.
  a_->Destroy(active_, 0);
  a_->OnTimer(kTimeWait);
  EXPECT_EQ(a_->Connect(options, 0, &third), Result::kQpnInUse);
}

// The same host after a crash, with different communication IDs.
void UseUpIds(TestHost& reborn) {
  for (int i = 0; i < 10; ++i) {
    CmId id;
    reborn->Resolve({.local = reborn.address(), .remote = {}, .req = {}}, 0,
                    &id);
    reborn->Destroy(id, 0);
  }
  reborn.Drop();
}

TEST_F(ConnectionManagerTest, APeerThatHasForgottenIsDisconnected) {
  Establish();
  TestHost reborn(1);
  UseUpIds(reborn);
  const CmId id = reborn.Connect(b_, 0x11, 0);
  EXPECT_EQ(reborn.SendTo(b_, 0), "CM_REQ ");
  EXPECT_EQ(b_.SendTo(reborn, 0), "CM_REJ CM_DREQ ");
  const auto rejected = reborn.NextEvent();
  ASSERT_TRUE(rejected);
  EXPECT_EQ(RejOf(rejected->mad).reason, CmRejectReason::kStaleConnection);
  EXPECT_EQ(reborn.SendTo(b_, 0), "CM_DREP ");
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
  reborn->Destroy(id, 0);
  b_->OnTimer(kTimeWait);
  b_.Events();
  reborn.Connect(b_, 0x11, kTimeWait);
  reborn.SendTo(b_, kTimeWait);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kRequest});
}

TEST_F(ConnectionManagerTest, AReplyWithAQueuePairInUseIsStale) {
  Establish();
  TestHost reborn(2);
  UseUpIds(reborn);
  reborn.Listen();
  const CmId id = a_.Connect(reborn, 0x55, 0);
  a_.SendTo(reborn, 0);
  const CmId request = reborn.NextEvent()->id;
  // The queue pair of the old connection.
  reborn.Accept(request, 0x22, 0);
  reborn.SendTo(a_, 0);
  const auto event = a_.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(event->kind, EventKind::kRejected);
  // The rejection was our own, so there is no MAD.
  EXPECT_FALSE(event->has_mad);
  EXPECT_EQ(a_.SendTo(reborn, 0), "CM_REJ CM_DREQ ");
  EXPECT_EQ(RejOf(reborn.NextEvent()->mad).reason,
            CmRejectReason::kStaleConnection);
  EXPECT_EQ(reborn.SendTo(a_, 0), "CM_DREP ");
  const auto old = a_.NextEvent();
  ASSERT_TRUE(old);
  EXPECT_EQ(old->id, active_);
  EXPECT_EQ(old->kind, EventKind::kDisconnected);
}

TEST(CommunicationIds, BeginWithThePrefixAndDiffer) {
  TestHost a(1, {.id_prefix = 0x5a5});
  TestHost b(2, {.id_prefix = 0});
  b.Listen();
  const CmId first = a.Connect(b, 0x11, 0);
  const CmId second = a.Connect(b, 0x12, 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(PrefixOf(first), 0x5a5);
  EXPECT_EQ(PrefixOf(second), 0x5a5);
  a.SendTo(b, 0);
  const auto event = b.NextEvent();
  ASSERT_TRUE(event);
  EXPECT_EQ(PrefixOf(event->id), 0);
  EXPECT_NE(event->id, 0u);
}

}  // namespace
}  // namespace transport::cm
