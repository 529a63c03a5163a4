// RXE_USER_CAPTURE: the packets that a program sends and receives, as shown by
// rxe-user decode.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class CaptureTest : public PairTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_capture_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RXE_USER_CAPTURE", file().c_str(), 1);
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_CAPTURE");
    std::filesystem::remove_all(folder_);
  }
  std::string file() const { return folder_ + "/a.pcap"; }

  // The lines of `rxe-user decode --json`. The last one is the summary.
  std::vector<nlohmann::json> Decode() {
    const std::string command =
        std::string(getenv("RXE_USER_TEST_CLI")) + " decode --json " + file();
    std::FILE* const out = popen(command.c_str(), "r");
    std::vector<nlohmann::json> lines;
    char line[4096];
    while (std::fgets(line, sizeof(line), out) != nullptr) {
      lines.push_back(nlohmann::json::parse(line));
    }
    decoded_ = pclose(out) == 0;
    return lines;
  }

  std::string folder_;
  bool decoded_ = false;  // up to the end of the file
};

// Both ends are in this process, so the file has each packet as sent and as
// received. Messages have five packets, which the kernel sends and receives as
// one frame.
TEST_F(CaptureTest, HasEachPacketOnceInEachDirection) {
  constexpr int kRounds = 40;
  constexpr uint32_t kBytes = 5000;
  constexpr size_t kPackets = 5;
  for (int i = 0; i < kRounds; ++i) {
    for (const auto& [from, to] : {std::pair(&a_, &b_), std::pair(&b_, &a_)}) {
      ASSERT_EQ(Receive(*to, 1, 0, kBytes), 0);
      ASSERT_EQ(Send(*from, IBV_WR_SEND, 2, 0, kBytes), 0);
      ExpectSuccess(to->cq, 1);
      ExpectSuccess(from->cq, 2);
    }
  }
  std::vector<nlohmann::json> lines;
  std::map<std::string, int> times;  // the records of each packet
  const auto is_whole = [&] {
    lines = Decode();
    times.clear();
    size_t data = 0;
    for (const nlohmann::json& line : lines) {
      if (line["type"] != "packet") continue;
      const std::string opcode = line["opcode"];
      const bool is_data = opcode.starts_with("RC_SEND");
      const std::string key = opcode + " to " + line["qp"].dump() + " PSN " +
                              line["psn"].dump() + " from port " +
                              line["src_port"].dump();
      if (++times[key] == 2 && is_data) ++data;
    }
    return decoded_ && data == 2 * kRounds * kPackets;
  };
  // The file is written within a fraction of a second.
  const int64_t until = NowMs() + kTimeoutMs;
  while (!is_whole() && NowMs() < until) {
  }
  ASSERT_TRUE(is_whole()) << file();
  const nlohmann::json summary = lines.back();
  EXPECT_EQ(summary["type"], "summary");
  EXPECT_EQ(summary["icrc_good"], summary["packets"]) << summary;
  EXPECT_EQ(summary["packets"], lines.size() - 1) << summary;
  // On a busy machine a late acknowledgement may cause retransmissions.
  for (const auto& [packet, count] : times) {
    EXPECT_EQ(count % 2, 0) << packet;
  }
  for (const nlohmann::json& line : lines) {
    if (line["type"] != "packet") continue;
    EXPECT_FALSE(line.contains("segment")) << line;
    EXPECT_EQ(line["src"], "127.0.0.1") << line;
    EXPECT_EQ(line["dst"], "127.0.0.1") << line;
    EXPECT_EQ(line["ttl"], lines[0]["ttl"]) << line;
    EXPECT_GE(line["src_port"], 0xc000) << line;
  }
}

}  // namespace
}  // namespace conformance
