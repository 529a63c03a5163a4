#include "tools/trace/latencies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tools/trace/check_fixture.h"
#include "wire/aeth.h"

namespace trace {
namespace {

TEST(LatenciesTest, AtTheRequester) {
  Capture c;
  const auto at = [&](Packet& p, int64_t time) { p.time = time; };
  Packet* p = &c.Request(Operation::kSendOnly, 10, 8);
  p->ack_req = true;
  at(*p, 1000);
  at(c.Answer(kAck, 10), 1300);
  p = &c.Request(Operation::kSendOnly, 11, 8);
  p->ack_req = true;
  at(*p, 2000);
  at(c.Answer(kSequenceNak, 11), 2500);
  p = &c.Request(Operation::kSendOnly, 11, 8);
  p->ack_req = true;
  at(*p, 2700);
  at(c.Answer(kAck, 11), 2800);  // for which of the two?
  at(c.Read(12, 100), 3000);
  at(c.Response(Operation::kReadResponseOnly, 12, 100), 3400);
  at(c.Request(Operation::kSendOnly, 13, 8), 4000);
  at(c.Answer(wire::MakeRnrSyndrome(1), 13), 4100);
  at(c.Request(Operation::kSendOnly, 13, 8), 15000);
  std::vector<std::string> rows;
  for (const Latency& each : MeasureLatencies(c.recording)) {
    rows.push_back(std::string(each.name) + ", " + std::string(each.where) +
                   ": " + std::to_string(each.count) + " " +
                   std::to_string(each.median) + " " +
                   std::to_string(each.p99) + " " + std::to_string(each.most));
  }
  EXPECT_EQ(rows, (std::vector<std::string>{
                      "request to ACK, requester: 1 300 300 300",
                      "READ request to first response, requester: 1 400 400 "
                      "400",
                      "NAK to repeat, requester: 1 200 200 200",
                      "RNR NAK to repeat, requester: 1 10900 10900 10900"}));
}

// A response is not matched with a UC request that has its PSN.
TEST(LatenciesTest, BesideAFlowWithoutResponses) {
  Capture c;
  const auto at = [&](Packet& p, int64_t time) { p.time = time; };
  Packet* p = &c.Request(Operation::kSendOnly, 10, 8);
  p->opcode = wire::MakeOpcode(wire::Transport::kUc, Operation::kSendOnly);
  p->qpn = kResponder + 1;
  at(*p, 500);
  p = &c.Request(Operation::kSendOnly, 10, 8);
  p->ack_req = true;
  at(*p, 1000);
  at(c.Answer(kAck, 10), 1300);
  const std::vector<Latency> latencies = MeasureLatencies(c.recording);
  ASSERT_EQ(latencies.size(), 1u);
  EXPECT_EQ(latencies[0].count, 1u);
  EXPECT_EQ(latencies[0].median, 300);
}

TEST(LatenciesTest, AtTheResponder) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8).ack_req = true;
  c.Answer(kAck, 10).time += 500;
  for (int i = 0; i < 100; ++i) {
    const uint32_t psn = 11 + 2 * i;
    const int64_t late = c.Request(Operation::kSendOnly, psn + 1, 8).time;
    c.Answer(kSequenceNak, psn).time = late + i;
    c.Request(Operation::kSendOnly, psn, 8);
    c.Answer(kAck, psn + 1);
  }
  const auto all = MeasureLatencies(c.recording);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].name, "request to ACK");
  EXPECT_EQ(all[0].most, kMillisecond + 500);
  EXPECT_EQ(all[1].name, "gap to NAK");
  EXPECT_EQ(all[1].where, "responder");
  EXPECT_EQ(all[1].count, 100u);
  EXPECT_EQ(all[1].median, 49);
  EXPECT_EQ(all[1].p99, 98);
  EXPECT_EQ(all[1].most, 99);
  EXPECT_EQ(all[2].name, "NAK to repeat");
}

}  // namespace
}  // namespace trace
