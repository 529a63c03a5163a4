// RXE_USER_CHECK=1: programs that have a fault, and the same programs without
// it, which must say nothing.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "tests/conformance/check_lines.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class LintTest : public PairTest {
 protected:
  LintTest() { make_pair_ = false; }
  void SetUp() override {
    testing::internal::CaptureStderr();
    capturing_ = true;
    PairTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    MakeSide(&a_);
    MakeSide(&b_);
  }
  void TearDown() override {
    PairTest::TearDown();
    EXPECT_EQ(Said(), "");
  }
  // The lines of checks since the last call.
  std::string Said() {
    if (!capturing_) return "";
    std::string text = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    return CheckLines(text);
  }
  ~LintTest() override {
    if (capturing_) testing::internal::GetCapturedStderr();
  }
  static std::string Name(const ibv_qp* qp) {
    char text[32];
    std::snprintf(text, sizeof(text), "queue pair 0x%06x", qp->qp_num);
    return text;
  }
  static testing::Matcher<std::string> Lint(const std::string& lint,
                                            const std::string& where,
                                            const std::string& what) {
    return AllOf(HasSubstr("rxe_user: check: lint " + lint + ": " + where),
                 HasSubstr("(made by lint_test+0x"), HasSubstr(what),
                 testing::ContainsRegex("^[^\n]*\n$"));
  }
  int Write(uint64_t wr_id, unsigned flags) {
    return Send(a_, IBV_WR_RDMA_WRITE, wr_id, 0, 100, flags, b_.address(),
                b_.mr->rkey);
  }
  // Posts to A until that is refused. Returns the error.
  int Fill(unsigned flags) {
    for (uint64_t i = 0; i < 10'000; ++i) {
      if (const int error = Write(i, flags)) return error;
    }
    return 0;
  }

  bool capturing_ = false;
};

// --- 1 to 3: a post fails with ENOMEM.

TEST_F(LintTest, NoneIsSignaled) {
  Connect(&a_, &b_);
  EXPECT_EQ(Fill(0), ENOMEM);
  EXPECT_THAT(Said(), Lint("1 (unsignaled)", Name(a_.qp),
                           "ibv_post_send failed with ENOMEM: 64 requests are "
                           "in its send queue, and none is signaled"));
  // Once for a queue pair.
  EXPECT_EQ(Write(1, 0), ENOMEM);
  EXPECT_EQ(Said(), "");
}

TEST_F(LintTest, SomeAreSignaled) {
  Connect(&a_, &b_);
  for (uint64_t i = 1; i <= 1000; ++i) {
    const bool last = i % 16 == 0;
    ASSERT_EQ(Write(i, last ? IBV_SEND_SIGNALED : 0), 0);
    if (last) ExpectSuccess(a_.cq, i);
  }
}

TEST_F(LintTest, CompletionsAreNotPolled) {
  Connect(&a_, &b_);
  for (uint64_t i = 1; i < 64; ++i) ASSERT_EQ(Write(i, IBV_SEND_SIGNALED), 0);
  a_.memory[100] = 1;
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 64, 100, 1, IBV_SEND_SIGNALED,
                 b_.address(100), b_.mr->rkey),
            0);
  AwaitUnpolled(a_, &b_.memory[100]);
  EXPECT_EQ(Write(65, IBV_SEND_SIGNALED), ENOMEM);
  EXPECT_THAT(Said(), Lint("2 (unpolled)", Name(a_.qp),
                           "holds 64 completions that were not polled"));
  // Polling one makes room for one.
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(Write(65, IBV_SEND_SIGNALED), 0);
  EXPECT_EQ(Said(), "");
}

TEST_F(LintTest, TooManyAreOutstanding) {
  // B does not answer.
  ToInit(b_.qp);
  ToRts(a_.qp, b_.qp->qp_num);
  EXPECT_EQ(Fill(IBV_SEND_SIGNALED), ENOMEM);
  EXPECT_THAT(Said(),
              Lint("3 (queue-full)", Name(a_.qp), "none of them is complete"));
}

TEST_F(LintTest, TooManyReceives) {
  ToInit(b_.qp);
  for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(Receive(b_, i, 0, 100), 0);
  EXPECT_EQ(Said(), "");
  EXPECT_EQ(Receive(b_, 64, 0, 100), ENOMEM);
  EXPECT_THAT(Said(), Lint("3 (queue-full)", Name(b_.qp),
                           "ibv_post_recv failed with ENOMEM: 64 receives"));
}

TEST_F(LintTest, ReceivesAreReplenished) {
  Connect(&a_, &b_);
  for (uint64_t i = 0; i < 64; ++i) ASSERT_EQ(Receive(b_, i, 0, 100), 0);
  for (uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 100), 0);
    ExpectSuccess(a_.cq, i);
    ExpectSuccess(b_.cq, i);
    ASSERT_EQ(Receive(b_, 64 + i, 0, 100), 0);
  }
}

// --- 4 to 6: attributes of RTR and RTS.

TEST_F(LintTest, RnrTimerOfZero) {
  ConnectOptions options;
  options.min_rnr_timer = 0;
  ToRts(a_.qp, b_.qp->qp_num, options);
  EXPECT_THAT(Said(), Lint("4 (rnr-timer)", Name(a_.qp), "655.36 ms"));
}

TEST_F(LintTest, TimeoutOfZero) {
  ConnectOptions options;
  options.timeout = 0;
  ToRts(a_.qp, b_.qp->qp_num, options);
  EXPECT_THAT(Said(), Lint("5 (timeout)", Name(a_.qp), "for ever"));
}

TEST_F(LintTest, RnrRetryOfZero) {
  ConnectOptions options;
  options.rnr_retry = 0;
  ToRts(a_.qp, b_.qp->qp_num, options);
  EXPECT_THAT(Said(),
              Lint("6 (rnr-retry)", Name(a_.qp), "IBV_WC_RNR_RETRY_EXC_ERR"));
}

TEST_F(LintTest, AttributesAboveZero) {
  ConnectOptions options;
  options.min_rnr_timer = 1;
  options.timeout = 1;
  options.rnr_retry = 1;
  ToRts(a_.qp, b_.qp->qp_num, options);
}

// --- 7: the size of a completion queue.

class SmallCqTest : public LintTest {
 protected:
  // Queues of 64 sends and 64 receives, with `cqe` completions.
  void Make(int cqe) {
    MakeSide(&side_, {}, cqe);
    Connect(&side_, &b_);
  }
  void TearDown() override {
    if (side_.cq != nullptr) DestroySide(&side_);
    LintTest::TearDown();
  }
  void Post(uint64_t wr_id) {
    ASSERT_EQ(Send(side_, IBV_WR_RDMA_WRITE, wr_id, 0, 10, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectSuccess(side_.cq, wr_id);
  }
  Side side_;
};

TEST_F(SmallCqTest, IsTooSmall) {
  Make(127);
  ASSERT_EQ(Receive(side_, 1, 0, 10), 0);
  EXPECT_EQ(Said(), "");
  Post(2);
  EXPECT_THAT(Said(), Lint("7 (small-cq)", "completion queue",
                           "has 127 entries, and the queues that use it hold "
                           "128 requests"));
  Post(3);
}

TEST_F(SmallCqTest, IsLargeEnough) {
  Make(128);
  ASSERT_EQ(Receive(side_, 1, 0, 10), 0);
  Post(2);
  // Queue pairs that are gone do not count.
  DestroyQp(&side_);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = side_.cq;
  attr.cap = {64, 64, 1, 1, 0};
  attr.qp_type = IBV_QPT_RC;
  side_.qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(side_.qp, nullptr);
  ToInit(side_.qp);
  ASSERT_EQ(Receive(side_, 1, 0, 10), 0);
}

TEST_F(SmallCqTest, QueuesWithoutRequestsDoNotCount) {
  Make(64);
  Post(1);
}

TEST_F(SmallCqTest, SharedReceivesCountOnce) {
  ibv_srq_init_attr srq_attr = {};
  srq_attr.attr = {.max_wr = 64, .max_sge = 1, .srq_limit = 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &srq_attr);
  ASSERT_NE(srq, nullptr);
  ibv_srq_attr got = {};
  ASSERT_EQ(ibv_query_srq(srq, &got), 0);
  ibv_cq* const cq = ibv_create_cq(context_, static_cast<int>(got.max_wr) + 20,
                                   nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp* qps[3] = {};
  for (ibv_qp*& qp : qps) {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.srq = srq;
    attr.cap = {10, 0, 1, 0, 0};
    attr.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(pd_, &attr);
    ASSERT_NE(qp, nullptr);
    ToRts(qp, b_.qp->qp_num);
    EXPECT_EQ(Said(), "");
    ibv_send_wr wr = {};
    wr.opcode = IBV_WR_SEND;
    ibv_send_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  }
  EXPECT_THAT(Said(), Lint("7 (small-cq)", "completion queue", "requests"));
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

// --- 8 and 9: completion events.

class EventLintTest : public LintTest {
 protected:
  // A's queue has a channel, and one completion that was not polled.
  void Complete() {
    channel_ = ibv_create_comp_channel(context_);
    ASSERT_NE(channel_, nullptr);
    DestroySide(&a_);
    MakeSide(&a_, {}, 256, channel_);
    Connect(&a_, &b_);
    if (arms_first_) {
      ASSERT_EQ(ibv_req_notify_cq(a_.cq, 0), 0);
    }
    a_.memory[0] = 1;
    ASSERT_EQ(Write(1, IBV_SEND_SIGNALED), 0);
    AwaitUnpolled(a_, &b_.memory[0]);
  }
  void TearDown() override {
    if (a_.cq != nullptr) DestroySide(&a_);
    EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    MakeSide(&a_);
    LintTest::TearDown();
  }
  // Takes an event, if there is one.
  int Take() {
    fcntl(channel_->fd, F_SETFL, O_NONBLOCK);
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    return ibv_get_cq_event(channel_, &cq, &context) == 0 ? 0 : errno;
  }

  bool arms_first_ = false;
  ibv_comp_channel* channel_ = nullptr;
};

TEST_F(EventLintTest, WaitsWithoutPoll) {
  Complete();
  ASSERT_EQ(ibv_req_notify_cq(a_.cq, 0), 0);
  EXPECT_EQ(Said(), "");
  EXPECT_EQ(Take(), EAGAIN);
  EXPECT_THAT(Said(), Lint("8 (armed-unpolled)", "completion queue",
                           "with 1 completion in it"));
}

TEST_F(EventLintTest, PollsBeforeItWaits) {
  Complete();
  ASSERT_EQ(ibv_req_notify_cq(a_.cq, 0), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(Take(), EAGAIN);
}

TEST_F(EventLintTest, ArmsBeforeItPosts) {
  arms_first_ = true;
  Complete();
  EXPECT_EQ(Take(), 0);
  ibv_ack_cq_events(a_.cq, 1);
  ExpectSuccess(a_.cq, 1);
}

TEST_F(EventLintTest, EventIsNotAcknowledged) {
  arms_first_ = true;
  Complete();
  ASSERT_EQ(Take(), 0);
  DestroyQp(&a_);
  ibv_cq* const cq = a_.cq;
  // Waits for the line on stderr, which is a pipe, since a file cannot be
  // waited for.
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const int usual = dup(STDERR_FILENO);
  ASSERT_GE(dup2(pipe_ends[1], STDERR_FILENO), 0);
  std::thread destroyer([&] { EXPECT_EQ(ibv_destroy_cq(cq), 0); });
  pollfd line = {pipe_ends[0], POLLIN, 0};
  EXPECT_EQ(poll(&line, 1, kTimeoutMs), 1);
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
  ASSERT_GE(dup2(usual, STDERR_FILENO), 0);
  close(usual);
  close(pipe_ends[1]);
  char text[1000];
  const ssize_t size = read(pipe_ends[0], text, sizeof(text));
  close(pipe_ends[0]);
  ASSERT_GT(size, 0);
  EXPECT_THAT(std::string(text, static_cast<size_t>(size)),
              Lint("9 (unacknowledged)", "completion queue",
                   "the acknowledgement of 1 event,"));
  EXPECT_EQ(ibv_dereg_mr(a_.mr), 0);
  a_ = {};
}

// --- 10 and 11: keys and rights.

TEST_F(LintTest, ReceiveIntoMemoryThatIsReadOnly) {
  ToInit(b_.qp);
  ibv_mr* mr = ibv_reg_mr(pd_, b_.memory.data(), b_.memory.size(), 0);
  ASSERT_NE(mr, nullptr);
  std::swap(b_.mr, mr);
  ASSERT_EQ(Receive(b_, 7, 0, 100), 0);
  std::swap(b_.mr, mr);
  EXPECT_THAT(Said(), Lint("10 (local-key)", Name(b_.qp),
                           "receive 7 cannot use entry 0 of its sg_list"));
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(LintTest, SendFromMemoryThatIsReadOnly) {
  Connect(&a_, &b_);
  ibv_mr* mr = ibv_reg_mr(pd_, a_.memory.data(), a_.memory.size(), 0);
  ASSERT_NE(mr, nullptr);
  std::swap(a_.mr, mr);
  ASSERT_EQ(Write(1, IBV_SEND_SIGNALED), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(Said(), "");
  // Reading into it is a fault.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 2, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  EXPECT_THAT(Said(), Lint("10 (local-key)", Name(a_.qp), "request 2"));
  ExpectStatus(a_.cq, 2, IBV_WC_LOC_PROT_ERR);
  std::swap(a_.mr, mr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(LintTest, RegionBelowItsEnd) {
  ToInit(b_.qp);
  ASSERT_EQ(Receive(b_, 1, b_.memory.size() - 100, 100), 0);
  EXPECT_EQ(Said(), "");
  ASSERT_EQ(Receive(b_, 2, b_.memory.size() - 100, 101), 0);
  EXPECT_THAT(Said(), Lint("10 (local-key)", Name(b_.qp), "101 bytes"));
}

TEST_F(LintTest, OwnKeyAsRemoteKey) {
  Connect(&a_, &b_);
  ibv_mr* const mr = ibv_reg_mr(pd_, a_.memory.data(), a_.memory.size(),
                                IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 a_.address(), mr->lkey),
            0);
  EXPECT_THAT(Said(), Lint("11 (remote-key)", Name(a_.qp),
                           "no IBV_ACCESS_REMOTE_WRITE right"));
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(LintTest, RemoteKeyWithTheRight) {
  Connect(&a_, &b_);
  ASSERT_EQ(Write(1, IBV_SEND_SIGNALED), 0);
  ExpectSuccess(a_.cq, 1);
}

// An XRC target has no protection domain to look in.
TEST_F(LintTest, XrcTargetRefusesRequests) {
  ibv_xrcd_init_attr xrcd_attr = {};
  xrcd_attr.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  xrcd_attr.fd = -1;
  xrcd_attr.oflags = O_CREAT;
  ibv_xrcd* const xrcd = ibv_open_xrcd(context_, &xrcd_attr);
  ASSERT_NE(xrcd, nullptr);
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_XRC_RECV;
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = xrcd;
  Side target;
  target.qp = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(target.qp, nullptr);
  target.mr = a_.mr;
  EXPECT_NE(Send(target, IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_NE(Receive(target, 1, 0, 100), 0);
  EXPECT_EQ(ibv_destroy_qp(target.qp), 0);
  EXPECT_EQ(ibv_close_xrcd(xrcd), 0);
}

// --- 12: READ, then SEND.

class ReadThenSendTest : public LintTest {
 protected:
  // A READ into the first 100 bytes, and then a SEND.
  void Post(size_t offset, unsigned flags, bool polls_between = false) {
    Connect(&a_, &b_);
    ASSERT_EQ(Receive(b_, 9, 1000, 100), 0);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 1, 0, 100, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    if (polls_between) ExpectSuccess(a_.cq, 1);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, offset, 100, IBV_SEND_SIGNALED | flags),
              0);
    if (!polls_between) ExpectSuccess(a_.cq, 1);
    ExpectSuccess(a_.cq, 2);
  }
};

TEST_F(ReadThenSendTest, WithoutFence) {
  Post(99, 0);
  EXPECT_THAT(Said(),
              Lint("12 (read-then-send)", Name(a_.qp),
                   "request 2 sends memory that READ or atomic request 1"));
}
TEST_F(ReadThenSendTest, WithFence) { Post(0, IBV_SEND_FENCE); }
TEST_F(ReadThenSendTest, AfterTheCompletion) { Post(0, 0, true); }
TEST_F(ReadThenSendTest, OtherMemory) { Post(100, 0); }

// --- 13: receives that are posted late.

TEST_F(LintTest, FirstReceiveIsPostedLate) {
  ConnectOptions options;
  options.rnr_retry = 1;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(Said(), "");
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
  EXPECT_THAT(Said(), Lint("13 (late-receive)", Name(b_.qp),
                           "RNR NAKs, and had to wait"));
}

TEST_F(LintTest, LaterReceiveIsPostedLate) {
  ConnectOptions options;
  options.rnr_retry = 1;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Receive(b_, 1, 0, 100), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 1);
  // Only a missing receive for the first message is a fault. Later ones may be
  // left to a flow control of the program's own.
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  ExpectStatus(a_.cq, 2, IBV_WC_RNR_RETRY_EXC_ERR);
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
}

// --- 14: memory that goes too early.

TEST_F(LintTest, DeregistersMemoryInUse) {
  // B does not answer.
  ToInit(b_.qp);
  ToRts(a_.qp, b_.qp->qp_num);
  ibv_mr* mr = ibv_reg_mr(pd_, a_.memory.data(), a_.memory.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  std::swap(a_.mr, mr);
  ASSERT_EQ(Write(5, IBV_SEND_SIGNALED), 0);
  std::swap(a_.mr, mr);
  EXPECT_EQ(Said(), "");
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_THAT(Said(), Lint("14 (buffer-gone)", Name(a_.qp), "request 5"));
}

TEST_F(LintTest, DeregistersMemoryAfterUse) {
  Connect(&a_, &b_);
  ibv_mr* mr = ibv_reg_mr(pd_, a_.memory.data(), a_.memory.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  std::swap(a_.mr, mr);
  ASSERT_EQ(Write(1, IBV_SEND_SIGNALED), 0);
  ExpectSuccess(a_.cq, 1);
  std::swap(a_.mr, mr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace conformance
