#include "rxe_user/broker/open_connections.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "transport/cm/types.h"

namespace rxe_user::broker {
namespace {

constexpr uint16_t kSlot = 3;
const LocalAddress kLocal = {*wire::IpAddress::Parse("192.0.2.1"), 0};
const wire::IpAddress kPeer = *wire::IpAddress::Parse("192.0.2.9");
const wire::IpAddress kOther = *wire::IpAddress::Parse("192.0.2.10");

class OpenConnectionsTest : public testing::Test {
 protected:
  template <typename M>
  void Note(const M& message, const wire::IpAddress& peer = kPeer) {
    transport::cm::Mad mad;
    wire::EmitCm({.id = 77}, message, mad);
    wire::CmView view;
    ASSERT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
    connections_.Note(kSlot, kLocal, peer, view);
  }

  void Replied() {
    Note(wire::CmRep{
        .local_comm_id = 8, .remote_comm_id = 0x03000007, .local_qpn = 0x22});
  }
  void Requested() {
    wire::CmReq req;
    req.local_comm_id = 8;
    req.local_qpn = 0x11;
    Note(req);
  }
  void Accepted() {
    Requested();
    Note(wire::CmRtu{.local_comm_id = 8, .remote_comm_id = 0x03000007});
  }

  OpenConnections connections_;
};

TEST_F(OpenConnectionsTest, ReplyOpens) {
  Replied();
  const auto left = connections_.Take(kSlot);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].local, kLocal);
  EXPECT_EQ(left[0].peer, kPeer);
  EXPECT_EQ(left[0].local_id, 0x03000007u);
  EXPECT_EQ(left[0].remote_id, 8u);
  EXPECT_EQ(left[0].remote_qpn, 0x22u);
  EXPECT_TRUE(connections_.Take(kSlot).empty());
}

TEST_F(OpenConnectionsTest, RtuOpensARequestedConnection) {
  Note(wire::CmRtu{.local_comm_id = 8, .remote_comm_id = 0x03000007});
  EXPECT_TRUE(connections_.Take(kSlot).empty());
  Accepted();
  const auto left = connections_.Take(kSlot);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].local_id, 0x03000007u);
  EXPECT_EQ(left[0].remote_id, 8u);
  EXPECT_EQ(left[0].remote_qpn, 0x11u);
}

TEST_F(OpenConnectionsTest, RequestAloneIsNoConnection) {
  Requested();
  EXPECT_TRUE(connections_.Take(kSlot).empty());
}

TEST_F(OpenConnectionsTest, DisconnectingEndsIt) {
  const auto left = [this] { return connections_.Take(kSlot).size(); };
  Accepted();
  Note(wire::CmDreq{.local_comm_id = 8, .remote_comm_id = 0x03000007});
  EXPECT_EQ(left(), 0u);
  Replied();
  Note(wire::CmDrep{.local_comm_id = 8, .remote_comm_id = 0x03000007});
  EXPECT_EQ(left(), 0u);
  Replied();
  Note(wire::CmRej{.local_comm_id = 8, .remote_comm_id = 0x03000007});
  EXPECT_EQ(left(), 0u);
}

TEST_F(OpenConnectionsTest, OthersCannotEndIt) {
  Replied();
  Note(wire::CmDreq{.local_comm_id = 8, .remote_comm_id = 0x03000007}, kOther);
  EXPECT_EQ(connections_.Take(kSlot).size(), 1u);
}

TEST_F(OpenConnectionsTest, IsLimited) {
  for (uint32_t id = 1; id <= 2 * OpenConnections::kMaxOpen; ++id) {
    Note(wire::CmRep{
        .local_comm_id = id, .remote_comm_id = id, .local_qpn = 0x22});
  }
  EXPECT_EQ(connections_.Take(kSlot).size(), OpenConnections::kMaxOpen);
}

// The forgeries vary IDs and addresses.
TEST_F(OpenConnectionsTest, OpenConnectionsSurviveAFloodOfForgeries) {
  Note(wire::CmRep{
      .local_comm_id = 8, .remote_comm_id = 0x03000007, .local_qpn = 0x22});
  wire::CmReq req;
  req.local_comm_id = 9;
  req.local_qpn = 0x33;
  Note(req);
  for (uint32_t i = 1; i <= 2 * OpenConnections::kMaxOpen; ++i) {
    req.local_comm_id = 0x1000 + i;
    Note(req, kOther);
    Note(wire::CmRep{.local_comm_id = 0x1000 + i,
                     .remote_comm_id = 0x03000007 + i,
                     .local_qpn = 0x44},
         kOther);
  }
  Note(
      wire::CmRep{
          .local_comm_id = 10, .remote_comm_id = 0x03000007, .local_qpn = 0x44},
      kOther);
  Note(wire::CmRtu{.local_comm_id = 9, .remote_comm_id = 0x03000006});
  const auto left = connections_.Take(kSlot);
  EXPECT_EQ(left.size(), OpenConnections::kMaxOpen);
  for (const auto& [id, peer] :
       {std::pair(0x03000007u, kPeer), std::pair(0x03000008u, kOther)}) {
    const auto found =
        std::find_if(left.begin(), left.end(),
                     [&](const auto& c) { return c.local_id == id; });
    ASSERT_NE(found, left.end()) << id;
    EXPECT_EQ(found->peer, peer);
  }
}

TEST_F(OpenConnectionsTest, TheProcesssAnswerReplacesClaims) {
  for (uint32_t i = 1; i <= OpenConnections::kMaxOpen; ++i) {
    EXPECT_FALSE(connections_.MustAsk(kSlot));
    Note(wire::CmRep{.local_comm_id = i, .remote_comm_id = 0x03000000 + i},
         kOther);
  }
  EXPECT_FALSE(connections_.MustAsk(kSlot));
  const wire::CmRep late = {
      .local_comm_id = 8, .remote_comm_id = 0x03800000, .local_qpn = 0x22};
  Note(late);
  EXPECT_TRUE(connections_.MustAsk(kSlot));
  connections_.Ask(kSlot);
  EXPECT_FALSE(connections_.MustAsk(kSlot));
  // This record is added before the process has answered.
  Note(wire::CmRep{.local_comm_id = 9, .remote_comm_id = 0x03800001});
  EXPECT_TRUE(connections_.MustAsk(kSlot));
  connections_.Replace(kSlot, {{.local = kLocal,
                                .peer = kPeer,
                                .local_id = 0x03800000,
                                .remote_id = 8,
                                .remote_qpn = 0x22}});
  EXPECT_EQ(connections_.size(), 1u);
  EXPECT_TRUE(connections_.MustAsk(kSlot));
  // A record that is newer than the question is kept.
  connections_.Ask(kSlot);
  Note(wire::CmRep{.local_comm_id = 9, .remote_comm_id = 0x03800001});
  connections_.Replace(kSlot, {});
  const auto left = connections_.Take(kSlot);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].local_id, 0x03800001u);
}

}  // namespace
}  // namespace rxe_user::broker
