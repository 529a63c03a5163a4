#include "tools/rxe_user_cli/check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace rxe_user_cli {
namespace {

class CheckCommandTest : public testing::Test {
 protected:
  // A pcap file with one frame of 64 zeros, or none. Sets err_.
  int Check(uint32_t link_type, bool with_frame) {
    std::vector<uint32_t> words = {0xa1b2c3d4, 0x00040002, 0,
                                   0,          65535,      link_type};
    if (with_frame) {
      words.insert(words.end(), {1, 0, 64, 64});
      words.resize(words.size() + 16);
    }
    const std::string path = testing::TempDir() + "/check_test.pcap";
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(words.data(), 4, words.size(), file), words.size());
    std::fclose(file);
    char* text = nullptr;
    size_t size = 0;
    std::FILE* const err = open_memstream(&text, &size);
    CheckOptions options;
    options.files = {path};
    const int status = RunCheck(options, stdout, err);
    std::fclose(err);
    err_.assign(text, size);
    std::free(text);
    return status;
  }

  std::string err_;
};

TEST_F(CheckCommandTest, AnotherLinkType) {
  EXPECT_EQ(Check(239, true), 2);
  EXPECT_TRUE(err_.ends_with(": its link type 239 is not supported\n")) << err_;
}

// No findings, but a line.
TEST_F(CheckCommandTest, NoPackets) {
  EXPECT_EQ(Check(1, true), 0);
  EXPECT_TRUE(err_.ends_with(
      ": it has no RoCEv2 packets (1 other frames, 0 malformed)\n"))
      << err_;
  EXPECT_EQ(Check(1, false), 0);
  EXPECT_EQ(err_, "") << "an empty file";
}

}  // namespace
}  // namespace rxe_user_cli
