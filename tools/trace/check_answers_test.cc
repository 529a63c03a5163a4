// The rules for acknowledgements that are requested, credits and CNPs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "tools/trace/check_fixture.h"
#include "transport/base/types.h"
#include "wire/aeth.h"

namespace trace {
namespace {

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

}  // namespace
}  // namespace trace
