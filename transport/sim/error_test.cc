// Errors: statuses, flushing, retries.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "transport/congestion/path.h"
#include "transport/rc/requester.h"
#include "transport/sim/pair.h"

namespace sim {
namespace {

using transport::Completion;
using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kSecond;
using transport::QpEvent;
using transport::QpState;
using transport::SendOpcode;
using transport::SendRequest;
using transport::Sge;
using transport::WcStatus;

constexpr WcStatus kSuccess = WcStatus::kSuccess;
constexpr WcStatus kFlushed = WcStatus::kFlushed;

std::vector<WcStatus> Statuses(const std::vector<Completion>& completions) {
  std::vector<WcStatus> statuses;
  for (const Completion& wc : completions) statuses.push_back(wc.status);
  return statuses;
}

std::vector<uint64_t> WrIds(const std::vector<Completion>& completions) {
  std::vector<uint64_t> ids;
  for (const Completion& wc : completions) ids.push_back(wc.wr_id);
  return ids;
}

SendRequest Rdma(Pair& pair, SendOpcode opcode, uint64_t wr_id, const Sge* sge,
                 uint64_t remote) {
  SendRequest request;
  request.wr_id = wr_id;
  request.opcode = opcode;
  request.flags = transport::kSendSignaled;
  request.sges = {sge, 1};
  request.remote_addr = pair.b.region.va + remote;
  request.rkey = pair.b.region.rkey;
  return request;
}

// All operations on remote memory.
const SendOpcode kRemoteOpcodes[] = {
    SendOpcode::kRdmaWrite, SendOpcode::kRdmaWriteWithImm,
    SendOpcode::kRdmaRead, SendOpcode::kCompareSwap, SendOpcode::kFetchAdd};

uint32_t LengthOf(SendOpcode opcode) {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd
             ? 8
             : 5000;
}

// After a good SEND, `bad` fails with `status`, and everything after it is
// flushed on both sides.
void ExpectRemoteFailure(Pair& pair, const SendRequest& bad, WcStatus status,
                         QpEvent event) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(pair.b.Receive(100 + i, 600'000 + i * 10'000, 10'000), 0);
  }
  ASSERT_EQ(pair.a.Receive(200, 600'000, 10'000), 0);
  const std::vector<uint8_t> before(pair.b.buffer.get(),
                                    pair.b.buffer.get() + (1 << 20));
  ASSERT_EQ(pair.a.Send(1, 0, 100), 0);
  ASSERT_EQ(pair.a.Post(bad), 0);
  ASSERT_EQ(pair.a.Send(3, 0, 100), 0);
  pair.Run();
  const auto sent = pair.a.TakeSend();
  EXPECT_EQ(WrIds(sent), (std::vector<uint64_t>{1, bad.wr_id, 3}));
  EXPECT_EQ(Statuses(sent), (std::vector{kSuccess, status, kFlushed}));
  EXPECT_EQ(pair.a.qp->state(), QpState::kErr);
  EXPECT_EQ(pair.b.qp->state(), QpState::kErr);
  EXPECT_EQ(pair.b.events.Count(pair.b.qp->qpn(), event), 1);
  const auto received = pair.b.TakeRecv();
  EXPECT_EQ(WrIds(received), (std::vector<uint64_t>{100, 101, 102, 103}));
  EXPECT_EQ(received[0].status, kSuccess);
  for (size_t i = 1; i < received.size(); ++i) {
    EXPECT_NE(received[i].status, kSuccess);
  }
  EXPECT_EQ(Statuses(pair.a.TakeRecv()), (std::vector{kFlushed}));
  // Ignores the receives.
  EXPECT_EQ(std::memcmp(pair.b.buffer.get(), before.data(), 600'000), 0);
  EXPECT_EQ(std::memcmp(pair.b.buffer.get() + 640'000, before.data() + 640'000,
                        before.size() - 640'000),
            0)
      << "a refused request has changed memory";
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

class RemoteErrors : public ::testing::TestWithParam<SendOpcode> {};
INSTANTIATE_TEST_SUITE_P(Opcodes, RemoteErrors,
                         ::testing::ValuesIn(kRemoteOpcodes));

TEST_P(RemoteErrors, WrongRkey) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 8);
  bad.rkey ^= 0x100;
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, LkeyIsNoRkey) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 8);
  bad.rkey = pair.b.region.lkey;
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, BeyondTheEnd) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  const SendRequest bad = Rdma(pair, GetParam(), 2, &sge,
                               (1 << 20) - (LengthOf(GetParam()) & ~7u) + 8);
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, BeforeTheStart) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 0);
  bad.remote_addr -= 8;
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, AddressWrapsAround) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 0);
  bad.remote_addr = ~uint64_t{7};
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, OtherProtectionDomain) {
  Pair pair;
  pair.Connect();
  const Region other = pair.b.node->memory().Register(
      99, pair.b.buffer.get(), pair.b.region.va, 1 << 20, kAllAccess);
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 8);
  bad.rkey = other.rkey;
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

TEST_P(RemoteErrors, RegionGrantsNoRight) {
  Pair pair;
  pair.Connect();
  const Region deaf = pair.b.node->memory().Register(
      pair.b.region.pd, pair.b.buffer.get(), pair.b.region.va, 1 << 20,
      transport::kAccessLocalWrite);
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 8);
  bad.rkey = deaf.rkey;
  ExpectRemoteFailure(pair, bad, WcStatus::kRemoteAccessError,
                      QpEvent::kAccessError);
}

// The queue pair's access flags are checked before the key: NAK invalid request
// for an operation that it does not support (9.7.4.1.2), or access error.
TEST_P(RemoteErrors, QueuePairGrantsNoRight) {
  PairOptions options;
  options.access_flags = transport::kAccessLocalWrite;
  Pair pair(options);
  pair.Connect();
  const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
  const SendRequest bad = Rdma(pair, GetParam(), 2, &sge, 8);
  ASSERT_EQ(pair.a.Post(bad), 0);
  pair.Run();
  const auto sent = pair.a.TakeSend();
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].status == WcStatus::kRemoteInvalidRequest ||
              sent[0].status == WcStatus::kRemoteAccessError);
  EXPECT_EQ(pair.a.qp->state(), QpState::kErr);
  EXPECT_EQ(pair.b.qp->state(), QpState::kErr);
}

TEST_P(RemoteErrors, PagesAreGone) {
  for (const bool translate : {true, false}) {
    Pair pair;
    pair.Connect();
    // In the middle: bytes before it may be written.
    pair.b.node->memory().AddFault(
        pair.b.buffer.get() + (LengthOf(GetParam()) > 8 ? 2048 : 8), 8);
    pair.b.node->memory().set_translate_faults(translate);
    const Sge sge = pair.a.sge(0, LengthOf(GetParam()));
    ASSERT_EQ(pair.b.Receive(100, 600'000, 10'000), 0);
    ASSERT_EQ(pair.a.Post(Rdma(pair, GetParam(), 2, &sge, 8)), 0);
    ASSERT_EQ(pair.a.Send(3, 0, 8), 0);
    pair.Run();
    EXPECT_EQ(Statuses(pair.a.TakeSend()),
              (std::vector{WcStatus::kRemoteAccessError, kFlushed}))
        << "translate " << translate;
    EXPECT_EQ(Statuses(pair.b.TakeRecv()), (std::vector{kFlushed}));
    EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
  }
}

TEST(ErrorTest, MisalignedAtomic) {
  for (const SendOpcode opcode :
       {SendOpcode::kCompareSwap, SendOpcode::kFetchAdd}) {
    Pair pair;
    pair.Connect();
    const Sge sge = pair.a.sge(0, 8);
    const SendRequest bad = Rdma(pair, opcode, 2, &sge, 12);
    ExpectRemoteFailure(pair, bad, WcStatus::kRemoteInvalidRequest,
                        QpEvent::kRequestError);
  }
}

TEST(ErrorTest, ReceiveTooShort) {
  for (const uint32_t length : {101u, 1024u, 1025u, 5000u}) {
    Pair pair;
    pair.Connect();
    ASSERT_EQ(pair.b.Receive(10, 0, 100), 0);
    ASSERT_EQ(pair.b.Receive(11, 0, 10'000), 0);
    ASSERT_EQ(pair.a.Send(1, 0, length), 0);
    pair.Run();
    EXPECT_EQ(Statuses(pair.a.TakeSend()),
              (std::vector{WcStatus::kRemoteInvalidRequest}));
    EXPECT_EQ(Statuses(pair.b.TakeRecv()),
              (std::vector{WcStatus::kLocalLengthError, kFlushed}));
    EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
  }
}

TEST(ErrorTest, ReceiveWithABadKey) {
  Pair pair;
  pair.Connect();
  const Sge sge = {pair.b.region.va, 1000, pair.b.region.lkey ^ 2};
  ASSERT_EQ(pair.b.qp->PostReceive({.wr_id = 10, .sges = {&sge, 1}}, 0), 0);
  ASSERT_EQ(pair.a.Send(1, 0, 500), 0);
  pair.Run();
  EXPECT_EQ(Statuses(pair.a.TakeSend()),
            (std::vector{WcStatus::kRemoteOperationalError}));
  EXPECT_EQ(Statuses(pair.b.TakeRecv()),
            (std::vector{WcStatus::kLocalProtectionError}));
}

TEST(ErrorTest, ReceiveIntoPagesThatAreGone) {
  for (const bool translate : {true, false}) {
    Pair pair;
    pair.Connect();
    pair.b.node->memory().AddFault(pair.b.buffer.get() + 1500, 1);
    pair.b.node->memory().set_translate_faults(translate);
    ASSERT_EQ(pair.b.Receive(10, 0, 3000), 0);
    ASSERT_EQ(pair.a.Send(1, 0, 3000), 0);
    pair.Run();
    EXPECT_EQ(Statuses(pair.a.TakeSend()),
              (std::vector{WcStatus::kRemoteOperationalError}));
    EXPECT_EQ(Statuses(pair.b.TakeRecv()),
              (std::vector{WcStatus::kLocalProtectionError}));
  }
}

// --- Local errors of the requester.

void ExpectLocalFailure(Pair& pair, const SendRequest& bad) {
  ASSERT_EQ(pair.b.Receive(10, 0, 100'000), 0);
  ASSERT_EQ(pair.a.Write(1, 0, 0, 10), 0);
  ASSERT_EQ(pair.a.Post(bad), 0);
  ASSERT_EQ(pair.a.Write(3, 0, 0, 10), 0);
  pair.Run();
  const auto sent = pair.a.TakeSend();
  EXPECT_EQ(WrIds(sent), (std::vector<uint64_t>{1, bad.wr_id, 3}));
  EXPECT_EQ(Statuses(sent),
            (std::vector{kSuccess, WcStatus::kLocalProtectionError, kFlushed}));
  EXPECT_EQ(pair.a.qp->state(), QpState::kErr);
  EXPECT_EQ(pair.b.TakeRecv().size(), 0u);
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

TEST(ErrorTest, SourceWithABadKey) {
  for (const SendOpcode opcode : {SendOpcode::kSend, SendOpcode::kRdmaWrite}) {
    Pair pair;
    pair.Connect();
    Sge sge = pair.a.sge(0, 5000);
    sge.lkey ^= 2;
    ExpectLocalFailure(pair, Rdma(pair, opcode, 2, &sge, 0));
  }
}

TEST(ErrorTest, SourceOutOfBounds) {
  Pair pair;
  pair.Connect();
  const Sge sge = pair.a.sge((1 << 20) - 4999, 5000);
  ExpectLocalFailure(pair, Rdma(pair, SendOpcode::kSend, 2, &sge, 0));
}

TEST(ErrorTest, ReadTargetMayNotBeWritten) {
  Pair pair;
  pair.Connect();
  const Region constant = pair.a.node->memory().Register(
      pair.a.region.pd, pair.a.buffer.get(), 0x1000, 10'000, 0);
  const Sge sge = {constant.va, 5000, constant.lkey};
  ExpectLocalFailure(pair, Rdma(pair, SendOpcode::kRdmaRead, 2, &sge, 0));
}

TEST(ErrorTest, SourcePagesAreGone) {
  for (const bool translate : {true, false}) {
    Pair pair;
    pair.Connect();
    pair.a.node->memory().AddFault(pair.a.buffer.get() + 103'000, 1);
    pair.a.node->memory().set_translate_faults(translate);
    const Sge sge = pair.a.sge(100'000, 5000);
    ExpectLocalFailure(pair, Rdma(pair, SendOpcode::kSend, 2, &sge, 0));
  }
}

TEST(ErrorTest, ReadTargetPagesAreGone) {
  for (const bool translate : {true, false}) {
    Pair pair;
    pair.Connect();
    pair.a.node->memory().AddFault(pair.a.buffer.get() + 103'000, 1);
    pair.a.node->memory().set_translate_faults(translate);
    const Sge sge = pair.a.sge(100'000, 5000);
    ExpectLocalFailure(pair, Rdma(pair, SendOpcode::kRdmaRead, 2, &sge, 0));
  }
}

// --- Retries.

TEST(ErrorTest, DeadPeerEndsAtTheConfiguredTime) {
  for (const uint8_t timeout : {8, 12, 14}) {
    for (const uint8_t retries : {0, 1, 3, 7}) {
      for (const SendOpcode opcode :
           {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead,
            SendOpcode::kFetchAdd}) {
        PairOptions options;
        options.timeout = timeout;
        options.retry_cnt = retries;
        options.link.down = true;
        Pair pair(options);
        pair.Connect();
        pair.net.RunTo(123 * kMicrosecond);
        const Sge sge =
            pair.a.sge(0, opcode == SendOpcode::kFetchAdd ? 8 : 3000);
        const Time start = pair.now();
        ASSERT_EQ(pair.a.Post(Rdma(pair, opcode, 1, &sge, 0)), 0);
        ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
        EXPECT_EQ(pair.now() - start, (retries + 1) * (Time{4096} << timeout))
            << "timeout " << int{timeout} << " retries " << int{retries};
        EXPECT_EQ(Statuses(pair.a.TakeSend()),
                  (std::vector{WcStatus::kRetryExceeded}));
        EXPECT_EQ(pair.a.qp->state(), QpState::kErr);
        pair.Run();
        EXPECT_EQ(pair.a.qp->path()->in_flight(), 0u);
        EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
      }
    }
  }
}

// The path MTU is too small for some milliseconds: long packets are lost, and
// the short ones in between make the peer report the gap repeatedly, before it
// is known to buffer packets after a gap.
TEST(ErrorTest, LossOfLongPacketsIsNotFatalBeforeTheTimeout) {
  constexpr Time kOutage = 400 * kMillisecond;  // six timeouts
  constexpr uint32_t kLong = 900;
  for (const SendOpcode opcode :
       {SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead}) {
    Pair pair;
    pair.Connect();
    pair.net.filter = [&](const Node&, const wire::PacketView& packet) {
      return pair.now() >= kOutage || packet.payload().size() < kLong;
    };
    constexpr int kRequests = 64;
    for (int i = 0; i < kRequests; ++i) {
      const Sge sge = pair.a.sge(0, i % 2 == 0 ? 4000 : 64);
      ASSERT_EQ(pair.a.Post(Rdma(pair, opcode, i, &sge, 0)), 0);
    }
    ASSERT_TRUE(pair.RunUntilSent(pair.a, kRequests));
    EXPECT_EQ(Statuses(pair.a.TakeSend()),
              std::vector(kRequests, WcStatus::kSuccess));
    EXPECT_LT(pair.now(), kOutage + 70 * kMillisecond);
    EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
  }
}

TEST(ErrorTest, NoTimeoutWaitsForEver) {
  PairOptions options;
  options.timeout = 0;
  options.link.down = true;
  Pair pair(options);
  pair.Connect();
  ASSERT_EQ(pair.a.Write(1, 0, 0, 3000), 0);
  pair.net.RunTo(3600 * kSecond);
  EXPECT_EQ(pair.a.TakeSend().size(), 0u);
  EXPECT_EQ(pair.a.qp->state(), QpState::kRts);
  EXPECT_EQ(pair.a.Modify(QpState::kErr), 0);
  EXPECT_EQ(Statuses(pair.a.TakeSend()), (std::vector{kFlushed}));
}

TEST(ErrorTest, RnrRetryExceeded) {
  for (const uint8_t retries : {0, 1, 5}) {
    PairOptions options;
    options.rnr_retry = retries;
    options.min_rnr_timer = 14;  // 1.28 ms
    Pair pair(options);
    pair.Connect();
    const Time start = pair.now();
    ASSERT_EQ(pair.a.Send(1, 0, 3000), 0);
    ASSERT_EQ(pair.a.Send(2, 0, 10), 0);
    ASSERT_TRUE(pair.RunUntilSent(pair.a, 2));
    const auto sent = pair.a.TakeSend();
    EXPECT_EQ(Statuses(sent),
              (std::vector{WcStatus::kRnrRetryExceeded, kFlushed}));
    // Each retry waits for the NAK's time; the path takes 10 us.
    const Time waited = pair.now() - start;
    EXPECT_GE(waited, retries * 1280 * kMicrosecond);
    EXPECT_LE(waited, (retries + 1) * 1380 * kMicrosecond);
    EXPECT_EQ(pair.b.qp->state(), QpState::kRts);
    EXPECT_EQ(pair.b.qp->counters().rnr_naks_sent, retries + 1u);
  }
}

TEST(ErrorTest, RnrWaitsForALateReceive) {
  PairOptions options;
  options.min_rnr_timer = 14;
  Pair pair(options);
  pair.Connect();
  ASSERT_EQ(pair.a.Send(1, 0, 3000), 0);
  pair.net.RunTo(100 * kMillisecond);
  EXPECT_EQ(pair.a.TakeSend().size(), 0u);
  ASSERT_EQ(pair.b.Receive(10, 0, 3000), 0);
  ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
  EXPECT_LE(pair.now(), 102 * kMillisecond);
  EXPECT_EQ(Statuses(pair.a.TakeSend()), (std::vector{kSuccess}));
  EXPECT_EQ(Statuses(pair.b.TakeRecv()), (std::vector{kSuccess}));
  EXPECT_EQ(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 3000), 0);
}

// --- Flushing.

TEST(ErrorTest, ErrorStateFlushesEverythingInOrder) {
  PairOptions options;
  options.link.down = true;
  options.timeout = 0;
  Pair pair(options);
  pair.Connect();
  constexpr uint32_t kFence = transport::kSendFence;
  std::vector<uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    ids.push_back(i);
    // Signaled or not, started or not, waiting for a fence or not.
    ASSERT_EQ(i % 3 == 0 ? pair.a.Read(i, 0, 0, 9000, 0)
                         : pair.a.Write(i, 0, 0, 9000, i % 4 == 0 ? kFence : 0),
              0);
    ASSERT_EQ(pair.a.Receive(i, 0, 10), 0);
  }
  pair.net.RunTo(kMillisecond);
  EXPECT_EQ(pair.a.Modify(QpState::kErr), 0);
  const auto sent = pair.a.TakeSend();
  const auto received = pair.a.TakeRecv();
  EXPECT_EQ(WrIds(sent), ids);
  EXPECT_EQ(WrIds(received), ids);
  EXPECT_EQ(Statuses(sent), std::vector(100, kFlushed));
  EXPECT_EQ(Statuses(received), std::vector(100, kFlushed));
  // Later posts are flushed too.
  EXPECT_EQ(pair.a.Write(1000, 0, 0, 10, 0), 0);
  EXPECT_EQ(pair.a.Receive(1001, 0, 10), 0);
  pair.Run();
  EXPECT_EQ(WrIds(pair.a.TakeSend()), (std::vector<uint64_t>{1000}));
  EXPECT_EQ(WrIds(pair.a.TakeRecv()), (std::vector<uint64_t>{1001}));
  EXPECT_EQ(pair.a.qp->path()->in_flight(), 0u);
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

TEST(ErrorTest, ResetForgetsEverythingAndCanConnectAgain) {
  PairOptions options;
  Pair pair(options);
  pair.Connect();
  for (int round = 0; round < 20; ++round) {
    pair.net.SetAllLinks(
        {.loss = 100'000, .duplicate = 100'000, .reorder = 100'000});
    for (int i = 0; i < 50; ++i) {
      ASSERT_EQ(pair.b.Receive(i, 0, 10'000), 0);
      ASSERT_EQ(pair.a.Send(i, 0, 9000), 0);
      ASSERT_EQ(pair.b.Read(i, 500'000, 0, 9000), 0);
    }
    pair.net.RunTo(pair.now() + (round % 5) * 200 * kMicrosecond);
    pair.a.TakeSend();
    pair.b.TakeSend();
    pair.b.TakeRecv();
    EXPECT_EQ(pair.a.Modify(QpState::kReset), 0);
    EXPECT_EQ(pair.b.Modify(QpState::kReset), 0);
    EXPECT_EQ(pair.a.TakeSend().size() + pair.b.TakeSend().size() +
                  pair.b.TakeRecv().size(),
              0u);
    // Old packets are outside of the new PSN window.
    pair.a.attributes.sq_psn = pair.b.attributes.rq_psn =
        (pair.a.attributes.sq_psn + 0x300000) & 0xffffff;
    pair.b.attributes.sq_psn = pair.a.attributes.rq_psn =
        (pair.b.attributes.sq_psn + 0x300000) & 0xffffff;
    pair.Connect();
    pair.net.SetAllLinks({});
    ASSERT_EQ(pair.b.Receive(1, 0, 10'000), 0);
    ASSERT_EQ(pair.a.Send(1, 20'000, 9000), 0);
    ASSERT_EQ(pair.b.Read(2, 30'000, 20'000, 9000), 0);
    pair.Run();
    EXPECT_EQ(Statuses(pair.a.TakeSend()), (std::vector{kSuccess}));
    EXPECT_EQ(Statuses(pair.b.TakeSend()), (std::vector{kSuccess}));
    EXPECT_EQ(Statuses(pair.b.TakeRecv()), (std::vector{kSuccess}));
    EXPECT_EQ(
        std::memcmp(pair.a.buffer.get() + 20'000, pair.b.buffer.get(), 9000),
        0);
    EXPECT_EQ(std::memcmp(pair.a.buffer.get() + 20'000,
                          pair.b.buffer.get() + 30'000, 9000),
              0);
    EXPECT_EQ(pair.a.qp->path()->in_flight(), 0u);
    ASSERT_FALSE(pair.checker.failed()) << pair.checker.ToString();
  }
}

TEST(ErrorTest, SrqKeepsItsReceives) {
  PairOptions options;
  options.srq = true;
  Pair pair(options);
  pair.Connect();
  for (int i = 0; i < 5; ++i) ASSERT_EQ(pair.b.Receive(i, 0, 100), 0);
  ASSERT_EQ(pair.a.Send(1, 0, 100), 0);
  pair.Run();
  EXPECT_EQ(pair.b.Modify(QpState::kErr), 0);
  EXPECT_EQ(Statuses(pair.b.TakeRecv()), (std::vector{kSuccess}));
  EXPECT_EQ(pair.b.srq->size(), 4u);
  EXPECT_EQ(pair.b.events.Count(pair.b.qp->qpn(), QpEvent::kLastWqeReached), 1);
}

TEST(ErrorTest, CqOverrunStopsTheQueuePair) {
  Pair pair;
  pair.Connect();
  // The CQ is full after three.
  pair.a.send_cq.~SimCq();
  new (&pair.a.send_cq) SimCq(3);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(pair.a.Write(i, 0, 0, 100), 0);
  pair.Run();
  EXPECT_TRUE(pair.a.send_cq.overrun());
  EXPECT_EQ(pair.a.qp->state(), QpState::kErr);
  EXPECT_EQ(WrIds(pair.a.TakeSend()), (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

// --- Recovery by NAK, without a timeout.

TEST(ErrorTest, OneLossCostsOneNakAndNoTimeout) {
  for (const uint32_t lost : {0u, 1u, 30u, 61u}) {
    PairOptions options;
    options.psn_a = 100;
    Pair pair(options);
    pair.Connect();
    bool dropped = false;
    pair.net.filter = [&](const Node&, const wire::PacketView& packet) {
      if (dropped || packet.bth().psn != 100 + lost) return true;
      dropped = true;
      return false;
    };
    ASSERT_EQ(pair.a.Write(1, 0, 0, 63 * 1024), 0);
    ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
    // Two round trips of 10 us.
    EXPECT_LE(pair.now(), 25 * kMicrosecond) << lost;
    EXPECT_EQ(pair.b.qp->counters().sequence_naks_sent, 1u);
    EXPECT_EQ(pair.a.qp->counters().timeouts, 0u);
    EXPECT_EQ(pair.a.qp->counters().probes, 0u);
    EXPECT_EQ(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 63 * 1024),
              0);
  }
}

TEST(ErrorTest, ALostTailIsProbedLongBeforeTheTimeout) {
  for (const bool read : {false, true}) {
    PairOptions options;
    options.psn_a = 100;
    options.timeout = 18;  // 1.07 s
    Pair pair(options);
    pair.Connect();
    bool dropped = false;
    pair.net.filter = [&](const Node&, const wire::PacketView& packet) {
      if (dropped || packet.bth().psn != 100 + 9) return true;
      dropped = true;
      return false;
    };
    ASSERT_EQ(read ? pair.a.Read(1, 0, 0, 10 * 1024)
                   : pair.a.Write(1, 0, 0, 10 * 1024),
              0);
    ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
    EXPECT_LE(pair.now(), 10 * kMillisecond);
    EXPECT_EQ(pair.a.qp->counters().timeouts, 0u);
    EXPECT_EQ(Statuses(pair.a.TakeSend()), (std::vector{kSuccess}));
  }
}

// A repeated READ request must not cross the end of an earlier request,
// although the window has changed: half of it would be a duplicate for the
// peer, and half new (seed 77 once).
TEST(ErrorTest, ARepeatedReadStaysWithinItsFirstRequests) {
  PairOptions options;
  options.psn_a = 100;
  Pair pair(options);
  pair.net.rules().Watch({.host = 0,
                          .qpn = pair.a.qp->qpn(),
                          .peer_host = 1,
                          .peer_qpn = pair.b.qp->qpn(),
                          .first_psn = 100,
                          .path_mtu = 1024,
                          .max_rd_atomic = 16});
  pair.Connect();
  int requests = 0;
  bool middle_lost = false;
  pair.net.filter = [&](const Node&, const wire::PacketView& packet) {
    if (packet.operation() == wire::Operation::kReadRequest) {
      return ++requests > 2;
    }
    if (packet.bth().psn == 103 && !middle_lost) {
      middle_lost = true;
      return false;
    }
    return true;
  };
  ASSERT_EQ(pair.a.Read(1, 0, 0, 42'572), 0);
  ASSERT_TRUE(pair.RunUntilSent(pair.a, 1));
  EXPECT_EQ(Statuses(pair.a.TakeSend()), (std::vector{kSuccess}));
  EXPECT_EQ(std::memcmp(pair.a.buffer.get(), pair.b.buffer.get(), 42'572), 0);
  EXPECT_FALSE(pair.checker.failed()) << pair.checker.ToString();
}

// Send and receive queue hold at least the requested number, and report when
// they are full.
TEST(ErrorTest, QueuesAreBounded) {
  PairOptions options;
  options.link.down = true;
  options.capacity.max_send_wr = 7;
  options.capacity.max_recv_wr = 5;
  Pair pair(options);
  pair.Connect();
  int posted = 0;
  while (posted < 1000 && pair.a.Write(posted, 0, 0, 10) == 0) ++posted;
  EXPECT_GE(posted, 7);
  EXPECT_LT(posted, 1000);
  EXPECT_EQ(pair.a.Write(0, 0, 0, 10), ENOMEM);
  int receives = 0;
  while (receives < 1000 && pair.a.Receive(receives, 0, 10) == 0) ++receives;
  EXPECT_GE(receives, 5);
  EXPECT_LT(receives, 1000);
  EXPECT_EQ(pair.a.Receive(0, 0, 10), ENOMEM);
}

}  // namespace
}  // namespace sim
