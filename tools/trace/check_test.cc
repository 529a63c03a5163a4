// For each rule, a sequence of packets that breaks it, and one that does not.
#include "tools/trace/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tools/trace/latencies.h"
#include "tools/trace/sim_recorder.h"
#include "transport/base/types.h"
#include "transport/sim/dc_run.h"
#include "transport/sim/pair.h"
#include "transport/sim/uc_run.h"
#include "transport/sim/ud_run.h"
#include "transport/sim/xrc_run.h"
#include "wire/aeth.h"
#include "wire/dc.h"
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
  Packet& Read(uint32_t psn, uint32_t length, uint64_t va = 0x10000,
               uint32_t rkey = 5) {
    Packet& p = Request(Operation::kReadRequest, psn);
    p.length = length;
    wire::Headers headers;
    headers.bth = {.opcode = p.opcode, .psn = p.psn};
    headers.reth = {.va = va, .rkey = rkey, .length = length};
    SetHead(headers);
    return p;
  }
  Packet& Response(Operation operation, uint32_t psn, uint32_t payload) {
    Packet& p = Answer(wire::MakeAckSyndrome(31), psn, 1, operation);
    p.payload = payload;
    return p;
  }
  Packet& Cnp() {
    Packet& p = Answer(0, 0);
    p.opcode = wire::kOpcodeCnp;
    return p;
  }
  // Sets the head of the last packet.
  void SetHead(const wire::Headers& headers) {
    std::array<uint8_t, wire::kMaxHeaderSize> bytes;
    SetHead(std::span(bytes).first(wire::EmitHeaders(headers, bytes.data())));
  }
  void SetHead(std::span<const uint8_t> bytes) {
    Packet& p = recording.packets.back();
    p.head = recording.heads.size();
    p.head_size = static_cast<uint16_t>(bytes.size());
    p.size = static_cast<uint32_t>(bytes.size() + p.payload + wire::kIcrcSize);
    recording.heads.insert(recording.heads.end(), bytes.begin(), bytes.end());
  }
  // Adds an event at the time of the next packet. Returns its id.
  template <typename Struct>
  uint64_t Add(Struct event, uint32_t qpn) {
    event.header.type = static_cast<uint16_t>(Struct::kType);
    event.header.size = sizeof(event);
    event.header.id = recording.events.size() + 1;
    event.header.time =
        static_cast<int64_t>(recording.packets.size() + 1) * kMillisecond;
    event.header.qpn = qpn;
    std::array<uint8_t, sizeof(event)> bytes;
    std::memcpy(bytes.data(), &event, sizeof(event));
    recording.events.push_back(*Event::Parse(bytes));
    return event.header.id;
  }
  // Adds the event that the requester is connected.
  void AddConnected(uint8_t timeout, uint8_t retry_count, uint8_t rnr_retry) {
    rxe_user::trace::QpStateEvent state;
    state.to = static_cast<uint8_t>(transport::QpState::kRts);
    state.dest_qpn = kResponder;
    state.path_mtu = 1024;
    state.timeout = timeout;
    state.retry_count = retry_count;
    state.rnr_retry = rnr_retry;
    const auto local = *IpAddress::Parse("10.0.0.1");
    const auto peer = *IpAddress::Parse("10.0.0.2");
    std::copy(local.bytes.begin(), local.bytes.end(), state.source);
    std::copy(peer.bytes.begin(), peer.bytes.end(), state.destination);
    Add(state, kRequester);
  }
  // The broken rules with their packets: "psn-hole 3".
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

// --- READ.

TEST(CheckTest, ResponsesToAReadInOrder) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 4, 8).ack_req = true;
  c.Answer(kAck, 4);
  c.Read(5, 3000);
  c.Read(8, 10);
  c.Read(9, 0);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Response(Operation::kReadResponseMiddle, 6, 1024);
  c.Response(Operation::kReadResponseLast, 7, 952);
  c.Response(Operation::kReadResponseOnly, 8, 10);
  c.Response(Operation::kReadResponseOnly, 9, 0);
  // The requester has missed one response, and then the remaining ones.
  c.Read(6, 1024, 0x10000 + 1024);
  c.Response(Operation::kReadResponseOnly, 6, 1024);
  c.Read(6, 1976, 0x10000 + 1024);
  c.Response(Operation::kReadResponseFirst, 6, 1024);
  c.Response(Operation::kReadResponseLast, 7, 952);
  c.Read(5, 2048);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Response(Operation::kReadResponseLast, 6, 1024);
  c.Read(10, 5000);
  c.Response(Operation::kReadResponseFirst, 10, 1024);
  c.Read(10, 5000);  // requested again meanwhile
  c.Response(Operation::kReadResponseFirst, 10, 1024);
  EXPECT_EQ(c.Check(), Broken());
}

TEST(CheckTest, WrongResponsesToAReadAtEitherEnd) {
  for (const bool at_requester : {true, false}) {
    Capture c(at_requester);
    c.Read(5, 3000);
    c.Response(Operation::kReadResponseFirst, 5, 1024);
    c.Response(Operation::kReadResponseMiddle, 6, 1024);
    c.Response(Operation::kReadResponseLast, 7, 953);  // 4
    c.Read(8, 2048);
    c.Response(Operation::kReadResponseFirst, 8, 1024);
    c.Response(Operation::kReadResponseMiddle, 9, 1024);  // 7
    c.Read(10, 1000);
    c.Response(Operation::kReadResponseFirst, 10, 1024);  // 9
    c.Request(Operation::kWriteOnly, 11, 8);
    c.Response(Operation::kReadResponseOnly, 11, 0);  // 11
    EXPECT_EQ(c.Check(), (Broken{"read-response 4", "read-response 7",
                                 "read-response 9", "read-response 11"}));
  }
}

TEST(CheckTest, AResponseThatLeavesOutAPacket) {
  for (const bool at_requester : {true, false}) {
    Capture c(at_requester);
    c.Read(5, 4096);
    c.Request(Operation::kSendOnly, 9, 8).ack_req = true;
    c.Response(Operation::kReadResponseFirst, 5, 1024);
    c.Response(Operation::kReadResponseMiddle, 7, 1024);
    c.Answer(kAck, 9, 2);
    // At the receiver, some may have been lost.
    EXPECT_EQ(c.Check(), at_requester
                             ? Broken()
                             : (Broken{"read-response 4", "read-response 5"}));
  }
}

TEST(CheckTest, AReadThatIsAskedForAgain) {
  Capture c;
  c.Read(5, 3000);
  c.Response(Operation::kReadResponseFirst, 5, 1024);
  c.Read(6, 1976, 0x10000 + 1024);
  c.Read(6, 1024, 0x10000 + 1024);
  c.Read(5, 3000);
  EXPECT_EQ(c.Check(), Broken());
  c.Read(6, 1976, 0x10000);            // 6: the address
  c.Read(6, 1976, 0x10000 + 1024, 6);  // 7: the R_Key
  c.Read(6, 3000, 0x10000 + 1024);     // 8: beyond the end
  c.Read(6, 1000, 0x10000 + 1024);     // 9: ends within a packet
  EXPECT_EQ(c.Check(), (Broken{"read-repeat 6", "read-repeat 7",
                               "read-repeat 8", "read-repeat 9"}));
}

// No packet shows the path MTU.
TEST(CheckTest, AShortReadThatIsAskedForAgain) {
  Capture c;
  c.Read(5, 200);
  c.Read(5, 200);
  c.Read(5, 100);
  EXPECT_EQ(c.Check(), Broken{"read-repeat 3"});
}

// --- Repeats.

// A requester that sends PSN 10 again and again, each time after `wait`.
Capture Repeating(int repeats, int64_t wait) {
  Capture c;
  c.Request(Operation::kSendOnly, 8, 8);
  c.Request(Operation::kSendOnly, 9, 8);
  c.Answer(kAck, 8);  // shows the requester's queue pair
  for (int i = 0; i <= repeats; ++i) {
    c.Request(Operation::kSendOnly, 9, 8).time =
        (i + 10) * kMillisecond + (i + 1) * wait;
    c.Request(Operation::kSendOnly, 10, 8).time =
        (i + 10) * kMillisecond + (i + 1) * wait;
  }
  return c;
}

TEST(CheckTest, MoreRepeatsThanRetryCntAllows) {
  EXPECT_EQ(Repeating(7, 0).Check(), Broken());  // retry_cnt is unknown
  EXPECT_EQ(Repeating(2, 0).Check({.retry_count = 3}), Broken());
  EXPECT_EQ(Repeating(3, 0).Check({.retry_count = 3}),
            Broken{"retry-count 10"});
  // A recording contains it.
  Capture c;
  c.AddConnected(/*timeout=*/1, /*retry_count=*/1, /*rnr_retry=*/1);
  for (int i = 0; i < 2; ++i) c.Request(Operation::kSendOnly, 10, 8);
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 10, 8);
  EXPECT_EQ(c.Check(), Broken{"retry-count 3"});
}

TEST(CheckTest, AnAnswerBeginsTheRetriesAnew) {
  Capture c;
  for (uint32_t psn = 10; psn < 30; psn += 2) {
    c.Request(Operation::kSendOnly, psn, 8);
    c.Request(Operation::kSendOnly, psn, 8);
    c.Answer(kAck, psn);
    c.Request(Operation::kSendOnly, psn + 1, 8);
    c.Answer(kSequenceNak, psn + 1);
    c.Request(Operation::kSendOnly, psn + 1, 8);
    c.Answer(kAck, psn + 1);
  }
  EXPECT_EQ(c.Check({.retry_count = 1}), Broken());
}

TEST(CheckTest, MoreRepeatsThanRnrRetryAllows) {
  for (const uint8_t rnr_retry : {uint8_t{2}, uint8_t{7}}) {
    Capture c;
    c.AddConnected(14, 7, rnr_retry);
    c.Request(Operation::kSendOnly, 10, 8);
    for (int i = 0; i < 2; ++i) {
      c.Answer(wire::MakeRnrSyndrome(1), 10);
      c.Request(Operation::kSendOnly, 10, 8);
    }
    EXPECT_EQ(c.Check(), Broken());
    c.Answer(wire::MakeRnrSyndrome(1), 10);
    c.Request(Operation::kSendOnly, 10, 8);
    // 7 means no limit.
    EXPECT_EQ(c.Check(), rnr_retry == 7 ? Broken() : Broken{"retry-count 7"});
  }
}

TEST(CheckTest, ARepeatBeforeTheAckTimeout) {
  // 8.4 ms.
  EXPECT_EQ(Repeating(2, 9 * kMillisecond).Check({.timeout = 11}), Broken());
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check({.timeout = 11}),
            Broken{"early-repeat 6"});
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check(), Broken());
  EXPECT_EQ(Repeating(1, 5 * kMillisecond).Check({.timeout = 0}),
            (Broken{"early-repeat 4", "early-repeat 6"}));
}

TEST(CheckTest, ARepeatThatNeedNotWait) {
  Capture c;
  c.Request(Operation::kSendOnly, 10, 8);
  c.Request(Operation::kSendOnly, 11, 8);
  c.Answer(kAck, 10);
  c.Answer(kSequenceNak, 11);
  c.Request(Operation::kSendOnly, 11, 8);
  c.Read(12, 100);
  c.Request(Operation::kSendOnly, 13, 8);
  c.Answer(kAck, 13);  // the response to the READ is missing
  c.Read(12, 100);
  EXPECT_EQ(c.Check({.timeout = 14}), Broken());
  // A probe, which the recording shows.
  Capture probe;
  probe.AddConnected(14, 0, 7);
  probe.Request(Operation::kSendOnly, 10, 8);
  rxe_user::trace::TimerEvent timer;
  timer.kind = static_cast<uint8_t>(rxe_user::trace::TimerKind::kProbe);
  const uint64_t id = probe.Add(timer, kRequester);
  probe.Request(Operation::kSendOnly, 10, 8).cause = id;
  EXPECT_EQ(probe.Check(), Broken());
  probe.recording.packets.back().cause = 0;
  EXPECT_EQ(probe.Check(), (Broken{"retry-count 2", "early-repeat 2"}));
}

// --- Requested acknowledgements.

TEST(CheckTest, AnAckReqThatIsNeverAnswered) {
  for (const int64_t later : {int64_t{1}, 200 * kMillisecond}) {
    Capture c(/*at_requester=*/false);
    c.Request(Operation::kSendOnly, 10, 8).ack_req = true;
    c.Answer(kAck, 10);
    c.Request(Operation::kSendOnly, 11, 8).ack_req = true;
    c.Request(Operation::kSendOnly, 12, 8);
    // The responder's own request.
    Packet& own = c.Answer(0, 700, 0, Operation::kSendOnly);
    own.time += later;
    EXPECT_EQ(c.Check(), later == 1 ? Broken() : Broken{"ack-req 3"});
    c.Answer(kAck, 12).time = own.time;
    EXPECT_EQ(c.Check(), Broken());
  }
}

TEST(CheckTest, AGapAndANakNeedNoAck) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8).ack_req = true;
  c.Answer(kAck, 10);
  c.Request(Operation::kSendOnly, 12, 8).ack_req = true;
  c.Answer(0, 700, 0, Operation::kSendOnly).time += 200 * kMillisecond;
  EXPECT_EQ(c.Check(), Broken());
  Capture nak(/*at_requester=*/false);
  nak.Request(Operation::kSendOnly, 10, 8).ack_req = true;
  nak.Answer(kAck, 10);
  nak.Request(Operation::kSendOnly, 11, 8).ack_req = true;
  nak.Answer(wire::MakeNakSyndrome(NakCode::kRemoteAccess), 11);
  nak.Answer(0, 700, 0, Operation::kSendOnly).time += 200 * kMillisecond;
  EXPECT_EQ(nak.Check(), Broken());
}

TEST(CheckTest, ACompletionThatNoAckReqAsksFor) {
  for (const bool signaled : {true, false}) {
    Capture c;
    c.AddConnected(14, 7, 7);
    rxe_user::trace::PostedEvent posted;
    posted.flags = signaled ? uint32_t{transport::kSendSignaled} : 0;
    rxe_user::trace::BegunEvent begun;
    begun.header.cause = c.Add(posted, kRequester);
    begun.first_psn = begun.last_psn = 10;
    c.Add(begun, kRequester);
    c.Request(Operation::kSendOnly, 10, 8);
    EXPECT_EQ(c.Check(), Broken());  // the next packet may ask
    Packet& other = c.Request(Operation::kSendOnly, 99, 8);
    other.qpn = 0x99;
    other.time += 200 * kMillisecond;
    EXPECT_EQ(c.Check(), signaled ? Broken{"ack-req 1"} : Broken());
    c.Request(Operation::kWriteOnly, 11, 8).ack_req = true;
    EXPECT_EQ(c.Check(), Broken());
  }
}

// The file lacks the packets of a message, and a later connection uses its PSN.
TEST(CheckTest, ACompletionOfAnEarlierConnection) {
  for (const bool is_reset : {true, false}) {
    Capture c;
    c.AddConnected(14, 7, 7);
    rxe_user::trace::PostedEvent posted;
    posted.flags = uint32_t{transport::kSendSignaled};
    rxe_user::trace::BegunEvent begun;
    begun.header.cause = c.Add(posted, kRequester);
    begun.first_psn = begun.last_psn = 10;
    c.Add(begun, kRequester);
    if (is_reset) {
      rxe_user::trace::QpStateEvent reset;
      reset.to = static_cast<uint8_t>(transport::QpState::kReset);
      c.Add(reset, kRequester);
      c.AddConnected(14, 7, 7);
    }
    c.Request(Operation::kSendOnly, 10, 8);
    Packet& other = c.Request(Operation::kSendOnly, 99, 8);
    other.qpn = 0x99;
    other.time += 200 * kMillisecond;
    EXPECT_EQ(c.Check(), is_reset ? Broken() : Broken{"ack-req 1"});
  }
}

TEST(CheckTest, MessagesBeyondTheCredits) {
  Capture c;
  c.Request(Operation::kSendOnly, 10, 8).ack_req = true;
  c.Answer(wire::MakeAckSyndrome(2), 10, 501);  // two more messages
  c.Request(Operation::kSendOnly, 11, 8);
  c.Request(Operation::kSendOnly, 12, 8);
  c.Request(Operation::kWriteOnly, 13, 8);                // takes no receive
  c.Request(Operation::kSendOnly, 14, 8).ack_req = true;  // one beyond
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 15, 8).ack_req = true;
  EXPECT_EQ(c.Check(), Broken{"credits 7"});
  c.Answer(wire::MakeAckSyndrome(0), 15, 506);
  c.Request(Operation::kSendOnly, 16, 8);
  EXPECT_EQ(c.Check(), (Broken{"credits 7", "credits 9"}));
  c.Answer(kAck, 16, 507);  // no limit
  c.Request(Operation::kSendOnly, 17, 8);
  EXPECT_EQ(c.Check(), (Broken{"credits 7", "credits 9"}));
}

// --- Congestion.

TEST(CheckTest, AMarkedPacketIsAnsweredByACnp) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8).ce = true;
  c.Cnp();
  c.Request(Operation::kSendOnly, 11, 8).ce = true;
  c.Cnp();
  EXPECT_EQ(c.Check(), Broken());
  c.Request(Operation::kSendOnly, 12, 8).ce = true;
  c.Request(Operation::kSendOnly, 13, 8);
  c.recording.packets.back().time += 50 * kMillisecond;
  EXPECT_EQ(c.Check(), Broken());  // the last CNP is recent
  Packet& marked = c.Request(Operation::kSendOnly, 14, 8);
  marked.ce = true;
  marked.time += 60 * kMillisecond;
  EXPECT_EQ(c.Check(), Broken());  // the file may end before the CNP
  c.Request(Operation::kSendOnly, 15, 8).time += 90 * kMillisecond;
  EXPECT_EQ(c.Check(), Broken{"cnp 7"});
  // At the sender nothing is known about CNPs.
  for (Packet& p : c.recording.packets) p.direction = Direction::kSent;
  EXPECT_FALSE(std::ranges::count(c.Check(), "cnp 7"));
}

TEST(CheckTest, CnpsAreNotTooMany) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8).ce = true;
  const int64_t first = c.Cnp().time;
  c.Cnp().time = first + 5'000;
  EXPECT_EQ(c.Check(), Broken());
  EXPECT_EQ(c.Check({.cnp_interval = 50'000}), Broken{"cnp 3"});
  c.Cnp().time = first + 6'000;
  EXPECT_EQ(c.Check(), Broken{"cnp 4"});
}

TEST(CheckTest, ACnpForNothing) {
  Capture c(/*at_requester=*/false);
  c.Request(Operation::kSendOnly, 10, 8);
  c.Cnp();
  EXPECT_EQ(c.Check(), Broken{"cnp 2"});
  // A recording of our device: its receive buffer may have overflowed.
  c.recording.about.emplace();
  EXPECT_EQ(c.Check(), Broken());
}

// --- Datagrams, and DC.

TEST(CheckTest, QueuePairNumbersAndKeysOfDatagrams) {
  Capture c;
  const auto add = [&](uint32_t qpn, uint32_t qkey, uint32_t src_qpn) {
    Packet& p = c.Request(Operation::kSendOnly, 1, 4);
    p.opcode = wire::MakeOpcode(wire::Transport::kUd, Operation::kSendOnly);
    p.qpn = qpn;
    wire::Headers headers;
    headers.bth = {.opcode = p.opcode, .dest_qpn = qpn};
    headers.deth = {.qkey = qkey, .src_qpn = src_qpn};
    c.SetHead(headers);
    return p.frame;
  };
  add(0x12, 0x11111111, 0x11);
  add(1, 0x80010000, 1);
  EXPECT_EQ(c.Check(), Broken());
  add(1, 0x11111111, 1);
  add(0x12, 0x11111111, 0);
  add(0x12, 0x11111111, 0x11);
  c.recording.packets.back().payload = 5000;
  EXPECT_EQ(c.Check(), (Broken{"datagram 3", "datagram 4", "payload-size 5"}));
}

TEST(CheckTest, TheSessionOfADcInitiator) {
  Capture c;
  uint32_t psn = 10;
  const auto add = [&](uint8_t opcode, uint32_t qpn, wire::DcEth dceth) {
    Packet& p = c.Request(wire::OperationOf(opcode), psn++);
    p.opcode = opcode;
    p.qpn = qpn;
    dceth.from_initiator = true;
    dceth.src_qpn = kRequester;
    std::array<uint8_t, wire::kMaxHeaderSize> bytes;
    const wire::Bth bth = {.opcode = opcode, .dest_qpn = qpn, .psn = p.psn};
    size_t size = 0;
    if (opcode == wire::kOpcodeDcConnect) {
      size = wire::EmitDcConnect(bth, dceth, {}, bytes.data());
    } else {
      wire::Headers headers;
      headers.bth = bth;
      size = wire::EmitDcHeaders(headers, dceth, bytes.data());
    }
    c.SetHead(std::span(bytes).first(size));
  };
  const uint8_t send =
      wire::MakeOpcode(wire::Transport::kDc, Operation::kSendOnly);
  const wire::DcEth first = {.initiator_session = 1,
                             .responder_session = wire::kNoDcSession,
                             .dct = 0x20};
  wire::DcEth open = first;
  open.responder_session = 7;
  add(wire::kOpcodeDcConnect, wire::kNoDcQpn, first);
  add(send, 0x800001, open);
  add(send, 0x800001, open);
  add(wire::kOpcodeDcConnect, wire::kNoDcQpn,
      {.initiator_session = 2,
       .responder_session = wire::kNoDcSession,
       .dct = 0x21});
  EXPECT_EQ(c.Check(), Broken());
  add(send, 0x800001, open);  // 5: of the previous session
  add(send, 0x800002, open);  // 6: of another connection
  open.responder_session = 8;
  add(send, 0x800002, open);  // 7
  EXPECT_EQ(c.Check(),
            (Broken{"dc-session 5", "dc-session 6", "dc-session 7"}));
  psn += 1;
  add(send, 0x800002, open);
  EXPECT_EQ(c.Check().back(), "psn-hole 8");
  // After a reset, the initiator starts with the same PSN.
  psn = 10;
  add(wire::kOpcodeDcConnect, wire::kNoDcQpn, first);
  add(send, 0x800003, open);
  psn += 1;
  add(send, 0x800003, open);
  EXPECT_EQ(c.Check().back(), "psn-hole 11");
}

// --- Latencies.

TEST(CheckTest, LatenciesAtTheRequester) {
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

TEST(CheckTest, LatenciesAtTheResponder) {
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

// --- Our own transport.

// Our own transport, with losses of every kind of packet.
TEST(CheckTest, OurTransportKeepsTheRules) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    sim::PairOptions options;
    options.seed = seed;
    options.link.loss = 30'000;  // per million
    if (seed > 10) {
      options.link.duplicate = 20'000;
      options.link.reorder = 20'000;
    }
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
      // SimRecorder does not know the IP identification of received packets.
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

// Captures of a whole network contain lost packets, so a responder seems to
// have received them; damaged packets have a wrong ICRC.
template <typename Run>
void CheckSeeds(int count) {
  size_t packets = 0;
  for (int seed = 1; seed <= count; ++seed) {
    Run run(seed);
    const std::string path = testing::TempDir() + "/check_seed.pcapng";
    run.network().WritePcap(path);
    ASSERT_TRUE(run.Execute()) << run.checker().ToString();
    Recording recording;
    ASSERT_TRUE(ReadRecording(path, &recording)) << recording.error;
    packets += recording.packets.size();
    std::set<IpAddress> addresses;
    for (const Packet& p : recording.packets) addresses.insert(p.src);
    CheckOptions options;
    options.senders.assign(addresses.begin(), addresses.end());
    for (const Finding& f : CheckRecording(recording, options)) {
      if (f.rule == "icrc" || f.rule == "nak-once") continue;
      ADD_FAILURE() << "seed " << seed << ": " << f.rule << " packet "
                    << f.frame << ": " << f.what;
    }
  }
  EXPECT_GT(packets, 1000u);
}

TEST(CheckTest, OurUnreliableConnectionsKeepTheRules) {
  CheckSeeds<sim::UcRun>(10);
}
TEST(CheckTest, OurDatagramsKeepTheRules) { CheckSeeds<sim::UdRun>(10); }
TEST(CheckTest, OurExtendedConnectionsKeepTheRules) {
  CheckSeeds<sim::XrcRun>(10);
}
TEST(CheckTest, OurDynamicConnectionsKeepTheRules) {
  CheckSeeds<sim::DcRun>(10);
}

}  // namespace
}  // namespace trace
