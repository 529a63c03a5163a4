// rxe-user check of recordings: differences between the two ends of a
// connection (lints 20 to 23).
#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/expect/installed_fixture.h"

namespace {

using expect_test::Result;

class EndsTest : public expect_test::InstalledTest {
 protected:
  // The result of rxe-user check for a program with this mistake.
  Result Check(const std::string& what,
               const std::vector<std::string>& options = {}) {
    const std::string recording = root_ / "a.pcapng";
    expect_test::fs::remove(recording);
    const Result r = Execute(
        {"run", "--trace", recording, "--", "expect_program", what, "exit0"});
    EXPECT_EQ(r.status, 0) << r.err;
    std::vector<std::string> argv = {"check", recording};
    argv.insert(argv.end(), options.begin(), options.end());
    return Execute(argv);
  }
};

TEST_F(EndsTest, TheTwoEndsOfAProgramThatIsRight) {
  const Result r = Check("send");
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out + r.err, "");
}

TEST_F(EndsTest, EachMistakeHasItsLint) {
  const struct {
    const char* what;
    const char* lint;
    const char* says;
  } kMistakes[] = {
      {"bad_qpn", "lint 20 (peer-qpn): ", " has dest_qp_num 0x"},
      {"bad_gid", "lint 21 (peer-gid): ", " has dgid 127.0.0."},
      {"bad_psn", "lint 22 (peer-psn): ", " has rq_psn 101"},
      {"bad_mtu", "lint 23 (peer-mtu): ", " has path_mtu 1024, and its peer, "},
  };
  for (const auto& each : kMistakes) {
    const Result r = Check(each.what);
    EXPECT_EQ(r.status, 1) << each.what;
    EXPECT_EQ(r.err, "");
    EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 1) << r.out;
    EXPECT_TRUE(r.out.starts_with((root_ / "a.pcapng: ").string() + each.lint))
        << r.out;
    EXPECT_NE(r.out.find(each.says), std::string::npos) << r.out;
  }
}

TEST_F(EndsTest, ALintThatIsNotWanted) {
  const Result r = Check("bad_mtu", {"--without", "peer-mtu"});
  EXPECT_EQ(r.status, 0);
  EXPECT_EQ(r.out, "");
  // The words after the name are files.
  const std::string recording = root_ / "a.pcapng";
  const std::string other = root_ / "b.pcapng";
  expect_test::fs::copy(recording, other);
  EXPECT_EQ(
      Execute({"check", "--without", "peer-qpn", recording, other}).status, 1);
  EXPECT_EQ(Execute({"check", "--without", "peer-mut", recording}).status, 2);
}

}  // namespace
