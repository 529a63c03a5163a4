#include "transport/qp/queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/endpoint/endpoint.h"
#include "transport/qp/receive_queue.h"
#include "transport/qp/state_table.h"
#include "transport/rc/requester.h"
#include "transport/rc/responder.h"
#include "wire/headers.h"

namespace transport {
namespace {

// Which BTH transport the packets of a queue pair type carry.
wire::Transport TransportOfType(QpType type) {
  switch (type) {
    case QpType::kRc:
      return wire::Transport::kRc;
    case QpType::kUc:
      return wire::Transport::kUc;
    case QpType::kUd:
      return wire::Transport::kUd;
    case QpType::kXrcInitiator:
    case QpType::kXrcTarget:
      return wire::Transport::kXrc;
  }
  return wire::Transport::kRd;  // which no queue pair has
}

}  // namespace

QueuePair::QueuePair(Endpoint& endpoint, const QpConfig& config)
    : endpoint_(endpoint),
      config_(config),
      requester_(*this),
      responder_(*this) {
  link_.qp = this;
  if (config_.srq == nullptr) {
    receive_queue_ =
        std::make_unique<ReceiveQueue>(config_.pd, config_.capacity.max_recv_wr,
                                       config_.capacity.max_recv_sge);
  }
  endpoint_.Register(this);
}

QueuePair::~QueuePair() {
  EnterReset();
  endpoint_.Unregister(this);
}

int QueuePair::PostSend(const SendRequest& request, Time now) {
  const Posting posting = PostingSend(config_.type, state());
  if (posting == Posting::kRefused) return EINVAL;
  if (const int error = requester_.Post(request, now)) return error;
  // A held request makes no turn: Resume finds it.
  if (posting == Posting::kFlushed) requester_.Flush(now);
  if (posting == Posting::kAccepted) Update(now);
  return 0;
}

int QueuePair::CheckSend(const SendRequest& request) const {
  if (PostingSend(config_.type, state()) == Posting::kRefused) return EINVAL;
  return requester_.Check(request);
}

uint32_t QueuePair::SendRoom() const { return requester_.room(); }

int QueuePair::PostReceive(const ReceiveRequest& request, Time now) {
  const Posting posting = PostingReceive(config_.type, state());
  if (posting == Posting::kRefused || receive_queue_ == nullptr) return EINVAL;
  if (const int error = receive_queue_->Post(request)) return error;
  if (posting == Posting::kFlushed) responder_.Flush(now);
  return 0;
}

bool QueuePair::Admit(const Received& received) {
  const wire::PacketView& packet = *received.packet;
  if (packet.transport() != wire::Transport::kCnp &&
      packet.transport() != TransportOfType(config_.type)) {
    ++counters_.dropped_type;
    return false;
  }
  const QpState at = state();
  if (at == QpState::kReset || at == QpState::kInit || at == QpState::kErr ||
      (at == QpState::kRtr && packet.info().is_response)) {
    ++counters_.dropped_state;
    return false;
  }
  if (received.source != attributes_.av.destination ||
      received.destination != attributes_.av.source) {
    ++counters_.dropped_source;
    return false;
  }
  if (!wire::PkeysMatch(packet.bth().pkey, wire::kDefaultPkey)) {
    ++counters_.dropped_pkey;
    return false;
  }
  return true;
}

void QueuePair::OnPacket(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  if (!Admit(received)) return;
  ++counters_.rx_packets;
  counters_.rx_bytes += packet.udp_payload().size();
  if (packet.opcode() == wire::kOpcodeCnp) {
    ++counters_.cnps_received;
    if (state() != QpState::kRtr) requester_.OnCongestionNotification(now);
    return;
  }
  NoteCongestion(received, now);
  if (packet.info().is_request) {
    if (state() == QpState::kRtr && !communication_established_) {
      communication_established_ = true;
      RaiseEvent(QpEvent::kCommEstablished);
    }
    responder_.OnRequest(received, now);
  } else {
    requester_.OnResponse(received, now);
  }
}

void QueuePair::NoteCongestion(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  if (packet.payload().empty()) return;
  endpoint_.NoteReceivedData(this, now);
  if (received.congestion_experienced || packet.bth().fecn) RequestCnp(now);
}

void QueuePair::RequestCnp(Time now) {
  if (!flow_ || now - last_cnp_ < kCnpInterval) return;
  last_cnp_ = now;
  cnp_due_ = true;
  endpoint_.Answer(this);
}

void QueuePair::OnTimer(Time now) {
  if (state() == QpState::kRts || state() == QpState::kSqd) {
    requester_.OnTimer(now);
  }
  responder_.OnTimer(now);
  Update(now);
}

void QueuePair::OnCqError(Time now) {
  if (state() == QpState::kReset) return;
  EnterError(now, QpEvent::kFatal);
}

void QueuePair::EnterError(Time now, std::optional<QpEvent> event) {
  if (state() == QpState::kErr) return;
  attributes_.state = QpState::kErr;
  cnp_due_ = false;
  requester_.Flush(now);
  responder_.Flush(now);
  endpoint_.StopWaiting(this);
  if (event) RaiseEvent(*event);
  Update(now);
}

void QueuePair::RaiseEvent(QpEvent event) {
  if (config_.events != nullptr) config_.events->OnQpEvent(*this, event);
}

void QueuePair::Update(Time now) {
  const bool sends = state() == QpState::kRts || state() == QpState::kSqd;
  const Responder::Output output = responder_.output();
  // One that waits for its path's window is woken by that; only the
  // responder's part does not wait for it.
  if (output.reads ||
      (sends && link_.turn == Turn::kIdle && requester_.HasTransmit(now))) {
    endpoint_.Activate(this);
  }
  if (cnp_due_ || output.answers) endpoint_.Answer(this);
  endpoint_.TimerChanged(this);
  attributes_.sq_draining = state() == QpState::kSqd && !requester_.drained();
}

bool QueuePair::Transmit(Time now, Burst* burst) {
  return TransmitParts(now, burst, true);
}

bool QueuePair::TransmitAnswers(Time now, Burst* burst) {
  return TransmitParts(now, burst, false);
}

bool QueuePair::TransmitParts(Time now, Burst* burst, bool data) {
  if (!flow_) return false;
  if (burst->flow() != &*flow_) burst->Begin(&*flow_);
  const int segments = burst->segments();
  const size_t bytes = burst->bytes().size();
  if (cnp_due_) TransmitCnp(burst);
  const bool more =
      data ? TransmitHalves(now, burst) : responder_.Transmit(now, burst, true);
  counters_.tx_packets += burst->segments() - segments;
  counters_.tx_bytes += burst->bytes().size() - bytes;
  endpoint_.TimerChanged(this);
  return more || cnp_due_;
}

void QueuePair::TransmitCnp(Burst* burst) {
  constexpr size_t kSize =
      wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize;
  uint8_t* out = burst->Reserve(kSize);
  if (out == nullptr) return;
  wire::Headers headers;
  headers.bth.opcode = wire::kOpcodeCnp;
  headers.bth.mig_req = false;
  headers.bth.becn = true;
  headers.bth.dest_qpn = attributes_.dest_qpn;
  uint8_t header[wire::kMaxHeaderSize];
  const size_t size = wire::EmitHeaders(headers, header);
  std::memcpy(out, header, size);
  std::memset(out + size, 0, wire::kCnpPayloadSize);
  burst->Commit();
  cnp_due_ = false;
  ++counters_.cnps_sent;
}

// Requests go first: an ACK, the shortest of packets, then ends their group.
// What the responder could not place goes first in the next burst, so neither
// half starves the other.
bool QueuePair::TransmitHalves(Time now, Burst* burst) {
  const auto sends = [this] {
    return state() == QpState::kRts || state() == QpState::kSqd;
  };
  if (responder_first_ || !sends() || !requester_.HasTransmit(now)) {
    responder_first_ = false;
    const bool responses = responder_.Transmit(now, burst, false);
    const bool requests = sends() && requester_.Transmit(now, burst);
    return responses || requests;
  }
  const bool requests = requester_.Transmit(now, burst);
  responder_first_ = responder_.Transmit(now, burst, false);
  if (responder_first_ && responder_.output().answers) endpoint_.Answer(this);
  return (requests && sends()) || responder_first_;
}

Time QueuePair::NextTimeout() const {
  const bool sends = state() == QpState::kRts || state() == QpState::kSqd;
  return std::min(sends ? requester_.NextTimeout() : kNever,
                  responder_.NextTimeout());
}

}  // namespace transport
