// The rules for datagrams and for DC.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>

#include "tools/trace/check_fixture.h"
#include "wire/dc.h"
#include "wire/opcode.h"

namespace trace {
namespace {

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

}  // namespace
}  // namespace trace
