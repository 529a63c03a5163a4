// For each rule a sequence of packets that breaks it, and one that does not.
#include "tools/trace/check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tools/trace/sim_recorder.h"
#include "transport/sim/pair.h"
#include "wire/aeth.h"
#include "wire/frame.h"
#include "wire/opcode.h"
#include "wire/pcapng.h"

namespace trace {
namespace {

using wire::IpAddress;
using wire::NakCode;
using wire::Operation;
using wire::pcapng::Direction;

constexpr uint32_t kRequester = 0x11;  // queue pairs
constexpr uint32_t kResponder = 0x12;
constexpr int64_t kMillisecond = 1'000'000;

// The packets of a capture.
class Capture {
 public:
  explicit Capture(bool at_requester = true) : at_requester_(at_requester) {}

  Packet& Request(Operation operation, uint32_t psn, uint32_t payload = 0) {
    Packet& p = Add(operation, psn, payload);
    p.src = *IpAddress::Parse("10.0.0.1");
    p.dst = *IpAddress::Parse("10.0.0.2");
    p.qpn = kResponder;
    p.direction = at_requester_ ? Direction::kSent : Direction::kReceived;
    return p;
  }
  Packet& Answer(uint8_t syndrome, uint32_t psn, uint32_t msn = 0,
                 Operation operation = Operation::kAcknowledge) {
    Packet& p = Add(operation, psn, 0);
    p.src = *IpAddress::Parse("10.0.0.2");
    p.dst = *IpAddress::Parse("10.0.0.1");
    p.qpn = kRequester;
    p.syndrome = syndrome;
    p.msn = msn;
    p.direction = at_requester_ ? Direction::kReceived : Direction::kSent;
    return p;
  }
  // The rules that are broken, with the packets: "psn-hole 3".
  std::vector<std::string> Check(const CheckOptions& options = {}) const {
    std::vector<std::string> broken;
    for (const Finding& f : CheckRecording(recording, options)) {
      broken.push_back(std::string(f.rule) + " " + std::to_string(f.frame));
    }
    return broken;
  }

  Recording recording;

 private:
  Packet& Add(Operation operation, uint32_t psn, uint32_t payload) {
    Packet p;
    p.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
    p.psn = psn & 0xffffff;
    p.payload = payload;
    p.icrc = IcrcVerdict::kGood;
    p.frame = recording.packets.size() + 1;
    p.time = static_cast<int64_t>(p.frame) * kMillisecond;
    recording.packets.push_back(p);
    return recording.packets.back();
  }

  const bool at_requester_;
};

using Broken = std::vector<std::string>;
constexpr uint8_t kAck = wire::MakeAckSyndrome(wire::kCreditNone);
constexpr uint8_t kSequenceNak = wire::MakeNakSyndrome(NakCode::kPsnSequence);

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
  // The same of a capture that does not tell.
  for (Packet& p : c.recording.packets) p.direction = Direction::kUnknown;
  EXPECT_EQ(c.Check(), Broken());
  EXPECT_EQ(c.Check({.senders = {*IpAddress::Parse("10.0.0.1")}}), Broken{"psn-hole 2"});
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
  // Without a path MTU the PSNs of a READ are not known.
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
  c.Answer(kSequenceNak, 11);  // names what is expected
  EXPECT_EQ(c.Check(), Broken());
  c.Answer(kAck, 11);
  EXPECT_EQ(c.Check(), Broken{"ack-unsent 5"});
}

TEST(CheckTest, OneNakForAGap) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 12, 8);
  c.Answer(kSequenceNak, 11);
  c.Request(Operation::kSendOnly, 12, 8);  // a repeat: 11 is lost again
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
  // Received ones may have been reordered.
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

// A capture of a device that overwrites the source port.
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
  // A flow has one port.
  EXPECT_EQ(c.Check(), Broken{"icrc 3"});
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

// Our own transport, with losses of every kind of packet.
TEST(CheckTest, OurTransportKeepsTheRules) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    sim::PairOptions options;
    options.seed = seed;
    options.link.loss = 30'000;  // per million
    sim::Pair pair(options);
    SimRecorder a(&pair.net, pair.a.node, "client", 1);
    SimRecorder b(&pair.net, pair.b.node, "server", 2);
    pair.Connect();
    for (uint64_t i = 0; i < 20; ++i) {
      pair.a.Send(i, 0, 5000);  // the first ones get an RNR NAK
      pair.a.Write(100 + i, 0, 8192, 5000);
      pair.a.Read(200 + i, 16384, 8192, 5000);
      pair.a.FetchAdd(300 + i, 32768, 8192, 1);
    }
    for (uint64_t i = 0; i < 20; ++i) pair.b.Receive(i, 65536, 8192);
    pair.Run();
    EXPECT_EQ(pair.a.TakeSend().size(), 80u);
    for (const std::string& path :
         {a.Write("check_a.pcapng"), b.Write("check_b.pcapng")}) {
      Recording recording;
      ASSERT_TRUE(ReadRecording(path, &recording));
      EXPECT_GT(recording.packets.size(), 300u);
      // SimRecorder does not know the IP identification of what it receives.
      for (Packet& p : recording.packets) {
        if (p.direction == Direction::kReceived) p.icrc = IcrcVerdict::kUnknown;
      }
      for (const Finding& f : CheckRecording(recording, {})) {
        ADD_FAILURE() << path << " seed " << seed << ": " << f.rule
                      << " packet " << f.frame << ": " << f.what;
      }
    }
  }
}

}  // namespace
}  // namespace trace
