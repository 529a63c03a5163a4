#include "tools/rxe_user_cli/rdma.h"

#include <memory>
#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "rxe_user/observe/report_text.h"

namespace rxe_user_cli {
namespace {

using Json = nlohmann::json;

std::shared_ptr<rxe_user::Device> NewDevice(const char* name,
                                            const char* netdev, int ifindex) {
  auto device = std::make_shared<rxe_user::Device>();
  device->name = name;
  device->netdev = netdev;
  device->ifindex = ifindex;
  device->up = true;
  device->guid = 0x0000'00ff'fe00'00ab;
  return device;
}

// A device that is up, with a queue pair in RTS, and one that is down.
RdmaState TwoDevices() {
  auto down = NewDevice("rxeu1", "lo", 1);
  down->up = false;
  rxe_user::ReportRecord device;
  device.kind = "device";
  device.attributes = {
      {"name", "rxeu0"}, {"netdev", "eth0"}, {"queue_pair_count", uint64_t{1}}};
  device.counters = {{"sent_pkts", 5}};
  rxe_user::ReportRecord queue_pair;
  queue_pair.kind = "queue_pair";
  queue_pair.attributes = {{"qpn", uint64_t{17}},
                           {"type", "RC"},
                           {"state", "RTS"},
                           {"peer_qpn", uint64_t{18}},
                           {"send_psn", uint64_t{99}}};
  StatProcess process;
  process.pid = 12;
  process.command = "ib_write_bw";
  process.devices = {{device, {}, {queue_pair}}};
  return {{NewDevice("rxeu0", "eth0", 2), down}, {process}};
}

std::string Ask(const std::vector<std::string>& arguments) {
  RdmaQuestion question;
  std::string text;
  if (!ParseRdma(arguments, &question, &text)) return "refused: " + text;
  return AnswerRdma(question, TwoDevices(), &text) ? text : "not found";
}

TEST(RdmaTest, LinkTellsTheInterfaceOfADevice) {
  EXPECT_EQ(Ask({"link"}),
            "link rxeu0/1 state ACTIVE physical_state LINK_UP netdev eth0 \n"
            "link rxeu1/1 state DOWN physical_state DISABLED netdev lo \n");
  EXPECT_EQ(Ask({"link", "show", "rxeu1"}),
            "link rxeu1/1 state DOWN physical_state DISABLED netdev lo \n");
  EXPECT_EQ(Ask({"-d", "link", "show", "rxeu0/1"}),
            "link rxeu0/1 state ACTIVE physical_state LINK_UP netdev eth0 "
            "netdev_index 2 \n");
  const Json links = Json::parse(Ask({"link", "show", "-j"}));
  ASSERT_EQ(links.size(), 2u);
  EXPECT_EQ(links[0],
            Json::parse(R"({"ifindex": 0, "ifname": "rxeu0", "port": 1,
                            "state": "ACTIVE", "physical_state": "LINK_UP",
                            "netdev": "eth0", "netdev_index": 2})"));
}

TEST(RdmaTest, DevTellsGuids) {
  EXPECT_EQ(Ask({"dev", "show", "rxeu0"}),
            "0: rxeu0: node_type ca protocol roce fw rxe_user node_guid "
            "0000:00ff:fe00:00ab sys_image_guid 0000:00ff:fe00:00ab \n");
  EXPECT_EQ(Ask({}), Ask({"dev"}));
  EXPECT_EQ(Json::parse(Ask({"-jp", "dev"}))[1]["ifname"], "rxeu1");
}

TEST(RdmaTest, StatisticTellsCountersOfRunningProcesses) {
  EXPECT_EQ(Ask({"stat"}), Ask({"statistic", "show", "link"}));
  EXPECT_TRUE(Ask({"statistic", "show", "link", "rxeu0/1"})
                  .starts_with("link rxeu0/1 "));
  const Json links = Json::parse(Ask({"-j", "statistic"}));
  EXPECT_EQ(links[0]["ifname"], "rxeu0");
  EXPECT_EQ(links[0]["port"], 1);
  EXPECT_EQ(links[0]["sent_pkts"], 5);
  EXPECT_EQ(links[1]["sent_pkts"], 0);
}

TEST(RdmaTest, ResourceTellsQueuePairs) {
  EXPECT_EQ(Ask({"res"}), "0: rxeu0: qp 1 \n1: rxeu1: qp 0 \n");
  EXPECT_EQ(Ask({"resource", "show", "qp", "link", "rxeu0"}),
            "link rxeu0/1 lqpn 17 rqpn 18 type RC state RTS sq-psn 99 "
            "path-mig-state MIGRATED pid 12 comm ib_write_bw \n");
  EXPECT_EQ(Ask({"-j", "resource", "show", "qp", "link", "rxeu1"}), "[]\n");
}

// Any process may send any report; root asks those of all users.
TEST(RdmaTest, ANumberOfAReportMayBeAWord) {
  RdmaState state = TwoDevices();
  auto& attributes = state.processes[0].devices[0].queue_pairs[0].attributes;
  ASSERT_EQ(attributes[3].first, "peer_qpn");
  attributes[3].second = "x";
  RdmaQuestion question;
  std::string text;
  ASSERT_TRUE(ParseRdma({"res", "show", "qp"}, &question, &text)) << text;
  ASSERT_TRUE(AnswerRdma(question, state, &text));
  EXPECT_TRUE(text.starts_with("link rxeu0/1 lqpn 17 rqpn 0 type RC")) << text;
}

// In a process that started before eth0 existed, lo is the first device.
TEST(RdmaTest, ProcessesMayNumberDevicesOtherwise) {
  RdmaState state = TwoDevices();
  state.processes[0].devices[0].device.attributes[1].second = "lo";
  RdmaQuestion question;
  std::string text;
  ASSERT_TRUE(ParseRdma({"res"}, &question, &text)) << text;
  ASSERT_TRUE(AnswerRdma(question, state, &text));
  EXPECT_EQ(text, "0: rxeu0: qp 0 \n1: rxeu1: qp 1 \n");
}

TEST(RdmaTest, RefusesWhatOurDevicesCannotDo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"frobnicate"},
        {"-x", "dev"},
        {"-", "dev"},
        {"--jay", "dev"},
        {"link", "add", "rxe_0", "type", "rxe", "netdev", "eth0"},
        {"link", "show", "rxeu0/x"},
        {"link", "show", "rxeu0/0"},
        {"link", "show", "/1"},
        {"link", "show", "rxeu0", "rxeu1"},
        {"system", "set", "netns", "shared"}}) {
    EXPECT_TRUE(Ask(arguments).starts_with("refused: "))
        << testing::PrintToString(arguments);
  }
  EXPECT_EQ(Ask({"link", "show", "mlx5_0"}), "not found");
  EXPECT_EQ(Ask({"link", "show", "rxeu0/2"}), "not found");
}

}  // namespace
}  // namespace rxe_user_cli
