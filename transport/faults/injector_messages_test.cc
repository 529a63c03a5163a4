// Rules for messages and work requests: msg= and wr_id=.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "transport/testing/injector_fixture.h"
#include "wire/dc.h"
#include "wire/packet.h"

namespace transport::faults {
namespace {

TEST_F(InjectorTest, MessagesAreCountedInTheirOrder) {
  Injector injector = Make("drop tx msg=2; ce rx msg=2");
  const auto sends = [&](Operation operation, uint32_t psn) {
    const Fate fate = Decide(&injector, true, operation, psn);
    return fate.rule != nullptr;
  };
  // Decide is called behind OnSent.
  const auto posted = [&](Operation operation, uint32_t psn) {
    (void)Decide(&injector, false, Operation::kAcknowledge, 0);
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, operation);
    headers.bth.psn = psn & wire::kPsnMask;
    std::vector<uint8_t> bytes(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length +
        wire::kIcrcSize);
    wire::EmitHeaders(headers, bytes.data());
    wire::PacketView packet;
    ASSERT_EQ(wire::PacketView::Parse(bytes, &packet), wire::ParseError::kOk);
    injector.OnSent(kQpn, packet);
  };
  posted(Operation::kSendOnly, kSendPsn);
  posted(Operation::kWriteFirst, kSendPsn + 1);
  posted(Operation::kWriteMiddle, kSendPsn + 2);
  EXPECT_FALSE(sends(Operation::kSendOnly, kSendPsn));
  EXPECT_TRUE(sends(Operation::kWriteFirst, kSendPsn + 1));
  EXPECT_TRUE(sends(Operation::kWriteMiddle, kSendPsn + 2));
  // Retransmissions belong to the same message.
  posted(Operation::kWriteFirst, kSendPsn + 1);
  EXPECT_TRUE(sends(Operation::kWriteFirst, kSendPsn + 1));
  posted(Operation::kWriteLast, kSendPsn + 3);
  posted(Operation::kSendOnly, kSendPsn + 4);
  EXPECT_TRUE(sends(Operation::kWriteLast, kSendPsn + 3));
  EXPECT_FALSE(sends(Operation::kSendOnly, kSendPsn + 4));
  // The arriving response to the second message of the process is hit.
  EXPECT_NE(
      Decide(&injector, false, Operation::kReadResponseOnly, kSendPsn + 2).rule,
      nullptr);
  // Messages of the peer.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
  EXPECT_NE(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 1).rule,
      nullptr);
  EXPECT_EQ(
      Decide(&injector, false, Operation::kSendOnly, kReceivePsn + 2).rule,
      nullptr);
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

TEST_F(InjectorTest, WorkRequestsAreFoundByTheirMessages) {
  Injector injector = Make("drop tx wr_id=7; ce rx wr_id=0x8");
  for (const uint64_t wr_id : {6, 7, 8, 9}) {
    injector.OnPosted(kQpn, {.wr_id = wr_id});
  }
  injector.OnPostRefused(kQpn, 1);
  injector.OnPosted(kQpn, {.wr_id = 7});  // again
  const auto is_hit = [&](uint32_t psn) {
    (void)Decide(&injector, true, Operation::kSendOnly, psn);
    injector.OnSent(kQpn, packet_);
    return Decide(&injector, true, Operation::kSendOnly, psn).rule != nullptr;
  };
  EXPECT_FALSE(is_hit(kSendPsn));
  EXPECT_TRUE(is_hit(kSendPsn + 1));
  EXPECT_FALSE(is_hit(kSendPsn + 2));
  EXPECT_TRUE(is_hit(kSendPsn + 3));
  EXPECT_TRUE(is_hit(kSendPsn + 1));
  EXPECT_NE(
      Decide(&injector, false, Operation::kReadResponseOnly, kSendPsn + 2).rule,
      nullptr);
  // The peer's requests have no wr_id.
  EXPECT_EQ(Decide(&injector, false, Operation::kSendOnly, kReceivePsn).rule,
            nullptr);
}

// There was no memory to store some requests.
TEST_F(InjectorTest, UnknownWorkRequestsAreNotTakenForOthers) {
  Injector injector = Make("drop tx wr_id=7; ce tx wr_id=9");
  const auto is_hit = [&](uint32_t psn) {
    (void)Decide(&injector, true, Operation::kSendOnly, psn);
    injector.OnSent(kQpn, packet_);
    return Decide(&injector, true, Operation::kSendOnly, psn).rule != nullptr;
  };
  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPostedUnknown(kQpn, 3);
  injector.OnPostRefused(kQpn, 2);
  // A request behind an unknown one is unknown, too.
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn));
  EXPECT_FALSE(is_hit(kSendPsn + 1));
  EXPECT_FALSE(is_hit(kSendPsn + 2));
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 3));

  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPosted(kQpn, {.wr_id = 7});
  injector.OnPostedUnknown(kQpn, 1);
  injector.OnPostRefused(kQpn, 2);
  EXPECT_TRUE(is_hit(kSendPsn + 4));
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 5));

  injector.OnPostedUnknown(kQpn, 1);
  injector.OnFlushed(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_TRUE(is_hit(kSendPsn + 6));
}

TEST_F(InjectorTest, TheConnectOfAnInitiatorIsNoMessage) {
  Injector injector = Make("drop tx wr_id=7");
  injector.OnPosted(kQpn, {.wr_id = 7});
  const auto is_hit = [&](Operation operation, uint32_t psn) {
    wire::DcEth dceth;
    dceth.from_initiator = true;
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kDc, operation);
    headers.bth.psn = psn & wire::kPsnMask;
    bytes_.assign(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize,
        0);
    if (operation == Operation::kConnect) {
      wire::EmitDcConnect(headers.bth, dceth, {}, bytes_.data());
    } else {
      wire::EmitDcHeaders(headers, dceth, bytes_.data());
    }
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    injector.OnSent(kQpn, packet_);
    const Fate fate = injector.Decide({.transmitted = true,
                                       .qpn = kQpn,
                                       .packet = &packet_,
                                       .peer = wire::IpAddress()},
                                      0);
    return fate.rule != nullptr;
  };
  EXPECT_FALSE(is_hit(Operation::kConnect, kSendPsn));
  EXPECT_TRUE(is_hit(Operation::kSendOnly, kSendPsn + 1));
}

class MessagesTest : public InjectorTest {
 protected:
  // A READ request for `bytes` passes. Whether a rule hits it.
  bool Read(Injector* injector, bool transmitted, uint32_t psn,
            uint32_t bytes) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kReadRequest);
    headers.bth.psn = psn & wire::kPsnMask;
    headers.reth.length = bytes;
    return Pass(injector, transmitted, headers);
  }
  bool Send(Injector* injector, bool transmitted, uint32_t psn,
            Transport transport = Transport::kRc) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(transport, Operation::kSendOnly);
    headers.bth.psn = psn & wire::kPsnMask;
    return Pass(injector, transmitted, headers);
  }

 private:
  bool Pass(Injector* injector, bool transmitted,
            const wire::Headers& headers) {
    bytes_.assign(
        wire::GetOpcodeInfo(headers.bth.opcode).header_length + wire::kIcrcSize,
        0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    if (transmitted) injector->OnSent(kQpn, packet_);
    return injector
               ->Decide({.transmitted = transmitted,
                         .qpn = kQpn,
                         .packet = &packet_,
                         .peer = wire::IpAddress()},
                        0)
               .rule != nullptr;
  }
};

TEST_F(MessagesTest, ALongReadHasSeveralRequests) {
  Injector injector = Make("drop tx wr_id=8; drop tx msg=3");
  injector.OnPathMtu(kQpn, 1024);
  injector.OnPosted(kQpn, {.wr_id = 7, .read_bytes = 10 * 1024 + 1});
  injector.OnPosted(kQpn, {.wr_id = 8, .read_bytes = 4096});
  injector.OnPosted(kQpn, {.wr_id = 9});
  EXPECT_FALSE(Read(&injector, true, kSendPsn, 4096));
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 4, 4096));
  // Its middle again, and two packets more.
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 6, 4096));
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 10, 1));
  EXPECT_TRUE(Read(&injector, true, kSendPsn + 11, 4096));
  EXPECT_TRUE(Read(&injector, true, kSendPsn + 13, 2048));  // again
  EXPECT_FALSE(Read(&injector, true, kSendPsn + 4, 4096));  // again
  EXPECT_TRUE(Send(&injector, true, kSendPsn + 15));
  EXPECT_EQ(injector.counts()[0].fired, 2u);
  EXPECT_EQ(injector.counts()[1].fired, 1u);
}

TEST_F(MessagesTest, ReceivedInTheirOrder) {
  Injector injector = Make("drop rx msg=2; ce rx msg=4");
  EXPECT_FALSE(Send(&injector, false, kReceivePsn));
  // PSN 1 is lost: requests beyond the gap belong to no message yet.
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 2));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 3));
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 1));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 2));
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 3));
  EXPECT_FALSE(Send(&injector, false, kReceivePsn + 4));
  // The first one is lost.
  Injector first = Make("drop rx msg=2");
  EXPECT_FALSE(Send(&first, false, kReceivePsn + 1));
  EXPECT_FALSE(Send(&first, false, kReceivePsn));
  EXPECT_TRUE(Send(&first, false, kReceivePsn + 1));
  // A READ that is requested again from its middle is the same message.
  Injector reads = Make("drop rx msg=2");
  EXPECT_FALSE(Read(&reads, false, kReceivePsn, 4096));
  EXPECT_FALSE(Read(&reads, false, kReceivePsn + 2, 2048));
  EXPECT_TRUE(Read(&reads, false, kReceivePsn + 4, 4096));
}

// The missing request never passes the injector.
TEST_F(MessagesTest, AGapThatStaysDoesNotEndTheCount) {
  Injector injector = Make("drop rx msg=3");
  EXPECT_FALSE(Send(&injector, false, kReceivePsn));
  constexpr uint32_t kWaiting = 4096;
  for (uint32_t i = 0; i <= kWaiting; ++i) {
    ASSERT_FALSE(Send(&injector, false, kReceivePsn + 2 + i)) << i;
  }
  EXPECT_TRUE(Send(&injector, false, kReceivePsn + 3 + kWaiting));
}

// Senders of datagrams count for themselves.
TEST_F(MessagesTest, EachDatagramIsAMessage) {
  Injector injector = Make("drop rx msg=3");
  EXPECT_FALSE(Send(&injector, false, 900, Transport::kUd));
  EXPECT_FALSE(Send(&injector, false, 5, Transport::kUd));
  EXPECT_TRUE(Send(&injector, false, 5, Transport::kUd));
  EXPECT_FALSE(Send(&injector, false, 6, Transport::kUd));
}

TEST_F(MessagesTest, TheyCountAnewAfterAReset) {
  Injector injector = Make("drop tx wr_id=7");
  injector.OnPosted(kQpn, {.wr_id = 6});
  EXPECT_FALSE(Send(&injector, true, kSendPsn));
  injector.OnPosted(kQpn, {.wr_id = 6});  // flushed
  injector.OnReset(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 7});
  EXPECT_TRUE(Send(&injector, true, kSendPsn));
  injector.OnPosted(kQpn, {.wr_id = 6});  // flushed
  injector.OnFlushed(kQpn);
  injector.OnPosted(kQpn, {.wr_id = 7});
  EXPECT_TRUE(Send(&injector, true, kSendPsn + 1));
}

}  // namespace
}  // namespace transport::faults
