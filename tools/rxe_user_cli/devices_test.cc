#include "tools/rxe_user_cli/devices.h"

#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "gtest/gtest.h"
#include "rxe_user/testing/refused_calls.h"

namespace rxe_user_cli {
namespace {

using rxe_user::Device;
using rxe_user::LocalAddress;

Devices TwoDevices() {
  auto eth = std::make_shared<Device>();
  eth->name = "rxeu0";
  eth->netdev = "eth0";
  eth->ifindex = 2;
  eth->mtu = 1500;
  eth->roce_mtu = 1024;
  eth->up = true;
  eth->speed_mbps = 25000;
  eth->mac = {2, 0, 0, 0, 0, 0xab};
  eth->guid = 0x0000'00ff'fe00'00ab;
  eth->gids = {{*wire::IpAddress::Parse("192.0.2.1"), 0},
               {*wire::IpAddress::Parse("fe80::ab"), 4'000'000}};
  auto lo = std::make_shared<Device>();
  lo->name = "rxeu1";
  lo->netdev = "lo";
  lo->ifindex = 1;
  lo->mtu = 65536;
  lo->roce_mtu = 4096;
  lo->loopback = true;
  lo->guid = 0x8123'4567'89ab'cdef;
  lo->gids = {{*wire::IpAddress::Parse("127.0.0.1"), 0}};
  return {eth, lo};
}

const rxe_user::SocketIo kDefault = {"sockets", "default"};

std::string Trouble(const LocalAddress& gid) {
  return gid.address.is_v4() && gid.address.bytes[12] == 127 ? "it is taken"
                                                             : "";
}

TEST(DevicesTest, TextShowsEveryDeviceAndGid) {
  EXPECT_EQ(DevicesAsText(TwoDevices(), {}, Trouble, "", kDefault),
            "DEVICE  NETDEV  STATE  MTU    ROCE MTU  SPEED    GUID\n"
            "rxeu0   eth0    up     1500   1024      25 Gb/s  "
            "0000:00ff:fe00:00ab\n"
            "rxeu1   lo      down   65536  4096      -        "
            "8123:4567:89ab:cdef\n"
            "\n"
            "DEVICE  GID  ADDRESS           UDP PORT 4791\n"
            "rxeu0   0    192.0.2.1         available\n"
            "rxeu0   1    fe80::ab%4000000  available\n"
            "rxeu1   0    127.0.0.1         it is taken\n"
            "\n"
            "I/O: sockets (default)\n");
}

TEST(DevicesTest, ShowsWhichDevicesLookLikeMlx5) {
  Devices devices = TwoDevices();
  auto mlx5 = std::make_shared<Device>(*devices[0]);
  mlx5->mlx5 = true;
  devices[0] = mlx5;
  const std::string text = DevicesAsText(devices, {}, Trouble, "", kDefault);
  EXPECT_NE(text.find("GUID                 LOOKS LIKE\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("0000:00ff:fe00:00ab  mlx5\n"), std::string::npos);
  EXPECT_NE(text.find("8123:4567:89ab:cdef  -\n"), std::string::npos);
  const auto json =
      nlohmann::json::parse(DevicesAsJson(devices, {}, Trouble, "", kDefault));
  EXPECT_EQ(json["devices"][0]["looks_like"], "mlx5");
  EXPECT_FALSE(json["devices"][1].contains("looks_like"));
}

TEST(DevicesTest, TellsWhyAnInterfaceIsNoDevice) {
  const Others others = {{"eth9", "it is down"}};
  EXPECT_EQ(DevicesAsText({}, others, Trouble, "", kDefault),
            "NETDEV  NO DEVICE, BECAUSE\neth9    it is down\n");
  const auto json = nlohmann::json::parse(
      DevicesAsJson(TwoDevices(), others, Trouble, "", kDefault));
  EXPECT_EQ(json["no_devices"][0]["netdev"], "eth9");
  EXPECT_EQ(json["no_devices"][0]["reason"], "it is down");
}

TEST(DevicesTest, JsonTellsTheSame) {
  const auto json = nlohmann::json::parse(
      DevicesAsJson(TwoDevices(), {}, Trouble, "", kDefault));
  ASSERT_EQ(json["devices"].size(), 2u);
  const auto& eth = json["devices"][0];
  EXPECT_EQ(eth["name"], "rxeu0");
  EXPECT_EQ(eth["netdev"], "eth0");
  EXPECT_EQ(eth["state"], "up");
  EXPECT_EQ(eth["mtu"], 1500);
  EXPECT_EQ(eth["roce_mtu"], 1024);
  EXPECT_EQ(eth["speed_mbps"], 25000);
  EXPECT_EQ(eth["mac"], "02:00:00:00:00:ab");
  EXPECT_EQ(eth["gids"][0]["gid"], "0000:0000:0000:0000:0000:ffff:c000:0201");
  EXPECT_EQ(eth["gids"][0]["port_available"], true);
  EXPECT_EQ(eth["gids"][1]["scope"], "4000000");
  const auto& lo = json["devices"][1];
  EXPECT_FALSE(lo.contains("speed_mbps"));
  EXPECT_EQ(lo["gids"][0]["port_available"], false);
  EXPECT_EQ(lo["gids"][0]["port_trouble"], "it is taken");
  EXPECT_EQ(nlohmann::json::parse(DevicesAsJson({}, {}, Trouble, "", kDefault)),
            nlohmann::json::parse(
                R"({"devices": [], "no_devices": [],
                    "io": {"uses": "sockets", "why": "default"}})"));
}

TEST(DevicesTest, APortThatCannotBeSharedIsSaid) {
  const std::string text =
      DevicesAsText(TwoDevices(), {}, Trouble, "it is refused", kDefault);
  EXPECT_TRUE(text.ends_with(
      "rxeu0   1    fe80::ab%4000000  available to one process at a time\n"
      "rxeu1   0    127.0.0.1         it is taken\n"
      "\n"
      "One process at a time: it is refused\n"
      "I/O: sockets (default)\n"))
      << text;
  const auto json = nlohmann::json::parse(
      DevicesAsJson(TwoDevices(), {}, Trouble, "it is refused", kDefault));
  EXPECT_EQ(json["port_not_shared"], "it is refused");
  EXPECT_EQ(json["devices"][0]["gids"][0]["port_available"], true);
}

// Asks the system: here the port can be shared, even without a broker. The
// refusal is in a child process, since it cannot be undone.
TEST(DevicesTest, RunDevicesTriesTheSteering) {
  const auto run = [](bool refuse) {
    std::FILE* const out = std::tmpfile();
    const pid_t child = fork();
    if (child == 0) {
      _exit((refuse && !rxe_user::RefuseSteering(EPERM)) ||
            RunDevices(false, out, stderr) != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    std::string text(4096, 0);
    std::rewind(out);
    text.resize(std::fread(text.data(), 1, text.size(), out));
    std::fclose(out);
    return text;
  };
  EXPECT_EQ(run(false).find("at a time"), std::string::npos);
  const std::string refused = run(true);
  EXPECT_NE(refused.find("available to one process at a time\n"),
            std::string::npos)
      << refused;
  EXPECT_NE(refused.find("(SO_ATTACH_REUSEPORT_CBPF: Operation not permitted)"),
            std::string::npos)
      << refused;
}

// In the same way as a lane.
TEST(DevicesTest, RunDevicesTriesIoUring) {
  const auto run = [](bool refuse, const char* io = "uring") {
    std::FILE* const out = std::tmpfile();
    const pid_t child = fork();
    if (child == 0) {
      setenv("RXE_USER_IO", io, 1);
      _exit((refuse && !rxe_user::RefuseCall(__NR_io_uring_setup, EPERM)) ||
            RunDevices(true, out, stderr) != 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
    std::rewind(out);
    const auto json = nlohmann::json::parse(out, nullptr, false);
    std::fclose(out);
    return json["io"];
  };
  const auto refused = run(true);
  EXPECT_EQ(refused["uses"], "sockets");
  EXPECT_EQ(refused["why"], "io_uring_setup: Operation not permitted");
  const auto allowed = run(false);
  if (allowed["uses"] == "sockets") GTEST_SKIP() << allowed["why"];
  EXPECT_EQ(allowed["uses"], "io_uring");
  EXPECT_EQ(allowed["why"], "RXE_USER_IO=uring");
  EXPECT_EQ(run(false, "auto")["uses"],
            "io_uring for bulk, sockets for the rest");
}

}  // namespace
}  // namespace rxe_user_cli
