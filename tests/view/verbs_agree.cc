// Compares the attributes of libibverbs with the files in /sys. view_test runs
// it under rxe-user run.
#include <arpa/inet.h>
#include <endian.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "tests/conformance/fixture.h"

// infiniband/driver.h, which is not valid C++.
extern "C" {
const char* ibv_get_sysfs_path();
int ibv_read_sysfs_file(const char* folder, const char* file, char* buffer,
                        size_t size);
}

namespace conformance {
namespace {

std::string Read(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  EXPECT_TRUE(static_cast<bool>(std::getline(in, line))) << path;
  return line;
}

std::string Groups(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i += 2) {
    char group[8];
    std::snprintf(group, sizeof(group), "%s%02x%02x", i == 0 ? "" : ":",
                  bytes[i], bytes[i + 1]);
    text += group;
  }
  return text;
}

class AgreeTest : public PairTest {
 protected:
  void SetUp() override {
    PairTest::SetUp();
    device_ = context_->device;
    folder_ = std::string(device_->ibdev_path) + "/";
    port_ = folder_ + "ports/1/";
  }

  ibv_device* device_ = nullptr;
  std::string folder_, port_;
};

TEST_F(AgreeTest, Device) {
  const std::string name = ibv_get_device_name(device_);
  EXPECT_EQ(folder_, std::string(ibv_get_sysfs_path()) + "/class/infiniband/" +
                         name + "/");
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  const auto guid = [](__be64 value) {
    return Groups(reinterpret_cast<const uint8_t*>(&value), sizeof(value));
  };
  EXPECT_EQ(Read(folder_ + "node_guid"), guid(attr.node_guid));
  EXPECT_EQ(Read(folder_ + "node_guid"), guid(ibv_get_device_guid(device_)));
  EXPECT_EQ(Read(folder_ + "sys_image_guid"), guid(attr.sys_image_guid));
  EXPECT_EQ(Read(folder_ + "fw_ver"), attr.fw_ver);
  EXPECT_EQ(Read(folder_ + "hw_rev"), std::to_string(attr.hw_ver));
  EXPECT_EQ(Read(folder_ + "node_type"), "1: CA");
  EXPECT_EQ(device_->node_type, IBV_NODE_CA);
  char text[64];
  ASSERT_GT(
      ibv_read_sysfs_file(device_->ibdev_path, "node_guid", text, sizeof(text)),
      0);
  EXPECT_EQ(text, guid(attr.node_guid));

  EXPECT_EQ(Read(std::string(device_->dev_path) + "/ibdev"), name);
  std::FILE* const node = std::fopen(
      ("/dev/infiniband/" + std::string(device_->dev_name)).c_str(), "r+");
  ASSERT_NE(node, nullptr);
  std::fclose(node);
}

TEST_F(AgreeTest, Port) {
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(context_, 1, &attr), 0);
  EXPECT_EQ(Read(port_ + "state").substr(0, 2),
            std::to_string(attr.state) + ":");
  EXPECT_EQ(Read(port_ + "state"), "4: ACTIVE");
  EXPECT_EQ(Read(port_ + "phys_state").substr(0, 2),
            std::to_string(attr.phys_state) + ":");
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(Read(port_ + "link_layer"), "Ethernet");
  EXPECT_EQ(std::stoul(Read(port_ + "lid"), nullptr, 16), attr.lid);
  EXPECT_EQ(std::stoul(Read(port_ + "lid_mask_count")), attr.lmc);
  EXPECT_EQ(std::stoul(Read(port_ + "sm_lid"), nullptr, 16), attr.sm_lid);
  EXPECT_EQ(std::stoul(Read(port_ + "sm_sl")), attr.sm_sl);
  EXPECT_EQ(std::stoul(Read(port_ + "cap_mask"), nullptr, 16),
            attr.port_cap_flags);

  // "40 Gb/sec (4X FDR10)"
  const std::string rate = Read(port_ + "rate");
  EXPECT_NE(rate.find(attr.active_width == 2 ? "(4X" : "(1X"),
            std::string::npos)
      << rate;
  const double lane = attr.active_speed == 1     ? 2.5
                      : attr.active_speed == 2   ? 5
                      : attr.active_speed == 16  ? 14
                      : attr.active_speed == 32  ? 25
                      : attr.active_speed == 64  ? 50
                      : attr.active_speed == 128 ? 100
                                                 : 10;
  EXPECT_EQ(std::stod(rate), lane * (attr.active_width == 2 ? 4 : 1));
}

TEST_F(AgreeTest, Tables) {
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(context_, 1, &attr), 0);
  for (int i = 0; i < attr.gid_tbl_len; ++i) {
    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
    const std::string index = std::to_string(i);
    EXPECT_EQ(Read(port_ + "gids/" + index), Groups(gid.raw, 16));
    EXPECT_EQ(Read(port_ + "gid_attrs/types/" + index), "RoCE v2");
    EXPECT_EQ(Read(port_ + "gid_attrs/ndevs/" + index), "lo");
  }
  std::ifstream behind(port_ + "gids/" + std::to_string(attr.gid_tbl_len));
  EXPECT_FALSE(behind.is_open());
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  __be16 pkey;
  ASSERT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
  EXPECT_EQ(std::stoul(Read(port_ + "pkeys/0"), nullptr, 16), ntohs(pkey));
}

TEST_F(AgreeTest, CountersCountSentPackets) {
  const auto read = [&](const std::string& name) {
    return std::stoull(Read(port_ + name));
  };
  const auto packets = read("counters/port_xmit_packets");
  const auto words = read("counters/port_xmit_data");
  const auto writes = read("hw_counters/rdma_writes");
  // As perftest reads counters: opened once.
  const int held =
      open((port_ + "counters/port_xmit_packets").c_str(), O_RDONLY);
  const auto read_held = [&] {
    char text[32] = "";
    EXPECT_GT(::read(held, text, sizeof(text) - 1), 0);
    EXPECT_EQ(lseek(held, 0, SEEK_SET), 0);
    return std::stoull(text);
  };
  EXPECT_GE(read_held(), packets);
  constexpr uint32_t kBytes = 100 << 10;  // 100 packets
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, kBytes, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_GE(read_held(), packets + 100);
  close(held);
  EXPECT_GE(read("counters/port_xmit_packets"), packets + 100);
  EXPECT_GE(read("counters/port_rcv_packets"), packets + 100);
  EXPECT_GE(read("counters/port_xmit_data"), words + kBytes / 4);
  EXPECT_LE(read("counters/port_xmit_data"), words + kBytes / 2);
  EXPECT_EQ(read("hw_counters/rdma_writes"), writes + 1);
}

}  // namespace
}  // namespace conformance
