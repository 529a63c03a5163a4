// For each rule, a sequence of packets that breaks it, and one that does not:
// PSNs, the parts of a message, answers and ICRCs. Other check_*_test.cc have
// the other rules.
#include "tools/trace/check.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/check_fixture.h"
#include "wire/aeth.h"
#include "wire/frame.h"
#include "wire/pcapng.h"

namespace trace {
namespace {

TEST(CheckTest, APsnThatWasNeverSent) {
  Capture c;
  c.Request(Operation::kSendOnly, 0xffffff, 8);
  c.Request(Operation::kSendOnly, 0, 8);
  c.Request(Operation::kSendOnly, 0xffffff, 8);  // goes back
  c.Request(Operation::kSendOnly, 0, 8);
  c.Request(Operation::kSendOnly, 1, 8);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 3, 8);
  EXPECT_EQ(c.Check(), Broken{"psn-hole 6"});
  c.Request(Operation::kSendOnly, 4, 8);
  EXPECT_EQ(c.Check(), Broken{"psn-hole 6"});
}

TEST(CheckTest, HolesOfReceivedPacketsAreLosses) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 12, 8);
  EXPECT_EQ(c.Check(), Broken());
  // The same for a capture without directions.
  for (Packet& p : c.recording.packets) p.direction = Direction::kUnknown;
  EXPECT_EQ(c.Check(), Broken());
  EXPECT_EQ(c.Check({.senders = {*IpAddress::Parse("10.0.0.1")}}),
            Broken{"psn-hole 2"});
}

TEST(CheckTest, AReadTakesThePsnsOfItsResponses) {
  Capture c;
  c.Request(Operation::kReadRequest, 5).length = 3000;
  c.Answer(kAck, 5, 1, Operation::kReadResponseFirst).payload = 1024;
  c.Answer(kAck, 6, 1, Operation::kReadResponseMiddle).payload = 1024;
  c.Answer(kAck, 7, 1, Operation::kReadResponseLast).payload = 952;
  c.Request(Operation::kSendOnly, 8, 8);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kReadRequest, 9).length = 3000;
  c.Request(Operation::kSendOnly, 13, 8);
  EXPECT_EQ(c.Check(), Broken{"psn-hole 7"});
  // Without a path MTU, the number of PSNs of a READ is unknown.
  Capture unknown;
  unknown.Request(Operation::kReadRequest, 5).length = 3000;
  unknown.Request(Operation::kSendOnly, 17, 8);
  EXPECT_EQ(unknown.Check(), Broken());
}

TEST(CheckTest, OrderWithinAMessage) {
  Capture c;
  c.Request(Operation::kWriteMiddle, 1, 1024);  // begins in the middle
  c.Request(Operation::kWriteLast, 2, 5);
  c.Request(Operation::kSendFirst, 3, 1024);
  c.Request(Operation::kSendMiddle, 4, 1024);
  c.Request(Operation::kSendMiddle, 4, 1024);
  c.Request(Operation::kSendLast, 5, 5);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendLast, 6, 5);
  c.Request(Operation::kSendFirst, 7, 1024);
  c.Request(Operation::kWriteLast, 8, 5);
  c.Request(Operation::kSendFirst, 9, 1024);
  c.Request(Operation::kSendOnly, 10, 5);
  EXPECT_EQ(c.Check(),
            (Broken{"message-order 7", "message-order 9", "message-order 11"}));
}

TEST(CheckTest, SizesAgainstThePathMtu) {
  Capture c;
  c.Request(Operation::kWriteFirst, 1, 1024);
  c.Request(Operation::kWriteLast, 2, 1024);
  c.Request(Operation::kWriteOnly, 3, 0);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kWriteFirst, 4, 1000);
  c.Request(Operation::kWriteLast, 5, 0);
  c.Request(Operation::kWriteFirst, 6, 2048);
  c.Request(Operation::kWriteLast, 7, 5000);
  EXPECT_EQ(c.Check(), (Broken{"payload-size 4", "payload-size 5",
                               "payload-size 6", "payload-size 7"}));
}

TEST(CheckTest, AnAnswerToWhatWasNotSent) {
  Capture c;
  c.Answer(kAck, 500);  // to requests before the capture
  c.Request(Operation::kSendOnly, 10, 8);
  c.Answer(kAck, 10);
  c.Answer(kSequenceNak, 11);  // contains the expected PSN
  EXPECT_EQ(c.Check(), Broken());
  c.Answer(kAck, 11);
  EXPECT_EQ(c.Check(), Broken{"ack-unsent 5"});
}

TEST(CheckTest, OneNakForAGap) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 12, 8);
  c.Answer(kSequenceNak, 11);
  c.Request(Operation::kSendOnly, 12, 8);  // a repeat; 11 is lost again
  c.Answer(kSequenceNak, 11);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 13, 8);
  c.Answer(kSequenceNak, 11);
  EXPECT_EQ(c.Check(), Broken{"nak-once 7"});
}

TEST(CheckTest, TheMsnNeverGoesBack) {
  Capture c(/*at_requester=*/false);
  c.Answer(kAck, 10, 0xffffff);
  c.Answer(kAck, 10, 0xffffff);
  c.Answer(kAck, 11, 0);
  c.Answer(kAck, 10, 0xffffff);  // to a repeated request
  EXPECT_EQ(c.Check(), Broken());
  c.Answer(kAck, 11, 0xffffff);
  EXPECT_EQ(c.Check(), Broken{"msn-back 5"});
  // Received ACKs may have been reordered.
  for (Packet& p : c.recording.packets) p.direction = Direction::kReceived;
  EXPECT_EQ(c.Check(), Broken());
}

TEST(CheckTest, TheWaitOfAnRnrNak) {
  const int64_t wait = wire::RnrTimerNanos(12);
  for (const auto& [waited, broken] :
       {std::pair{wait, Broken()}, {wait / 2, Broken{"rnr-wait 3"}}}) {
    Capture c;
    c.Request(Operation::kSendOnly, 10, 8);
    const int64_t naked = c.Answer(wire::MakeRnrSyndrome(12), 10).time;
    c.Request(Operation::kSendOnly, 10, 8).time = naked + waited;
    EXPECT_EQ(c.Check(), broken);
  }
}

TEST(CheckTest, AWrongIcrcAndNothingElseOfThatPacket) {
  Capture c;
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 11, 8);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 99, 9000).icrc = IcrcVerdict::kBad;
  c.Request(Operation::kSendOnly, 12, 8);
  EXPECT_EQ(c.Check(), Broken{"icrc 3"});
}

// A capture by a device that overwrites the source port.
TEST(CheckTest, AnIcrcOfAnotherSourcePort) {
  std::vector<uint8_t> file;
  wire::pcapng::AppendSection("test", &file);
  wire::pcapng::AppendInterface(wire::LinkType::kEthernet, "", &file);
  for (const uint16_t port : {0xd0b3, 0xd0b3, 0xc001}) {
    wire::FrameHeaders frame;
    frame.src = *IpAddress::Parse("10.0.0.1");
    frame.dst = *IpAddress::Parse("10.0.0.2");
    frame.src_port = port;
    wire::Headers headers;
    headers.bth = {.opcode = 4, .dest_qpn = kResponder, .psn = 7};
    const auto packet =
        wire::BuildPacket(headers, {}, frame.icrc_flow(), frame.ip_id);
    frame.src_port = wire::kRoceUdpPort;
    const auto bytes = wire::BuildFrame(frame, packet);
    wire::pcapng::AppendPacket(
        {.time = 1, .headers = bytes, .original_size = bytes.size()}, &file);
  }
  const std::string path = testing::TempDir() + "/overwritten.pcapng";
  std::FILE* const out = std::fopen(path.c_str(), "wb");
  ASSERT_NE(out, nullptr);
  std::fwrite(file.data(), 1, file.size(), out);
  std::fclose(out);
  Capture c;
  ASSERT_TRUE(ReadRecording(path, &c.recording));
  // A flow has only one source port.
  EXPECT_EQ(c.Check(), Broken{"icrc 3"});
}

// Segmentation offload merges packets, and the capture has the first bytes.
TEST(CheckTest, MergedFramesThatWereCutOff) {
  constexpr size_t kMtu = 1024;
  constexpr uint32_t kMerged = 15;
  std::vector<uint8_t> file;
  wire::pcapng::AppendSection("test", &file);
  wire::pcapng::AppendInterface(wire::LinkType::kLinuxSll, "", &file);
  const auto append = [&](uint32_t psn, uint32_t count) {
    wire::FrameHeaders frame;
    frame.src = *IpAddress::Parse("10.0.0.1");
    frame.dst = *IpAddress::Parse("10.0.0.2");
    std::vector<uint8_t> bytes(wire::kCookedSize + wire::kMaxIpUdpSize);
    wire::EmitCooked(true, true, bytes.data());
    const size_t size = count * (wire::kBthSize + kMtu + wire::kIcrcSize);
    bytes.resize(wire::kCookedSize +
                 wire::EmitIpUdp(frame, size, &bytes[wire::kCookedSize]));
    const size_t whole = bytes.size() + size;
    wire::Headers headers;
    headers.bth.opcode =
        wire::MakeOpcode(wire::Transport::kRc, Operation::kWriteMiddle);
    headers.bth.dest_qpn = kResponder;
    headers.bth.psn = psn;
    bytes.resize(bytes.size() + wire::kBthSize);
    wire::EmitHeaders(headers, &bytes[bytes.size() - wire::kBthSize]);
    bytes.resize(100);
    wire::pcapng::AppendPacket(
        {.time = 1, .headers = bytes, .original_size = whole}, &file);
  };
  append(100, 1);
  append(101, kMerged);
  append(101 + kMerged, kMerged);
  append(101 + 2 * kMerged, 1);
  const std::string path = testing::TempDir() + "/merged.pcapng";
  std::FILE* const out = std::fopen(path.c_str(), "wb");
  ASSERT_NE(out, nullptr);
  std::fwrite(file.data(), 1, file.size(), out);
  std::fclose(out);
  Capture c;
  ASSERT_TRUE(ReadRecording(path, &c.recording));
  EXPECT_EQ(c.Check(), Broken{});
  EXPECT_EQ(c.recording.packets.size(), 2u);
  EXPECT_EQ(c.recording.malformed, 0u);
}

TEST(CheckTest, ADamagedPacketLeavesNoHole) {
  Capture c;
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 11, 8).icrc = IcrcVerdict::kBad;
  c.Answer(kAck, 11);
  c.Request(Operation::kSendOnly, 12, 8);
  EXPECT_EQ(c.Check(), Broken{"icrc 2"});
  c.Request(Operation::kSendOnly, 14, 8);
  EXPECT_EQ(c.Check(), (Broken{"icrc 2", "psn-hole 5"}));
}

}  // namespace
}  // namespace trace
