#include "rxe_user/broker/open_connections.h"

#include <gtest/gtest.h>

#include "transport/cm/types.h"

namespace rxe_user::broker {
namespace {

constexpr uint8_t kSlot = 3;
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

TEST_F(OpenConnectionsTest, ReadyToUseOpensWhatWasRequested) {
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

TEST_F(OpenConnectionsTest, EndsWithDisconnecting) {
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

TEST_F(OpenConnectionsTest, IsBounded) {
  for (uint32_t id = 1; id <= 2 * OpenConnections::kMostOpen; ++id) {
    Note(wire::CmRep{
        .local_comm_id = id, .remote_comm_id = id, .local_qpn = 0x22});
  }
  EXPECT_EQ(connections_.Take(kSlot).size(), OpenConnections::kMostOpen);
}

}  // namespace
}  // namespace rxe_user::broker
