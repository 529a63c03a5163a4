// What fails is explained: vendor_err of completions, and what `rxe-user
// explain` says of the process.
#include "rxe_user/observe/explain.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "rxe_user/testing/net_namespace.h"
#include "tests/conformance/fixture.h"
#include "transport/base/reason.h"

namespace conformance {
namespace {

using testing::HasSubstr;
using transport::Reason;

// In the environment of the process with the other end: its socket to the test.
constexpr char kPeerSocket[] = "RXE_USER_TEST_PEER_SOCKET";

uint32_t Number(Reason reason) { return static_cast<uint32_t>(reason); }

ConnectOptions Impatient() {
  ConnectOptions options;
  options.timeout = 10;  // 4.2 ms
  options.retry_cnt = 1;
  return options;
}

// The tool's explanation of a queue pair of this process.
std::string Explain(uint32_t qpn) {
  const auto witnesses = rxe_user::AskWitnesses(0);
  EXPECT_TRUE(witnesses.ok());
  if (!witnesses.ok()) return "";
  for (const rxe_user::Witness& witness : *witnesses) {
    if (witness.pid == getpid()) {
      return rxe_user::ExplainQueuePair(witness, qpn, *witnesses);
    }
  }
  return "";
}

std::string Refused() {
  const auto witnesses = rxe_user::AskWitnesses(0);
  EXPECT_TRUE(witnesses.ok());
  if (!witnesses.ok()) return "";
  for (const rxe_user::Witness& witness : *witnesses) {
    if (witness.pid == getpid()) return rxe_user::ExplainRefusals(witness);
  }
  return "";
}

class ExplainTest : public PairTest {
 protected:
  ExplainTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    MakeSide(&a_);
    MakeSide(&b_);
  }
  // The explanation, as soon as it has `part`.
  std::string Await(uint32_t qpn, const std::string& part) {
    std::string text;
    const int64_t limit = NowMs() + kTimeoutMs;
    do {
      text = Explain(qpn);
    } while (text.find(part) == std::string::npos && NowMs() < limit);
    return text;
  }
  // A WRITE of a_ to `address` fails with status 10: at the peer, for `reason`.
  void ExpectDenied(uint64_t address, uint32_t rkey, Reason reason,
                    const std::string& side) {
    Connect(&a_, &b_, Impatient());
    ASSERT_EQ(Receive(b_, 7, 0, 100), 0);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED, address,
                   rkey),
              0);
    const ibv_wc wc = Next(a_.cq);
    EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
    EXPECT_EQ(wc.vendor_err, Number(Reason::kNakAccess));
    const ibv_wc flushed = Next(b_.cq);
    EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(flushed.vendor_err, Number(reason));
    const std::string text = Explain(a_.qp->qp_num);
    EXPECT_THAT(text, HasSubstr("status 10"));
    EXPECT_THAT(text, HasSubstr(std::string(transport::TextOf(reason).what)));
    EXPECT_THAT(text, HasSubstr("whose side    " + side));
  }
};

TEST_F(ExplainTest, SuccessHasNoReason) {
  Connect(&a_, &b_);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  const ibv_wc wc = ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(wc.vendor_err, 0u);
  const std::string text = Explain(a_.qp->qp_num);
  EXPECT_THAT(text, HasSubstr("RTS"));
  EXPECT_THAT(text, testing::Not(HasSubstr("first cause")));
  EXPECT_THAT(text, testing::Not(HasSubstr("what to do")));
}

// --- Status 10: key, range, right, domain, window.

TEST_F(ExplainTest, WrongKey) {
  ExpectDenied(b_.address(), b_.mr->rkey ^ 0x5500, Reason::kRemoteKey,
               "either side");
}

TEST_F(ExplainTest, WrongRange) {
  ExpectDenied(b_.address(b_.memory.size() - 50), b_.mr->rkey,
               Reason::kRemoteRange, "either side");
}

TEST_F(ExplainTest, WrongRight) {
  ibv_mr* const mr = ibv_reg_mr(pd_, b_.memory.data(), b_.memory.size(),
                                IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr, nullptr);
  ExpectDenied(b_.address(), mr->rkey, Reason::kRemoteRight, "the peer's side");
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

TEST_F(ExplainTest, WrongDomain) {
  ibv_pd* const pd = ibv_alloc_pd(context_);
  ASSERT_NE(pd, nullptr);
  ibv_mr* const mr =
      ibv_reg_mr(pd, b_.memory.data(), b_.memory.size(), kAllAccess);
  ASSERT_NE(mr, nullptr);
  ExpectDenied(b_.address(), mr->rkey, Reason::kRemoteDomain,
               "the peer's side");
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(ExplainTest, WrongWindow) {
  ibv_mw* const mw = ibv_alloc_mw(pd_, IBV_MW_TYPE_2);  // not bound
  ASSERT_NE(mw, nullptr);
  ExpectDenied(b_.address(), mw->rkey, Reason::kRemoteWindow, "either side");
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

// --- Local failures.

TEST_F(ExplainTest, LocalKeyAndRange) {
  Connect(&a_, &b_);
  ibv_sge sge = a_.Sge(0, 100);
  sge.lkey ^= 0x5500;
  ibv_send_wr wr = {};
  ibv_send_wr* bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kLocalKey));
  EXPECT_THAT(Explain(a_.qp->qp_num), HasSubstr("whose side    this side"));

  // Later requests are flushed, with the same first cause.
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  const ibv_wc flushed = Next(a_.cq);
  EXPECT_EQ(flushed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(flushed.vendor_err, Number(Reason::kLocalKey));
}

TEST_F(ExplainTest, FlushedByTheProgram) {
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(a_, 3, 0, 100), 0);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(Next(a_.cq).vendor_err, Number(Reason::kModifiedToError));
}

TEST_F(ExplainTest, ReceiveTooShort) {
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 10), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  const ibv_wc wc = Next(b_.cq);
  EXPECT_EQ(wc.status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kReceiveTooShort));
  const ibv_wc sent = Next(a_.cq);
  EXPECT_EQ(sent.status, IBV_WC_REM_INV_REQ_ERR);
  EXPECT_EQ(sent.vendor_err, Number(Reason::kNakInvalidRequest));
  EXPECT_THAT(Explain(a_.qp->qp_num), HasSubstr("receive_too_short"));
}

// --- Status 12: four causes.

TEST_F(ExplainTest, PeerDestroyed) {
  Connect(&a_, &b_, Impatient());
  DestroyQp(&b_);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kNeverAnswered));
  const std::string text = Explain(a_.qp->qp_num);
  EXPECT_THAT(text, HasSubstr("status 12"));
  EXPECT_THAT(text, HasSubstr("was destroyed by process"));
  EXPECT_THAT(text, HasSubstr("whose side    the peer's side"));
  EXPECT_THAT(text, HasSubstr("ack_timeout"));
}

TEST_F(ExplainTest, WrongNumber) {
  ASSERT_EQ(ToRts(a_.qp, b_.qp->qp_num + 77, Impatient()), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kNeverAnswered));
  const std::string text = Explain(a_.qp->qp_num);
  EXPECT_THAT(text, HasSubstr("so the number is wrong"));
  EXPECT_THAT(text, HasSubstr("whose side    this side"));
}

TEST_F(ExplainTest, PacketsLost) {
  ConnectOptions options = Impatient();
  options.mtu = IBV_MTU_4096;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  if (!rxe_user::SetLoopbackMtu(3000)) GTEST_SKIP() << "not allowed to";
  // Two packets of the path MTU: none arrives.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 8192, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kPeerSilent));
  const std::string text = Explain(a_.qp->qp_num);
  EXPECT_THAT(text, HasSubstr("is alive and ready"));
  EXPECT_THAT(text, HasSubstr("packets are lost on the way"));
  EXPECT_THAT(text, HasSubstr("whose side    either side"));
  rxe_user::SetLoopbackMtu(65536);
}

// --- The fourth: the peer is another process, and stopped.

class PeerProcess : public ExplainTest {
 private:
  void TestBody() override {
    const int socket = std::atoi(std::getenv(kPeerSocket));
    uint32_t theirs = 0;
    const uint32_t ours = b_.qp->qp_num;
    ASSERT_EQ(recv(socket, &theirs, sizeof(theirs), 0),
              static_cast<ssize_t>(sizeof(theirs)));
    ASSERT_EQ(ToRts(b_.qp, theirs), 0);
    ASSERT_EQ(Receive(b_, 0, 0, 100), 0);
    ASSERT_EQ(send(socket, &ours, sizeof(ours), 0),
              static_cast<ssize_t>(sizeof(ours)));
    char byte;
    EXPECT_EQ(recv(socket, &byte, 1, 0), 0);  // until the test ends
  }
};

[[maybe_unused]] const testing::TestInfo* const kPeerProcess =
    std::getenv(kPeerSocket) == nullptr
        ? nullptr
        : testing::RegisterTest(
              "PeerProcess", "Serves", nullptr, nullptr, __FILE__, __LINE__,
              []() -> PeerProcess* { return new PeerProcess; });

// Starts this program again, with `variable` in its environment, which inherits
// `fd`.
pid_t StartSelf(const std::string& filter, const std::string& variable,
                int fd) {
  std::vector<std::string> texts = {variable};
  // Without the variables of the test runner: it must not report results.
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string text = *each;
    if (!text.starts_with("TEST_") && !text.starts_with("GTEST_") &&
        !text.starts_with("XML_")) {
      texts.push_back(text);
    }
  }
  std::vector<char*> environment;
  for (std::string& text : texts) environment.push_back(text.data());
  environment.push_back(nullptr);
  std::string arguments[] = {"again", "--gtest_filter=" + filter,
                             "--gtest_brief=1"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (variable.starts_with(kPeerSocket)) {
    fcntl(fd, F_SETFD, 0);
  } else {
    dup2(fd, STDERR_FILENO);
  }
  execve("/proc/self/exe", argv.data(), environment.data());
  _exit(1);
}

TEST_F(ExplainTest, PeerStopped) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const pid_t child = StartSelf(
      "PeerProcess.Serves",
      std::string(kPeerSocket) + "=" + std::to_string(ends[1]), ends[1]);
  ASSERT_GT(child, 0);
  close(ends[1]);
  const uint32_t ours = a_.qp->qp_num;
  uint32_t theirs = 0;
  ASSERT_EQ(send(ends[0], &ours, sizeof(ours), 0),
            static_cast<ssize_t>(sizeof(ours)));
  ASSERT_EQ(recv(ends[0], &theirs, sizeof(theirs), 0),
            static_cast<ssize_t>(sizeof(theirs)));
  ASSERT_EQ(ToRts(a_.qp, theirs, Impatient()), 0);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  EXPECT_EQ(Next(a_.cq).status, IBV_WC_RETRY_EXC_ERR);
  const std::string text = Explain(a_.qp->qp_num);
  EXPECT_THAT(text, HasSubstr("process " + std::to_string(child)));
  EXPECT_THAT(text, HasSubstr("is stopped"));
  EXPECT_THAT(text, HasSubstr("whose side    the peer's side"));
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  close(ends[0]);
}

// --- On stderr, with RXE_USER_EXPLAIN=1: what one of the tests above prints.

std::string StderrOf(const std::string& filter) {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const pid_t child = StartSelf(filter, "RXE_USER_EXPLAIN=1", ends[1]);
  EXPECT_GT(child, 0);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << text;
  return text;
}

TEST(ExplainModeTest, FirstErrorOfAQueuePair) {
  const std::string text = StderrOf("ExplainTest.PeerDestroyed");
  EXPECT_THAT(text, HasSubstr("rxe_user: queue pair"));
  EXPECT_THAT(text, HasSubstr("first cause"));
  EXPECT_THAT(text, HasSubstr("was destroyed by process"));
}

TEST(ExplainModeTest, RefusedCall) {
  const std::string text = StderrOf("ExplainTest.ModifyNamesTheAttribute");
  EXPECT_THAT(text, HasSubstr("rxe_user: ibv_modify_qp failed with EINVAL: "
                              "IBV_QP_MAX_DEST_RD_ATOMIC: missing"));
}

TEST(ExplainModeTest, SilentWhenNothingFails) {
  EXPECT_THAT(StderrOf("ExplainTest.SuccessHasNoReason"),
              testing::Not(HasSubstr("rxe_user:")));
}

// --- RNR.

TEST_F(ExplainTest, RnrTimerOfCodeZero) {
  ConnectOptions options;
  options.min_rnr_timer = 0;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 5, 0, 100), 0);
  const std::string text = Await(a_.qp->qp_num, "the RNR timer");
  EXPECT_THAT(text, HasSubstr("waits for     the RNR timer"));
  EXPECT_THAT(text, HasSubstr("655.36 ms (min_rnr_timer 0)"));
  ASSERT_EQ(Receive(b_, 6, 0, 100), 0);
  ExpectSuccess(a_.cq, 5);
}

TEST_F(ExplainTest, RnrRetriesExceeded) {
  ConnectOptions options;
  options.rnr_retry = 1;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 5, 0, 100), 0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_EQ(wc.vendor_err, Number(Reason::kRnrRetriesExceeded));
  EXPECT_THAT(Explain(a_.qp->qp_num), HasSubstr("rnr_nak_received"));
}

// --- A program that hangs.

TEST_F(ExplainTest, CompletionInAQueueThatIsNotArmed) {
  ibv_comp_channel* const channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  Side c;
  MakeSide(&c, {}, 256, channel);
  Connect(&c, &b_);
  ASSERT_EQ(Send(c, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  const std::string text = Await(c.qp->qp_num, "unpolled");
  EXPECT_THAT(text, HasSubstr("1 completion lies unpolled"));
  EXPECT_THAT(text, HasSubstr("is not armed"));
  ExpectSuccess(c.cq, 1);
  EXPECT_THAT(Explain(c.qp->qp_num), testing::Not(HasSubstr("unpolled")));
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(ExplainTest, WaitsForAnAcknowledgement) {
  ConnectOptions options;
  options.timeout = 19;  // 2.1 s
  Connect(&a_, &b_, options);
  DestroyQp(&b_);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 9, 0, 100), 0);
  const std::string text = Await(a_.qp->qp_num, "was destroyed");
  EXPECT_THAT(text, HasSubstr("waits for     an acknowledgement"));
  EXPECT_THAT(text, HasSubstr("the oldest with wr_id 9"));
}

// --- Refused calls.

TEST_F(ExplainTest, ModifyNamesTheAttribute) {
  ToInit(a_.qp);
  ibv_qp_attr attr = RtrAttributes(b_.qp->qp_num);
  const int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                   IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MIN_RNR_TIMER;
  EXPECT_EQ(ibv_modify_qp(a_.qp, &attr, mask), EINVAL);
  EXPECT_THAT(Refused(), HasSubstr("ibv_modify_qp failed with EINVAL"));
  EXPECT_THAT(Refused(),
              HasSubstr("IBV_QP_MAX_DEST_RD_ATOMIC: missing, required from "
                        "INIT to RTR"));
  attr.min_rnr_timer = 32;
  EXPECT_EQ(ibv_modify_qp(a_.qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC),
            EINVAL);
  EXPECT_THAT(Refused(),
              HasSubstr("IBV_QP_MIN_RNR_TIMER: the value is not valid"));
  attr.min_rnr_timer = 1;
  EXPECT_EQ(ibv_modify_qp(a_.qp, &attr,
                          mask | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_QKEY),
            EINVAL);
  EXPECT_THAT(Refused(), HasSubstr("IBV_QP_QKEY: not permitted"));
  attr.ah_attr.grh.sgid_index = 99;
  EXPECT_EQ(ibv_modify_qp(a_.qp, &attr, mask | IBV_QP_MAX_DEST_RD_ATOMIC),
            EINVAL);
  EXPECT_THAT(Refused(), HasSubstr("IBV_QP_AV"));
}

TEST_F(ExplainTest, PostNamesTheCheck) {
  EXPECT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), EINVAL);
  EXPECT_THAT(Refused(), HasSubstr("ibv_post_send failed with EINVAL"));
  EXPECT_THAT(Refused(), HasSubstr("the queue pair is in RESET"));
  Connect(&a_, &b_);
  int error = 0;
  for (int i = 0; i < 1000 && error == 0; ++i) {
    error = Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey);
  }
  EXPECT_EQ(error, ENOMEM);
  EXPECT_THAT(Refused(), HasSubstr("the send queue is full"));
}

}  // namespace
}  // namespace conformance
