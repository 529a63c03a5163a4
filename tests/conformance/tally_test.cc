// RXE_USER_TALLY: what is counted as it happens agrees with the counters.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "rxe_user/observe/device_report.h"
#include "rxe_user/observe/tally_page.h"
#include "tests/conformance/fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

using rxe_user::TallyPage;
using transport::RareEventKind;

class TallyTest : public PairTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_tally_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RXE_USER_TALLY", folder_.c_str(), 1);
    PairTest::SetUp();
  }
  void TearDown() override {
    if (!closed_) PairTest::TearDown();
    unsetenv("RXE_USER_TALLY");
    std::filesystem::remove_all(folder_);
  }
  TallyPage Read() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      std::string why;
      const auto page = rxe_user::ReadTally(entry.path(), &why);
      EXPECT_TRUE(page) << why;
      if (page) return *page;
    }
    ADD_FAILURE() << "there is no file";
    return {};
  }
  // The counters of this process, from `rxe-user stat`.
  static std::map<std::string, uint64_t> Counters() {
    const std::string text = RunTool("stat --json " + std::to_string(getpid()));
    const auto json = nlohmann::json::parse(text, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << text;
    return json["processes"][0]["devices"][0]["counters"];
  }
  static void ExpectAgree(const TallyPage& page,
                          std::map<std::string, uint64_t> counters) {
    const auto event = [&](RareEventKind kind) {
      return page.events[static_cast<size_t>(kind)];
    };
    EXPECT_EQ(page.repeated, counters["retrans_pkts"]);
    EXPECT_EQ(event(RareEventKind::kAckTimeout),
              counters["local_ack_timeout_err"]);
    EXPECT_EQ(event(RareEventKind::kProbe), counters["loss_probes"]);
    EXPECT_EQ(event(RareEventKind::kRetriesExceeded),
              counters["retry_exceeded_err"]);
    EXPECT_EQ(event(RareEventKind::kRnrRetriesExceeded),
              counters["retry_rnr_exceeded_err"]);
    EXPECT_EQ(event(RareEventKind::kSequenceNakSent),
              counters["out_of_seq_request"]);
    EXPECT_EQ(event(RareEventKind::kSequenceNakReceived),
              counters["rcvd_seq_err"]);
    EXPECT_EQ(event(RareEventKind::kFatalNakSent), counters["send_fatal_nak"]);
    EXPECT_EQ(event(RareEventKind::kFatalNakReceived),
              counters["rcvd_fatal_nak"]);
    EXPECT_EQ(event(RareEventKind::kRnrNakSent), counters["send_rnr_err"]);
    EXPECT_EQ(event(RareEventKind::kRnrNakReceived), counters["rcvd_rnr_err"]);
  }

  std::string folder_;
  bool closed_ = false;
};

TEST_F(TallyTest, AgreesWithTheCounters) {
  constexpr uint32_t kBytes = 5000;
  for (uint64_t i = 0; i < 4; ++i) {
    ASSERT_EQ(Receive(b_, 100 + i, 0, kBytes), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 200 + i, 0, kBytes), 0);
    ExpectSuccess(b_.cq, 100 + i);
    ExpectSuccess(a_.cq, 200 + i);
  }
  // Not signaled: no completion.
  ASSERT_EQ(
      Send(a_, IBV_WR_RDMA_WRITE, 250, 0, kBytes, 0, b_.address(), b_.mr->rkey),
      0);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 300, 0, kBytes, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 300);
  // B has no receive and answers by RNR NAKs. The SEND is retransmitted until
  // there is one, which is posted after the first RNR NAK.
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 400, 0, kBytes), 0);
  const int64_t until = NowMs() + 60'000;
  while (Read().events[static_cast<size_t>(RareEventKind::kRnrNakReceived)] ==
             0 &&
         NowMs() < until) {
    ExpectNothing(a_.cq);
  }
  ASSERT_EQ(Receive(b_, 104, 0, kBytes), 0);
  ExpectSuccess(b_.cq, 104);
  ExpectSuccess(a_.cq, 400);
  // A wrong key.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 500, 0, kBytes, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey + 1),
            0);
  ExpectStatus(a_.cq, 500, IBV_WC_REM_ACCESS_ERR);

  const TallyPage page = Read();
  EXPECT_EQ(page.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(page.completions[0][IBV_WC_SUCCESS], 6u);
  EXPECT_EQ(page.completions[1][IBV_WC_SUCCESS], 5u);
  EXPECT_EQ(page.completions[0][IBV_WC_REM_ACCESS_ERR], 1u);
  EXPECT_EQ(page.first_completion[0][IBV_WC_REM_ACCESS_ERR].wr_id, 500u);
  EXPECT_EQ(page.untimed[0] + page.untimed[1], 0u);
  EXPECT_GT(page.slowest_ns[0], 0);
  EXPECT_GT(page.repeated, 0u);
  EXPECT_EQ(page.first_repeated.qpn, a_.qp->qp_num);
  EXPECT_GT(page.events[static_cast<size_t>(RareEventKind::kRnrNakSent)], 0u);
  EXPECT_EQ(page.devices_opened, 1u);
  EXPECT_EQ(page.devices_counted, 0u);
  const std::map<std::string, uint64_t> counters = Counters();
  ExpectAgree(page, counters);

  // A closed device has left its counters.
  PairTest::TearDown();
  closed_ = true;
  const TallyPage closed = Read();
  EXPECT_EQ(closed.devices_counted, 1u);
  std::map<std::string, uint64_t> left;
  size_t at = 0;
  for (const auto& value : rxe_user::CountersOf(rxe_user::LaneReport())) {
    left[std::string(value.counter->name)] = closed.counters[at++];
  }
  ExpectAgree(closed, left);
  EXPECT_EQ(left["rdma_sends"], counters.at("rdma_sends"));
  EXPECT_EQ(left["rdma_reads"], 1u);
}

}  // namespace
}  // namespace conformance
