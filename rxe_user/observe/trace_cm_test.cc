#include "rxe_user/observe/trace_cm.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

#include "transport/cm/mad_packet.h"
#include "wire/cm.h"

namespace rxe_user::trace {
namespace {

using transport::Direction;
using wire::CmAttribute;

constexpr uint32_t kActive = 0x0a0b0c01;  // communication IDs
constexpr uint32_t kPassive = 0x0a0b0c02;
constexpr uint32_t kActiveQpn = 0x11011;
constexpr uint32_t kPassiveQpn = 0x22022;
constexpr uint64_t kService = 0x0000000001061c06;

const wire::IpAddress kOwn = *wire::IpAddress::Parse("192.0.2.1");
const wire::IpAddress kPeer = *wire::IpAddress::Parse("192.0.2.2");

wire::CmReq Req(uint32_t id, uint32_t qpn) {
  wire::CmReq req;
  req.local_comm_id = id;
  req.service_id = kService;
  req.local_qpn = qpn;
  return req;
}

// The messages of one process; ids count from 1.
class TraceCmTest : public testing::Test {
 protected:
  template <typename M>
  std::optional<CmMessageEvent> Parse(
      Direction direction, const M& message,
      transport::Disposition disposition = transport::Disposition::kDelivered) {
    std::array<uint8_t, wire::kMadSize> mad;
    wire::EmitCm({.id = 7}, message, mad);
    const bool is_sent = direction == Direction::kTransmitted;
    const wire::IpAddress& source = is_sent ? kOwn : kPeer;
    const wire::IpAddress& destination = is_sent ? kPeer : kOwn;
    transport::cm::EmitMadPacket(
        {.source = source, .destination = destination, .source_port = 0xc123},
        1, mad, packet_);
    transport::ObservedPacket packet;
    packet.direction = direction;
    packet.bytes = packet_;
    packet.source = source;
    packet.destination = destination;
    packet.disposition = disposition;
    return TraceCm::MessageIn(packet);
  }
  template <typename M>
  CmMessageEvent Send(const M& message) {
    auto event = Parse(Direction::kTransmitted, message);
    EXPECT_TRUE(event.has_value());
    cm_.OnSent(++last_id_, &*event);
    return *event;
  }
  template <typename M>
  CmMessageEvent Receive(const M& message) {
    auto event = Parse(Direction::kReceived, message);
    EXPECT_TRUE(event.has_value());
    packet_id_ = ++last_id_;
    cm_.OnReceived(++last_id_, packet_id_, &*event);
    EXPECT_EQ(event->header.cause, packet_id_);
    return *event;
  }
  static uint16_t Number(CmAttribute attribute) {
    return static_cast<uint16_t>(attribute);
  }

  std::array<uint8_t, transport::cm::kMadPacketSize> packet_;
  TraceCm cm_;
  uint64_t last_id_ = 0;
  uint64_t packet_id_ = 0;
};

TEST_F(TraceCmTest, TheActiveEnd) {
  const CmMessageEvent req = Send(Req(kActive, kActiveQpn));
  EXPECT_EQ(req.attribute, Number(CmAttribute::kReq));
  EXPECT_EQ(req.way, static_cast<uint8_t>(WhichWay::kSent));
  EXPECT_EQ(req.local_id, kActive);
  EXPECT_EQ(req.remote_id, 0u);
  EXPECT_EQ(req.service_id, kService);
  EXPECT_EQ(req.header.qpn, kActiveQpn);
  EXPECT_EQ(req.header.cause, 0u);
  EXPECT_EQ(wire::IpAddress::FromGid(req.peer), kPeer);

  // Without an answer, the REQ is retransmitted.
  const CmMessageEvent again = Send(Req(kActive, kActiveQpn));
  EXPECT_EQ(again.header.cause, req.header.id);

  const CmMessageEvent rep = Receive(wire::CmRep{.local_comm_id = kPassive,
                                                 .remote_comm_id = kActive,
                                                 .local_qpn = kPassiveQpn});
  EXPECT_EQ(rep.way, static_cast<uint8_t>(WhichWay::kReceived));
  EXPECT_EQ(rep.local_id, kActive);
  EXPECT_EQ(rep.remote_id, kPassive);
  EXPECT_EQ(rep.sender_qpn, kPassiveQpn);
  EXPECT_EQ(rep.header.qpn, kActiveQpn);

  const wire::CmRtu rtu = {.local_comm_id = kActive,
                           .remote_comm_id = kPassive};
  const CmMessageEvent first_rtu = Send(rtu);
  EXPECT_EQ(first_rtu.header.cause, rep.header.id);
  EXPECT_EQ(first_rtu.header.qpn, kActiveQpn);
  // The RTU was lost, so the REP arrives again.
  const CmMessageEvent second_rep =
      Receive(wire::CmRep{.local_comm_id = kPassive,
                          .remote_comm_id = kActive,
                          .local_qpn = kPassiveQpn});
  EXPECT_EQ(Send(rtu).header.cause, second_rep.header.id);

  // Other connections are kept apart.
  EXPECT_EQ(Send(Req(kActive + 1, kActiveQpn + 1)).header.cause, 0u);
  const CmMessageEvent dreq = Send(wire::CmDreq{.local_comm_id = kActive,
                                                .remote_comm_id = kPassive,
                                                .remote_qpn = kPassiveQpn});
  EXPECT_EQ(dreq.header.qpn, kActiveQpn);
}

TEST_F(TraceCmTest, ThePassiveEnd) {
  const CmMessageEvent req = Receive(Req(kActive, kActiveQpn));
  EXPECT_EQ(req.local_id, 0u);
  EXPECT_EQ(req.remote_id, kActive);
  EXPECT_EQ(req.header.qpn, 0u);
  const wire::CmRep rep = {.local_comm_id = kPassive,
                           .remote_comm_id = kActive,
                           .local_qpn = kPassiveQpn};
  const CmMessageEvent first = Send(rep);
  EXPECT_EQ(first.header.cause, req.header.id);
  EXPECT_EQ(first.header.qpn, kPassiveQpn);
  EXPECT_EQ(Send(rep).header.cause, first.header.id);
  const CmMessageEvent dreq = Receive(wire::CmDreq{.local_comm_id = kActive,
                                                   .remote_comm_id = kPassive,
                                                   .remote_qpn = kPassiveQpn});
  EXPECT_EQ(dreq.header.qpn, kPassiveQpn);
  EXPECT_EQ(
      Send(wire::CmDrep{.local_comm_id = kPassive, .remote_comm_id = kActive})
          .header.cause,
      dreq.header.id);
}

TEST_F(TraceCmTest, ARejHasItsReason) {
  const CmMessageEvent req = Receive(Req(kActive, kActiveQpn));
  const CmMessageEvent rej =
      Send(wire::CmRej{.remote_comm_id = kActive,
                       .reason = wire::CmRejectReason::kInvalidServiceId});
  EXPECT_EQ(rej.header.cause, req.header.id);
  EXPECT_EQ(rej.reason, 8u);
}

TEST_F(TraceCmTest, ServiceIdResolution) {
  const CmMessageEvent asked =
      Send(wire::CmSidrReq{.request_id = kActive, .service_id = kService});
  EXPECT_EQ(asked.local_id, kActive);
  EXPECT_EQ(asked.remote_id, 0u);
  EXPECT_EQ(asked.service_id, kService);
  const CmMessageEvent answer =
      Receive(wire::CmSidrRep{.request_id = kActive,
                              .status = wire::CmSidrStatus::kRejected,
                              .qpn = kPassiveQpn});
  EXPECT_EQ(answer.local_id, kActive);
  EXPECT_EQ(answer.remote_id, 0u);
  EXPECT_EQ(answer.reason, 2u);
  EXPECT_EQ(answer.sender_qpn, kPassiveQpn);
  const CmMessageEvent other =
      Receive(wire::CmSidrReq{.request_id = kPassive, .service_id = kService});
  EXPECT_EQ(Send(wire::CmSidrRep{.request_id = kPassive}).header.cause,
            other.header.id);
}

TEST_F(TraceCmTest, OtherPacketsHaveNoMessage) {
  const wire::CmDrep drep = {.local_comm_id = 1, .remote_comm_id = 2};
  EXPECT_FALSE(
      Parse(Direction::kReceived, drep, transport::Disposition::kBadIcrc));
  transport::ObservedPacket packet;
  EXPECT_FALSE(TraceCm::MessageIn(packet));
  ASSERT_TRUE(Parse(Direction::kReceived, drep));
  packet.bytes = packet_;
  packet_[wire::kBthDestQpnOffset + 2] = 2;
  EXPECT_FALSE(TraceCm::MessageIn(packet));
}

}  // namespace
}  // namespace rxe_user::trace
