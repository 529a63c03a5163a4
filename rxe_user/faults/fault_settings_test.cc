#include "rxe_user/faults/fault_settings.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace rxe_user {
namespace {

class FaultSettingsTest : public testing::Test {
 protected:
  FaultSettingsTest() {
    unsetenv("RXE_USER_FAULTS");
    unsetenv("RXE_USER_FAULTS_SEED");
  }
  ~FaultSettingsTest() override {
    unsetenv("RXE_USER_FAULTS");
    unsetenv("RXE_USER_FAULTS_SEED");
    if (!file_.empty()) unlink(file_.c_str());
  }
  // A file with `text`.
  std::string File(const std::string& text) {
    char name[] = "/tmp/rxe_user_rules_XXXXXX";
    const int fd = mkstemp(name);
    EXPECT_EQ(write(fd, text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    close(fd);
    file_ = name;
    return file_;
  }
  // Waits until the thread waits in poll, or has ended.
  static void AwaitBlocked(const std::atomic<pid_t>& thread) {
    while (thread == 0) std::this_thread::yield();
    for (;;) {
      std::ifstream in("/proc/self/task/" + std::to_string(thread) +
                       "/syscall");
      long call = -1;
      if (!in.is_open() || (in >> call && call == SYS_ppoll)) return;
      std::this_thread::yield();
    }
  }
  std::string WrongWith(const std::string& value) {
    FaultSettings settings;
    setenv("RXE_USER_FAULTS", value.c_str(), 1);
    const auto wrong = ReadFaultSettings(&settings);
    EXPECT_EQ(settings.rules.empty(), wrong.has_value());
    return wrong.value_or("");
  }

  std::string file_;
};

TEST_F(FaultSettingsTest, NoVariableMeansNoRules) {
  FaultSettings settings;
  EXPECT_EQ(ReadFaultSettings(&settings), std::nullopt);
  EXPECT_TRUE(settings.rules.empty());
}

TEST_F(FaultSettingsTest, RulesOrAFile) {
  setenv("RXE_USER_FAULTS_SEED", "77", 1);
  FaultSettings settings;
  setenv("RXE_USER_FAULTS", "drop rx; ce tx", 1);
  EXPECT_EQ(ReadFaultSettings(&settings), std::nullopt);
  EXPECT_EQ(settings.rules.size(), 2u);
  EXPECT_EQ(settings.seed, 77u);
  settings = {};
  setenv("RXE_USER_FAULTS", File("# two\ndrop rx\nce tx\n").c_str(), 1);
  EXPECT_EQ(ReadFaultSettings(&settings), std::nullopt);
  EXPECT_EQ(settings.rules.size(), 2u);
}

TEST_F(FaultSettingsTest, ProfilesByName) {
  FaultSettings settings;
  setenv("RXE_USER_FAULTS", "slow-peer", 1);
  EXPECT_FALSE(IsRuleFile("slow-peer"));
  EXPECT_EQ(ReadFaultSettings(&settings), std::nullopt);
  ASSERT_EQ(settings.rules.size(), 2u);
  EXPECT_EQ(settings.rules[0].text, "stall 20ms every=500 maybe");
}

TEST_F(FaultSettingsTest, OneLineSaysWhatIsWrong) {
  EXPECT_EQ(WrongWith("dorp rx nth=1").substr(0, 55),
            "RXE_USER_FAULTS: line 1, column 1: 'dorp' is no action;");
  EXPECT_EQ(WrongWith("/nonexistent/rules"),
            "RXE_USER_FAULTS: /nonexistent/rules: No such file or directory; "
            "it is neither a file nor a rule such as 'drop tx op=data nth=3', "
            "nor a profile: lossy, wifi, incast, slow-peer, flaky-link");
  const std::string file = File("drop rx\nce tx nth=0\n");
  EXPECT_EQ(WrongWith(file),
            "RXE_USER_FAULTS: " + file +
                ": line 2, column 11: '0': nth= needs numbers and ranges from "
                "1 on: nth=3, nth=3|7-9, nth=5-");
  unlink(file.c_str());
  const std::string large = File(std::string(100'000, '#'));
  EXPECT_EQ(WrongWith(large), "RXE_USER_FAULTS: " + large + ": File too large");
  EXPECT_NE(WrongWith("/tmp"), "");
  EXPECT_NE(WrongWith("# nothing"), "");
  setenv("RXE_USER_FAULTS_SEED", "seven", 1);
  EXPECT_EQ(WrongWith("drop rx"),
            "RXE_USER_FAULTS_SEED: the seed 'seven' is no number from 0 to "
            "18446744073709551615");
}

// As `--faults <(command)`: the writer may come after the reader.
TEST_F(FaultSettingsTest, RulesFromAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  std::vector<transport::faults::Rule> rules;
  std::optional<std::string> wrong = "not read";
  const std::string name = "/dev/fd/" + std::to_string(ends[0]);
  std::atomic<pid_t> id = 0;
  std::thread reader([&] {
    id = gettid();
    wrong = LoadFaultRules(name, &rules);
  });
  AwaitBlocked(id);
  const std::string text = "drop rx\nce tx\n";
  EXPECT_EQ(write(ends[1], text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  close(ends[1]);
  reader.join();
  close(ends[0]);
  EXPECT_EQ(wrong, std::nullopt);
  EXPECT_EQ(rules.size(), 2u);
}

// The library reads the variable's file more than once.
TEST_F(FaultSettingsTest, TheVariableNamesNoPipe) {
  const std::string name = File("");
  unlink(name.c_str());
  ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
  EXPECT_NE(WrongWith(name).find("is not a regular file"), std::string::npos)
      << WrongWith(name);
}

// A named pipe, which no writer has opened yet.
TEST_F(FaultSettingsTest, RulesFromANamedPipe) {
  const std::string name = File("");
  unlink(name.c_str());
  ASSERT_EQ(mkfifo(name.c_str(), 0600), 0);
  std::vector<transport::faults::Rule> rules;
  std::optional<std::string> wrong = "not read";
  std::atomic<pid_t> id = 0;
  std::thread reader([&] {
    id = gettid();
    wrong = LoadFaultRules(name, &rules);
  });
  AwaitBlocked(id);
  const int fd = open(name.c_str(), O_WRONLY | O_NONBLOCK);
  const std::string text = "drop rx\nce tx\n";
  EXPECT_EQ(write(fd, text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  close(fd);
  reader.join();
  EXPECT_EQ(wrong, std::nullopt);
  EXPECT_EQ(rules.size(), 2u);
}

}  // namespace
}  // namespace rxe_user
