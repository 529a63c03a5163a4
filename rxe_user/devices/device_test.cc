#include "rxe_user/devices/device.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <set>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/devices/device_list.h"
#include "rxe_user/devices/link_monitor.h"
#include "rxe_user/devices/netdev.h"
#include "rxe_user/testing/net_namespace.h"

namespace rxe_user {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LocalAddress Gid(const char* address, uint32_t scope = 0) {
  return {*wire::IpAddress::Parse(address), scope};
}

Interface Make(const char* name, uint32_t index, uint8_t mac) {
  Interface i;
  i.name = name;
  i.index = index;
  i.mtu = 1500;
  i.up = i.running = true;
  i.mac = {0x02, 0, 0, 0, 0, mac};
  i.addresses = {Gid("192.0.2.1")};
  return i;
}

std::vector<Interface> Several() {
  Interface lo = Make("lo", 1, 0);
  lo.loopback = true;
  lo.mac = {};
  lo.mtu = 65536;
  lo.addresses = {Gid("127.0.0.1"), Gid("::1")};
  Interface down = Make("eth9", 4, 4);
  down.up = false;
  Interface bare = Make("eth8", 5, 5);
  bare.addresses = {};
  return {lo, Make("eth0", 2, 2), Make("eth1", 3, 3), down, bare};
}

class DeviceList : public ::testing::Test {
 protected:
  std::vector<std::string> Names(const std::string& config) {
    DeviceNames fresh;
    return Names(Several(), config, &fresh);
  }
  std::vector<std::string> Names(const std::vector<Interface>& interfaces,
                                 const std::string& config,
                                 DeviceNames* known) {
    std::vector<std::string> names;
    for (const auto& d :
         BuildDevices(interfaces, {config, ""}, "host", known, &problems_)) {
      names.push_back(d->name + "=" + d->netdev);
    }
    return names;
  }
  std::vector<std::string> problems_;
};

TEST_F(DeviceList, RealInterfacesComeFirstAndLoopbackLast) {
  EXPECT_THAT(Names(""), ElementsAre("rxeu0=eth0", "rxeu1=eth1", "rxeu2=lo"));
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(DeviceList, FollowsTheConfiguration) {
  EXPECT_THAT(Names("mlx5_0=eth1, lo"), ElementsAre("mlx5_0=eth1", "rxeu0=lo"));
  EXPECT_THAT(Names("rxeu0=lo,eth0"), ElementsAre("rxeu0=lo", "rxeu1=eth0"));
  EXPECT_THAT(Names("# mine\na = eth0 # first\n\nb=eth0\n"),
              ElementsAre("a=eth0", "b=eth0"));
  EXPECT_THAT(problems_, IsEmpty());
}

// A kernel device keeps its name as well while it exists.
TEST_F(DeviceList, AnInterfaceKeepsItsName) {
  DeviceNames known;
  std::vector<Interface> interfaces = Several();
  interfaces[1].addresses = {};  // eth0 appears later
  EXPECT_THAT(Names(interfaces, "", &known),
              ElementsAre("rxeu0=eth1", "rxeu1=lo"));
  EXPECT_THAT(Names(Several(), "", &known),
              ElementsAre("rxeu2=eth0", "rxeu0=eth1", "rxeu1=lo"));
  interfaces = Several();
  interfaces[2].up = false;
  EXPECT_THAT(Names(interfaces, "", &known),
              ElementsAre("rxeu2=eth0", "rxeu1=lo"));
  // Another index is another interface, and configured names take precedence.
  interfaces[2] = Make("eth1", 6, 3);
  EXPECT_THAT(Names(interfaces, "rxeu2=lo,eth0,eth1", &known),
              ElementsAre("rxeu2=lo", "rxeu3=eth0", "rxeu4=eth1"));
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(DeviceList, ReportsErrorsInTheConfiguration) {
  const std::string long_name(64, 'n');
  EXPECT_THAT(Names("eth7,eth9,eth8," + long_name + "=eth0,x=eth0,x=eth1"),
              ElementsAre("x=eth0"));
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("no interface 'eth7'"),
                                     HasSubstr("'eth9': it is down"),
                                     HasSubstr("'eth8': it has no address"),
                                     HasSubstr("'" + long_name +
                                               "' is not a valid device name"),
                                     HasSubstr("two devices named 'x'")));
}

// A container's interface on the host appears and disappears with the
// container.
TEST_F(DeviceList, PortsOfBridgesAreDevicesOnlyIfNamed) {
  std::vector<Interface> interfaces = Several();
  Interface port = Make("veth1", 1, 7);
  port.addresses = {Gid("fe80::7", 1)};
  port.master = "docker0";
  port.master_kind = "bridge";
  interfaces.insert(interfaces.begin(), port);
  EXPECT_THAT(Names(interfaces, "", std::make_unique<DeviceNames>().get()),
              ElementsAre("rxeu0=eth0", "rxeu1=eth1", "rxeu2=lo"));
  EXPECT_THAT(WhyLeftOut(port), HasSubstr("a port of bridge docker0"));
  DeviceNames names;
  EXPECT_THAT(Names(interfaces, "p=veth1", &names), ElementsAre("p=veth1"));
  // A port of a VRF is a device: the VRF has no addresses of its own.
  interfaces[0].master_kind = "vrf";
  EXPECT_THAT(
      Names(interfaces, "", &names),
      ElementsAre("rxeu0=veth1", "rxeu1=eth0", "rxeu2=eth1", "rxeu3=lo"));
  EXPECT_THAT(problems_, IsEmpty());
}

TEST_F(DeviceList, ReportsAnMtuThatIsTooSmall) {
  std::vector<Interface> interfaces = Several();
  interfaces[1].mtu = 300;
  DeviceNames names;
  EXPECT_THAT(Names(interfaces, "eth0,eth1", &names),
              ElementsAre("rxeu0=eth1"));
  EXPECT_THAT(problems_,
              ElementsAre(HasSubstr("'eth0': its MTU of 300 bytes")));
}

TEST_F(DeviceList, APublicAddressReplacesOneOfTheInterface) {
  std::vector<Interface> interfaces = Several();
  interfaces[1].addresses = {Gid("10.0.0.5"), Gid("10.0.0.6"),
                             Gid("2001:db8::5"), Gid("fe80::1", 2)};
  DeviceNames names;
  const Devices devices = BuildDevices(
      interfaces, {"a=eth0/public=203.0.113.7/ public = 2001:db8::7, eth1", ""},
      "host", &names, &problems_);
  EXPECT_THAT(problems_, IsEmpty());
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]->name, "a");
  EXPECT_THAT(devices[0]->gids,
              ElementsAre(Gid("203.0.113.7"), Gid("10.0.0.6"),
                          Gid("2001:db8::7"), Gid("fe80::1", 2)));
  EXPECT_THAT(devices[0]->public_addresses,
              ElementsAre(PublicAddress{Gid("203.0.113.7").address,
                                        Gid("10.0.0.5").address},
                          PublicAddress{Gid("2001:db8::7").address,
                                        Gid("2001:db8::5").address}));
  EXPECT_THAT(devices[1]->public_addresses, IsEmpty());
}

TEST_F(DeviceList, ReportsErrorsInOptions) {
  EXPECT_THAT(Names("a=eth0/public=nobody,b=eth0/public,c=eth0/private=1,"
                    "d=eth0/public=2001:db8::7,e=eth0/public=fe80::1"),
              ElementsAre("a=eth0", "b=eth0", "c=eth0", "d=eth0", "e=eth0"));
  EXPECT_THAT(problems_,
              ElementsAre(HasSubstr("'nobody' is not a public address"),
                          HasSubstr("'' is not a public address"),
                          HasSubstr("no option 'private'"),
                          HasSubstr("'eth0' has no address that 2001:db8::7"),
                          HasSubstr("'fe80::1' is not a public address")));
}

TEST_F(DeviceList, ADeviceCanLookLikeMlx5) {
  DeviceNames names;
  Devices devices = BuildDevices(
      Several(), {"mlx5_0=eth0/mlx5,eth0,eth1/ mlx5 /public=203.0.113.7", ""},
      "host", &names, &problems_);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_TRUE(devices[0]->mlx5);
  EXPECT_FALSE(devices[1]->mlx5);
  EXPECT_TRUE(devices[2]->mlx5);
  EXPECT_EQ(devices[2]->gids[0].address, Gid("203.0.113.7").address);
  EXPECT_THAT(problems_, IsEmpty());

  devices = BuildDevices(Several(), {"eth0,eth1/mlx5=1", "", true}, "host",
                         &names, &problems_);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_TRUE(devices[0]->mlx5);
  EXPECT_THAT(problems_, ElementsAre(HasSubstr("option 'mlx5' has no value")));
  devices = BuildDevices(Several(), {}, "host", &names, &problems_);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_FALSE(devices[0]->mlx5);
}

// The device stays an mlx5 device while the program has it open.
TEST(ReadDevice, StaysAnMlx5Device) {
  ::setenv("RXE_USER_DEVICES", "lo/mlx5", 1);
  const auto devices = ListDevices();
  ::unsetenv("RXE_USER_DEVICES");
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_EQ(devices->size(), 1u);
  const auto again = ReadDevice(*devices->front());
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_NE(*again, nullptr);
  EXPECT_TRUE((*again)->mlx5);
}

TEST(PublicAddressesTest, BothWays) {
  const wire::IpAddress known = Gid("203.0.113.7").address;
  const wire::IpAddress bound = Gid("10.0.0.5").address;
  EXPECT_EQ(BoundAddress(known), known);
  AddPublicAddresses({{known, bound}});
  EXPECT_EQ(BoundAddress(known), bound);
  EXPECT_EQ(KnownAddress(bound), known);
  EXPECT_EQ(KnownAddress(known), known);
  AddPublicAddresses({});
  EXPECT_EQ(KnownAddress(bound), known);
  const wire::IpAddress later = Gid("10.0.0.9").address;
  AddPublicAddresses({{known, later}});
  EXPECT_EQ(BoundAddress(known), later);
  EXPECT_EQ(KnownAddress(bound), bound);
}

// A program may be tricked into reading a file that its caller must not read.
TEST(DeviceConfig, FileContentIsNeverPrinted) {
  char path[] = "/tmp/rxe_user_devices_XXXXXX";
  const UniqueFd file(::mkstemp(path));
  const std::string text = "a=eth0\nroot:secret\neth0/secret=1,eth9\na=eth1\n";
  ASSERT_EQ(::write(file.get(), text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  std::vector<std::string> problems;
  const DeviceConfig config = ReadDeviceConfig(path, &problems);
  ::unlink(path);
  EXPECT_THAT(problems, IsEmpty());
  DeviceNames names;
  const Devices devices =
      BuildDevices(Several(), config, "host", &names, &problems);
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[0]->name, "a");
  const std::string of = std::string(" of ") + path + ": ";
  EXPECT_THAT(
      problems,
      ElementsAre(HasSubstr("line 2" + of + "there is no"),
                  HasSubstr("line 3" + of + "the interface: it is down"),
                  HasSubstr("line 3" + of + "an option of the device"),
                  HasSubstr("line 4" + of + "a device before")));
  for (const std::string& problem : problems) {
    EXPECT_EQ(problem.find("secret"), std::string::npos) << problem;
  }
}

TEST(DeviceConfig, ReadsOnlyRegularFilesOfLimitedSize) {
  char folder[] = "/tmp/rxe_user_devices_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string fifo = std::string(folder) + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::string large = std::string(folder) + "/large";
  const UniqueFd file(
      ::open(large.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(::ftruncate(file.get(), 1 << 30), 0);
  for (const std::string& path :
       {fifo, large, std::string(folder), std::string("/dev/zero"),
        std::string("/nonexistent")}) {
    std::vector<std::string> problems;
    EXPECT_EQ(ReadDeviceConfig(path.c_str(), &problems).entries, "") << path;
    EXPECT_THAT(problems, ElementsAre("RXE_USER_DEVICES: cannot read " + path));
  }
  ::unlink(fifo.c_str());
  ::unlink(large.c_str());
  ::rmdir(folder);
}

TEST(RoceMtu, IsTheLargestThatFits) {
  EXPECT_EQ(RoceMtu(1500), 1024u);
  EXPECT_EQ(RoceMtu(9000), 4096u);
  EXPECT_EQ(RoceMtu(65536), 4096u);
  EXPECT_EQ(RoceMtu(4096 + 88), 4096u);
  EXPECT_EQ(RoceMtu(4096 + 87), 2048u);
  EXPECT_EQ(RoceMtu(576), 256u);
  EXPECT_EQ(RoceMtu(300), 0u);
}

TEST(Guid, IsTheEui64OfAMacAddress) {
  std::vector<std::string> problems;
  Interface eth = Make("eth0", 2, 0x55);
  eth.mac = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55};
  DeviceNames names;
  const auto devices = BuildDevices({eth}, {}, "host", &names, &problems);
  EXPECT_EQ(devices.at(0)->guid, 0x021122fffe334455u);
}

TEST(Guid, IsUniqueAndNeverZero) {
  // Loopback on two hosts, and two VLANs on one interface.
  std::vector<std::string> problems;
  std::vector<Interface> interfaces = Several();
  interfaces.push_back(Make("eth0.5", 7, 2));
  interfaces.push_back(Make("eth0.6", 8, 2));
  interfaces.push_back(Make("ipvl0", 9, 9));
  interfaces.back().kind = "ipvlan";
  std::set<uint64_t> guids;
  DeviceNames names;
  for (const char* host : {"one", "two"}) {
    for (const auto& d :
         BuildDevices(interfaces, {"lo,eth0.5,eth0.6,ipvl0", ""}, host, &names,
                      &problems)) {
      EXPECT_NE(d->guid, 0u);
      EXPECT_TRUE(guids.insert(d->guid).second) << d->name << " on " << host;
    }
  }
  // GUIDs are the same at each reading, whichever interfaces are chosen.
  EXPECT_EQ(
      BuildDevices(interfaces, {"lo", ""}, "one", &names, &problems)[0]->guid,
      BuildDevices(interfaces, {}, "one", &names, &problems).back()->guid);
}

TEST(ListDevices, FindsLoopback) {
  ::unsetenv("RXE_USER_DEVICES");
  const auto devices = ListDevices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_FALSE(devices->empty());
  const Device& lo = *devices->back();
  EXPECT_EQ(lo.netdev, "lo");
  EXPECT_TRUE(lo.loopback);
  EXPECT_TRUE(lo.up);
  EXPECT_EQ(lo.roce_mtu, 4096u);
  EXPECT_NE(lo.guid, 0u);
  ASSERT_FALSE(lo.gids.empty());
  EXPECT_EQ(lo.gids[0].address.ToString(), "127.0.0.1");
}

TEST(ListDevices, AgainDoesNotReadTheEnvironment) {
  const auto names = [](const absl::StatusOr<Devices>& devices) {
    std::vector<std::string> names;
    for (const auto& device : *devices) names.push_back(device->name);
    return names;
  };
  ::setenv("RXE_USER_DEVICES", "mine=lo", 1);
  EXPECT_THAT(names(ListDevices()), ElementsAre("mine"));
  ::setenv("RXE_USER_DEVICES", "other=lo", 1);
  EXPECT_THAT(names(ListDevicesAgain()), ElementsAre("mine"));
  EXPECT_THAT(names(ListDevices()), ElementsAre("other"));
  EXPECT_THAT(names(ListDevicesAgain()), ElementsAre("other"));
  // With wrong fault rules there is no device, which is remembered as well.
  ::setenv("RXE_USER_FAULTS", "nonsense", 1);
  EXPECT_THAT(names(ListDevices()), IsEmpty());
  ::unsetenv("RXE_USER_FAULTS");
  EXPECT_THAT(names(ListDevicesAgain()), IsEmpty());
  ::unsetenv("RXE_USER_DEVICES");
}

TEST(LinkMonitor, ReportsUpAndDown) {
  const auto monitor = LinkMonitor::Open(1);
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  if (!SetLoopback(false)) GTEST_SKIP() << "not allowed to";
  std::set<LinkChange> changes;
  const auto collect = [&](LinkChange until) {
    while (changes.count(until) == 0) {
      pollfd fd = {(*monitor)->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&fd, 1, 10'000), 1);
      for (const LinkChange change : (*monitor)->Read()) {
        changes.insert(change);
      }
    }
  };
  collect(LinkChange::kDown);
  EXPECT_EQ(changes.count(LinkChange::kUp), 0u);
  ASSERT_TRUE(SetLoopback(true));
  collect(LinkChange::kUp);
  collect(LinkChange::kAddresses);  // 127.0.0.1 and ::1 are back
  EXPECT_THAT((*monitor)->Read(), ::testing::Each(LinkChange::kAddresses));
}

TEST(DeviceTest, NominalSpeed) {
  Device device;
  EXPECT_EQ(device.NominalSpeed(), 10'000u);
  device.loopback = true;
  EXPECT_EQ(device.NominalSpeed(), 100'000u);
  device.loopback = false;
  device.speed_mbps = 25'000;
  EXPECT_EQ(device.NominalSpeed(), 25'000u);
}

}  // namespace
}  // namespace rxe_user
