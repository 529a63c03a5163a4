// The senders of translated MADs, with RXE_USER_NAT=1.
#include "rxe_user/cm/translated_mads.h"

#include <gtest/gtest.h>

#include <array>

#include "rxe_user/base/nat_routes.h"
#include "wire/cm.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::Via;
using transport::cm::CmId;
using transport::cm::IncomingMad;

wire::IpAddress Address(const char* text) {
  return *wire::IpAddress::Parse(text);
}

const wire::IpAddress kHere = Address("203.0.113.9");
const wire::IpAddress kPeer = Address("10.1.2.3");
constexpr CmId kOurId = 0x05123456;

std::optional<wire::IpAddress> NoPeer(CmId) { return std::nullopt; }
std::optional<wire::IpAddress> PeerOfOurId(CmId id) {
  return id == kOurId ? std::optional(kPeer) : std::nullopt;
}

// A MAD that `sender` sent from port 4791, and that arrives from `seen`.
// Returns what is found: "10.1.2.3 at 192.0.2.7:1024", or "".
template <typename Message>
std::string Find(const Message& message, const wire::IpAddress& sender,
                 const Via& seen, const PeerOfId& peer_of = NoPeer) {
  std::array<uint8_t, wire::kMadSize> mad;
  wire::EmitCm({.id = 1}, message, mad);
  std::array<uint8_t, transport::cm::kMadPacketSize> packet;
  transport::cm::EmitMadPacket({.source = sender,
                                .destination = kHere,
                                .source_port = wire::kRoceUdpPort},
                               1, mad, packet);
  const transport::cm::MadFlow flow = {
      .source = seen.address, .destination = kHere, .source_port = seen.port};
  IncomingMad in = {.local = kHere, .remote = seen.address, .bytes = {}};
  EXPECT_EQ(transport::cm::ParseMadPacket(flow, packet, &in.bytes),
            transport::cm::MadPacketError::kBadIcrc);
  if (!FindTranslatedSender(flow, packet, peer_of, &in)) return "";
  return in.remote.ToString() + " at " + in.via.address.ToString() + ":" +
         std::to_string(in.via.port);
}

wire::CmReq ReqOf(const wire::IpAddress& sender) {
  wire::CmReq req;
  req.primary.local_gid = sender;
  req.primary.remote_gid = kHere;
  return req;
}

TEST(TranslatedMadsTest, ARequestNamesItsSender) {
  const Via seen = {.address = Address("192.0.2.7"), .port = 1024};
  EXPECT_EQ(Find(ReqOf(kPeer), kPeer, seen), "10.1.2.3 at 192.0.2.7:1024");
  EXPECT_EQ(Find(ReqOf(Address("10.1.2.4")), kPeer, seen), "");
  // Later messages do not contain the address, nor do datagrams.
  EXPECT_EQ(Find(wire::CmRtu{}, kPeer, seen), "10.1.2.3 at 192.0.2.7:1024");
  EXPECT_EQ(PossibleSenders(seen), std::vector<wire::IpAddress>{kPeer});
}

TEST(TranslatedMadsTest, OtherMessagesAreOfThePeerOfTheConnection) {
  const Via seen = {.address = Address("192.0.2.8"), .port = 1024};
  const wire::CmRtu rtu = {.remote_comm_id = kOurId};
  EXPECT_EQ(Find(rtu, kPeer, seen), "");
  EXPECT_EQ(Find(rtu, kPeer, seen, PeerOfOurId), "10.1.2.3 at 192.0.2.8:1024");
  EXPECT_EQ(Find(rtu, Address("10.1.2.4"), seen, PeerOfOurId), "");
  // The translator has given the peer another port.
  EXPECT_EQ(Find(wire::CmDreq{.remote_comm_id = kOurId}, kPeer,
                 {.address = seen.address, .port = 1025}, PeerOfOurId),
            "10.1.2.3 at 192.0.2.8:1025");
}

// 8,192 requests displace the senders of earlier ones. Existing connections
// continue to work.
TEST(TranslatedMadsTest, AFloodOfRequestsDoesNotStopOthers) {
  const Via seen = {.address = Address("192.0.2.7"), .port = 2024};
  const wire::CmRtu rtu = {.remote_comm_id = kOurId};
  ASSERT_EQ(Find(ReqOf(kPeer), kPeer, seen), "10.1.2.3 at 192.0.2.7:2024");
  const wire::IpAddress other = Address("10.9.9.9");
  for (uint16_t port = 3000; port < 3000 + 8200; ++port) {
    ASSERT_NE(Find(ReqOf(other), other,
                   {.address = Address("192.0.2.66"), .port = port}),
              "");
  }
  EXPECT_EQ(SenderAt(seen), std::nullopt);
  EXPECT_EQ(Find(rtu, kPeer, seen, PeerOfOurId), "10.1.2.3 at 192.0.2.7:2024");
}

}  // namespace
}  // namespace rxe_user
