// rxe-user trace, check and decode: files, and output without a reader.
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tools/rxe_user_cli/cli_fixture.h"

namespace cli_test {
namespace {

// Standard output is a pipe without a reader.
void ClosePipe(void (*sigpipe)(int)) {
  int ends[2];
  if (pipe(ends) != 0) _exit(98);
  close(ends[0]);
  dup2(ends[1], 1);
  signal(SIGPIPE, sigpipe);
}

TEST_F(CliTest, ClosedPipesAreNoError) {
  const Result r = Execute({"devices"}, [] { ClosePipe(SIG_IGN); });
  EXPECT_EQ(r.err, "");
  EXPECT_EQ(r.exit_status, 0);
  const Result killed = Execute({"devices"}, [] { ClosePipe(SIG_DFL); });
  EXPECT_EQ(killed.err, "");
}

TEST_F(CliTest, TraceWritesAFileToItsEndWithoutAReaderOfTheOutput) {
  const fs::path file = root_ / "empty.pcap";
  const unsigned char header[24] = {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0};
  std::ofstream(file).write(reinterpret_cast<const char*>(header),
                            sizeof(header));
  const fs::path alone = root_ / "alone", beside = root_ / "beside";
  // Each file is a line: together they are more than a buffer.
  const auto trace = [&](const fs::path& to) {
    std::vector<std::string> arguments = {"trace", "--json", "--sqlog", to};
    arguments.insert(arguments.end(), 200, file);
    return arguments;
  };
  const Result all = Execute(trace(alone));
  EXPECT_EQ(all.exit_status, 0) << all.err;
  EXPECT_GT(all.out.size(), 8192u);
  const Result cut = Execute(trace(beside), [] { ClosePipe(SIG_DFL); });
  EXPECT_EQ(cut.exit_status, 0);
  EXPECT_EQ(cut.err, "");
  EXPECT_EQ(ReadAll(beside), ReadAll(alone));
}

TEST_F(CliTest, TraceReportsFilesThatItCannotRead) {
  const Result none = Execute({"trace", "/nonexistent/x"});
  EXPECT_EQ(none.exit_status, 1);
  EXPECT_EQ(none.err,
            "rxe-user trace: /nonexistent/x: No such file or directory\n");
  const fs::path file = root_ / "text";
  std::ofstream(file) << "hello";
  const Result text = Execute({"trace", file});
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_EQ(text.err, "rxe-user trace: " + file.string() +
                          ": it is neither a pcap nor a pcapng file\n");
}

TEST_F(CliTest, CheckTellsItsResultByTheExitStatus) {
  const Result none = Execute({"check", "/nonexistent/x"});
  EXPECT_EQ(none.exit_status, 2);
  EXPECT_EQ(none.err,
            "rxe-user check: /nonexistent/x: No such file or directory\n");
  EXPECT_EQ(Execute({"check"}).exit_status, 2);
  // A pcap file of raw IP with one packet, whose ICRC is wrong.
  const fs::path file = root_ / "bad.pcap";
  std::string bytes("\xd4\xc3\xb2\xa1\2\0\4\0\0\0\0\0\0\0\0\0", 16);
  bytes.append("\xff\xff\0\0\x65\0\0\0", 8);
  const Result empty = [&] {
    std::ofstream(file) << bytes;
    return Execute({"check", file});
  }();
  EXPECT_EQ(empty.exit_status, 0) << empty.err;
  EXPECT_EQ(empty.out + empty.err, "");
  bytes.append(8, '\0').append("\x2c\0\0\0\x2c\0\0\0", 8);
  bytes.append("\x45\0\0\x2c\0\0\x40\0\x40\x11\0\0", 12);  // IPv4
  bytes.append("\x0a\0\0\1\x0a\0\0\2", 8);
  bytes.append("\xc0\0\x12\xb7\0\x18\0\0", 8);           // UDP
  bytes.append("\4\x40\xff\xff\0\0\0\x11\0\0\0\7", 12);  // BTH
  bytes.append(4, '\0');
  std::ofstream(file) << bytes;
  const Result bad = Execute({"check", "--local", "10.0.0.1", file});
  EXPECT_EQ(bad.exit_status, 1) << bad.err;
  EXPECT_EQ(bad.out, file.string() +
                         ": icrc: packet 1 10.0.0.1 > 10.0.0.2 qp=0x000011 "
                         "psn=7: sent with a wrong ICRC (IBA A17.3)\n");
  const Result json = Execute({"check", "--json", file});
  EXPECT_EQ(json.exit_status, 1);
  EXPECT_EQ(nlohmann::json::parse(json.out)["rule"], "icrc") << json.out;
  // Twenty READs, answered within 2.2 ms.
  const std::string golden = "tests/golden/kernel_rxe/read_bw.pcap";
  const Result times = Execute({"check", "--latencies", "--local", "10.9.0.1",
                                "--local", "10.9.0.2", golden});
  EXPECT_EQ(times.exit_status, 0) << times.out << times.err;
  EXPECT_NE(times.out.find("READ request to first response "),
            std::string::npos)
      << times.out;
  const Result rows = Execute({"check", "--latencies", "--json", golden});
  const auto row = nlohmann::json::parse(rows.out);
  EXPECT_EQ(row["latency"], "READ request to first response");
  EXPECT_EQ(row["count"], 20);
  EXPECT_EQ(row["max_ns"], 2170000);
  EXPECT_EQ(Execute({"check", "--timeout", "32", golden}).exit_status, 2);
  const Result wrong = Execute({"check", "--local", "x", file});
  EXPECT_EQ(wrong.exit_status, 2);
  EXPECT_TRUE(OneLine(wrong.err)) << wrong.err;
}

TEST_F(CliTest, TraceWritesItsViews) {
  // A pcap file without packets.
  const fs::path file = root_ / "empty.pcap";
  const unsigned char header[24] = {0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0};
  std::ofstream(file).write(reinterpret_cast<const char*>(header),
                            sizeof(header));
  const Result text = Execute({"trace", file});
  EXPECT_EQ(text.exit_status, 0) << text.err;
  EXPECT_NE(text.out.find("0 packets\n"), std::string::npos) << text.out;
  const Result json = Execute({"trace", "--json", file, file});
  EXPECT_EQ(json.exit_status, 0) << json.err;
  EXPECT_NE(json.out.find("{\"type\":\"summary\""), std::string::npos);
  const fs::path html = root_ / "x.html", svg = root_ / "x.svg";
  const Result both = Execute(
      {"trace", file, "--html", html, "--svg", svg, "--local", "10.0.0.1"});
  EXPECT_EQ(both.exit_status, 0) << both.err;
  EXPECT_EQ(both.out, "");
  EXPECT_TRUE(ReadAll(html).starts_with("<!doctype html>"));
  EXPECT_TRUE(ReadAll(svg).starts_with("<svg "));
  const fs::path perfetto = root_ / "x.json";
  const Result tracks = Execute({"trace", file, "--perfetto", perfetto});
  EXPECT_EQ(tracks.exit_status, 0) << tracks.err;
  EXPECT_EQ(tracks.out, "");
  EXPECT_TRUE(nlohmann::json::parse(ReadAll(perfetto))["traceEvents"].empty());
  const fs::path sqlog = root_ / "x.sqlog";
  const Result records = Execute({"trace", file, "--sqlog", sqlog});
  EXPECT_EQ(records.exit_status, 0) << records.err;
  EXPECT_EQ(records.out, "");
  EXPECT_TRUE(ReadAll(sqlog).starts_with("\x1e{\"file_schema\":"));
  for (const std::string view : {"--svg", "--perfetto", "--sqlog"}) {
    const Result bad = Execute({"trace", file, view, "/nonexistent/x"});
    EXPECT_EQ(bad.exit_status, 1);
    EXPECT_EQ(bad.err,
              "rxe-user trace: /nonexistent/x: No such file or directory\n");
  }
  const Result full = Execute({"trace", file, "--perfetto", "/dev/full"});
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_EQ(full.err, "rxe-user trace: /dev/full: No space left on device\n");
}

TEST_F(CliTest, DecodeReportsAFileThatIsNotThere) {
  const Result r = Execute({"decode", (root_ / "nothing.pcap").string()});
  EXPECT_EQ(r.exit_status, 1);
  EXPECT_TRUE(OneLine(r.err)) << r.err;
}

}  // namespace
}  // namespace cli_test
