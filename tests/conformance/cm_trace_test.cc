// Messages of the connection manager in a recording (RXE_USER_TRACE), as shown
// by rxe-user trace and explain. Both ends are in this process.
#include <arpa/inet.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/conformance/cm_fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

using Json = nlohmann::json;

class CmTraceTest : public CmPairTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_trace_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RXE_USER_TRACE", recording().c_str(), 1);
    setenv("RXE_USER_CAPTURE", (folder_ + "/a.pcap").c_str(), 1);
    CmPairTest::SetUp();
  }
  void TearDown() override {
    CmPairTest::TearDown();
    unsetenv("RXE_USER_TRACE");
    unsetenv("RXE_USER_CAPTURE");
    std::filesystem::remove_all(folder_);
  }
  std::string recording() const { return folder_ + "/a.pcapng"; }

  // The messages, by "REQ sent" and so on, as soon as `last` is among them.
  std::map<std::string, std::vector<Json>> Await(const std::string& last) {
    std::map<std::string, std::vector<Json>> messages;
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::seconds(60);
    do {
      messages.clear();
      packets_.clear();
      for (const Json& line : RunToolForJson("trace --json " + recording())) {
        if (line["type"] == "packet") packets_.push_back(line);
        if (line["type"] != "event" || line["name"] != "cm_message") continue;
        messages[line["attribute"].get<std::string>() + " " +
                 line["way"].get<std::string>()]
            .push_back(line);
      }
    } while (messages[last].empty() &&
             std::chrono::steady_clock::now() < until);
    return messages;
  }

  std::string folder_;
  std::vector<Json> packets_;
};

TEST_P(CmTraceTest, EachMessageHasItsCause) {
  Connect();
  const uint32_t client = client_->qp->qp_num;
  const uint32_t server = server_->qp->qp_num;
  Disconnect();
  auto messages = Await("DREP received");
  for (const char* attribute : {"REQ", "REP", "RTU", "DREQ", "DREP"}) {
    for (const char* way : {" sent", " received"}) {
      ASSERT_FALSE(messages[std::string(attribute) + way].empty())
          << attribute << way;
    }
  }
  const auto first = [&](const char* name) { return messages[name].front(); };
  EXPECT_FALSE(first("REQ sent").contains("cause"));
  EXPECT_EQ(first("REP sent")["cause"], first("REQ received")["id"]);
  EXPECT_EQ(first("RTU sent")["cause"], first("REP received")["id"]);
  EXPECT_EQ(first("DREP sent")["cause"], first("DREQ received")["id"]);
  // Each message belongs to the queue pair of its end. A received REQ has none
  // yet.
  for (const char* name :
       {"REQ sent", "REP received", "RTU sent", "DREQ sent", "DREP received"}) {
    EXPECT_EQ(first(name)["qpn"], client) << name;
  }
  for (const char* name :
       {"REP sent", "RTU received", "DREQ received", "DREP sent"}) {
    EXPECT_EQ(first(name)["qpn"], server) << name;
  }
  EXPECT_FALSE(first("REQ received").contains("qpn"));
  EXPECT_EQ(std::stoul(first("REQ received")["sender_qpn"].get<std::string>(),
                       nullptr, 16),
            client);

  // The cause of a sent packet is its message, and that of a received message
  // is its packet.
  std::map<std::string, int> arrows;
  for (const Json& packet : packets_) {
    ASSERT_TRUE(packet.contains("mad")) << packet;
    ++arrows[packet["mad"]];
    EXPECT_EQ(packet["fate"], "arrived") << packet;
    EXPECT_TRUE(packet.contains("cause")) << packet;
    EXPECT_EQ(packet["icrc"], "good") << packet;
  }
  for (const char* name :
       {"CM_REQ", "CM_REP", "CM_RTU", "CM_DREQ", "CM_DREP"}) {
    EXPECT_GE(arrows[name], 1) << name;
  }
  EXPECT_EQ(RunTool("explain " + recording()), "");

  // The capture has them, too: each when it was sent and when it was received.
  std::map<std::string, int> captured;
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::seconds(60);
  do {
    captured.clear();
    for (const Json& packet :
         RunToolForJson("decode --json " + folder_ + "/a.pcap")) {
      if (packet["type"] == "packet") ++captured[packet["mad"]];
    }
  } while (captured["CM_DREP"] < 2 && std::chrono::steady_clock::now() < until);
  for (const char* name :
       {"CM_REQ", "CM_REP", "CM_RTU", "CM_DREQ", "CM_DREP"}) {
    EXPECT_GE(captured[name], 2) << name;
  }
}

TEST_P(CmTraceTest, NobodyListens) {
  rdma_cm_id* const gone = NewListener(GetParam());
  client_ = NewClient(GetParam(), gone);
  ASSERT_EQ(rdma_destroy_id(gone), 0);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_REJECTED, 8);
  auto messages = Await("REJ received");
  ASSERT_FALSE(messages["REJ received"].empty());
  EXPECT_EQ(messages["REJ received"][0]["reason"], 8);
  const std::string text = RunTool("explain " + recording());
  for (const char* part :
       {"RDMA_CM_EVENT_REJECTED, status 8 (INVALID_SERVICE_ID)",
        "no program at that address listens", "CM REQ sent to"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, CmTraceTest,
                         testing::Values(AF_INET, AF_INET6));

}  // namespace
}  // namespace conformance
