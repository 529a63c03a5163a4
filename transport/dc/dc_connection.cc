#include "transport/dc/dc_connection.h"

#include <new>

#include "transport/dc/dc_connections.h"
#include "wire/dc.h"
#include "wire/psn.h"

namespace transport {

DcConnection::DcConnection(Endpoint& endpoint, const QpConfig& config,
                           uint32_t number, DcConnections& owner)
    : QueuePair(endpoint, config, wire::Transport::kDc, number),
      owner_(owner),
      responder_(core(), receiver(), endpoint.arena_pool()) {
  core().front = this;
}

DcConnection::~DcConnection() { EnterReset(); }

void DcConnection::Accept(const QpAttributes& target, const Received& connect,
                          uint32_t session, uint16_t source_port) {
  const wire::PacketView& packet = *connect.packet;
  const wire::DcEth dc = packet.dceth();
  connect_psn_ = packet.psn();
  port_ = connect.datagram->source_port;
  QpAttributes& own = core().attributes;
  own = target;
  own.state = QpState::kRts;
  own.av.source = connect.datagram->destination;
  own.av.destination = connect.datagram->source;
  own.av.source_port = source_port;
  own.dest_qpn = dc.src_qpn;
  own.rq_psn = wire::PsnAdd(connect_psn_, 1);
  own.max_dest_rd_atomic = 0;
  dceth_ = {.src_qpn = qpn(),
            .initiator_session = dc.initiator_session,
            .responder_session = session,
            .dct = config().qpn};
  JoinPath();
  StartReceiving();
  answer_due_ = true;
}

bool DcConnection::IsCopy(const Received& connect) const {
  const wire::DcEth dc = connect.packet->dceth();
  return !dead() && connect.packet->bth().psn == connect_psn_ &&
         connect.datagram->source_port == port_ && dc.dct == dceth_.dct &&
         dc.initiator_session == dceth_.initiator_session;
}

// The address of early data may be forged, so nothing is sent there that is
// much longer than the packet that it answers. An initiator that has got the
// answer to its CONNECT retransmits the READ.
bool DcConnection::TakesEarly(const Received& data) const {
  return KindOf(data.packet->operation()) != RequestKind::kRead &&
         data.datagram->source_port == port_ && IsOfThisSession(*data.packet);
}

bool DcConnection::IsOfThisSession(const wire::PacketView& packet) const {
  const wire::DcEth dc = packet.dceth();
  return dc.version == wire::kDcVersion && dc.from_initiator &&
         dc.src_qpn == initiator() && dc.dct == dceth_.dct &&
         dc.initiator_session == dceth_.initiator_session &&
         (dc.responder_session == dceth_.responder_session ||
          (dc.responder_session == wire::kNoDcSession &&
           packet.dest_qpn() != qpn()));
}

void DcConnection::Close(Time now) {
  QpAttributes attributes;
  attributes.state = QpState::kErr;
  Modify(attributes, kQpState, now);
}

void DcConnection::OnError() {
  answer_due_ = false;
  responder_.OnError();
}

void DcConnection::ReportService(QpReport* report) const {
  report->expected_psn = responder_.expected_psn();
}

bool DcConnection::AllocateReadResources() {
  core().attributes.max_dest_rd_atomic = kReadResources;
  try {
    responder_.ResizeResources();
  } catch (const std::bad_alloc&) {
    core().attributes.max_dest_rd_atomic = 0;
    return false;
  }
  return true;
}

bool DcConnection::OnRequest(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  QpCounters& counters = core().counters;
  if (!IsOfThisSession(packet)) {  // of an earlier session
    ++counters.dropped_window;
    return false;
  }
  if (received.datagram->source_port != port_) {
    ++counters.dropped_port;
    return false;
  }
  if (packet.operation() == wire::Operation::kConnect) {
    ++counters.dropped_type;
    return false;
  }
  // If there is no memory, the initiator retransmits the request.
  const RequestKind kind = KindOf(packet.operation());
  if ((kind == RequestKind::kRead || kind == RequestKind::kAtomic) &&
      attributes().max_dest_rd_atomic == 0 && !AllocateReadResources()) {
    ++counters.dropped_window;
    return false;
  }
  // Early data prove nothing.
  if (packet.dceth().responder_session == dceth_.responder_session) {
    owner_.OnUsed(this, now);
  }
  return responder_.OnRequest(packet, now);
}

bool DcConnection::IsExpected(const wire::PacketView& packet) const {
  return packet.info().is_request && IsOfThisSession(packet) &&
         responder_.IsExpected(packet);
}

bool DcConnection::IsWithinWindow(const wire::PacketView& packet) const {
  return packet.info().is_request && IsOfThisSession(packet) &&
         responder_.IsWithinWindow(packet);
}

Interests DcConnection::TakeServiceInterests(Time now) {
  Interests want = responder_.GetInterests(now);
  if (answer_due_) want.wants |= Interests::kAcks;
  return want;
}

Interests DcConnection::TransmitService(Time now, const TransmitTurn& turn,
                                        Burst* burst) {
  if (turn.acks_only) TransmitAnswers(now, burst);
  if (answer_due_) {
    if (uint8_t* const out = burst->Reserve(wire::kDcAnswerPacketSize)) {
      wire::EmitDcAnswer({.dest_qpn = initiator(), .psn = connect_psn_}, dceth_,
                         out);
      burst->Commit();
      answer_due_ = false;
    }
  }
  const size_t before = burst->bytes().size();
  responder_.Transmit(now, burst, turn.acks_only);
  // The initiator of a long READ sends nothing while it is answered.
  if (established_ && burst->bytes().size() != before) {
    owner_.OnUsed(this, now);
  }
  return TakeServiceInterests(now);
}

}  // namespace transport
