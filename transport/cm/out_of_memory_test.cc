// A connection allocates everything when it is created. Without memory for a
// new connection, a call changes nothing, a request counts as lost, and later
// steps need no memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "transport/cm/connection_fixture.h"
#include "transport/testing/scarce_memory.h"

namespace transport::cm {
namespace {

class OutOfMemoryTest : public ConnectionManagerTest {
 protected:
  OutOfMemoryTest() { refuse_allocation = RefuseWhenNoneIsLeft; }
  ~OutOfMemoryTest() override { allocations_left = kUnlimited; }

  // Calls `call` with this many allocations; false if they were too few.
  template <typename Call>
  static bool With(int allocations, Call call) {
    allocations_left = allocations;
    try {
      call();
    } catch (const std::bad_alloc&) {
      allocations_left = kUnlimited;
      return false;
    }
    allocations_left = kUnlimited;
    return true;
  }
  template <typename Call>
  static void WithoutMemory(const char* what, Call call) {
    EXPECT_TRUE(With(0, call)) << what;
  }
  // Calls `call` with more and more allocations until it succeeds; returns
  // their number. `same` is called after each failure.
  template <typename Call, typename Same>
  static int UntilThereIsMemory(Call call, Same same) {
    for (int allocations = 0;; ++allocations) {
      if (With(allocations, call)) return allocations;
      same();
    }
  }
  static void ExpectEmpty(TestHost& host) {
    EXPECT_EQ(host->size(), 0u);
    EXPECT_EQ(host->half_open(), 0u);
    EXPECT_EQ(host->NextTimeout(), kNever);
    EXPECT_FALSE(host.Sent());
    EXPECT_FALSE(host.NextEvent());
  }
  // Delivers one MAD of this name from `from` to `to`, neither of which has
  // memory.
  void Pass(TestHost& from, TestHost& to, const char* name) {
    std::optional<OutgoingMad> mad;
    WithoutMemory(name, [&] { mad = from.Sent(); });
    ASSERT_TRUE(mad) << name;
    EXPECT_EQ(NameOf(*mad), name);
    WithoutMemory(name, [&] { to.Receive(*mad, now_); });
    EXPECT_FALSE(from.Sent());
  }
  // Repeats the request until `b_` has memory for it. A failed try leaves only
  // a count.
  void ReceiveWhenThereIsMemory(const OutgoingMad& req) {
    uint64_t refused = 0;
    for (int allocations = 0; b_->size() == 0; ++allocations) {
      ASSERT_TRUE(With(allocations, [&] { b_.Receive(req, now_); }));
      if (b_->size() != 0) break;
      ExpectEmpty(b_);
      EXPECT_EQ(b_->counters().no_memory, ++refused);
    }
    EXPECT_GT(refused, 0u);
  }
  void ExpectEvent(TestHost& host, EventKind kind) {
    std::optional<Event> event;
    WithoutMemory("PollEvent", [&] { event = host.NextEvent(); });
    ASSERT_TRUE(event);
    EXPECT_EQ(event->kind, kind);
    EXPECT_FALSE(host.NextEvent());
  }
  void RunTimersWithoutMemory(TestHost& host) {
    now_ = host->NextTimeout();
    ASSERT_NE(now_, kNever);
    WithoutMemory("OnTimer", [&] { host->OnTimer(now_); });
  }
  static std::string NameOf(const OutgoingMad& mad) {
    wire::CmView view;
    if (wire::CmView::Parse(mad.bytes, &view) != wire::CmParseError::kOk) {
      return "garbage";
    }
    return std::string(wire::CmAttributeName(view.attribute()));
  }
  void Accept() {
    Result result = Result::kInvalid;
    WithoutMemory("Accept", [&] { result = b_.Accept(passive_, 0x22, now_); });
    EXPECT_EQ(result, Result::kOk);
    Pass(b_, a_, "CM_REP");
    ExpectEvent(a_, EventKind::kReply);
  }
  void EstablishWithoutMemory() {
    Request();
    Accept();
    Result result = Result::kInvalid;
    WithoutMemory("Establish", [&] { result = a_->Establish(active_, {}); });
    EXPECT_EQ(result, Result::kOk);
    Pass(a_, b_, "CM_RTU");
    ExpectEvent(b_, EventKind::kEstablished);
  }
};

TEST_F(OutOfMemoryTest, AConnectWithoutMemoryChangesNothing) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(UntilThereIsMemory([&] { active_ = a_.Connect(b_, 0x11, now_); },
                                 [&] { ExpectEmpty(a_); }),
              0);
    EXPECT_NE(active_, 0u);
    EXPECT_EQ(a_.Drop(), "CM_REQ ");
    EXPECT_EQ(a_->size(), 1u);
    WithoutMemory("Destroy", [&] { a_->Destroy(active_, now_); });
    EXPECT_EQ(a_.Drop(), "CM_REJ ");
    ExpectEmpty(a_);
  }
}

TEST_F(OutOfMemoryTest, AResolveWithoutMemoryChangesNothing) {
  const ResolveOptions options = {.local = a_.address(),
                                  .remote = b_.address(),
                                  .req = {.service_id = TestHost::kService}};
  EXPECT_GT(UntilThereIsMemory([&] { a_->Resolve(options, now_, &active_); },
                               [&] { ExpectEmpty(a_); }),
            0);
  EXPECT_EQ(a_.Drop(), "CM_SIDR_REQ ");
  WithoutMemory("Destroy", [&] { a_->Destroy(active_, now_); });
  ExpectEmpty(a_);
}

TEST_F(OutOfMemoryTest, ARequestWithoutMemoryIsDroppedAndCounted) {
  // A backlog of one: a failed request must not count.
  b_.Listen(TestHost::kService, /*backlog=*/1);
  active_ = a_.Connect(b_, 0x11, now_);
  const auto req = a_.Sent();
  ASSERT_TRUE(req);
  ReceiveWhenThereIsMemory(*req);
  EXPECT_EQ(b_->half_open(), 1u);
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  passive_ = event->id;
  Accept();
  ExpectNothingLeft();
}

TEST_F(OutOfMemoryTest, AServiceRequestWithoutMemoryIsDroppedAndCounted) {
  b_.Listen(TestHost::kService, /*backlog=*/1);
  a_->Resolve({.local = a_.address(),
               .remote = b_.address(),
               .req = {.service_id = TestHost::kService}},
              now_, &active_);
  const auto req = a_.Sent();
  ASSERT_TRUE(req);
  ReceiveWhenThereIsMemory(*req);
  const auto event = b_.NextEvent();
  ASSERT_TRUE(event);
  passive_ = event->id;
  WithoutMemory("AnswerService",
                [&] { b_->AnswerService(passive_, {.qpn = 7}, now_); });
  Pass(b_, a_, "CM_SIDR_REP");
  ExpectEvent(a_, EventKind::kServiceReply);
  // Duplicates are answered, and everything ends in time.
  WithoutMemory("SIDR_REQ", [&] { b_.Receive(*req, now_); });
  EXPECT_EQ(b_.Drop(), "CM_SIDR_REP ");
  WithoutMemory("Destroy", [&] { b_->Destroy(passive_, now_); });
  RunTimersWithoutMemory(b_);
  ExpectEmpty(b_);
}

TEST_F(OutOfMemoryTest, AConnectionNeedsNoFurtherMemory) {
  EstablishWithoutMemory();
  WithoutMemory("Disconnect", [&] { a_->Disconnect(active_, {}, now_); });
  Pass(a_, b_, "CM_DREQ");
  ExpectEvent(b_, EventKind::kDisconnected);
  WithoutMemory("Disconnect", [&] { b_->Disconnect(passive_, {}, now_); });
  Pass(b_, a_, "CM_DREP");
  ExpectEvent(a_, EventKind::kDisconnected);
  for (TestHost* host : {&a_, &b_}) {
    RunTimersWithoutMemory(*host);
    ExpectEvent(*host, EventKind::kTimeWaitExit);
  }
  WithoutMemory("Destroy", [&] { a_->Destroy(active_, now_); });
  WithoutMemory("Destroy", [&] { b_->Destroy(passive_, now_); });
  ExpectEmpty(a_);
  ExpectEmpty(b_);
  // The queue pairs are free.
  Establish();
  ExpectNothingLeft();
}

TEST_F(OutOfMemoryTest, DestroyNeedsNoMemory) {
  EstablishWithoutMemory();
  WithoutMemory("Destroy", [&] { a_->Destroy(active_, now_); });
  Pass(a_, b_, "CM_DREQ");
  ExpectEvent(b_, EventKind::kDisconnected);
  WithoutMemory("Destroy", [&] { b_->Destroy(passive_, now_); });
  Pass(b_, a_, "CM_DREP");
  RunTimersWithoutMemory(a_);
  RunTimersWithoutMemory(b_);
  ExpectEmpty(a_);
  ExpectEmpty(b_);
}

TEST_F(OutOfMemoryTest, TimersNeedNoMemory) {
  Request();
  WithoutMemory("Accept", [&] { b_.Accept(passive_, 0x22, now_); });
  EXPECT_EQ(b_.Drop(), "CM_REP ");
  for (int i = 0; i < 15; ++i) {
    RunTimersWithoutMemory(b_);
    EXPECT_EQ(b_.Drop(), "CM_REP ");
  }
  RunTimersWithoutMemory(b_);
  EXPECT_EQ(b_.Drop(), "CM_REJ ");
  ExpectEvent(b_, EventKind::kUnreachable);
  ExpectNothingLeft();
}

TEST_F(OutOfMemoryTest, HeldBackRequestsNeedNoMemory) {
  Config config;
  config.max_unanswered = 1;
  TestHost host(3, config);
  const CmId first = host.Connect(b_, 0x11, now_);
  const CmId second = host.Connect(b_, 0x12, now_);
  const CmId third = host.Connect(b_, 0x13, now_);
  EXPECT_EQ(host.Drop(), "CM_REQ ");
  WithoutMemory("Destroy", [&] { host->Destroy(first, now_); });
  EXPECT_EQ(host.Drop(), "CM_REJ CM_REQ ");
  now_ += config.unanswered_hold;
  WithoutMemory("OnTimer", [&] { host->OnTimer(now_); });
  // The other one, and a retransmission of the one with the shorter timeout.
  EXPECT_EQ(host.Drop(), "CM_REQ CM_REQ ");
  WithoutMemory("Destroy", [&] { host->Destroy(second, now_); });
  WithoutMemory("Destroy", [&] { host->Destroy(third, now_); });
  EXPECT_EQ(host.Drop(), "CM_REJ CM_REJ ");
  ExpectEmpty(host);
}

// Timeouts wait until the events are polled.
TEST_F(OutOfMemoryTest, NoEventIsLost) {
  constexpr int kConnections = 100;
  for (int i = 0; i < kConnections; ++i) a_.Connect(b_, 0x11 + i, now_);
  a_.Drop();
  int events = 0;
  int max_at_once = 0;
  while (a_->NextTimeout() != kNever) {
    now_ = std::max(now_, a_->NextTimeout());
    WithoutMemory("OnTimer", [&] { a_->OnTimer(now_); });
    a_.Drop();
    int at_once = 0;
    for (; const auto event = a_.NextEvent(); ++at_once) {
      EXPECT_EQ(event->kind, EventKind::kUnreachable);
      EXPECT_EQ(a_->Destroy(event->id, now_), Result::kOk);
    }
    events += at_once;
    max_at_once = std::max(max_at_once, at_once);
  }
  EXPECT_EQ(events, kConnections);
  EXPECT_LT(max_at_once, kConnections);
  ExpectEmpty(a_);
}

// Without memory, and while no events are polled, an input that would cause an
// event is dropped.
TEST_F(OutOfMemoryTest, AnInputWithoutMemoryForItsEventIsDropped) {
  constexpr uint32_t kConnections = 20;
  std::vector<OutgoingMad> reqs;
  b_.Listen();
  for (uint32_t i = 0; i < kConnections; ++i) {
    a_.Connect(b_, 0x11 + i, now_);
    reqs.push_back(*a_.Sent());
    b_.Receive(reqs.back(), now_);
  }
  std::vector<OutgoingMad> rejs;
  for (uint32_t i = 0; i < kConnections; ++i) {
    const auto event = b_.NextEvent();
    ASSERT_TRUE(event);
    b_->Reject(event->id, {}, now_);
    rejs.push_back(*b_.Sent());
  }
  WithoutMemory("REJ", [&] {
    for (const OutgoingMad& rej : rejs) a_.Receive(rej, now_);
  });
  const uint64_t dropped = a_->counters().no_memory;
  EXPECT_GT(dropped, 0u);
  EXPECT_EQ(a_.Events().size() + dropped, kConnections);
  // They are retransmitted.
  for (const OutgoingMad& rej : rejs) a_.Receive(rej, now_);
  EXPECT_EQ(a_.Events().size(), dropped);
}

TEST_F(OutOfMemoryTest, AListenWithoutMemoryChangesNothing) {
  ListenerId id = 0;
  const ListenOptions options = {.service_id = TestHost::kService, .local = {}};
  EXPECT_GT(UntilThereIsMemory(
                [&] { ASSERT_EQ(b_->Listen(options, &id), Result::kOk); },
                [&] {
                  a_.Connect(b_, 0x11, now_);
                  a_.SendTo(b_, now_);
                  EXPECT_EQ(b_.SendTo(a_, now_), "CM_REJ ");
                  EXPECT_EQ(a_.Events(), Kinds{EventKind::kRejected});
                }),
            0);
  WithoutMemory("StopListening", [&] { b_->StopListening(id); });
}

}  // namespace
}  // namespace transport::cm
