// rxe-user faults PID, and rxe-user faults shrink.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/expect/installed_fixture.h"

namespace {

using expect_test::ReadAll;
using expect_test::Result;

class FaultsTest : public expect_test::InstalledTest {
 protected:
  // Starts expect_program, which makes a round for each byte of its input.
  void StartRounds(const std::vector<std::string>& options) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::vector<std::string> argv = {"run"};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "expect_program", "rounds", "exit0"});
    program_ = Start(argv, [&] { dup2(ends[0], 0); });
    close(ends[0]);
    input_ = ends[1];
    Await("\n");
  }
  // The line that it prints.
  std::string Round() {
    const std::string name = "round " + std::to_string(++rounds_) + ": ";
    EXPECT_EQ(write(input_, "x", 1), 1);
    Await(name);
    const std::string out = ReadAll(Output());
    const size_t at = out.find(name) + name.size();
    return out.substr(at, out.find('\n', at) - at);
  }
  Result End() {
    close(input_);
    return Finish(program_);
  }
  // rxe-user faults PID ..., with files of its own.
  Result Faults(std::vector<std::string> words) {
    words.insert(words.begin(), {"faults", std::to_string(program_)});
    suffix_ = "2";
    const Result result = Execute(words);
    suffix_ = "";
    return result;
  }

  pid_t program_ = -1;
  int input_ = -1;
  int rounds_ = 0;
};

TEST_F(FaultsTest, RulesOfARunningProgram) {
  StartRounds({"--faults", "none"});
  EXPECT_EQ(Faults({"list"}).out, "no rules\n");
  EXPECT_EQ(Round(), "registered");
  Result r = Faults({"add", "fail ibv_reg_mr ENOMEM nth=1; drop tx op=data"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out,
            "added rule 1: fail ibv_reg_mr ENOMEM nth=1\n"
            "added rule 2: drop tx op=data\n");
  r = Faults({"remove", "2"});
  EXPECT_EQ(r.out, "removed rule 2: drop tx op=data; it hit 0 of 0 packets\n");
  EXPECT_EQ(Round(), "Cannot allocate memory");
  EXPECT_EQ(Round(), "registered");
  EXPECT_EQ(Faults({"add", "drop tx op=RC_SEND_FIRST nth=1"}).out,
            "added rule 3: drop tx op=RC_SEND_FIRST nth=1\n");
  EXPECT_EQ(Round(), "registered");
  EXPECT_EQ(Faults({"list"}).out,
            "rule 1: fail ibv_reg_mr ENOMEM nth=1; it has hit 1 of 3 calls\n"
            "rule 3: drop tx op=RC_SEND_FIRST nth=1; it has hit 1 of 2 "
            "packets\n");
  EXPECT_EQ(Faults({"list", "--json"}).out,
            "[\n"
            "  {\n"
            "    \"rule\": 1,\n"
            "    \"text\": \"fail ibv_reg_mr ENOMEM nth=1\",\n"
            "    \"target\": \"call\",\n"
            "    \"matched\": 3,\n"
            "    \"fired\": 1\n"
            "  },\n"
            "  {\n"
            "    \"rule\": 3,\n"
            "    \"text\": \"drop tx op=RC_SEND_FIRST nth=1\",\n"
            "    \"target\": \"packet\",\n"
            "    \"matched\": 2,\n"
            "    \"fired\": 1\n"
            "  }\n"
            "]\n");
  EXPECT_EQ(Faults({"clear"}).status, 0);
  EXPECT_EQ(Faults({"list"}).out, "no rules\n");
  EXPECT_EQ(Round(), "registered");
  r = End();
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err, "");  // a rule that was removed need not have fired
}

TEST_F(FaultsTest, NothingIsDoneByHalf) {
  StartRounds({"--faults", "drop tx op=RC_FETCH_ADD maybe"});
  for (const auto& [words, err] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"add", "ce tx; drop rx nth=x"},
            "rxe-user: faults: line 1, column 20: 'x': nth= needs "},
           {{"add", "ce", "tx"}, "rxe-user: faults: add takes one word"},
           {{"add"}, "rxe-user: faults: give PID and one of: "},
           {{"remove", "x"}, "rxe-user: faults: 'x' is no number of a rule"},
           {{"explode"}, "rxe-user: faults: give PID and one of: "}}) {
    const Result r = Faults(words);
    EXPECT_EQ(r.status, 2);
    EXPECT_TRUE(r.err.starts_with(err)) << r.err;
  }
  const Result r = Faults({"remove", "1", "2"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.err, "rxe-user faults: process " + std::to_string(program_) +
                       ": there is no rule 2\n");
  EXPECT_EQ(Faults({"list"}).out,
            "rule 1: drop tx op=RC_FETCH_ADD maybe; it has hit 0 of 0 "
            "packets\n");
  EXPECT_EQ(End().status, 0);
}

TEST_F(FaultsTest, AProgramWithoutFaults) {
  StartRounds({});
  const Result r = Faults({"add", "drop tx"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.err, "rxe-user faults: process " + std::to_string(program_) +
                       ": its faults are off; start it with rxe-user run "
                       "--faults none, to add rules later\n");
  EXPECT_EQ(Round(), "registered");
  EXPECT_EQ(End().status, 0);
  EXPECT_EQ(Faults({"list"}).err, "rxe-user faults: there is no process " +
                                      std::to_string(program_) + "\n");
}

// The recordings of all runs have the same hits. fate_test compares all
// packets, under load.
TEST_F(FaultsTest, OneSeedIsOneFate) {
  const std::string input = root_ / "in";
  std::ofstream(input) << std::string(60, 'x');  // 180 packets
  std::vector<std::string> first;
  for (const char* const lanes : {"1", "4"}) {
    for (int run = 0; run < 10; ++run) {
      const std::string recording = root_ / "a.pcapng";
      expect_test::fs::remove(recording);
      const Result r = Execute(
          {"run", "--faults", "drop tx op=data p=10%", "--faults-seed", "7",
           "--trace", recording, "--", "expect_program", "rounds", "exit0"},
          [&] {
            setenv("RXE_USER_LANES", lanes, 1);
            dup2(open(input.c_str(), O_RDONLY), 0);
          });
      ASSERT_EQ(r.status, 0) << r.err;
      std::istringstream lines(Execute({"faults", "of", recording}).out);
      std::vector<std::string> hit;
      for (std::string line; std::getline(lines, line);) {
        if (line.ends_with(" iter=1")) hit.push_back(line);
      }
      if (first.empty()) first = hit;
      EXPECT_GT(hit.size(), 5u);
      EXPECT_EQ(hit, first) << lanes << " lanes, run " << run;
    }
  }
}

// --- Calls of librdmacm

class CmFaultsTest : public FaultsTest {
 protected:
  void SetUp() override {
    FaultsTest::SetUp();
    if (root_.empty()) return;
    Install("lib", "CM");
    Install("bin", "CM_PROGRAM");
  }
  Result Connect(const std::string& rules,
                 const std::vector<std::string>& options = {},
                 const std::vector<std::string>& arguments = {}) {
    std::vector<std::string> argv = {"run", "--faults", rules};
    argv.insert(argv.end(), options.begin(), options.end());
    argv.insert(argv.end(), {"--", "cm_program"});
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return Execute(argv);
  }
  // The call fails, which the program and the library say.
  void ExpectFailure(const std::string& call,
                     const std::vector<std::string>& arguments = {}) {
    const Result r =
        Connect("fail " + call + " ENOMEM", {"--explain"}, arguments);
    EXPECT_EQ(r.status, 5) << call;
    EXPECT_EQ(r.out, call + ": Cannot allocate memory\n");
    EXPECT_NE(r.err.find("rxe_user: " + call +
                         " failed with ENOMEM: fault rule 1 (fail " + call +
                         " ENOMEM)\n"),
              std::string::npos)
        << r.err;
  }
};

TEST_F(CmFaultsTest, EachCallFails) {
  EXPECT_EQ(Connect("none").out, "connected, tries 1\n");
  for (const std::string call :
       {"rdma_create_event_channel", "rdma_create_id", "rdma_bind_addr",
        "rdma_listen", "rdma_resolve_addr", "rdma_resolve_route",
        "rdma_create_qp", "rdma_connect", "rdma_accept", "rdma_get_cm_event",
        "rdma_ack_cm_event", "rdma_disconnect", "rdma_destroy_id"}) {
    ExpectFailure(call);
  }
  EXPECT_EQ(Connect("none", {}, {"rare"}).out, "destroyed\n");
  for (const std::string call :
       {"rdma_set_local_ece", "rdma_get_remote_ece", "rdma_write_cm_event",
        "rdma_resolve_addrinfo", "rdma_query_addrinfo"}) {
    ExpectFailure(call, {"rare"});
  }
}

TEST_F(CmFaultsTest, CallsAreCounted) {
  Result r = Connect("fail rdma_resolve_addr EAGAIN times=2");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "connected, tries 3\n");
  r = Connect("fail rdma_get_cm_event EIO nth=5");
  EXPECT_EQ(r.status, 5);
  EXPECT_EQ(r.out, "rdma_get_cm_event: Input/output error\n");
  r = Connect("fail rdma_create_qp EINVAL nth=3");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.err,
            "rxe_user: fault rule 1 (fail rdma_create_qp EINVAL nth=3) never "
            "fired: 2 calls matched it, but it was for others of these, or an "
            "earlier rule hit them; a rule that says 'maybe' may do that\n");
}

// The acknowledgements that librdmacm makes itself match no rule.
TEST_F(CmFaultsTest, TheLibrarysOwnAcknowledgementsDoNotFail) {
  const Result r =
      Execute({"run", "--faults", "fail rdma_ack_cm_event EINVAL maybe", "--",
               "cm_program", "synchronous"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out + r.err, "destroyed\n");
}

TEST_F(CmFaultsTest, OtherThingsHappenAtACall) {
  const Result r = Connect(
      "event CLIENT_REREGISTER call=rdma_connect; "
      "delay 10ms call=rdma_accept",
      {"--expect", "wc(*) == 0"});
  EXPECT_EQ(r.status, 0) << r.err;
}

// The recording contains the calls that failed, with their numbers.
TEST_F(CmFaultsTest, TheSameAgain) {
  const std::string recording = root_ / "a.pcapng";
  Result r = Connect(
      "fail rdma_resolve_addr EAGAIN times=2 p=99%; fail rdma_connect "
      "ECONNREFUSED",
      {"--trace", recording});
  EXPECT_EQ(r.out, "rdma_connect: Connection refused\n");
  r = Execute({"faults", "of", recording});
  EXPECT_EQ(r.out, "# 3 of the faults of " + recording +
                       "\n"
                       "fail rdma_resolve_addr EAGAIN nth=1\n"
                       "fail rdma_resolve_addr EAGAIN nth=2\n"
                       "fail rdma_connect ECONNREFUSED nth=1\n");
  r = Connect(r.out);
  EXPECT_EQ(r.out, "rdma_connect: Connection refused\n");
  EXPECT_EQ(r.err, "");
}

// --- shrink

// Rules that make calls `first` to 51 of ibv_reg_mr fail.
std::string FailingCalls(int first) {
  std::string rules;
  for (int call = first; call <= 51; ++call) {
    rules += "fail ibv_reg_mr ENOMEM nth=" + std::to_string(call) + "\n";
  }
  return rules;
}

TEST_F(FaultsTest, ShrinkFindsAPlantedPairAmongFiftyRules) {
  const std::string file = root_ / "f.rules";
  std::ofstream(file) << FailingCalls(2);
  const Result r = Execute({"faults", "shrink", "--faults", file, "--",
                            "expect_program", "calls", "exit0"});
  EXPECT_EQ(r.status, 0) << r.err;
  const size_t comment = r.out.find('\n');
  EXPECT_TRUE(r.out.starts_with(
      "# the program ends with status 11 with these rules, and not without "
      "any one of them; "))
      << r.out;
  EXPECT_EQ(r.out.substr(comment + 1),
            "fail ibv_reg_mr ENOMEM nth=13\nfail ibv_reg_mr ENOMEM nth=31\n");
  EXPECT_NE(r.err.find("rxe-user faults: run 2, with all rules: ends with "
                       "status 11\n"),
            std::string::npos)
      << r.err;
  // The rules that it prints are right.
  std::ofstream(file) << r.out;
  EXPECT_EQ(Execute({"run", "--faults", file, "--", "expect_program", "calls",
                     "exit0"})
                .status,
            11);
}

// Calls that failed by chance are found by their numbers.
TEST_F(FaultsTest, ShrinkReplaysFaultsByChance) {
  const Result r = Execute(
      {"faults", "shrink", "--faults", "fail ibv_reg_mr ENOMEM nth=2- p=50%",
       "--faults-seed", "8", "--", "expect_program", "calls", "exit0"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_EQ(r.out.substr(r.out.find('\n') + 1),
            "fail ibv_reg_mr ENOMEM nth=13\nfail ibv_reg_mr ENOMEM nth=31\n");
}

TEST_F(FaultsTest, ShrinkEndsWithItsRuns) {
  const Result r =
      Execute({"faults", "shrink", "--runs", "5", "--faults", FailingCalls(2),
               "--", "expect_program", "calls", "exit0"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.out.find("with these rules; the search was ended; 5 runs\n"),
            std::string::npos)
      << r.out;
  EXPECT_NE(r.out.find("nth=31\n"), std::string::npos);
  EXPECT_NE(r.out.find("nth=13\n"), std::string::npos);
}

TEST_F(FaultsTest, ShrinkWithNothingToFind) {
  Result r = Execute({"faults", "shrink", "--faults", FailingCalls(32), "--",
                      "expect_program", "calls", "exit0"});
  EXPECT_EQ(r.status, 1);
  EXPECT_EQ(r.out, "");
  EXPECT_NE(r.err.find("the program ends with status 0 with all rules: there "
                       "is nothing to find\n"),
            std::string::npos)
      << r.err;
  r = Execute({"faults", "shrink", "--faults", FailingCalls(32), "false"});
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.err.find("and without rules as well"), std::string::npos);
  EXPECT_EQ(Execute({"faults", "shrink", "false"}).status, 2);
  r = Execute({"faults", "shrink", "--faults", "dorp", "false"});
  EXPECT_EQ(r.status, 2);
}

// nohup(1) ignores SIGHUP, and a shell SIGINT for commands in the background.
// Such a signal ended the search.
TEST_F(FaultsTest, ShrinkTakesNoSignalThatIsIgnored) {
  // The parent of the program is the search.
  const Result r =
      Execute({"faults", "shrink", "--faults", "drop rx", "--", "sh", "-c",
               "kill -HUP $PPID; kill -TERM $PPID; exec sleep 1000"},
              [] { signal(SIGHUP, SIG_IGN); });
  EXPECT_EQ(r.status, 128 + SIGTERM) << r.err;
}

TEST_F(FaultsTest, ShrinkEndsRunsThatHang) {
  const Result r = Execute(
      {"faults", "shrink", "--seconds", "3", "--faults", "ce tx; drop rx", "--",
       "sh", "-c", "case $RXE_USER_FAULTS in *ce*) sleep 1000 & wait;; esac"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_TRUE(
      r.out.starts_with("# the program takes over 3 s with these "
                        "rules, and not without any one of them; "))
      << r.out;
  EXPECT_EQ(r.out.substr(r.out.find('\n') + 1), "ce tx\n");
}

// With all rules, the program ends with a status.
TEST_F(FaultsTest, ShrinkTakesNoRunThatHangsForTheFailure) {
  const Result r =
      Execute({"faults", "shrink", "--seconds", "3", "--faults",
               "ce tx; drop rx", "--", "sh", "-c",
               "case $RXE_USER_FAULTS in *ce*drop*) exit 3;; *ce*) sleep 1000 "
               "& wait;; esac"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_NE(r.err.find("takes over 3 s\n"), std::string::npos) << r.err;
  EXPECT_EQ(r.out.substr(r.out.find('\n') + 1), "ce tx\ndrop rx\n");
}

}  // namespace
