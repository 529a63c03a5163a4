#include "rxe_user/broker/accounts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace rxe_user::broker {
namespace {

class AccountsTest : public testing::Test {
 protected:
  void SetUp() override { Write("passwd", "alice:x:1000:1000::/:/bin/sh\n"); }
  std::string In(const std::string& name) const {
    return testing::TempDir() + "/accounts_" + name;
  }
  // Replaces the file, so its ctime changes.
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(In("new")) << text;
    std::filesystem::rename(In("new"), In(name));
  }
};

TEST_F(AccountsTest, SubordinateIdsBelongToTheirOwner) {
  Write("subuid",
        "alice:100000:65536\n1001:200000:10\nnobody-here:300000:10\n"
        "# a comment\nalice:400000\nalice:x:1\nalice:500000:0\n"
        "alice:4294967290:100\n");
  Accounts accounts(In("subuid"), In("passwd"));
  accounts.Refresh();
  EXPECT_EQ(accounts.Of(1000), 1000u);
  EXPECT_EQ(accounts.Of(99'999), 99'999u);
  EXPECT_EQ(accounts.Of(100'000), 1000u);
  EXPECT_EQ(accounts.Of(165'535), 1000u);
  EXPECT_EQ(accounts.Of(165'536), 165'536u);
  EXPECT_EQ(accounts.Of(200'009), 1001u);
  EXPECT_EQ(accounts.Of(300'009), 300'000u);
  EXPECT_EQ(accounts.Of(400'000), 400'000u);
  EXPECT_EQ(accounts.Of(500'000), 500'000u);
  EXPECT_EQ(accounts.Of(4'294'967'294), 1000u);
}

TEST_F(AccountsTest, ReadsChangedFilesAgain) {
  std::filesystem::remove(In("subuid"));
  Accounts accounts(In("subuid"), In("passwd"));
  accounts.Refresh();
  EXPECT_EQ(accounts.Of(100'000), 100'000u);
  Write("subuid", "alice:100000:1\n");
  accounts.Refresh();
  EXPECT_EQ(accounts.Of(100'000), 1000u);
  Write("passwd", "alice:x:1002:1000::/:/bin/sh\n");
  accounts.Refresh();
  EXPECT_EQ(accounts.Of(100'000), 1002u);
}

}  // namespace
}  // namespace rxe_user::broker
