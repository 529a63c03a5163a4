#include "rxe_user/cm/translated_mads.h"

#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/warn_once.h"
#include "wire/bytes.h"
#include "wire/cm.h"
#include "wire/icrc.h"
#include "wire/packet.h"
#include "wire/rdma_cm.h"

namespace rxe_user {
namespace {

using transport::cm::MadFlow;

// The addresses that a request contains.
struct Named {
  wire::IpAddress sender;
  wire::IpAddress receiver;
};

std::optional<Named> NamedIn(std::span<const uint8_t> mad) {
  wire::CmView view;
  if (wire::CmView::Parse(mad, &view) != wire::CmParseError::kOk) {
    return std::nullopt;
  }
  if (view.attribute() == wire::CmAttribute::kReq) {
    const wire::CmReq req = view.req();
    return Named{req.primary.local_gid, req.primary.remote_gid};
  }
  if (view.attribute() == wire::CmAttribute::kSidrReq) {
    if (const auto header =
            wire::ParseRdmaCmHeader(view.sidr_req().private_data)) {
      return Named{header->source, header->destination};
    }
  }
  return std::nullopt;
}

// The source port with which the ICRC is right if `sender` sent the packet; 0:
// none.
uint16_t PortOf(const MadFlow& flow, const wire::IpAddress& sender,
                std::span<const uint8_t> packet) {
  if (sender.is_v4() != flow.destination.is_v4()) return 0;
  for (const uint16_t port : {wire::kRoceUdpPort, flow.source_port}) {
    if (transport::cm::VerifyMadPacket({.source = sender,
                                        .destination = flow.destination,
                                        .source_port = port},
                                       packet)) {
      return port;
    }
  }
  return 0;
}

// The same for any port from which devices send, to report why a MAD is
// dropped.
uint16_t AnyPortOf(const MadFlow& flow, const wire::IpAddress& sender,
                   std::span<const uint8_t> packet) {
  if (const uint16_t port = PortOf(flow, sender, packet)) return port;
  if (sender.is_v4() != flow.destination.is_v4()) return 0;
  constexpr uint16_t kFirstSourcePort = 0xc000;
  const size_t covered = packet.size() - wire::kIcrcSize;
  const wire::IcrcFlow assumed(sender, flow.destination, kFirstSourcePort,
                               wire::kRoceUdpPort);
  const std::optional<uint16_t> port =
      wire::SolveSourcePort(wire::LoadLe32(packet.data() + covered),
                            assumed.Compute(packet.first(covered), /*ip_id=*/0),
                            kFirstSourcePort, covered);
  return port.has_value() && *port >= kFirstSourcePort ? *port : 0;
}

// Our communication ID in a message that is not a request.
transport::cm::CmId OurIdIn(std::span<const uint8_t> mad) {
  wire::CmView view;
  if (wire::CmView::Parse(mad, &view) != wire::CmParseError::kOk) return 0;
  return view.attribute() == wire::CmAttribute::kSidrRep
             ? view.local_comm_id()  // the request ID
             : view.remote_comm_id();
}

// Tries the peer of the connection first: anyone could send requests from other
// ports until the sender that was seen at `via` is forgotten.
std::optional<wire::IpAddress> SenderOfAnswer(const MadFlow& flow,
                                              std::span<const uint8_t> packet,
                                              std::span<const uint8_t> mad,
                                              const transport::Via& via,
                                              const PeerOfId& peer_of) {
  const std::optional<wire::IpAddress> peer = peer_of(OurIdIn(mad));
  if (peer.has_value() && PortOf(flow, *peer, packet) != 0) return peer;
  const std::optional<wire::IpAddress> earlier = SenderAt(via);
  if (earlier.has_value() && PortOf(flow, *earlier, packet) != 0) {
    return earlier;
  }
  return std::nullopt;
}

void WarnOfReceiver(const MadFlow& flow, const wire::IpAddress& named) {
  WarnOnceAbout(
      "translated " + named.ToString(),
      "a connection request for " + named.ToString() + " has arrived at " +
          flow.destination.ToString() +
          ": an address translator (NAT) makes its ICRC wrong, so it is "
          "dropped. Configure the device's public address: "
          "RXE_USER_DEVICES=INTERFACE/public=" +
          named.ToString() + " (docs/nat.md)");
}

}  // namespace

bool FindTranslatedSender(const MadFlow& flow, std::span<const uint8_t> packet,
                          const PeerOfId& peer_of,
                          transport::cm::IncomingMad* in) {
  const transport::Via via = {.address = flow.source, .port = flow.source_port};
  std::optional<wire::IpAddress> sender;
  if (const std::optional<Named> named = NamedIn(in->bytes)) {
    const uint16_t port = NatMode() ? PortOf(flow, named->sender, packet)
                                    : AnyPortOf(flow, named->sender, packet);
    if (port != 0) {
      if (!NatMode()) {
        WarnOfTranslation(named->sender, port, via);
        return false;
      }
      sender = named->sender;
      LearnSender(via, *sender);
    } else if (named->receiver != flow.destination) {
      MadFlow meant = flow;
      meant.destination = named->receiver;
      if (AnyPortOf(meant, named->sender, packet) != 0) {
        WarnOfReceiver(flow, named->receiver);
      }
    }
  } else if (NatMode()) {
    sender = SenderOfAnswer(flow, packet, in->bytes, via, peer_of);
  }
  // Otherwise only the port may have been translated.
  if (!sender.has_value() && NatMode() &&
      PortOf(flow, flow.source, packet) != 0) {
    sender = flow.source;
  }
  if (!sender.has_value()) return false;
  in->remote = *sender;
  in->via = via;
  return true;
}

}  // namespace rxe_user
