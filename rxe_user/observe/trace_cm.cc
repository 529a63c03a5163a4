#include "rxe_user/observe/trace_cm.h"

#include <algorithm>

#include "wire/cm.h"
#include "wire/packet.h"

namespace rxe_user::trace {
namespace {

using wire::CmAttribute;

// In SIDR messages, the first ID is that of the request, in both directions.
bool IsSidr(CmAttribute attribute) {
  return attribute == CmAttribute::kSidrReq ||
         attribute == CmAttribute::kSidrRep;
}

wire::IpAddress PeerOf(const CmMessageEvent& message) {
  return wire::IpAddress::FromGid(message.peer);
}

}  // namespace

std::optional<CmMessageEvent> TraceCm::MessageIn(
    const transport::ObservedPacket& packet) {
  wire::PacketView view;
  wire::CmView mad;
  if (packet.disposition != transport::Disposition::kDelivered ||
      wire::PeekDestQpn(packet.bytes) != wire::kGsiQpn ||
      wire::PacketView::Parse(packet.bytes, &view) != wire::ParseError::kOk ||
      wire::CmView::Parse(view.payload(), &mad) != wire::CmParseError::kOk) {
    return std::nullopt;
  }
  CmMessageEvent message;
  const bool is_sent = packet.direction == transport::Direction::kTransmitted;
  const CmAttribute attribute = mad.attribute();
  const uint32_t of_sender =
      attribute == CmAttribute::kSidrRep ? 0 : mad.local_comm_id();
  const uint32_t of_receiver =
      attribute == CmAttribute::kSidrRep ? mad.local_comm_id()
      : attribute == CmAttribute::kReq || IsSidr(attribute)
          ? 0
          : mad.remote_comm_id();
  message.local_id = is_sent ? of_sender : of_receiver;
  message.remote_id = is_sent ? of_receiver : of_sender;
  message.attribute = static_cast<uint16_t>(attribute);
  message.way =
      static_cast<uint8_t>(is_sent ? WhichWay::kSent : WhichWay::kReceived);
  const wire::IpAddress& peer = is_sent ? packet.destination : packet.source;
  std::copy(peer.bytes.begin(), peer.bytes.end(), message.peer);
  switch (attribute) {
    case CmAttribute::kReq:
      message.service_id = mad.req().service_id;
      message.sender_qpn = mad.req().local_qpn;
      break;
    case CmAttribute::kRep:
      message.sender_qpn = mad.rep().local_qpn;
      break;
    case CmAttribute::kRej:
      message.reason = static_cast<uint16_t>(mad.rej().reason);
      break;
    case CmAttribute::kSidrReq:
      message.service_id = mad.sidr_req().service_id;
      break;
    case CmAttribute::kSidrRep:
      message.reason = static_cast<uint16_t>(mad.sidr_rep().status);
      message.sender_qpn = mad.sidr_rep().qpn;
      break;
    default:
      break;
  }
  return message;
}

void TraceCm::OnReceived(uint64_t id, uint64_t packet,
                         CmMessageEvent* message) {
  message->header.id = id;
  message->header.cause = packet;
  message->header.qpn = own_.Find(message->local_id).qpn;
  if (message->remote_id == 0) return;  // the sender has no connection
  received_[{PeerOf(*message), message->remote_id}] = id;
}

void TraceCm::OnSent(uint64_t id, CmMessageEvent* message) {
  message->header.id = id;
  if (message->remote_id != 0) {
    message->header.cause =
        received_.Find({PeerOf(*message), message->remote_id});
  }
  if (message->local_id == 0) return;
  Own& own = own_[message->local_id];
  if (message->sender_qpn != 0) own.qpn = message->sender_qpn;
  message->header.qpn = own.qpn;
  // A message that is retransmitted without a newer message of the peer.
  if (own.attribute == message->attribute) {
    message->header.cause = std::max(message->header.cause, own.sent);
  }
  own.attribute = message->attribute;
  own.sent = id;
}

}  // namespace rxe_user::trace
