#include "tools/rxe_user_cli/expectation_facts.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "rxe_user/observe/tally.h"
#include "transport/faults/injector.h"

namespace rxe_user_cli {
namespace {

using rxe_user::Tally;
using rxe_user::TallyItem;
using rxe_user::TallyPage;
using rxe_user::TallyQueue;
using transport::RareEventKind;
using transport::WcStatus;

TallyItem Item(uint32_t qpn, uint32_t psn, uint64_t wr_id) {
  TallyItem item;
  item.qpn = qpn;
  item.psn = psn;
  item.wr_id = wr_id;
  item.has_psn = item.has_wr_id = 1;
  return item;
}

class FactsTest : public testing::Test {
 protected:
  FactsTest() {
    page_.pid = 12;
    std::strcpy(page_.program, "client");
  }
  // Adds the tally page, at the end of the process or before.
  void Close(bool runs = false) { facts_.Add(page_, runs); }
  // The process has ended by exit(), and these are its counters.
  void Exit(std::string_view counter, uint64_t value) {
    tally_.OnOpened();
    auto counters = rxe_user::CountersOf(rxe_user::LaneReport());
    for (auto& each : counters) {
      if (each.counter->name == counter) each.value = value;
    }
    tally_.AddCounters(counters);
    Close();
  }
  Judgement Judge(const std::string& text) {
    ExpectationError error;
    const auto expectation = ParseExpectation(text, &error);
    EXPECT_TRUE(expectation) << text << ": " << TextOf(error);
    return expectation ? facts_.Judge(*expectation) : Judgement{};
  }
  Verdict Is(const std::string& text) { return Judge(text).verdict; }
  // Without the time of day.
  static std::string WithoutTime(std::string text) {
    const size_t at = text.find("at ");
    if (at != std::string::npos) text.erase(at, text.find(',', at) + 2 - at);
    return text;
  }

  TallyPage page_;
  Tally tally_{&page_};
  Facts facts_;
};

TEST_F(FactsTest, CountsCompletionsByQueueAndStatus) {
  for (uint64_t i = 0; i < 3; ++i) {
    tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess,
                        Item(0x11, 100, i));
  }
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kRemoteAccessError,
                      Item(0x11, 103, 7));
  tally_.OnCompletion(TallyQueue::kReceive, WcStatus::kSuccess,
                      Item(0x12, 0, 8));
  Close();
  EXPECT_EQ(Is("wc(SUCCESS) == 4"), Verdict::kTrue);
  EXPECT_EQ(Is("send_wc(SUCCESS) == 3"), Verdict::kTrue);
  EXPECT_EQ(Is("recv_wc(*) == 1"), Verdict::kTrue);
  EXPECT_EQ(Is("wc(*) == 5"), Verdict::kTrue);
  EXPECT_EQ(Is("wc(REM_ACCESS_ERR) == 1"), Verdict::kTrue);
  EXPECT_EQ(Is("wc(SUCCESS) > 4 or wc(*) != 5"), Verdict::kFalse);
  EXPECT_EQ(Is("not (wc(SUCCESS) > 4 or wc(*) != 5)"), Verdict::kTrue);

  const Judgement failed = Judge("wc(REM_ACCESS_ERR) == 0");
  EXPECT_EQ(failed.verdict, Verdict::kFalse);
  EXPECT_EQ(failed.seen, "wc(REM_ACCESS_ERR) is 1");
  EXPECT_EQ(WithoutTime(failed.first),
            "the first: queue pair 0x000011, PSN 103, wr_id 7, client "
            "(process 12)");
  // Too few: there is nothing to show.
  EXPECT_EQ(Judge("wc(SUCCESS) >= 1000").seen, "wc(SUCCESS) is 4");
  EXPECT_EQ(Judge("wc(SUCCESS) >= 1000").first, "");
  // Only the part of a condition that failed is reported.
  EXPECT_EQ(Judge("wc(*) == 5 and wc(SUCCESS) == 5").seen, "wc(SUCCESS) is 4");
  EXPECT_EQ(Judge("not wc(*) == 5 and wc(*) > 0").seen, "wc(*) is 5");
  EXPECT_TRUE(Judge("not wc(REM_ACCESS_ERR) > 0")
                  .first.starts_with("the first: queue pair 0x000011"));
  EXPECT_TRUE(Judge("1 > wc(REM_ACCESS_ERR)")
                  .first.starts_with("the first: queue pair 0x000011"));
}

TEST_F(FactsTest, AddsProcesses) {
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  Close();
  Close();
  EXPECT_EQ(Is("wc(SUCCESS) == 2"), Verdict::kTrue);
}

TEST_F(FactsTest, SlowestCompletion) {
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  tally_.OnLatency(TallyQueue::kSend, 2'000'001, Item(0x11, 100, 5));
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  tally_.OnLatency(TallyQueue::kSend, 1'000, Item(0x11, 101, 6));
  Close();
  EXPECT_EQ(Is("every wc within 2000001ns of post"), Verdict::kTrue);
  EXPECT_EQ(Is("every send_wc within 2.1ms of post"), Verdict::kTrue);
  const Judgement slow = Judge("every wc within 2ms of post");
  EXPECT_EQ(slow.verdict, Verdict::kFalse);
  EXPECT_EQ(slow.seen, "the slowest wc came 2.000ms after its post");
  EXPECT_EQ(WithoutTime(slow.first),
            "the slowest: queue pair 0x000011, PSN 100, wr_id 5, client "
            "(process 12)");
  // Without any such completion, the expectation is not met.
  EXPECT_EQ(Is("every recv_wc within 2ms of post"), Verdict::kFalse);
  EXPECT_EQ(Judge("every recv_wc within 2ms of post").seen,
            "there was no recv_wc");
}

TEST_F(FactsTest, ACompletionWithoutItsPostIsNotKnown) {
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  tally_.OnLatency(TallyQueue::kSend, -1, {});
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  tally_.OnLatency(TallyQueue::kSend, 5'000, {});
  Close();
  const Judgement judgement = Judge("every wc within 2s of post");
  EXPECT_EQ(judgement.verdict, Verdict::kNotKnown);
  EXPECT_EQ(judgement.seen,
            "the slowest wc came 5.000us after its post; of 1 more it is not "
            "known when they were posted");
  EXPECT_EQ(Is("every wc within 1us of post"), Verdict::kFalse);
}

TEST_F(FactsTest, CountersOfAProcessThatEndedByExit) {
  Exit("retrans_pkts", 3);
  EXPECT_EQ(Is("repeated == 3"), Verdict::kTrue);
  EXPECT_EQ(Is("retrans_pkts <= 3"), Verdict::kTrue);
  EXPECT_EQ(Is("rx_calls == 0"), Verdict::kTrue);
  EXPECT_EQ(Judge("repeated == 0").seen, "repeated is 3");
}

// Counters that are counted as it happens are known however the process ends;
// others are not.
TEST_F(FactsTest, CountersOfAProcessThatWasKilled) {
  tally_.OnOpened();
  tally_.OnRepeated(Item(0x11, 2005, 9));
  tally_.OnRepeated(Item(0x11, 2006, 9));
  tally_.OnRareEvent(RareEventKind::kSequenceNakReceived, Item(0x11, 2005, 9));
  tally_.OnDropped(transport::Disposition::kBadIcrc, {});
  Close();
  EXPECT_EQ(Is("repeated == 2"), Verdict::kTrue);
  EXPECT_EQ(Is("naks == 1"), Verdict::kTrue);
  EXPECT_EQ(Is("timeouts == 0"), Verdict::kTrue);
  EXPECT_EQ(Is("icrc_errors == 1"), Verdict::kTrue);
  EXPECT_EQ(WithoutTime(Judge("repeated == 0").first),
            "the first: queue pair 0x000011, PSN 2005, wr_id 9, client "
            "(process 12)");
  const Judgement lost = Judge("rx_socket_overflow == 0");
  EXPECT_EQ(lost.verdict, Verdict::kNotKnown);
  EXPECT_EQ(lost.seen,
            "rx_socket_overflow is not known: client (process 12) ended "
            "without exit(), so its counters were not written");
  EXPECT_EQ(Is("rx_socket_overflow == 0 or naks == 1"), Verdict::kTrue);
  EXPECT_EQ(Is("rx_socket_overflow == 0 and naks == 2"), Verdict::kFalse);
  EXPECT_EQ(Is("not rx_socket_overflow == 0"), Verdict::kNotKnown);
}

TEST_F(FactsTest, CountersOfAProcessThatStillRunsCanGrow) {
  tally_.OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, {});
  tally_.OnLatency(TallyQueue::kSend, 5'000, {});
  Close(true);
  EXPECT_EQ(Is("wc(SUCCESS) >= 1"), Verdict::kTrue);
  EXPECT_EQ(Is("wc(SUCCESS) == 0"), Verdict::kFalse);
  const Judgement open = Judge("wc(SUCCESS) == 1");
  EXPECT_EQ(open.verdict, Verdict::kNotKnown);
  EXPECT_EQ(open.seen,
            "wc(SUCCESS) is at least 1: client (process 12) still runs");
  EXPECT_EQ(Is("repeated == 0"), Verdict::kNotKnown);
  EXPECT_EQ(Is("every wc within 2s of post"), Verdict::kNotKnown);
  EXPECT_EQ(Is("every wc within 1us of post"), Verdict::kFalse);
}

TEST_F(FactsTest, WithoutAProcessNothingIsKnown) {
  for (const char* text : {"repeated == 0", "wc(*) > 0", "not wc(*) > 0",
                           "every wc within 2s of post"}) {
    const Judgement judgement = Judge(text);
    EXPECT_EQ(judgement.verdict, Verdict::kNotKnown) << text;
    EXPECT_NE(judgement.seen.find("no process opened our device"),
              std::string::npos)
        << judgement.seen;
  }
}

TEST_F(FactsTest, LintsAreExactWhileTheProcessRunsOrIsKilled) {
  tally_.OnOpened();
  tally_.OnLint();
  tally_.OnLint();
  Close();
  EXPECT_EQ(Is("lints == 2"), Verdict::kTrue);
  EXPECT_EQ(Is("lints == 0"), Verdict::kFalse);
  EXPECT_EQ(Judge("lints < 2").seen, "lints is 2");
  Close(true);
  EXPECT_EQ(Is("lints == 4"), Verdict::kNotKnown);
  EXPECT_EQ(Is("lints >= 4"), Verdict::kTrue);
}

TEST_F(FactsTest, RulesForFaultsFire) {
  EXPECT_EQ(facts_.JudgeRule(1).verdict, Verdict::kNotKnown);
  tally_.OnFault(2);
  Close();
  EXPECT_EQ(facts_.JudgeRule(2).verdict, Verdict::kTrue);
  EXPECT_EQ(facts_.JudgeRule(1).verdict, Verdict::kFalse);
  EXPECT_EQ(facts_.JudgeRule(1).seen, "it never fired");
  Close(/*runs=*/true);
  EXPECT_EQ(facts_.JudgeRule(2).verdict, Verdict::kTrue);
  EXPECT_EQ(facts_.JudgeRule(1).verdict, Verdict::kNotKnown);
  EXPECT_EQ(facts_.JudgeRule(1).seen, "client (process 12) still runs");
}

// Rules 257 and later of a process that gets rules while it runs were counted
// beyond the array.
TEST_F(FactsTest, TheLastRuleThatAProcessMayHave) {
  const uint32_t last = transport::faults::Injector::kMaxRulesEver;
  for (uint32_t rule = 1; rule <= last; ++rule) tally_.OnFault(rule);
  EXPECT_EQ(page_.lints, 0u);
  EXPECT_EQ(page_.counter_names, TallyPage().counter_names);
  EXPECT_EQ(std::size(page_.faults), last);
  Close();
  EXPECT_EQ(facts_.JudgeRule(last).verdict, Verdict::kTrue);
}

TEST_F(FactsTest, WhatCannotBeReadIsNotKnown) {
  Exit("retrans_pkts", 0);
  EXPECT_EQ(Is("repeated == 0"), Verdict::kTrue);
  facts_.AddUnreadable("broken");
  EXPECT_EQ(Is("repeated == 0"), Verdict::kNotKnown);
  EXPECT_EQ(Is("every wc within 2s of post"), Verdict::kNotKnown);
  EXPECT_EQ(Judge("repeated == 0").seen, "repeated is not known: broken");
}

// Each counter that is counted as it happens has the same value as the counter
// of that name. Others are unknown after a kill.
TEST_F(FactsTest, NamesOfCountersThatAreCountedAsTheyHappen) {
  tally_.OnOpened();
  Close();
  std::vector<std::string> known;
  for (const std::string_view name : ExpectedCounters()) {
    if (Is(std::string(name) + " == 0") == Verdict::kTrue) {
      known.emplace_back(name);
    }
  }
  EXPECT_EQ(known,
            (std::vector<std::string>{
                "retrans_pkts", "local_ack_timeout_err", "loss_probes",
                "retry_exceeded_err", "retry_rnr_exceeded_err",
                "out_of_seq_request", "rcvd_seq_err", "send_fatal_nak",
                "rcvd_fatal_nak", "send_rnr_err", "rcvd_rnr_err",
                "rx_drop_too_short", "rx_drop_opcode", "rx_drop_length",
                "rx_drop_header", "rx_drop_syndrome", "rx_icrc_encapsulated"}));
}

class TallyFileTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_tally_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string OnlyFile() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      return entry.path();
    }
    return "";
  }
  std::string folder_;
};

TEST_F(TallyFileTest, OutlivesTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const auto tally = Tally::Begin(folder_);
    tally->OnCompletion(TallyQueue::kSend, WcStatus::kSuccess, Item(1, 2, 3));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  std::string why;
  const auto page = rxe_user::ReadTally(OnlyFile(), &why);
  ASSERT_TRUE(page) << why;
  EXPECT_EQ(page->pid, static_cast<uint32_t>(child));
  EXPECT_EQ(page->completions[0][0], 1u);
  EXPECT_EQ(page->first_completion[0][0].wr_id, 3u);
}

TEST_F(TallyFileTest, IsLockedWhileTheProcessLives) {
  auto tally = Tally::Begin(folder_);
  ASSERT_NE(tally, nullptr);
  const int file = open(OnlyFile().c_str(), O_RDONLY);
  EXPECT_NE(flock(file, LOCK_SH | LOCK_NB), 0);
  tally.reset();
  EXPECT_EQ(flock(file, LOCK_SH | LOCK_NB), 0);
  close(file);
}

TEST_F(TallyFileTest, OtherFilesAreRefused) {
  std::string why;
  EXPECT_FALSE(rxe_user::ReadTally(folder_ + "/none", &why));
  EXPECT_EQ(why, "No such file or directory");
  std::ofstream(folder_ + "/short") << "x";
  EXPECT_FALSE(rxe_user::ReadTally(folder_ + "/short", &why));
  EXPECT_EQ(why, "it is too short");
  std::ofstream(folder_ + "/other") << std::string(sizeof(TallyPage), 'x');
  EXPECT_FALSE(rxe_user::ReadTally(folder_ + "/other", &why));
  EXPECT_EQ(why, "the library is of another version");
  EXPECT_EQ(Tally::Begin(folder_ + "/none"), nullptr);
  EXPECT_EQ(errno, ENOENT);
}

}  // namespace
}  // namespace rxe_user_cli
