#include "tools/rxe_user_cli/explain.h"

#include <cstdio>
#include <fstream>
#include <sstream>

#include "gtest/gtest.h"
#include "transport/base/reason.h"

namespace rxe_user_cli {
namespace {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Explain, Status12) {
  const std::string text = ExplainStatus(12, 129);
  EXPECT_TRUE(Has(text, "status 12: IBV_WC_RETRY_EXC_ERR"));
  EXPECT_TRUE(Has(text, "vendor_err 129 (0x81) of mlx5"));
  EXPECT_FALSE(Has(text, "of our device"));
  EXPECT_TRUE(Has(ExplainStatus(12, 2), "of our device: peer_silent"));
  EXPECT_EQ(ExplainStatus(99, 129), "");
}

// A flushed work request has the reason of the first error.
TEST(Explain, Status5) {
  const std::string text = ExplainStatus(5, 50);
  EXPECT_TRUE(Has(text, "failed before, for this reason"));
  EXPECT_TRUE(Has(text, "remote_key"));
  EXPECT_TRUE(Has(ExplainStatus(5, 249), "(0xf9) of mlx5: flushed"));
  EXPECT_TRUE(Has(ExplainStatus(5, 245), "NVIDIA does not document it"));
}

TEST(Explain, UnknownAndMismatchedNumbers) {
  EXPECT_TRUE(Has(ExplainStatus(12, 7777), "vendor_err 7777 (0x1e61): not"));
  EXPECT_TRUE(Has(ExplainStatus(10, 129), "it is known with status 12"));
}

TEST(Explain, Parses) {
  const auto parse = [](std::vector<std::string> words, ExplainOptions* out) {
    std::string error;
    return ParseExplain(words, out, &error);
  };
  ExplainOptions options;
  ASSERT_TRUE(parse({"status", "12", "vendor_err", "0x81"}, &options));
  EXPECT_EQ(options.status, 12u);
  EXPECT_EQ(options.vendor_err, 129u);
  options = {};
  ASSERT_TRUE(parse({"123", "0x50011"}, &options));
  EXPECT_EQ(options.pid, 123);
  EXPECT_EQ(options.qpn, 0x50011u);
  options = {};
  ASSERT_TRUE(parse({"a.pcapng", "b.pcapng"}, &options));
  EXPECT_EQ(options.files, (std::vector<std::string>{"a.pcapng", "b.pcapng"}));
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{},
                                             {"status"},
                                             {"status", "x"},
                                             {"status", "12", "vendor_err"},
                                             {"status", "12", "13"},
                                             {"0"},
                                             {""},
                                             {"-1"},
                                             {"1", "2", "3"},
                                             {"1", "x"},
                                             {"99999999999"}}) {
    EXPECT_FALSE(parse(wrong, &options));
  }
}

// Even if the process has refused calls to report.
TEST(Explain, AnUnknownQueuePairIsAnError) {
  rxe_user::Witness own;
  own.pid = 7;
  own.records.push_back({.kind = "queue_pair",
                         .attributes = {{"qpn", uint64_t{0x11011}}},
                         .counters = {}});
  own.records.push_back({.kind = "refusal",
                         .attributes = {{"call", "ibv_modify_qp"}},
                         .counters = {}});
  std::FILE* const out = std::tmpfile();
  std::FILE* const err = std::tmpfile();
  ASSERT_TRUE(out != nullptr && err != nullptr);
  EXPECT_EQ(ExplainWitness(own, 0x11012, {own}, out, err), 1);
  EXPECT_EQ(std::ftell(out), 0);
  std::rewind(err);
  char line[256] = "";
  ASSERT_NE(std::fgets(line, sizeof(line), err), nullptr);
  EXPECT_TRUE(Has(line, "process 7 has no queue pair 69650")) << line;
  EXPECT_EQ(std::fgets(line, sizeof(line), err), nullptr);
  EXPECT_EQ(ExplainWitness(own, 0x11011, {own}, out, err), 0);
  std::fclose(out);
  std::fclose(err);
}

// /dev/full fails when the buffer is written, not before.
TEST(Explain, ReportsThatItCannotWrite) {
  ExplainOptions options;
  options.status = 12;
  std::FILE* const out = std::fopen("/dev/full", "w");
  std::FILE* const err = std::tmpfile();
  ASSERT_TRUE(out != nullptr && err != nullptr);
  EXPECT_EQ(RunExplain(options, out, err), 1);
  std::rewind(err);
  char line[256] = "";
  ASSERT_NE(std::fgets(line, sizeof(line), err), nullptr);
  EXPECT_TRUE(Has(line, "rxe-user explain: cannot write: ")) << line;
  std::fclose(out);
  std::fclose(err);
}

// docs/errors.md is made from the table: if this fails, put the table that it
// prints there.
TEST(Explain, PageIsMadeFromTheTable) {
  std::ifstream in("docs/errors.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_TRUE(Has(page.str(), ErrorsTable())) << ErrorsTable();
}

}  // namespace
}  // namespace rxe_user_cli
