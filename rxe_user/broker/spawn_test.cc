// Brokers that start slowly, fail to start, or do not answer, as on a busy
// machine.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "rxe_user/broker/connection.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/broker/test_peer.h"

namespace rxe_user::broker {
namespace {

namespace fs = std::filesystem;

// RXE_USER_BROKER names a script of the test.
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
  // The broker starts when Go says so. It writes a line when it is executed.
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
  // It stays silent for longer than a broker takes on an idle machine.
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

// The waiting process gets this error, and not that the port is taken. The
// broker is unharmed.
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

}  // namespace
}  // namespace rxe_user::broker
