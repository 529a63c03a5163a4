// Packets that only another implementation or an attacker sends: early data,
// forgeries, and captures of hardware.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/dc_fixture.h"
#include "transport/testing/dc_hosts.h"
#include "wire/bytes.h"
#include "wire/dc.h"
#include "wire/psn.h"

namespace transport {
namespace {

// Hardware may send data before the answer has arrived.
TEST_F(DcTest, EarlyData) {
  to.PostReceive(1, 0x80000);
  net.Deliver(Connect(0x777));
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kDc, wire::Operation::kSendOnly);
  headers.bth.dest_qpn = wire::kNoDcQpn;
  headers.bth.ack_req = true;
  headers.bth.psn = 6;
  DcDatagram data = Connect(0);
  data.bytes.assign(wire::kMaxHeaderSize, 0);
  data.bytes.resize(
      wire::EmitDcHeaders(headers,
                          {.from_initiator = true,
                           .src_qpn = kDci,
                           .initiator_session = 0x777,
                           .responder_session = wire::kNoDcSession,
                           .dct = kDct},
                          data.bytes.data()) +
      8 + wire::kIcrcSize);
  DcDatagram stranger = data;
  stranger.source_port ^= 1;
  net.Deliver(stranger);
  EXPECT_EQ(Take(to.recv_cq), "");
  net.Deliver(data);
  EXPECT_EQ(Take(to.recv_cq), "1 0");
  const std::vector<DcDatagram> answers = net.Transmit(to);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].name(), "DC_CONNECT_ANSWER");
  EXPECT_EQ(answers[1].name(), "DC_ACKNOWLEDGE");
  EXPECT_EQ(answers[1].view().dceth(), answers[0].view().dceth());
  // Further early data, and data to the connection, are not accepted from
  // another port.
  to.PostReceive(2, 0x80000);
  to.PostReceive(3, 0x80000);
  wire::StoreBe24(data.bytes.data() + wire::kBthPsnOffset, 7);
  net.Deliver(data);
  const wire::DcEth dc = answers[0].view().dceth();
  wire::StoreBe24(data.bytes.data() + wire::kBthPsnOffset, 8);
  wire::StoreBe24(data.bytes.data() + wire::kBthDestQpnOffset, dc.src_qpn);
  wire::StoreBe24(data.bytes.data() + wire::kBthSize + 9, dc.responder_session);
  net.Deliver(data);
  EXPECT_EQ(Take(to.recv_cq), "2 0; 3 0");
}

// A sender that knows the keys can name any address as the source of early
// data. The responses to a READ would flood the host there.
TEST_F(DcTest, AnEarlyReadIsNotAnswered) {
  net.Deliver(Connect(0x777));
  wire::Headers headers;
  headers.bth.opcode =
      wire::MakeOpcode(wire::Transport::kDc, wire::Operation::kReadRequest);
  headers.bth.dest_qpn = wire::kNoDcQpn;
  headers.bth.ack_req = true;
  headers.bth.psn = 6;
  headers.reth = {to.region->va, to.region->rkey, 100'000};
  wire::DcEth dc = {.from_initiator = true,
                    .src_qpn = kDci,
                    .initiator_session = 0x777,
                    .responder_session = wire::kNoDcSession,
                    .dct = kDct};
  DcDatagram read = Connect(0);
  const auto emit = [&] {
    read.bytes.assign(wire::kMaxHeaderSize, 0);
    read.bytes.resize(wire::EmitDcHeaders(headers, dc, read.bytes.data()) +
                      wire::kIcrcSize);
  };
  emit();
  net.Deliver(read);
  const std::vector<DcDatagram> answers = net.Transmit(to);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].name(), "DC_CONNECT_ANSWER");
  // A sender that has got the answer may read.
  dc.responder_session = answers[0].view().dceth().responder_session;
  headers.bth.dest_qpn = answers[0].view().dceth().src_qpn;
  emit();
  net.Deliver(read);
  EXPECT_EQ(net.Transmit(to).size(), 391u);
}

// Each field of a packet counts.
TEST_F(DcTest, ForgedResponsesAndRequestsAreDropped) {
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const DcDatagram request = net.sent[2];
  const DcDatagram response = net.sent[3];
  to.PostReceive(2);
  ASSERT_EQ(Post(SendOpcode::kSend, 2, 16), 0);
  net.lose = [](const DcDatagram&) { return true; };
  net.Exchange();  // it is outstanding
  for (DcDatagram forged : {request, response}) {
    const bool is_request = forged.view().info().is_request;
    wire::StoreBe24(forged.bytes.data() + wire::kBthPsnOffset,
                    wire::PsnAdd(request.view().bth().psn, 1));
    for (const size_t at : {12, 13, 15, 17, 19, 21, 23, 25, 27}) {
      DcDatagram changed = forged;
      changed.bytes[at] ^= 0x10;
      net.Deliver(changed);
    }
    if (is_request) {
      DcDatagram other_port = forged;
      other_port.source_port ^= 1;
      net.Deliver(other_port);
    }
    EXPECT_EQ(Take(to.recv_cq), is_request ? "1 0" : "");
    EXPECT_EQ(Take(from.send_cq), is_request ? "1 0" : "");
  }
  EXPECT_EQ(dci->state(), QpState::kRts);
}

// Not accepted: a NAK of reliable datagrams, and an answer without numbers.
TEST_F(DcTest, InvalidAnswersAreDropped) {
  net.lose = [](const DcDatagram& packet) {
    return packet.name() == "DC_CONNECT_ANSWER";
  };
  ASSERT_EQ(Send(1), 0);
  net.Exchange();
  const DcDatagram answer = net.sent.back();
  for (const std::pair<size_t, std::vector<uint8_t>>& change :
       std::vector<std::pair<size_t, std::vector<uint8_t>>>{
           {13, {0, 0, 0}},
           {13, {255, 255, 255}},
           {21, {0, 0, 0}},
           {21, {255, 255, 255}},
           {9, {1, 2, 3}},
           {17, {1, 2, 3}},
           {25, {1, 2, 3}},
           {12, {0x11}},
           {12, {0x20}}}) {
    DcDatagram forged = answer;
    std::copy(change.second.begin(), change.second.end(),
              forged.bytes.begin() + static_cast<ptrdiff_t>(change.first));
    net.Deliver(forged);
    EXPECT_EQ(net.Exchange(), "") << change.first;
  }
  DcDatagram shorter = answer;
  shorter.bytes.resize(shorter.bytes.size() - wire::kDcAnswerSize);
  net.Deliver(shorter);
  EXPECT_EQ(net.Exchange(), "");
  net.Deliver(answer);
  EXPECT_EQ(net.Exchange(), "DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "1 0");
}

TEST_F(DcTest, CapturedRequestsMakeTheTargetSendTheCapturedAnswers) {
  dct = nullptr;
  dct = to.MakeDct(0x00c0de, net.now, 0xffeeddcc);
  to.next_number = 0x807ff4;
  to.next_random = {0x61e97d};
  // "READ/WRITE" memory as the captured peer's.
  FakeMemory::Region& region =
      to.memory.Add(0x00007f69f0384000, 0x40000, DcHost::kPd,
                    kAccessLocalWrite | kAccessRemoteWrite);
  region.rkey = 0x0005382a;
  const auto deliver = [&](const std::string& hex, size_t payload) {
    DcDatagram packet = Connect(0);
    packet.bytes.clear();
    for (size_t i = 0; i < hex.size(); i += 2) {
      packet.bytes.push_back(
          static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
    }
    packet.bytes.resize(packet.bytes.size() + payload + wire::kIcrcSize);
    packet.source_port = 0xf018;
    EXPECT_EQ(net.Deliver(packet), Disposition::kDelivered);
  };
  const auto answer = [&] {
    std::string hex;
    for (const DcDatagram& packet : net.Transmit(to)) {
      EXPECT_EQ(packet.source_port, 0xf018);
      for (const uint8_t byte :
           std::span(packet.bytes).first(packet.bytes.size() - 4)) {
        char two[3];
        std::snprintf(two, sizeof(two), "%02x", byte);
        hex += two;
      }
      hex += ";";
    }
    return hex;
  };
  deliver(
      "5540ffff00ffffff80a9454d110090350071500400ffffff0000c0de00000000"
      "200000000000000000000000ffeeddcc",
      0);
  EXPECT_EQ(answer(),
            "5140ffff0000903500a9454d10807ff4007150040061e97d0000c0de00000000"
            "640000001000000000000000;");
  // It was captured with an MTU of 4096.
  QpAttributes large = dct->attributes();
  ASSERT_EQ(large.path_mtu, DcHost::kMtu);
  deliver(
      "4640ffff00807ff480a9454e11009035007150040061e97d0000c0de00000000"
      "00007f69f03840000005382a00000400",
      DcHost::kMtu);
  EXPECT_EQ(answer(),
            "5140ffff0000903500a9454e10807ff4007150040061e97d0000c0de00000000"
            "1f000000;")
      << "of the first packet of a message that continues";
  deliver(
      "4740ffff00807ff400a9454f110090350071500400"
      "61e97d0000c0de00000000",
      DcHost::kMtu);
  EXPECT_EQ(answer(), "");
}

TEST_F(DcTest, CapturedAnswersCarryTheInitiatorThrough) {
  dci = from.Make(QpType::kDci, 0x009035);
  QpAttributes to_rts;
  to_rts.path_mtu = 4096;
  to_rts.sq_psn = 0xa9454d;
  to_rts.timeout = 14;
  to_rts.retry_cnt = to_rts.rnr_retry = 7;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    to_rts.state = state;
    ASSERT_EQ(
        dci->Modify(to_rts, RequiredAttributes(QpType::kDci, state), net.now),
        0);
  }
  from.next_random = {0x715004};
  SendRequest write = Request(SendOpcode::kRdmaWrite, 1, 0x40000);
  write.remote_addr = 0x00007f69f0384000;
  write.rkey = 0x0005382a;
  write.remote_qpn = 0x00c0de;
  write.dc_access_key = 0xffeeddcc;
  ASSERT_EQ(dci->PostSend(write, net.now), 0);
  const auto hex = [](const DcDatagram& packet, size_t bytes) {
    std::string text;
    for (const uint8_t byte : std::span(packet.bytes).first(bytes)) {
      char two[3];
      std::snprintf(two, sizeof(two), "%02x", byte);
      text += two;
    }
    return text;
  };
  const auto deliver = [&](const std::string& text) {
    DcDatagram packet;
    for (size_t i = 0; i < text.size(); i += 2) {
      packet.bytes.push_back(
          static_cast<uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    packet.bytes.resize(packet.bytes.size() + wire::kIcrcSize);
    packet.source = to.address;
    packet.destination = from.address;
    packet.source_port = 0xf018;
    EXPECT_EQ(net.Deliver(packet), Disposition::kDelivered);
  };
  std::vector<DcDatagram> sent = net.Transmit(from);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(hex(sent[0], 48),
            "5540ffff00ffffff80a9454d110090350071500400ffffff0000c0de00000000"
            "200000000000000000000000ffeeddcc");
  deliver(
      "5140ffff0000903500a9454d10807ff4007150040061e97d0000c0de00000000"
      "640000001000000000000000");
  sent = net.Transmit(from);
  ASSERT_GE(sent.size(), 2u);
  // AckReq is not compared: our requester sets it in other packets.
  sent[0].bytes[wire::kBthAckReqOffset] = 0x80;
  EXPECT_EQ(hex(sent[0], 48),
            "4640ffff00807ff480a9454e110090350071500400"
            "61e97d0000c0de0000000000007f69f03840000005382a00040000");
  sent[1].bytes[wire::kBthAckReqOffset] = 0;
  EXPECT_EQ(hex(sent[1], 32),
            "4740ffff00807ff400a9454f110090350071500400"
            "61e97d0000c0de00000000");
  deliver(
      "5140ffff0000903500a9454e10807ff4007150040061e97d0000c0de00000000"
      "1f000000");
  EXPECT_EQ(dci->Report().unacked_psn, 0xa9454fu);
  EXPECT_EQ(dci->state(), QpState::kRts);
}

}  // namespace
}  // namespace transport
