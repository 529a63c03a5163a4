// The commands of rxe-user: help, wrong use, rdma and lesson.
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tools/rxe_user_cli/cli_fixture.h"

namespace cli_test {
namespace {

TEST_F(CliTest, HelpAndVersion) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"--help"}, {"-h"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 0);
    for (const char* word : {"run", "devices", "decode", "trace", "stat"}) {
      EXPECT_NE(r.out.find(word), std::string::npos) << r.out;
    }
    EXPECT_EQ(r.err, "");
  }
  for (const char* command : {"run", "devices", "decode", "trace", "stat"}) {
    const Result r = Execute({command, "--help"});
    EXPECT_EQ(r.exit_status, 0);
    EXPECT_NE(r.out.find(command), std::string::npos);
  }
  EXPECT_TRUE(Execute({"--version"}).out.starts_with("rxe-user "));
}

TEST_F(CliTest, HelpIsACommandToo) {
  EXPECT_EQ(Execute({"help"}).out, Execute({"--help"}).out);
  for (const char* command : {"run", "devices", "stat", "decode", "view"}) {
    const Result r = Execute({"help", command});
    EXPECT_EQ(r.exit_status, 0) << command;
    EXPECT_EQ(r.out, Execute({command, "--help"}).out);
  }
  EXPECT_EQ(Execute({"help", "frobnicate"}).exit_status, 2);
}

TEST_F(CliTest, WrongUseIsOneLineAndStatus2) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"frobnicate"},
        {"--frobnicate"},
        {"devices", "--frobnicate"},
        {"devices", "surplus"},
        {"decode"},
        {"decode", "a", "b"},
        {"devices", "decode", "x"},
        {"run"},
        {"run", "--"},
        {"stat", "0"},
        {"stat", "-5"},
        {"stat", "x"},
        {"stat", "1", "2"},
        {"stat", "1", "--all"},
        {"stat", "--watch", "x"},
        {"stat", "--watch", "0"},
        {"run", "--capture"},
        {"run", "--capture="},
        {"run", "--capture", "a"},
        {"run", "--trace"},
        {"run", "--trace="},
        {"run", "--payload", "true"},
        {"run", "--faults"},
        {"run", "--faults=", "true"},
        {"run", "--faults", "drop"},
        {"run", "--faults-seed", "7", "true"},
        {"run", "-x", "true"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 2) << testing::PrintToString(arguments);
    EXPECT_TRUE(OneLine(r.err)) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(CliTest, WrongUseSaysWhereToLook) {
  for (const auto& [arguments, said] :
       {std::pair<std::vector<std::string>, std::string>{
            {"frobnicate"},
            "no command frobnicate; there are run, rdma, devices, decode, "
            "trace, check, stat, explain, faults, lesson, view (see rxe-user "
            "--help)\n"},
        {{"--frobnicate"}, "(see rxe-user --help)\n"},
        {{"devices", "surplus"}, "(see rxe-user devices --help)\n"},
        {{"stat", "x"}, "(see rxe-user stat --help)\n"},
        {{"decode"}, "(see rxe-user decode --help)\n"},
        {{"run"}, "run: no command given (see rxe-user run --help)\n"},
        {{"run", "-x"}, "unknown option -x (see rxe-user run --help)\n"}}) {
    const Result r = Execute(arguments);
    EXPECT_EQ(r.exit_status, 2);
    EXPECT_TRUE(r.err.ends_with(said)) << r.err;
    EXPECT_TRUE(OneLine(r.err)) << r.err;
  }
}

TEST_F(CliTest, RdmaShowsDevices) {
  const Result links = Execute({"rdma", "-j", "link"});
  EXPECT_EQ(links.exit_status, 0);
  EXPECT_TRUE(nlohmann::json::parse(links.out).is_array()) << links.out;
  const Result none = Execute({"rdma", "link", "show", "no_such_device"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_EQ(none.err, "rdma: there is no no_such_device; see rdma link\n");
  EXPECT_EQ(none.out, "");
}

TEST_F(CliTest, LessonsAreListed) {
  Result r = Execute({"lesson"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("no lessons in"), std::string::npos) << r.err;
  EXPECT_TRUE(OneLine(r.err)) << r.err;

  const fs::path lessons = root_ / "libexec/lessons";
  fs::create_directories(lessons);
  std::ofstream(lessons / "10-b.c") << "/* Lesson 10: the last. */\n";
  std::ofstream(lessons / "2-a.c") << "/* Lesson 2: a: b, c.\n * faults: x\n";
  std::ofstream(lessons / "3-other.c") << "/* No lesson. */\n";
  std::ofstream(lessons / "empty.c") << "";
  r = Execute({"lesson"});
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_EQ(r.out, " 2  a: b, c\n10  the last\n");
  EXPECT_EQ(r.err, "");

  r = Execute({"lesson", "3"});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("no lesson 3"), std::string::npos) << r.err;
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  for (const char* number : {"0", "-1", "x", "100"}) {
    EXPECT_EQ(Execute({"lesson", number}).exit_status, 2) << number;
  }
}

TEST_F(CliTest, LessonThatDoesNotCompileSaysWhatItNeeds) {
  fs::create_directories(root_ / "libexec/lessons");
  std::ofstream(root_ / "libexec/lessons/1-a.c")
      << "/* Lesson 1: a. */\n#error this\n";
  const Result r =
      Execute({"lesson", "1", "--folder", (root_ / "work").string()});
  EXPECT_EQ(r.exit_status, 125);
  EXPECT_NE(r.err.find("cannot compile"), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("libibverbs-dev"), std::string::npos) << r.err;
}

}  // namespace
}  // namespace cli_test
