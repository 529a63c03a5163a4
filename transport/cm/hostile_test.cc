// Floods, forgeries, garbage, and invalid calls.
#include <array>
#include <random>

#include "transport/cm/connection_fixture.h"
#include "transport/cm/connection_manager.h"
#include "wire/bytes.h"

namespace transport::cm {
namespace {

using HostileTest = ConnectionManagerTest;

// --- Limits.

TEST_F(HostileTest, RequestsBeyondTheBacklogAreRetransmitted) {
  b_.Listen(TestHost::kService, 2);
  const CmId first = a_.Connect(b_, 1, 0);
  a_.Connect(b_, 2, 0);
  a_.Connect(b_, 3, 0);
  a_.SendTo(b_, 0);
  const CmId request = b_.NextEvent()->id;
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kRequest});
  EXPECT_EQ(b_.Drop(), "");
  EXPECT_EQ(b_->counters().backlog_full, 1u);
  b_.Accept(request, 0x22, 0);
  EXPECT_EQ(b_.Drop(), "CM_REP ");
  a_->Destroy(first, 0);
  a_.Drop();
  a_->OnTimer(kReqWait);
  a_.SendTo(b_, kReqWait);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kRequest});
}

// An application may look at several requests before it answers one.
TEST_F(HostileTest, SeenRequestsLeaveTheBacklogButNotTheLimits) {
  TestHost b(2, {.max_half_open_for_peer = 3});
  b.Listen(TestHost::kService, 1);
  std::vector<CmId> requests;
  for (uint32_t qpn = 1; qpn <= 4; ++qpn) {
    a_.Connect(b, qpn, 0);
    a_.SendTo(b, 0);
    const auto event = b.NextEvent();
    ASSERT_EQ(event.has_value(), qpn <= 3) << qpn;
    if (!event.has_value()) continue;
    EXPECT_EQ(b->Seen(event->id), Result::kOk);
    EXPECT_EQ(b->Seen(event->id), Result::kOk);
    requests.push_back(event->id);
  }
  EXPECT_EQ(b->counters().backlog_full, 0u);
  EXPECT_EQ(b->counters().half_open_full, 1u);
  for (const CmId id : requests) {
    EXPECT_EQ(b.Accept(id, 0x20 + id % 256, 0), Result::kOk);
    b->Destroy(id, 0);
  }
  EXPECT_EQ(b->Seen(requests[0]), Result::kUnknownId);
  // Each request is counted once.
  TestHost c(3);
  for (uint32_t qpn = 1; qpn <= 2; ++qpn) {
    c.Connect(b, qpn, 0);
    c.SendTo(b, 0);
  }
  EXPECT_EQ(b.Events(), Kinds{EventKind::kRequest});
  EXPECT_EQ(b->counters().backlog_full, 1u);
}

TEST(CapsTest, HalfOpenRequestsOfAPeer) {
  TestHost a(1), c(3);
  TestHost b(2, {.max_half_open_for_peer = 2});
  b.Listen();
  for (uint32_t qpn = 1; qpn <= 3; ++qpn) a.Connect(b, qpn, 0);
  a.SendTo(b, 0);
  EXPECT_EQ(b->half_open(), 2u);
  EXPECT_EQ(b->counters().half_open_full, 1u);
  c.Connect(b, 1, 0);
  c.SendTo(b, 0);
  EXPECT_EQ(b->half_open(), 3u);
}

TEST(CapsTest, TheOldestSilentRequestIsDroppedForANewOne) {
  TestHost b(2, {.max_half_open = 3});
  b.Listen();
  std::vector<CmId> ids;
  for (int i = 0; i < 3; ++i) {
    TestHost peer(10 + i);
    peer.Connect(b, 1, i);
    peer.SendTo(b, i);
    ids.push_back(b.NextEvent()->id);
  }
  TestHost next(20);
  next.Connect(b, 1, 10);
  const OutgoingMad req = *next.Sent();
  // No REP has been retransmitted yet.
  b.Receive(req, 10);
  EXPECT_EQ(b->counters().half_open_full, 1u);
  for (size_t i = 0; i < ids.size(); ++i) {
    b.Accept(ids[i], 0x20 + static_cast<uint32_t>(i), 10);
  }
  b.Drop();
  b->OnTimer(10 + kRepWait);
  EXPECT_EQ(b.Drop(), "CM_REP CM_REP CM_REP ");
  b.Receive(req, 10 + kRepWait);
  EXPECT_EQ(b->counters().half_open_full, 2u);
  b.Receive(req, 10 + 2 * kRepWait);
  const auto gone = b.NextEvent();
  ASSERT_TRUE(gone);
  EXPECT_EQ(gone->kind, EventKind::kUnreachable);
  EXPECT_EQ(gone->id, ids[0]);
  EXPECT_EQ(b.Events(), Kinds{EventKind::kRequest});
  EXPECT_EQ(b->half_open(), 3u);
}

// Sends a request of `from` with the longest timeouts.
CmId ConnectWithLongTimeouts(TestHost& from, TestHost& to, uint32_t qpn,
                             Time now) {
  ConnectOptions options = from.OptionsFor(to, qpn);
  options.req.local_cm_response_timeout = 31;
  options.req.primary.local_ack_timeout = 31;
  CmId id = 0;
  from->Connect(options, now, &id);
  from.SendTo(to, now);
  return id;
}

// One user of a host sent as many requests as its address may have half open,
// and answered no REP: for 16 minutes no process at that address could connect.
TEST(CapsTest, NewRequestsReplaceSilentOnesOfTheSameAddress) {
  TestHost a(1);
  TestHost b(2, {.max_half_open_for_peer = 3});
  b.Listen();
  for (uint32_t qpn = 1; qpn <= 3; ++qpn) {
    ConnectWithLongTimeouts(a, b, qpn, 0);
    ASSERT_EQ(b.Accept(b.NextEvent()->id, 0x20 + qpn, 0), Result::kOk);
  }
  EXPECT_EQ(b.Drop(), "CM_REP CM_REP CM_REP ");
  ASSERT_EQ(b->NextTimeout(), kSecond);
  b->OnTimer(kSecond);
  EXPECT_EQ(b.Drop(), "CM_REP CM_REP CM_REP ");
  ConnectWithLongTimeouts(a, b, 4, 2 * kSecond - 1);
  EXPECT_EQ(b.Events(), Kinds{});
  const CmId honest = ConnectWithLongTimeouts(a, b, 5, 2 * kSecond);
  EXPECT_EQ(b.NextEvent()->kind, EventKind::kUnreachable);
  const auto request = b.NextEvent();
  ASSERT_TRUE(request);
  ASSERT_EQ(request->kind, EventKind::kRequest);
  EXPECT_EQ(b.Drop(), "CM_REJ ");
  b.Accept(request->id, 0x30, 2 * kSecond);
  b.SendTo(a, 2 * kSecond);
  a->Establish(honest, {});
  a.SendTo(b, 2 * kSecond);
  EXPECT_EQ(b.Events(), Kinds{EventKind::kEstablished});
  EXPECT_EQ(b->half_open(), 2u);
  // The others still get the number of tries that they asked for.
  EXPECT_EQ(b->NextTimeout(), 60 * kSecond);
}

// A slow peer that answers the reminder with an MRA is replaced later.
TEST(CapsTest, AnMraDelaysYielding) {
  TestHost a(1);
  TestHost b(2, {.max_half_open_for_peer = 1});
  b.Listen();
  ConnectWithLongTimeouts(a, b, 1, 0);
  b.Accept(b.NextEvent()->id, 0x20, 0);
  b.SendTo(a, 0);
  EXPECT_EQ(a.Events(), Kinds{EventKind::kReply});
  b->OnTimer(kSecond);
  EXPECT_EQ(b.SendTo(a, kSecond), "CM_REP ");
  EXPECT_EQ(a.SendTo(b, kSecond), "CM_MRA ");
  for (const Time now : {2 * kSecond, 5 * kSecond}) {
    ConnectWithLongTimeouts(a, b, static_cast<uint32_t>(now / kSecond), now);
    EXPECT_EQ(b.Events(), Kinds{});
  }
  EXPECT_EQ(b->counters().half_open_full, 2u);
  ConnectWithLongTimeouts(a, b, 9, 6 * kSecond);
  EXPECT_EQ(b.Events(), (Kinds{EventKind::kUnreachable, EventKind::kRequest}));
}

// In a large burst, no request replaces one whose sender had no time to answer.
TEST(CapsTest, NoRequestYieldsBeforeItCouldAnswer) {
  TestHost a(1, {.max_unanswered = 1000});
  TestHost b(2, {.max_half_open_for_peer = 100});
  b.Listen();
  for (uint32_t qpn = 1; qpn <= 200; ++qpn) {
    ConnectWithLongTimeouts(a, b, qpn, qpn * kMillisecond);
    while (const auto event = b.NextEvent()) {
      ASSERT_EQ(event->kind, EventKind::kRequest);
      b.Accept(event->id, 0x1000 + qpn, qpn * kMillisecond);
    }
  }
  EXPECT_EQ(b->counters().half_open_given_up, 0u);
  EXPECT_EQ(b->half_open(), 100u);
}

// During a flood, a request from the same address still arrives at once.
TEST(CapsTest, AFloodOfSilentRequestsDoesNotStopOthers) {
  constexpr int kPerSecond = 400;
  TestHost attacker(1, {.max_unanswered = 1 << 20});
  TestHost b(2);
  b.Listen();
  uint32_t qpn = 0;
  for (Time now = 0; now < 20 * kSecond; now += kSecond / kPerSecond) {
    b->OnTimer(now);
    const bool honest = qpn % kPerSecond == 0;
    ConnectWithLongTimeouts(attacker, b, ++qpn, now);
    bool heard = false;
    while (const auto event = b.NextEvent()) {
      if (event->kind != EventKind::kRequest) continue;
      heard = true;
      b.Accept(event->id, 0x100000 + qpn, now);
    }
    if (honest) {
      EXPECT_TRUE(heard) << now;
    }
    b.Drop();
  }
  EXPECT_GT(b->counters().half_open_given_up, 5000u);
  EXPECT_EQ(b->counters().half_open_full, 0u);
}

TEST(CapsTest, AFloodOfForgedRequestsGetsFewAnswers) {
  TestHost b(2, {.answers_per_second = 10, .answer_burst = 5});
  TestHost a(1);
  for (uint32_t qpn = 1; qpn <= 10'000; ++qpn) {
    const CmId id = a.Connect(b, qpn, 0);
    b.Receive(*a.Sent(), 0);
    a->Destroy(id, 0);
    a.Drop();
  }
  EXPECT_EQ(b->size(), 0u);
  EXPECT_EQ(b->counters().sent, 5u);
  EXPECT_EQ(b->counters().answers_limited, 9'995u);
}

// A translated request names its sender, but its answer goes to where it came
// from: to the victim, whatever sender it names.
TEST(CapsTest, TheLimitIsOfTheAddressThatIsAnswered) {
  TestHost b(2, {.answers_per_second = 10, .answer_burst = 5});
  const Via victim = {.address = *wire::IpAddress::Parse("192.0.2.7"),
                      .port = 1024};
  for (int named = 10; named < 250; ++named) {
    TestHost a(named);
    a.Connect(b, 1, 0);
    const OutgoingMad req = *a.Sent();
    b->OnMad({.local = req.remote,
              .remote = req.local,
              .bytes = req.bytes,
              .via = victim},
             0);
  }
  EXPECT_EQ(b->counters().sent, 5u);
  EXPECT_EQ(b->counters().answers_limited, 235u);
}

// With RXE_USER_NAT a request names its sender itself. One that names a
// connected peer, from elsewhere, does not end that peer's connection.
TEST(StaleTest, ATranslatedRequestFromElsewhereDisconnectsNobody) {
  TestHost a(1), b(2);
  b.Listen();
  const auto via = [](const char* address, uint16_t port) {
    return Via{.address = *wire::IpAddress::Parse(address), .port = port};
  };
  const auto deliver = [&](TestHost& from, const Via& seen) {
    while (const auto mad = from.Sent()) {
      b->OnMad({.local = mad->remote,
                .remote = mad->local,
                .bytes = mad->bytes,
                .via = seen},
               0);
    }
  };
  const CmId active = a.Connect(b, 0x11, 0);
  deliver(a, via("192.0.2.7", 1024));
  b.Accept(b.NextEvent()->id, 0x22, 0);
  b.SendTo(a, 0);
  ASSERT_EQ(a->Establish(active, {}), Result::kOk);
  deliver(a, via("192.0.2.7", 1024));
  b.Drop();

  TestHost forger(1, {.id_prefix = 0x123});
  forger.Connect(b, 0x11, 0);
  deliver(forger, via("192.0.2.66", 1024));
  EXPECT_EQ(b.Drop(), "CM_REJ ");
  TestHost direct(1, {.id_prefix = 0x124});
  direct.Connect(b, 0x11, 0);
  deliver(direct, {});
  EXPECT_EQ(b.Drop(), "CM_REJ ");
  // The peer, with another port of its translator.
  TestHost reborn(1, {.id_prefix = 0x125});
  reborn.Connect(b, 0x11, 0);
  deliver(reborn, via("192.0.2.7", 1025));
  EXPECT_EQ(b.Drop(), "CM_REJ CM_DREQ ");
}

// An application that accepts forged REQs sends one REP per REQ to the victim,
// and few retransmissions.
TEST(CapsTest, AcceptedForgedRequestsAreNotAmplified) {
  constexpr uint32_t kForged = 500;
  TestHost b(2, {.retransmissions_per_second = 10, .retransmission_burst = 20});
  TestHost a(1, {.max_unanswered = kForged});
  b.Listen(TestHost::kService, kForged);
  for (uint32_t qpn = 1; qpn <= kForged; ++qpn) {
    a.Connect(b, qpn, 0);
    a.SendTo(b, 0);
    b.Accept(b.NextEvent()->id, 0x1000 + qpn, 0);
  }
  Time now = 0;
  while (b->NextTimeout() != kNever) {
    now = b->NextTimeout();
    b->OnTimer(now);
  }
  EXPECT_EQ(b->half_open(), 0u);
  EXPECT_LE(b->counters().sent, kForged + 20 + 10 * (now / kSecond + 1));
  EXPECT_GE(b->counters().sent, kForged + 20);
}

TEST(CapsTest, RememberedRejectionsAreLimited) {
  TestHost b(2, {.max_half_open = 10});
  TestHost a(1);
  b.Listen();
  for (uint32_t qpn = 1; qpn <= 100; ++qpn) {
    a.Connect(b, qpn, 0);
    a.SendTo(b, 0);
    const auto event = b.NextEvent();
    ASSERT_TRUE(event) << qpn;
    b->Reject(event->id, {}, 0);
    b->Destroy(event->id, 0);
    b.SendTo(a, 0);
  }
  EXPECT_EQ(b->size(), 10u);
  b->OnTimer(b->NextTimeout());
  EXPECT_EQ(b->size(), 0u);
}

// A regression: destroyed connections stayed in memory for a minute, or for a
// quarter of an hour if peers did not answer the DREQs.
TEST(CapsTest, DestroyedConnectionsAreLimited) {
  for (const bool peer_answers : {true, false}) {
    TestHost b(2, {.max_destroyed = 10});
    TestHost a(1);
    b.Listen();
    CmId kept = 0;
    for (uint32_t qpn = 1; qpn <= 100; ++qpn) {
      const CmId active = a.Connect(b, qpn, qpn);
      a.SendTo(b, qpn);
      const auto request = b.NextEvent();
      ASSERT_TRUE(request) << qpn;
      ASSERT_EQ(b.Accept(request->id, 0x1000 + qpn, qpn), Result::kOk);
      b.SendTo(a, qpn);
      ASSERT_EQ(a->Establish(active, {}), Result::kOk);
      a.SendTo(b, qpn);
      EXPECT_EQ(b.Events(), Kinds{EventKind::kEstablished});
      a.Events();
      if (qpn == 1) {
        kept = request->id;
        continue;
      }
      ASSERT_EQ(b->Destroy(request->id, qpn), Result::kOk);
      if (!peer_answers) {
        b.Drop();
        continue;
      }
      b.SendTo(a, qpn);
      ASSERT_EQ(a->Disconnect(active, {}, qpn), Result::kOk);
      a.SendTo(b, qpn);
    }
    EXPECT_EQ(b->size(), 11u);
    // The application's own connection stays.
    EXPECT_EQ(b->state(kept), State::kEstablished);
    // The newest ones are kept: their numbers are still in use.
    for (int i = 0; i < 1000 && b->NextTimeout() != kNever; ++i) {
      b->OnTimer(b->NextTimeout());
      b.Drop();
    }
    EXPECT_EQ(b->size(), 1u);
  }
}

// The REJ of a requester that has not received our communication ID.
void Withdraw(TestHost& from, TestHost& at, CmId id, Time now) {
  std::array<uint8_t, 8> guid;
  wire::StoreBe64(guid.data(), from.guid());
  wire::CmRej rej = {.local_comm_id = id,
                     .answered = wire::CmAnswered::kOther,
                     .info_length = 8,
                     .reason = CmRejectReason::kTimeout};
  std::copy(guid.begin(), guid.end(), rej.additional_info.begin());
  Mad mad;
  wire::EmitCm({}, rej, mad);
  at.Receive({.local = from.address(), .remote = at.address(), .bytes = mad},
             now);
}

// A regression: each withdrawn request left an event and a connection in
// timewait, whatever the backlog, so any peer could fill the memory of a slow
// program.
TEST(CapsTest, WithdrawnRequestsCountInTheBacklogUntilSeen) {
  TestHost a(1, {.max_unanswered = 1000});
  TestHost b(2, {.max_half_open = 10});
  b.Listen(TestHost::kService, 4);
  const auto flood = [&] {
    for (uint32_t i = 0; i < 100; ++i) {
      const CmId id = a.Connect(b, 0, 0);
      a.SendTo(b, 0);
      Withdraw(a, b, id, 0);
    }
  };
  flood();
  std::vector<CmId> ids;
  size_t events = 0;
  while (const auto event = b.NextEvent()) {
    ++events;
    if (event->kind == EventKind::kRequest) ids.push_back(event->id);
  }
  EXPECT_EQ(events, 8u);
  ASSERT_EQ(ids.size(), 4u);
  EXPECT_EQ(b->counters().backlog_full, 96u);
  // A late answer counts as an answer; Destroy needs none.
  EXPECT_EQ(b.Accept(ids[0], 0x20, 0), Result::kWrongState);
  EXPECT_EQ(b->Reject(ids[1], {}, 0), Result::kWrongState);
  b->Destroy(ids[2], 0);
  flood();
  EXPECT_EQ(b.Events().size(), 6u);
  EXPECT_EQ(b->counters().backlog_full, 96u + 97u);
}

// Requests still count after the application has seen them, until it answers.
TEST(CapsTest, WithdrawnRequestsCountAsHalfOpen) {
  TestHost a(1, {.max_unanswered = 1000});
  TestHost b(2, {.max_half_open_for_peer = 10});
  b.Listen(TestHost::kService, 4);
  std::vector<CmId> ids;
  for (uint32_t i = 0; i < 100; ++i) {
    const CmId id = a.Connect(b, 0, 0);
    a.SendTo(b, 0);
    Withdraw(a, b, id, 0);
    while (const auto event = b.NextEvent()) {
      if (event->kind != EventKind::kRequest) continue;
      ids.push_back(event->id);
      b->Seen(event->id);
    }
  }
  EXPECT_EQ(ids.size(), 10u);
  EXPECT_EQ(b->half_open(), 10u);
  EXPECT_EQ(b->counters().half_open_full, 90u);
  for (const CmId id : ids) b->Destroy(id, 0);
  EXPECT_EQ(b->half_open(), 0u);
}

// Withdrawn requests are remembered to answer duplicates; their number is
// limited as well.
TEST(CapsTest, RememberedWithdrawalsAreLimited) {
  TestHost a(1, {.max_unanswered = 1000});
  TestHost b(2, {.max_half_open = 10});
  b.Listen();
  for (uint32_t i = 0; i < 100; ++i) {
    const CmId id = a.Connect(b, 0, 0);
    a.SendTo(b, 0);
    Withdraw(a, b, id, 0);
    const auto request = b.NextEvent();
    ASSERT_TRUE(request);
    b->Destroy(request->id, 0);
    b.Events();
  }
  EXPECT_EQ(b->size(), 10u);
  EXPECT_EQ(b->half_open(), 0u);
  b->OnTimer(b->NextTimeout());
  EXPECT_EQ(b->size(), 0u);
}

// --- Hostile messages and invalid calls.

TEST_F(HostileTest, MessagesOfOthersAreIgnored) {
  Establish();
  TestHost other(3);
  const auto send = [&](const wire::IpAddress& from, const auto& message) {
    Mad mad;
    wire::EmitCm({}, message, mad);
    b_.Receive({.local = from, .remote = b_.address(), .bytes = mad}, 0);
  };
  const wire::CmDreq dreq = {
      .local_comm_id = active_, .remote_comm_id = passive_, .remote_qpn = 0x22};
  send(other.address(), dreq);
  wire::CmDreq wrong = dreq;
  wrong.local_comm_id ^= 1;
  send(a_.address(), wrong);
  wrong = dreq;
  wrong.remote_qpn = 0x23;
  send(a_.address(), wrong);
  send(other.address(),
       wire::CmRej{.local_comm_id = active_, .remote_comm_id = passive_});
  send(a_.address(),
       wire::CmRej{.local_comm_id = active_ ^ 1, .remote_comm_id = passive_});
  EXPECT_EQ(b_->counters().wrong_peer, 5u);
  EXPECT_EQ(b_->state(passive_), State::kEstablished);
  EXPECT_EQ(b_.Events(), Kinds{});
  EXPECT_EQ(b_.Drop(), "");
  send(a_.address(), dreq);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
}

// Both ends of an established connection know both communication IDs. A REJ
// without one of them is a guess.
TEST_F(HostileTest, ARejectOfAnEstablishedConnectionNamesBothIds) {
  Establish();
  const auto send = [&](TestHost& from, TestHost& to, const wire::CmRej& rej) {
    Mad mad;
    wire::EmitCm({}, rej, mad);
    to.Receive({.local = from.address(), .remote = to.address(), .bytes = mad},
               0);
  };
  send(a_, b_, {.local_comm_id = 0, .remote_comm_id = passive_});
  send(b_, a_, {.local_comm_id = 0, .remote_comm_id = active_});
  Withdraw(a_, b_, active_, 0);
  Withdraw(b_, a_, passive_, 0);
  EXPECT_EQ(b_->state(passive_), State::kEstablished);
  EXPECT_EQ(a_->state(active_), State::kEstablished);
  EXPECT_EQ(a_->counters().wrong_peer + b_->counters().wrong_peer, 4u);
  EXPECT_EQ(b_.Events(), Kinds{});
  b_->Disconnect(passive_, {}, 0);
  b_.Drop();
  send(a_, b_, {.local_comm_id = 0, .remote_comm_id = passive_});
  Withdraw(a_, b_, active_, 0);
  EXPECT_EQ(b_->state(passive_), State::kDreqSent);
  send(a_, b_, {.local_comm_id = active_, .remote_comm_id = passive_});
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kDisconnected});
}

TEST_F(HostileTest, GarbageIsCounted) {
  const uint8_t few[10] = {};
  b_->OnMad({.local = b_.address(), .remote = a_.address(), .bytes = few}, 0);
  EXPECT_EQ(b_->counters().malformed, 1u);
  // Sends random messages with good headers in every state; their IDs often
  // match.
  Establish();
  std::mt19937_64 random(3);
  uint64_t sent = 0;
  for (int i = 0; i < 20'000; ++i) {
    Mad mad;
    for (uint8_t& byte : mad) byte = static_cast<uint8_t>(random());
    wire::EmitMadHeader(
        {.management_class = wire::kMadClassCm,
         .class_version = wire::kCmClassVersion,
         .method = wire::kMadMethodSend,
         .attribute_id = static_cast<uint16_t>(0x10 + random() % 12)},
        mad.data());
    if (random() % 2 == 0) {
      wire::StoreBe32(mad.data() + wire::kMadHeaderSize, active_);
    }
    if (random() % 2 == 0) {
      wire::StoreBe32(mad.data() + wire::kMadHeaderSize + 4, passive_);
    }
    b_.Receive({.local = a_.address(), .remote = b_.address(), .bytes = mad},
               i * kMicrosecond);
    // At most one answer per message.
    b_.Drop();
    ASSERT_LE(b_->counters().sent, sent + 1);
    sent = b_->counters().sent;
    b_.Events();
  }
  b_->Destroy(passive_, kSecond);
}

TEST_F(HostileTest, CallsInTheWrongStateAreRefused) {
  EXPECT_EQ(a_.Accept(1, 1, 0), Result::kUnknownId);
  EXPECT_EQ(a_->Destroy(1, 0), Result::kUnknownId);
  EXPECT_EQ(a_->StopListening(1), Result::kUnknownId);
  Request();
  EXPECT_EQ(a_.Accept(active_, 0x22, 0), Result::kWrongState);
  EXPECT_EQ(a_->Establish(active_, {}), Result::kWrongState);
  EXPECT_EQ(a_->Disconnect(active_, {}, 0), Result::kWrongState);
  EXPECT_EQ(a_->Reject(active_, {}, 0), Result::kWrongState);
  EXPECT_EQ(a_->Delay(active_, 1), Result::kWrongState);
  EXPECT_EQ(b_->NotifyEstablished(passive_), Result::kWrongState);
  EXPECT_EQ(b_->AnswerService(passive_, {}, 0), Result::kWrongState);
  EXPECT_EQ(b_->Delay(passive_, 32), Result::kInvalid);
  const std::vector<uint8_t> long_data(149);
  EXPECT_EQ(b_->Reject(passive_,
                       {.additional_info = {}, .private_data = long_data}, 0),
            Result::kInvalid);
  EXPECT_EQ(b_->state(passive_), State::kReqReceived);
  EXPECT_EQ(b_->Destroy(passive_, 0), Result::kOk);
  EXPECT_EQ(b_->Destroy(passive_, 0), Result::kUnknownId);
  EXPECT_EQ(b_->state(passive_), std::nullopt);
}

TEST_F(HostileTest, DestroyNotifiesThePeerInEveryState) {
  active_ = a_.Connect(b_, 1, 0);
  a_.Drop();
  a_->Destroy(active_, 0);
  EXPECT_EQ(a_.Drop(), "CM_REJ ");
  EXPECT_EQ(a_->size(), 0u);

  ASSERT_NO_FATAL_FAILURE(Request(2));
  b_->Destroy(passive_, 0);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_REJ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});

  ASSERT_NO_FATAL_FAILURE(Request(3));
  ASSERT_NO_FATAL_FAILURE(Reply(0x23));
  a_->Destroy(active_, 0);
  EXPECT_EQ(a_.SendTo(b_, 0), "CM_REJ ");
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kRejected});

  ASSERT_NO_FATAL_FAILURE(Request(4));
  ASSERT_NO_FATAL_FAILURE(Reply(0x24));
  b_->Destroy(passive_, 0);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_REJ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});

  ASSERT_NO_FATAL_FAILURE(Establish(5, 0x25));
  b_->Destroy(passive_, 0);
  EXPECT_EQ(b_.SendTo(a_, 0), "CM_DREQ ");
  EXPECT_EQ(a_.Events(), Kinds{EventKind::kDisconnected});
  a_->Destroy(active_, 0);
  EXPECT_EQ(a_.SendTo(b_, 0), "CM_DREP ");
  EXPECT_EQ(b_.Events(), Kinds{});
}

TEST_F(HostileTest, RequestsOutliveTheirListener) {
  Request();
  EXPECT_EQ(b_->StopListening(listener_), Result::kOk);
  Reply();
  a_->Establish(active_, {});
  a_.SendTo(b_, 0);
  EXPECT_EQ(b_.Events(), Kinds{EventKind::kEstablished});
  ExpectNothingLeft();
}

}  // namespace
}  // namespace transport::cm
