// rxe-user devices and stat.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/rxe_user_cli/cli_fixture.h"

namespace cli_test {
namespace {

TEST_F(CliTest, StatSaysThatNothingRuns) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"stat"},
        {"stat", "--all"},
        {"stat", "--json"},
        {"stat", "--watch"},
        {"stat", "1"}}) {
    const Result r = Execute(arguments, FreshNamespace);
    EXPECT_EQ(r.exit_status, 1) << testing::PrintToString(arguments);
    EXPECT_TRUE(OneLine(r.err)) << r.err;
    EXPECT_EQ(r.out, "");
  }
}

TEST_F(CliTest, StatSaysThatThereIsNoProcess) {
  // A number above Linux's maximum.
  const Result r = Execute({"stat", "99999999"});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_EQ(r.err, "rxe-user stat: there is no process 99999999\n");
}

TEST_F(CliTest, DevicesListsWhatIsThere) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  Result r = Execute({"devices", "--json"}, FreshNamespace);
  ASSERT_EQ(r.exit_status, 0) << r.err;
  const auto json = nlohmann::json::parse(r.out);
  ASSERT_EQ(json["devices"].size(), 1u) << r.out;
  const auto& lo = json["devices"][0];
  EXPECT_EQ(lo["netdev"], "lo");
  EXPECT_EQ(lo["state"], "up");
  EXPECT_EQ(lo["gids"][0]["address"], "127.0.0.1");
  EXPECT_EQ(lo["gids"][0]["port_available"], true);
  r = Execute({"devices"}, FreshNamespace);
  EXPECT_NE(r.out.find("127.0.0.1"), std::string::npos) << r.out;
}

TEST_F(CliTest, DevicesSaysWhoHasThePort) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result r = Execute({"devices"}, [] {
    FreshNamespace();
    // Not close-on-exec, so rxe-user inherits it and is the holder itself.
    const int fd = socket(AF_INET, SOCK_DGRAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(4791);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&a), sizeof(a)) != 0) {
      _exit(96);
    }
  });
  EXPECT_EQ(r.exit_status, 0);
  EXPECT_NE(
      r.out.find("taken by process " + std::to_string(r.pid) + " (rxe-user)"),
      std::string::npos)
      << r.out;
}

TEST_F(CliTest, NoDeviceIsSaidInOneLine) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto no_interface = [] {
    if (unshare(CLONE_NEWNET) != 0) _exit(97);
  };
  Result r = Execute({"devices"}, no_interface);
  EXPECT_EQ(r.exit_status, 1);
  // One line for each interface gives the reason.
  EXPECT_NE(r.out.find("NO DEVICE, BECAUSE"), std::string::npos) << r.out;
  EXPECT_NE(r.out.find("it is down"), std::string::npos) << r.out;
  EXPECT_TRUE(OneLine(r.err)) << r.err;
  EXPECT_NE(r.err.find("no interface is up and has an address"),
            std::string::npos)
      << r.err;
  EXPECT_NE(Execute({"devices", "--help"}).out.find("Exit status 1"),
            std::string::npos);
  r = Execute({"devices", "--json"}, no_interface);
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_EQ(nlohmann::json::parse(r.out)["devices"].size(), 0u);
}

TEST_F(CliTest, NoDeviceOfThoseNamedIsSaid) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const Result r = Execute({"devices"}, [] {
    FreshNamespace();
    setenv("RXE_USER_DEVICES", "mlx5_0=eth7", 1);
  });
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_TRUE(r.err.ends_with(
      "\nrxe-user devices: no device: none of those that RXE_USER_DEVICES "
      "names\n"))
      << r.err;
}

TEST_F(CliTest, UnknownSettingsAreSaidOnce) {
  const Result r = Execute({"devices"}, [] {
    setenv("RXE_USER_DEVICE", "a=lo", 1);
    setenv("RXE_USER_SPIN", "7", 1);
  });
  EXPECT_EQ(r.err.find("there is no setting"),
            r.err.rfind("there is no setting"));
  EXPECT_TRUE(r.err.starts_with(
      "rxe_user: there is no setting RXE_USER_DEVICE, RXE_USER_SPIN; the "
      "settings are RXE_USER_BROKER,"))
      << r.err;
}

}  // namespace
}  // namespace cli_test
