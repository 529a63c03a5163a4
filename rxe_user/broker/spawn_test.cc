// Brokers that start slowly, fail to start, or do not answer, as on a busy
// machine.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {
namespace {

namespace fs = std::filesystem;

// Makes RXE_USER_BROKER name a script of the test.
class SpawnTest : public BrokerTest {
 protected:
  void SetUp() override {
    BrokerTest::SetUp();
    broker_ = fs::absolute(getenv("RXE_USER_BROKER"));
    char folder[] = "/tmp/rxe_user_spawn_XXXXXX";
    folder_ = mkdtemp(folder);
  }
  void TearDown() override {
    setenv("RXE_USER_BROKER", broker_.c_str(), 1);
    BrokerTest::TearDown();
    fs::remove_all(folder_);
  }
  void UseScript(const std::string& lines) {
    const fs::path script = folder_ / "broker";
    std::ofstream(script) << "#!/bin/sh\n" << lines;
    fs::permissions(script, fs::perms(0755));
    setenv("RXE_USER_BROKER", script.c_str(), 1);
  }
  // The broker starts when Go is called. The script writes a line when it is
  // executed.
  void UseSlowBroker() {
    ASSERT_EQ(mkfifo(go().c_str(), 0600), 0);
    UseScript("echo >> " + started().string() + "\nread -r go < " +
              go().string() + "\nexec " + broker_.string() + " \"$@\"\n");
  }
  void Go() { std::ofstream(go()) << "go\n"; }
  int Started() const {
    std::ifstream in(started());
    int lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }
  fs::path started() const { return folder_ / "started"; }
  fs::path go() const { return folder_ / "go"; }

  fs::path broker_;
  fs::path folder_;
};

TEST_F(SpawnTest, ASlowlyStartingBrokerIsAwaited) {
  UseSlowBroker();
  testing::internal::CaptureStderr();
  auto acquired =
      std::async(std::launch::async, [] { return Slot::Acquire(); });
  EXPECT_TRUE(Eventually([&] { return Started() != 0; }));
  // The broker stays silent for longer than it takes on an idle machine.
  EXPECT_EQ(acquired.wait_for(std::chrono::seconds(6)),
            std::future_status::timeout);
  Go();
  auto slot = acquired.get();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(slot.ok()) << slot.status();
  EXPECT_GE((*slot)->fd(), 0) << "it has the port for itself";
  EXPECT_EQ(Started(), 1);
  Peer other;
  EXPECT_EQ(other.Start(), "");
}

// A thread that makes progress for others waits only briefly.
TEST_F(SpawnTest, ARetryStartsNoSecondBroker) {
  UseSlowBroker();
  UniqueFd starting;
  Failure failure{};
  for (int i = 0; i < 5; ++i) {
    const auto session =
        Connect(0, -1, 50, Start::kIfNeeded, starting, failure);
    EXPECT_TRUE(absl::IsDeadlineExceeded(session.status())) << session.status();
    EXPECT_EQ(failure, Failure::kTimeout);
    EXPECT_TRUE(starting.valid());
  }
  Go();
  absl::StatusOr<Session> session = absl::UnknownError("");
  EXPECT_TRUE(Eventually([&] {
    session = Connect(0, -1, 50, Start::kIfNeeded, starting, failure);
    return session.ok();
  })) << session.status();
  EXPECT_EQ(Started(), 1);
  EXPECT_FALSE(starting.valid());
}

// Another process's broker serves as well.
TEST_F(SpawnTest, AFasterBrokerIsUsed) {
  UseSlowBroker();
  testing::internal::CaptureStderr();
  auto acquired =
      std::async(std::launch::async, [] { return Slot::Acquire(); });
  EXPECT_TRUE(Eventually([&] { return Started() != 0; }));
  setenv("RXE_USER_BROKER", broker_.c_str(), 1);
  {
    Peer other;
    EXPECT_EQ(other.Start(), "");
    const auto slot = acquired.get();
    ASSERT_TRUE(slot.ok()) << slot.status();
    EXPECT_GE((*slot)->fd(), 0) << "it has the port for itself";
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  }
  Go();
}

TEST_F(SpawnTest, OneProcessOwnsThePortIfTheBrokerDies) {
  for (const std::string how : {"exit 1", "kill -9 $$"}) {
    UseScript(how + "\n");
    testing::internal::CaptureStderr();
    const auto slot = Slot::Acquire();
    ASSERT_TRUE(slot.ok()) << slot.status();
    const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(fd.ok()) << fd.status();
    if (fd.ok()) close(*fd);
    EXPECT_EQ((*slot)->fd(), -1);
    if (how == "exit 1") {
      EXPECT_NE(said.find("broker did not start; so this process owns"),
                std::string::npos)
          << said;
    }
  }
}

// The waiting process gets this error, and not an error that the port is taken.
// The broker is unharmed.
TEST_F(SpawnTest, WaitingForAStoppedBrokerTimesOut) {
  Peer first;
  ASSERT_EQ(first.Start(), "");
  const pid_t broker = BrokerPid();
  UniqueFd starting;
  Failure failure{};
  kill(broker, SIGSTOP);
  const auto session =
      Connect(0, -1, 1000, Start::kIfNeeded, starting, failure);
  const std::string text(session.status().message());
  EXPECT_TRUE(absl::IsDeadlineExceeded(session.status())) << session.status();
  EXPECT_EQ(failure, Failure::kTimeout);
  EXPECT_EQ(text, "the port broker of this network namespace (process " +
                      std::to_string(broker) +
                      ") has not answered for 1 s (busy machine?)");
  kill(broker, SIGCONT);
  EXPECT_TRUE(Connect(0, -1, 20'000, Start::kIfNeeded, starting, failure).ok());
}

TEST_F(SpawnTest, ABrokerHasDefaultPriority) {
  if (!Root()) GTEST_SKIP() << "needs root";
  Peer nice({}, [] { ASSERT_EQ(setpriority(PRIO_PROCESS, 0, 7), 0); });
  ASSERT_EQ(nice.Start(), "");
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(nice.pid())), 7);
  errno = 0;
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(BrokerPid())), 0);
  EXPECT_EQ(errno, 0);
}

// Whether this process may exceed a hard limit (CAP_SYS_RESOURCE).
bool MayRaiseLimits() {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {1000, 1000};
    const bool lowered = setrlimit(RLIMIT_CPU, &limit) == 0;
    limit.rlim_max = RLIM_INFINITY;
    _exit(lowered && setrlimit(RLIMIT_CPU, &limit) == 0 ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && status == 0;
}

// A setuid program passes on its caller's settings. With these, root's broker,
// which all processes use, could be the first to be killed by the OOM killer,
// or run out of CPU time.
TEST_F(SpawnTest, ABrokerOfRootDropsTheStartersLimits) {
  if (!Root()) GTEST_SKIP() << "needs root";
  Peer limited({}, [] {
    std::ofstream("/proc/self/oom_score_adj") << 500;
    const rlimit block = {512, 512}, seconds = {1000, 1000};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &block), 0);
    ASSERT_EQ(setrlimit(RLIMIT_CPU, &seconds), 0);
  });
  ASSERT_EQ(limited.Start(), "");
  const std::string of_broker = "/proc/" + std::to_string(BrokerPid());
  int score = -1;
  std::ifstream(of_broker + "/oom_score_adj") >> score;
  EXPECT_EQ(score, 0);
  if (!MayRaiseLimits()) GTEST_SKIP() << "may not raise limits";
  for (const auto resource : {RLIMIT_FSIZE, RLIMIT_CPU}) {
    rlimit limit{};
    ASSERT_EQ(prlimit(BrokerPid(), resource, nullptr, &limit), 0);
    EXPECT_EQ(limit.rlim_max, RLIM_INFINITY) << resource;
  }
  // The dropped limits also allow it to have a ledger.
  std::error_code error;
  bool has_ledger = false;
  for (const auto& fd : fs::directory_iterator(of_broker + "/fd", error)) {
    has_ledger |=
        fs::read_symlink(fd.path(), error).string().find("rxe-user-ledger") !=
        std::string::npos;
  }
  EXPECT_TRUE(has_ledger);
}

// If another process had the broker's name and did not listen, each process
// used to wait for half a minute and then fail.
TEST_F(SpawnTest, ANameWithoutAListenerIsGivenUpSoon) {
  const UniqueFd squatter(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const SocketAddress name = BrokerAddress();
  ASSERT_EQ(bind(squatter.get(), name.get(), name.size), 0);
  testing::internal::CaptureStderr();
  const auto start = std::chrono::steady_clock::now();
  const auto slot = Slot::Acquire();
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(slot.ok()) << slot.status();
  const auto fd = (*slot)->OpenAddress({Ip("127.0.0.1")});
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(fd.ok()) << fd.status();
  if (fd.ok()) close(*fd);
  EXPECT_LT(took, std::chrono::seconds(20));
  EXPECT_NE(said.find("does not listen"), std::string::npos) << said;
  EXPECT_NE(said.find("so this process owns"), std::string::npos) << said;
}

}  // namespace
}  // namespace rxe_user::broker
