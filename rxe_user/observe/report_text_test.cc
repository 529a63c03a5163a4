#include "rxe_user/observe/report_text.h"

#include <unistd.h>

#include <string>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

DeviceReport Sample() {
  transport::QpReport qp;
  qp.qpn = 0x50011;
  qp.state = transport::QpState::kRts;
  qp.dest_qpn = 0x60022;
  qp.source = *wire::IpAddress::Parse("192.0.2.1");
  qp.destination = *wire::IpAddress::Parse("fe80::1");
  qp.path_mtu = 1024;
  qp.send_psn = 17;
  qp.counters.tx_packets = 5;
  LaneReport lane;
  lane.queue_pair_totals.Add(qp.counters);
  lane.queue_pairs = {qp};
  lane.left_out = 2;
  lane.slot = 5;
  DeviceReport device;
  device.name = "rxeu0";
  device.netdev = "e th\"0\n";  // Linux forbids blanks, but to be safe
  device.lanes = {lane};
  return device;
}

TEST(ReportText, RoundTrips) {
  const auto records = ParseReport(ReportText(Sample()));
  ASSERT_TRUE(records.has_value());
  ASSERT_EQ(records->size(), 4u);
  const ReportRecord& process = (*records)[0];
  EXPECT_EQ(process.kind, "process");
  EXPECT_EQ(process.Number("pid"), static_cast<uint64_t>(::getpid()));
  EXPECT_EQ(process.Number("instance"),
            (*ParseReport(ReportText(Sample())))[0].Number("instance"));
  EXPECT_NE(process.Number("instance"), 0u);
  const ReportRecord& device = (*records)[1];
  EXPECT_EQ(device.kind, "device");
  EXPECT_EQ(device.Word("name"), "rxeu0");
  EXPECT_EQ(device.Word("netdev"), "e?th?0?");
  EXPECT_EQ(device.Number("queue_pair_count"), 3u);
  EXPECT_EQ(device.Number("queue_pairs_left_out"), 2u);
  EXPECT_EQ(device.counters.size(), CountersOf(Sample()).size());
  EXPECT_EQ(device.counters[0].first, "sent_pkts");
  EXPECT_EQ(device.counters[0].second, 5u);
  EXPECT_EQ((*records)[2].kind, "lane");
  EXPECT_EQ((*records)[2].Number("slot"), 5u);
  const ReportRecord& qp = (*records)[3];
  EXPECT_EQ(qp.kind, "queue_pair");
  EXPECT_EQ(qp.Number("qpn"), 0x50011u);
  EXPECT_EQ(qp.Word("type"), "RC");
  EXPECT_EQ(qp.Word("state"), "RTS");
  EXPECT_EQ(qp.Number("peer_qpn"), 0x60022u);
  EXPECT_EQ(qp.Word("peer_address"), "fe80::1");
  EXPECT_EQ(qp.Number("send_psn"), 17u);
  EXPECT_EQ(qp.counters.size(), std::size(transport::kQpCounters));
  EXPECT_EQ(qp.Number("no_such"), 0u);
  EXPECT_EQ(qp.Word("qpn"), "");
}

// A truncated text is no report, wherever it is cut off.
TEST(ReportText, TruncatedTextIsRefused) {
  const std::string text = ReportText(Sample());
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    EXPECT_FALSE(ParseReport(text.substr(0, size)).has_value()) << size;
  }
}

TEST(ReportText, OtherVersionsAndNonsenseAreRefused) {
  EXPECT_TRUE(ParseReport("rxe_user-stat 2\nend\n").has_value());
  EXPECT_TRUE(ParseReport("rxe_user-stat 2\nx a=1 b=\"\" | c=2\nend\n"));
  for (const char* text : {
           "rxe_user-stat 3\nend\n",
           "rxe_user-stat\nend\n",
           "rxe_user-stat x\nend\n",
           "rxe_user-stat 2\nend\nmore\n",
           "rxe_user-stat 2\nx a\nend\n",
           "rxe_user-stat 2\nx a=\nend\n",
           "rxe_user-stat 2\nx a=b\nend\n",
           "rxe_user-stat 2\nx a=-1\nend\n",
           "rxe_user-stat 2\nx a=99999999999999999999\nend\n",
           "rxe_user-stat 2\nx a=\"\nend\n",
           "rxe_user-stat 2\nx a=\"\x1b[2J\"\nend\n",
           "rxe_user-stat 2\nx A=1\nend\n",
           "rxe_user-stat 2\nx =1\nend\n",
           "rxe_user-stat 2\nx | a=\"w\"\nend\n",
           "rxe_user-stat 2\nx | a=1 | b=2\nend\n",
           "rxe_user-stat 2\n\nend\n",
       }) {
    EXPECT_FALSE(ParseReport(text).has_value()) << text;
  }
}

// Short lines and values used to take 36 times the memory of the text.
TEST(ReportText, RefusesTooManyLinesAndValues) {
  const auto report = [](std::string_view part) {
    std::string text = "rxe_user-stat 2\nx";
    while (text.size() < 100'000) text += part;
    return text + "\nend\n";
  };
  EXPECT_TRUE(ParseReport(report(" rcvd_pkts=1")).has_value());
  EXPECT_TRUE(ParseReport(report("\nlane index=1 | rcvd_pkts=12")).has_value());
  EXPECT_FALSE(ParseReport(report(" a=1")).has_value());
  EXPECT_FALSE(ParseReport(report("\nx")).has_value());
  EXPECT_FALSE(ParseReport(report("\nx a=1")).has_value());
}

}  // namespace
}  // namespace rxe_user
