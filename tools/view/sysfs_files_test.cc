#include "tools/view/sysfs_files.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace view {
namespace {

namespace fs = std::filesystem;
using rxe_user::Device;

const std::string kDevice = "sys/devices/virtual/infiniband/rxeu0/";
const std::string kPort = kDevice + "ports/1/";

class SysfsFilesTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sysfs_files_test_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    sysfs_ = name;
    Put("devices/system/cpu/online", "0-3,33");
  }
  void TearDown() override { fs::remove_all(sysfs_); }

  void Put(const std::string& path, const std::string& line) {
    fs::create_directories((sysfs_ / path).parent_path());
    std::ofstream(sysfs_ / path) << line << "\n";
  }

  static std::shared_ptr<Device> MakeDevice(const std::string& name,
                                            const std::string& netdev) {
    auto device = std::make_shared<Device>();
    device->name = name;
    device->netdev = netdev;
    device->up = true;
    device->guid = 0x0123456789abcdef;
    device->speed_mbps = 100000;
    device->gids = {{*wire::IpAddress::Parse("10.1.2.3")},
                    {},
                    {*wire::IpAddress::Parse("fe80::1"), 7}};
    return device;
  }

  Files Make(const rxe_user::Devices& devices,
             const std::map<std::string, Counters>& counters = {}) {
    return SysfsFiles(devices, counters, sysfs_);
  }

  fs::path sysfs_;
};

// The content of a file, or "-> TARGET" for a link.
std::string At(const Files& files, const std::string& path) {
  const auto found = files.find(path);
  if (found == files.end()) return "(nothing)";
  return found->second.link ? "-> " + found->second.text : found->second.text;
}

TEST_F(SysfsFilesTest, Device) {
  const Files files = Make({MakeDevice("rxeu0", "eth0")});
  EXPECT_EQ(At(files, "sys/class/infiniband/rxeu0"),
            "-> ../../devices/virtual/infiniband/rxeu0");
  EXPECT_EQ(At(files, kDevice + "node_guid"), "0123:4567:89ab:cdef\n");
  EXPECT_EQ(At(files, kDevice + "node_type"), "1: CA\n");
  EXPECT_EQ(At(files, kDevice + "parent"), "eth0\n");
  EXPECT_EQ(At(files, "sys/class/infiniband_verbs/uverbs0"),
            "-> ../../devices/virtual/infiniband_verbs/uverbs0");
  EXPECT_EQ(At(files, "sys/devices/virtual/infiniband_verbs/uverbs0/ibdev"),
            "rxeu0\n");
  EXPECT_EQ(At(files, "dev/infiniband/uverbs0"), "-> /dev/full");
  EXPECT_EQ(At(files, "dev/infiniband/uverbs1"), "(nothing)");
}

TEST_F(SysfsFilesTest, Port) {
  const auto device = MakeDevice("rxeu0", "eth0");
  Files files = Make({device});
  EXPECT_EQ(At(files, kPort + "state"), "4: ACTIVE\n");
  EXPECT_EQ(At(files, kPort + "phys_state"), "5: LinkUp\n");
  EXPECT_EQ(At(files, kPort + "rate"), "100 Gb/sec (4X EDR)\n");
  device->up = false;
  files = Make({device});
  EXPECT_EQ(At(files, kPort + "state"), "1: DOWN\n");
  EXPECT_EQ(At(files, kPort + "phys_state"), "3: Disabled\n");
}

TEST_F(SysfsFilesTest, EmptyGidsKeepTheirPlaces) {
  const Files files = Make({MakeDevice("rxeu0", "eth0")});
  EXPECT_EQ(At(files, kPort + "gids/0"),
            "0000:0000:0000:0000:0000:ffff:0a01:0203\n");
  EXPECT_EQ(At(files, kPort + "gids/1"),
            "0000:0000:0000:0000:0000:0000:0000:0000\n");
  EXPECT_EQ(At(files, kPort + "gids/2"),
            "fe80:0000:0000:0000:0000:0000:0000:0001\n");
  EXPECT_EQ(At(files, kPort + "gid_attrs/types/2"), "RoCE v2\n");
  EXPECT_EQ(At(files, kPort + "gid_attrs/ndevs/2"), "eth0\n");
  EXPECT_EQ(At(files, kPort + "gid_attrs/types/1"), "(nothing)");
  EXPECT_EQ(At(files, kPort + "gid_attrs/ndevs/1"), "(nothing)");
}

TEST_F(SysfsFilesTest, Counters) {
  const Files files =
      Make({MakeDevice("rxeu0", "eth0"), MakeDevice("rxeu1", "eth1")},
           {{"rxeu0", {{"port_xmit_data", 7}, {"sent_pkts", 8}}}});
  EXPECT_EQ(At(files, kPort + "counters/port_xmit_data"), "7\n");
  EXPECT_EQ(At(files, kPort + "hw_counters/sent_pkts"), "8\n");
  // All counters exist before a process has counted anything.
  const std::string other = "sys/devices/virtual/infiniband/rxeu1/ports/1/";
  for (const char* name : {"port_xmit_data", "port_rcv_data",
                           "port_xmit_packets", "port_rcv_packets"}) {
    EXPECT_EQ(At(files, other + "counters/" + name), "0\n") << name;
  }
  EXPECT_EQ(At(files, other + "hw_counters/out_of_sequence"), "0\n");
}

TEST_F(SysfsFilesTest, InterfaceOfADevice) {
  Put("devices/pci0/0000:01:00.0/numa_node", "1");
  Put("devices/pci0/0000:01:00.0/local_cpulist", "4-7");
  Put("devices/pci0/0000:01:00.0/vendor", "0x15b3");
  fs::create_directories(sysfs_ / "class/net/eth0");
  const fs::path parent = sysfs_ / "devices/pci0/0000:01:00.0";
  fs::create_symlink(parent, sysfs_ / "class/net/eth0/device");
  Files files = Make({MakeDevice("rxeu0", "eth0")});
  EXPECT_EQ(At(files, kDevice + "device/vendor"),
            "-> " + (parent / "vendor").string());
  EXPECT_EQ(At(files, kDevice + "device/device"), "(nothing)");
  EXPECT_EQ(At(files, kDevice + "device/numa_node"), "1\n");
  EXPECT_EQ(At(files, kDevice + "device/local_cpulist"), "4-7\n");
  EXPECT_EQ(At(files, kDevice + "device/local_cpus"), "000000f0\n");
  EXPECT_EQ(At(files, kDevice + "device/net/eth0"),
            "-> " + (sysfs_ / "class/net/eth0").string());

  // A device that looks like mlx5 has no PCI ID.
  rxe_user::Device mlx5 = *MakeDevice("rxeu0", "eth0");
  mlx5.mlx5 = true;
  files = Make({std::make_shared<const rxe_user::Device>(mlx5)});
  EXPECT_EQ(At(files, kDevice + "device/vendor"), "(nothing)");
  EXPECT_EQ(At(files, kDevice + "device/numa_node"), "1\n");

  // The same for a child of the PCI function, as with virtio.
  fs::create_directories(parent / "virtio2");
  fs::remove(sysfs_ / "class/net/eth0/device");
  fs::create_symlink(parent / "virtio2", sysfs_ / "class/net/eth0/device");
  files = Make({MakeDevice("rxeu0", "eth0")});
  EXPECT_EQ(At(files, kDevice + "device/numa_node"), "1\n");
}

TEST_F(SysfsFilesTest, InterfaceWithoutADevice) {
  const Files files = Make({MakeDevice("rxeu0", "lo")});
  EXPECT_EQ(At(files, kDevice + "device/numa_node"), "-1\n");
  EXPECT_EQ(At(files, kDevice + "device/local_cpulist"), "0-3,33\n");
  EXPECT_EQ(At(files, kDevice + "device/local_cpus"), "00000002,0000000f\n");
  EXPECT_EQ(At(files, kDevice + "device/infiniband/rxeu0"),
            "-> ../../../rxeu0");
  EXPECT_EQ(At(files, kDevice + "device/vendor"), "(nothing)");
}

TEST_F(SysfsFilesTest, InterfacesLeadToTheirDevice) {
  const Files files = Make({MakeDevice("rxeu0", "eth0")});
  EXPECT_EQ(At(files, "sys/class/net/eth0/device/infiniband/rxeu0"),
            "-> ../../../../../devices/virtual/infiniband/rxeu0");
  EXPECT_EQ(At(files, "sys/class/net/eth0/device/infiniband_verbs/uverbs0"),
            "-> ../../../../../devices/virtual/infiniband_verbs/uverbs0");
}

// Index and counters together describe the same files as SysfsFiles.
TEST_F(SysfsFilesTest, TheIndexSaysTheSame) {
  const rxe_user::Devices devices = {MakeDevice("rxeu0", "eth0"),
                                     MakeDevice("rxeu1", "eth1")};
  const std::map<std::string, Counters> counters = {
      {"rxeu0", {{"port_xmit_data", 7}, {"sent_pkts", 8}}}};
  Files files = IndexFiles(devices, sysfs_);
  for (const auto& [path, entry] : CounterFiles(counters)) files[path] = entry;
  Files found;
  for (const auto& [path, entry] : files) {
    if (path.starts_with("none/")) continue;
    if (!entry.same) {
      found[path] = entry;
      continue;
    }
    // This device has its own counters.
    if (path.find("rxeu0/") != std::string::npos) continue;
    for (const auto& [other, same] : files) {
      if (other.starts_with(entry.text + "/")) {
        found[path + other.substr(entry.text.size())] = same;
      }
    }
  }
  EXPECT_EQ(found, SysfsFiles(devices, counters, sysfs_));
}

TEST_F(SysfsFilesTest, NamesThatLeadElsewhereAreLeftOut) {
  for (const char* name : {".", ".."}) {
    const Files files = Make({MakeDevice(name, "lo")});
    EXPECT_EQ(At(files, std::string("sys/class/infiniband/") + name),
              "(nothing)");
  }
}

}  // namespace
}  // namespace view
