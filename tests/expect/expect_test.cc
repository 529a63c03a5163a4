// rxe-user run with --expect, --tap and --junit.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/expect/installed_fixture.h"

namespace {

using expect_test::FromEnvironment;
using expect_test::kTimeoutMs;
using expect_test::ReadAll;
using expect_test::Result;
namespace fs = std::filesystem;

class ExpectTest : public expect_test::InstalledTest {
 protected:
  // Runs expect_program with these expectations.
  Result Run(const std::vector<std::string>& expectations,
             const std::string& what, const std::string& end) {
    std::vector<std::string> argv = {"run"};
    for (const std::string& text : expectations) {
      argv.push_back("--expect");
      argv.push_back(text);
    }
    argv.insert(argv.end(), {"--", "expect_program", what, end});
    return Execute(argv);
  }
};

size_t Lines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST_F(ExpectTest, SilentIfAllIsAsExpected) {
  const Result r = Run({"naks == 0", "wc(*) == wc(SUCCESS)",
                        "wc(SUCCESS) == 10 and send_wc(*) == 5",
                        "every wc within 60s of post", "naks + 0 == 0"},
                       "send", "exit0");
  EXPECT_EQ(r.status, 2);  // no sums
  const Result good = Run({"naks == 0", "wc(*) == wc(SUCCESS)",
                           "wc(SUCCESS) == 10 and send_wc(*) == 5",
                           "every wc within 60s of post", "rdma_sends == 5"},
                          "send", "exit0");
  EXPECT_EQ(good.status, 0);
  EXPECT_EQ(good.err, "");
  EXPECT_EQ(good.out, "");
}

TEST_F(ExpectTest, AFailedRequestIsNamed) {
  EXPECT_EQ(Run({"wc(REM_ACCESS_ERR) == 1", "send_fatal_nak == 1",
                 "rcvd_fatal_nak == 1"},
                "bad_rkey", "exit0")
                .status,
            0);
  const Result r = Run({"wc(REM_ACCESS_ERR) == 0"}, "bad_rkey", "exit0");
  EXPECT_EQ(r.status, 99);
  EXPECT_EQ(r.out, "");
  EXPECT_TRUE(r.err.starts_with(
      "rxe-user run: expectation failed: wc(REM_ACCESS_ERR) == 0: "
      "wc(REM_ACCESS_ERR) is 1; the first: queue pair 0x"))
      << r.err;
  EXPECT_NE(r.err.find(", PSN 100, wr_id 77, at "), std::string::npos) << r.err;
  EXPECT_NE(r.err.find(", expect_program (process "), std::string::npos);
  EXPECT_NE(r.err.find("\nrxe-user run: to repeat it: cd "), std::string::npos);
  EXPECT_NE(r.err.find(" && rxe-user run --expect 'wc(REM_ACCESS_ERR) == 0' "
                       "-- expect_program bad_rkey exit0\n"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(Lines(r.err), 2u);
}

TEST_F(ExpectTest, ARepeatedPacketIsNamed) {
  const std::string junit = root_ / "j.xml";
  const std::string tap = root_ / "t.tap";
  const Result r = Execute({"run", "--expect", "repeated == 0",
                            "--expect=rnr_naks == 2", "--junit", junit,
                            "--tap=" + tap, "expect_program", "rnr", "exit0"});
  EXPECT_EQ(r.status, 99);
  EXPECT_NE(r.err.find(": repeated is "), std::string::npos) << r.err;
  EXPECT_NE(r.err.find(", PSN 100, wr_id 88, at "), std::string::npos) << r.err;
  const std::string xml = ReadAll(junit);
  EXPECT_NE(xml.find("tests=\"3\" failures=\"1\" errors=\"0\""),
            std::string::npos)
      << xml;
  EXPECT_NE(xml.find(", PSN 100, wr_id 88, at "), std::string::npos) << xml;
  EXPECT_TRUE(ReadAll(tap).starts_with(
      "TAP version 13\n1..3\nok 1 - the program ends with status 0\nnot ok 2 - "
      "repeated == 0\n"))
      << ReadAll(tap);
}

// A test of faults that passes without a fault shows nothing.
TEST_F(ExpectTest, RulesForFaultsHaveToFire) {
  const auto run = [this](const std::string& rules) {
    return Execute({"run", "--faults", rules, "--expect", "wc(SUCCESS) == 10",
                    "--", "expect_program", "send", "exit0"});
  };
  const Result good = run("duplicate tx op=data nth=1");
  EXPECT_EQ(good.status, 0) << good.err;
  EXPECT_EQ(good.err, "");
  const Result r = run("duplicate tx op=data nth=1; drop tx op=RC_FETCH_ADD");
  EXPECT_EQ(r.status, 99);
  EXPECT_NE(r.err.find("rxe-user run: expectation failed: fault rule 2 (drop "
                       "tx op=RC_FETCH_ADD) fires: it never fired"),
            std::string::npos)
      << r.err;
  EXPECT_EQ(run("drop tx op=RC_FETCH_ADD maybe").status, 0);
}

TEST_F(ExpectTest, TapOnStderr) {
  const Result r = Execute({"run", "--tap", "--expect", "wc(*) == 10", "--",
                            "expect_program", "send", "exit0"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err,
            "TAP version 13\n1..2\nok 1 - the program ends with status 0\n"
            "ok 2 - wc(*) == 10\n");
}

TEST_F(ExpectTest, TheProgramsStatusWins) {
  EXPECT_EQ(Run({"wc(*) == 10"}, "send", "exit7").status, 7);
  const Result both = Run({"wc(*) == 11"}, "send", "exit7");
  EXPECT_EQ(both.status, 7);
  EXPECT_NE(both.err.find("wc(*) is 10"), std::string::npos) << both.err;
  EXPECT_EQ(
      Execute({"run", "--expect", "wc(*) == 10", "sh", "-c", "exit 7"}).status,
      7);
  EXPECT_EQ(Execute({"run", "--tap", "no_such_command"}).status, 127);
  EXPECT_EQ(Execute({"run", "--tap", "/"}).status, 126);
}

// Values that are counted as things happen are exact, however the program ends.
TEST_F(ExpectTest, KilledPrograms) {
  for (const auto& [end, status] : std::vector<std::pair<std::string, int>>{
           {"term", 143}, {"segv", 139}, {"kill", 137}}) {
    const Result r = Run({"wc(SUCCESS) == 10 and naks == 0",
                          "every wc within 60s of post", "rx_calls == 0"},
                         "send", end);
    EXPECT_EQ(r.status, status);
    EXPECT_NE(r.err.find("rxe-user run: expectation not known: rx_calls == 0: "
                         "rx_calls is not known: expect_program (process "),
              std::string::npos)
        << r.err;
    EXPECT_NE(r.err.find("ended without exit(), so its counters were not "
                         "written\n"),
              std::string::npos);
    EXPECT_EQ(Lines(r.err), 2u) << r.err;
  }
  // The same without a signal.
  EXPECT_EQ(Run({"wc(SUCCESS) == 10"}, "send", "_exit").status, 0);
  EXPECT_EQ(Run({"rx_calls > 0"}, "send", "_exit").status, 99);
  EXPECT_EQ(Run({"rx_calls > 0"}, "send", "exit0").status, 0);
}

TEST_F(ExpectTest, CountsChildren) {
  EXPECT_EQ(
      Run({"wc(SUCCESS) == 20", "rdma_sends >= 5"}, "fork", "exit0").status, 0);
  const Result r = Execute(
      {"run", "--expect", "wc(SUCCESS) == 20", "--expect", "rdma_sends == 10",
       "--expect", "wc(REM_ACCESS_ERR) == 1", "sh", "-c",
       "expect_program send exit0 & expect_program send exit0 & "
       "expect_program bad_rkey exit0; wait"});
  EXPECT_EQ(r.status, 0) << r.err;
}

// A process that runs on: lower limits are known.
TEST_F(ExpectTest, AProcessThatStillRuns) {
  const Result r =
      Execute({"run", "--expect", "wc(SUCCESS) >= 10", "--expect",
               "wc(SUCCESS) == 10", "sh", "-c",
               "mkfifo \"$0/f\"; setsid expect_program send wait > \"$0/f\" & "
               "read pid < \"$0/f\"; echo $pid",
               root_});
  EXPECT_EQ(kill(std::stoi(r.out), SIGKILL), 0) << r.out;
  EXPECT_EQ(r.status, 99);
  EXPECT_EQ(r.err.find("expectation failed"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("expectation not known: wc(SUCCESS) == 10: wc(SUCCESS) "
                       "is at least 10: expect_program (process "),
            std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find(") still runs\n"), std::string::npos) << r.err;
}

TEST_F(ExpectTest, NoProcessOpenedTheDevice) {
  const Result r = Execute({"run", "--expect", "repeated == 0", "true"});
  EXPECT_EQ(r.status, 99);
  EXPECT_TRUE(r.err.starts_with(
      "rxe-user run: expectation not known: repeated == 0: repeated is not "
      "known: no process opened our device\n"))
      << r.err;
}

TEST_F(ExpectTest, AProcessThatCannotCountHasNoDevice) {
  const Result r =
      Execute({"run", "--expect", "repeated == 0", "sh", "-c",
               "RXE_USER_TALLY=/nonexistent expect_program send exit0; true"});
  EXPECT_EQ(r.status, 99);
  EXPECT_NE(r.err.find("rxe_user: cannot count what the program does, for "
                       "rxe-user run --expect, in /nonexistent: No such file "
                       "or directory; the device cannot be opened\n"),
            std::string::npos)
      << r.err;
  EXPECT_NE(r.err.find("expect_program: ibv_open_device: No such file"),
            std::string::npos)
      << r.err;
}

TEST_F(ExpectTest, TheFolderIsPrivate) {
  const Result r = Execute({"run", "--expect", "wc(*) > 0", "sh", "-c",
                            "stat -c '%a %u' \"$RXE_USER_TALLY\""});
  EXPECT_EQ(r.out, "700 " + std::to_string(geteuid()) + "\n");
  // TearDown sees that it is gone.
  const Result none =
      Execute({"run", "--expect", "wc(*) > 0", "echo", "started"},
              [] { setenv("TMPDIR", "/nonexistent", 1); });
  EXPECT_EQ(none.status, 125);
  EXPECT_EQ(none.out, "");
  EXPECT_EQ(none.err,
            "rxe-user run: cannot make a temporary folder, set TMPDIR: No such "
            "file or directory\n");
}

TEST_F(ExpectTest, ARunWithinARun) {
  const Result r = Execute({"run", "--expect", "wc(SUCCESS) == 20", "sh", "-c",
                            "expect_program send exit0; rxe-user run --expect "
                            "'wc(SUCCESS) == 10' expect_program send exit0"});
  EXPECT_EQ(r.status, 0) << r.err;
}

TEST_F(ExpectTest, NothingStartsWithAWrongExpectation) {
  const std::string file = root_ / "list";
  std::ofstream(file) << "# comment\n\n  repeated == 0\n   naks = 0\n";
  for (const auto& [argv, err] :
       std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"--expect", "repeated = 0"},
            "rxe-user: run: --expect 'repeated = 0': column 10: write == to "
            "compare (see rxe-user run --help)\n"},
           {{"--expect", "repeated >= 0"},
            "rxe-user: run: --expect 'repeated >= 0': column 1: repeated >= 0 "
            "is always true, whatever the program does (see rxe-user run "
            "--help)\n"},
           {{"--expect-file", file},
            "rxe-user: run: " + file +
                ", line 4, 'naks = 0': column 9: write == to compare (see "
                "rxe-user run --help)\n"},
           {{"--expect", "@/nonexistent"},
            "rxe-user: run: cannot read expectations from /nonexistent: No "
            "such file or directory (see rxe-user run --help)\n"},
           {{"--expect", "@/dev/null"},
            "rxe-user: run: there is no expectation in /dev/null (see rxe-user "
            "run --help)\n"},
           {{"--expect="},
            "rxe-user: run: --expect needs a condition (see rxe-user "
            "--help)\n"},
           {{"--junit="},
            "rxe-user: run: --junit needs a file (see rxe-user --help)\n"}}) {
    std::vector<std::string> all = {"run"};
    all.insert(all.end(), argv.begin(), argv.end());
    all.insert(all.end(), {"--", "echo", "started"});
    const Result r = Execute(all);
    EXPECT_EQ(r.status, 2);
    EXPECT_EQ(r.out, "");
    EXPECT_EQ(r.err, err);
  }
  std::ofstream(file) << "# comment\n\n  wc(*) == 10\nrepeated == 0 # no";
  EXPECT_EQ(Execute({"run", "--expect", "@" + file, "true"}).status, 2);
  std::ofstream(file) << "# comment\n\n  wc(*) == 10\r\nrepeated == 0";
  EXPECT_EQ(Execute({"run", "--expect", "@" + file, "--", "expect_program",
                     "send", "exit0"})
                .status,
            0);
  const Result junit = Execute(
      {"run", "--junit", "/nonexistent/j.xml", "--", "echo", "started"});
  EXPECT_EQ(junit.status, 125);
  EXPECT_EQ(junit.out, "");
}

// --- Signals, terminal.

TEST_F(ExpectTest, SignalsReachTheProgram) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM}) {
    const pid_t pid = Start({"run", "--expect", "wc(SUCCESS) == 10", "--",
                             "expect_program", "send", "wait"});
    Await("\n");
    EXPECT_EQ(kill(pid, signal), 0);
    const Result r = Finish(pid);
    EXPECT_EQ(r.status, 128 + signal);
    EXPECT_EQ(r.err, "");
  }
}

TEST_F(ExpectTest, DispositionsAndMaskAreThoseOfTheProgram) {
  const auto run = [&](std::vector<std::string> argv) {
    argv.insert(argv.begin(), "run");
    argv.insert(argv.end(),
                {"grep", "-E", "Sig(Blk|Ign|Cgt)", "/proc/self/status"});
    return Execute(argv, [] {
      signal(SIGHUP, SIG_IGN);
      signal(SIGCHLD, SIG_IGN);
      sigset_t set;
      sigemptyset(&set);
      sigaddset(&set, SIGUSR2);
      sigprocmask(SIG_SETMASK, &set, nullptr);
    });
  };
  const Result r = run({"--tap"});
  EXPECT_EQ(r.status, 0);
  EXPECT_TRUE(r.out.starts_with("SigBlk:\t0000000000000800\n")) << r.out;
  EXPECT_EQ(r.out, run({}).out);
}

TEST_F(ExpectTest, TheProgramDiesWithItsParent) {
  const pid_t pid = Start({"run", "--expect", "wc(SUCCESS) == 10", "--",
                           "expect_program", "send", "wait"});
  Await("\n");
  const pid_t program = std::stoi(ReadAll(root_ / "out"));
  kill(pid, SIGKILL);
  EXPECT_EQ(Finish(pid).status, -1);
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  while (kill(program, 0) == 0 &&
         ReadAll("/proc/" + std::to_string(program) + "/stat").find(") Z") ==
             std::string::npos) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    poll(nullptr, 0, 5);
  }
  // Nobody could remove it.
  fs::remove_all(root_ / "tmp");
  fs::create_directories(root_ / "tmp");
}

TEST_F(ExpectTest, StdinIsTheProgramsOwn) {
  std::ofstream(root_ / "in") << "hello\n";
  const Result r = Execute({"run", "--tap", "cat"}, [&] {
    dup2(open((root_ / "in").c_str(), O_RDONLY), 0);
  });
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "hello\n");
}

// With a terminal of its own.
class TerminalTest : public ExpectTest {
 protected:
  void SetUp() override {
    ExpectTest::SetUp();
    if (root_.empty()) return;
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY);
    ASSERT_GE(terminal_, 0);
    ASSERT_EQ(grantpt(terminal_), 0);
    ASSERT_EQ(unlockpt(terminal_), 0);
  }
  // Starts a session with the terminal as standard input.
  void LeadSession() const {
    setsid();
    const int own = open(ptsname(terminal_), O_RDWR);
    ioctl(own, TIOCSCTTY, 0);
    dup2(own, 0);
  }
  std::vector<std::string> Command() const {
    return {"run",  "--tap=" + (root_ / "t").string(),
            "--",   "expect_program",
            "none", "count"};
  }
  void StartInTerminal() {
    pid_ = Start(Command(), [this] { LeadSession(); });
    Await("ready ");
  }
  void TearDown() override {
    if (terminal_ >= 0) close(terminal_);
    ExpectTest::TearDown();
  }
  void Type(char c) { EXPECT_EQ(write(terminal_, &c, 1), 1); }

  int terminal_ = -1;
  pid_t pid_ = 0;
};

// It is in the process group of the terminal, so it has the signal already.
TEST_F(TerminalTest, AnInterruptComesOnce) {
  StartInTerminal();
  // The program has handled it before rxe-user sees it: two would not merge.
  kill(pid_, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(pid_, &status, WUNTRACED), pid_);
  ASSERT_TRUE(WIFSTOPPED(status));
  Type('\x03');
  Await("interrupted");
  kill(pid_, SIGUSR1);
  kill(pid_, SIGCONT);
  const Result r = Finish(pid_);
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.out.find("interrupts 1\n"), std::string::npos) << r.out;
}

TEST_F(TerminalTest, ASignalToTheParentIsPassedOn) {
  StartInTerminal();
  kill(pid_, SIGINT);
  Await("interrupted");
  kill(pid_, SIGUSR1);
  const Result r = Finish(pid_);
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.out.find("interrupts 1\n"), std::string::npos) << r.out;
}

// As a shell with job control sees it: stopped by the key, and continued.
TEST_F(TerminalTest, TheKeyStopsBoth) {
  const pid_t shell = fork();
  if (shell == 0) {
    alarm(kTimeoutMs / 1000);
    LeadSession();
    signal(SIGTTOU, SIG_IGN);
    const pid_t job = Start(Command(), [] {
      setpgid(0, 0);
      tcsetpgrp(0, getpid());
      signal(SIGTTOU, SIG_DFL);
    });
    int status = 0;
    if (waitpid(job, &status, WUNTRACED) != job) _exit(1);
    if (!WIFSTOPPED(status)) _exit(2);
    kill(-job, SIGCONT);
    kill(job, SIGUSR1);
    if (waitpid(job, &status, 0) != job) _exit(3);
    _exit(status == 0 ? 0 : 4);
  }
  Await("ready ");
  Type('\x1a');
  EXPECT_EQ(Finish(shell).status, 0);
}

TEST_F(TerminalTest, AStoppedProgramIsContinuedThroughItsParent) {
  StartInTerminal();
  const std::string out = ReadAll(root_ / "out");
  const pid_t program = std::stoi(out.substr(out.find("ready ") + 6));
  kill(program, SIGSTOP);
  kill(pid_, SIGCONT);
  kill(pid_, SIGUSR1);
  EXPECT_EQ(Finish(pid_).status, 0);
}

}  // namespace
