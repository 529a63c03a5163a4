#include "transport/qp/queue_pair.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/qp/state_table.h"
#include "wire/headers.h"

namespace transport {

QueuePair::QueuePair(Endpoint& endpoint, const QpConfig& config,
                     wire::Transport transport, uint32_t number)
    : EndpointQp(number),
      endpoint_(endpoint),
      core_(config, transport),
      receiver_(core_) {
  endpoint_.Register(this);
}

QueuePair::~QueuePair() { endpoint_.Unregister(this, core_.counters); }

void QueuePair::SetState(QpState to, Time now) {
  const QpState from = std::exchange(core_.attributes.state, to);
  if (from == to) return;
  core_.Note(RareEventKind::kState, now, 0,
             static_cast<uint32_t>(from) << 8 | static_cast<uint32_t>(to));
}

QpReport QueuePair::Report() const {
  const AddressVector& av = attributes().av;
  QpReport report;
  report.qpn = qpn();
  report.type = config().type;
  report.state = state();
  report.dest_qpn = attributes().dest_qpn;
  report.source = av.source;
  report.destination = av.destination;
  report.source_port = av.source_port;
  report.path_mtu = attributes().path_mtu;
  report.send_queued =
      static_cast<uint32_t>(core_.send_queue.tail() - core_.send_queue.head());
  if (core_.receive_queue != nullptr) {
    report.recv_queued = core_.receive_queue->size();
  }
  report.uses_srq = config().srq != nullptr;
  report.first_error = core_.first_error;
  if (!core_.send_queue.empty()) {
    const SendWqe& oldest = core_.send_queue.at(core_.send_queue.head());
    report.wr_id = oldest.wr_id;
    report.opcode = oldest.opcode;
    report.waits_for =
        state() == QpState::kSqd ? WaitsFor::kResume : WaitsFor::kWindow;
  }
  report.timeout = attributes().timeout;
  report.retry_cnt = attributes().retry_cnt;
  report.rnr_retry = attributes().rnr_retry;
  report.min_rnr_timer = attributes().min_rnr_timer;
  if (config().send_cq != nullptr) report.send_cq = config().send_cq->Report();
  if (config().recv_cq != nullptr) report.recv_cq = config().recv_cq->Report();
  if (core_.path != nullptr) {
    report.window = core_.path->window();
    report.paused = core_.path->held();
    report.in_flight = core_.path->in_flight() - report.paused;
    report.smoothed_rtt = core_.path->smoothed_rtt();
  }
  report.counters = core_.counters;
  ReportService(&report);
  return report;
}

// --- Calls by the application.

bool QueuePair::Offers(SendOpcode opcode) const {
  return TraitsOf(config().type).Offers(opcode) &&
         (opcode < SendOpcode::kFlush || config().memory_placement ||
          opcode > SendOpcode::kAtomicWrite);
}

int QueuePair::AttachCounter(std::shared_ptr<CompletionCounter> counter,
                             uint32_t kinds) {
  if (kinds == 0 || (state() != QpState::kReset && state() != QpState::kInit)) {
    return EINVAL;
  }
  if (kinds >> kCountedCompletions != 0) return ENOTSUP;
  auto& attached = core_.completion_counters;
  if (attached == nullptr) attached = std::make_unique<CompletionCounters>();
  const auto named = [kinds](size_t kind) { return (kinds >> kind & 1) != 0; };
  for (size_t kind = 0; kind < kCountedCompletions; ++kind) {
    if (named(kind) && (*attached)[kind] != nullptr) return EBUSY;
  }
  for (size_t kind = 0; kind < kCountedCompletions; ++kind) {
    if (named(kind)) (*attached)[kind] = counter;
  }
  return 0;
}

int QueuePair::PostSend(const SendRequest& request, Time now) {
  // A type without a requester offers no opcode: CheckRequest refuses its
  // requests.
  const Posting posting = PostingSend(state());
  if (posting == Posting::kRefused) return EINVAL;
  if (const int error = CheckRequest(request)) return error;
  const bool service_fields = has_service_fields();
  if (service_fields) {
    if (const int error = PrepareServiceFields(request)) return error;
  }
  if (const int error = core_.send_queue.Push(request)) return error;
  if (posting == Posting::kFlushed) {
    FlushSends(now);
    return 0;
  }
  if (service_fields) StoreServiceFields(request);
  OnPosted(now);
  ActOnFindings(now);
  // A held request needs no turn: Resume sends it. A queue pair that is
  // scheduled, or waits for its window, needs no update.
  if (posting == Posting::kAccepted && link().schedule == Schedule::kIdle) {
    endpoint_.Update(this, now);
  }
  return 0;
}

int QueuePair::CheckSend(const SendRequest& request) const {
  if (PostingSend(config().type, state()) == Posting::kRefused) return EINVAL;
  if (const int error = CheckRequest(request)) return error;
  return core_.send_queue.Check(request);
}

std::string QueuePair::WhySendRefused(const SendRequest& request) const {
  if (PostingSend(config().type, state()) == Posting::kRefused) {
    return std::string("the queue pair is in ") + NameOf(state()) +
           ", and cannot send in it";
  }
  if (!Offers(request.opcode)) {
    return "opcode: not offered by this type of queue pair";
  }
  if (CheckRequest(request) != 0) {
    return has_service_fields() ? "wr: an address or header is not valid"
                                : "send_flags: IBV_SEND_IP_CSUM is not offered";
  }
  const QpCapacity& capacity = config().capacity;
  if (request.sges.size() > capacity.max_send_sge) {
    return "num_sge: more than max_send_sge";
  }
  if ((request.flags & kSendInline) != 0 &&
      TotalLength(request.sges) > capacity.max_inline_data) {
    return "IBV_SEND_INLINE: more bytes than max_inline_data";
  }
  if (core_.send_queue.Check(request) != 0) {
    return "the work request's lengths are not valid for its opcode";
  }
  if (SendRoom() == 0) {
    return "the send queue is full: max_send_wr work requests whose "
           "completions were not polled yet";
  }
  return "";
}

int QueuePair::CheckRequest(const SendRequest& request) const {
  if (!Offers(request.opcode)) return EINVAL;
  if (has_service_fields()) return CheckServiceFields(request);
  return (request.flags & kSendIpChecksum) == 0 ? 0 : EINVAL;
}

uint32_t QueuePair::SendRoom() const { return core_.send_queue.room(); }

int QueuePair::PostReceive(const ReceiveRequest& request, Time now) {
  if (core_.receive_queue == nullptr) return EINVAL;
  const Posting posting = PostingReceive(state());
  if (posting == Posting::kRefused) return EINVAL;
  if (const int error = core_.receive_queue->Post(request)) return error;
  if (posting == Posting::kFlushed) FlushReceives(now);
  return 0;
}

void QueuePair::OnCqError(Time now) {
  if (state() == QpState::kReset) return;
  core_.NoteFirstError(Reason::kCqOverrun);
  EnterError(now, QpEvent::kFatal);
  endpoint_.Update(this, now);
}

void QueuePair::FailOnCommand(Time now) {
  if (state() == QpState::kReset) return;
  core_.NoteFirstError(Reason::kFaultOnCommand);
  EnterError(now);
  endpoint_.Update(this, now);
}

// --- Inputs.

inline bool QueuePair::StateTakes(const wire::PacketView& packet) const {
  const QpState at = state();
  return at == QpState::kRts ||
         !(at == QpState::kReset || at == QpState::kInit ||
           at == QpState::kErr ||
           (at == QpState::kRtr && packet.info().is_response));
}

bool QueuePair::WouldTake(const wire::PacketView& packet) const {
  return packet.transport() == core_.transport && StateTakes(packet) &&
         PkeyMatches(packet) && IsWithinWindow(packet);
}

bool QueuePair::TakesDatagram(const wire::PacketView& packet) const {
  return is_datagram() && packet.transport() == core_.transport &&
         StateTakes(packet) && PkeyMatches(packet) &&
         packet.deth().qkey == attributes().qkey;
}

int QueuePair::SetSourcePort(uint16_t port) {
  if (state() != QpState::kRts || is_datagram() || !flow_.has_value() ||
      flow_->destination_port != wire::kRoceUdpPort) {
    return EOPNOTSUPP;
  }
  core_.attributes.av.source_port = port;
  flow_->SetSourcePort(port);
  return 0;
}

void QueuePair::SetVia(const Via& via) {
  if (flow_.has_value()) flow_->SetVia(via);
}

bool QueuePair::Admit(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  QpCounters& counters = core_.counters;
  if (packet.transport() != core_.transport &&
      packet.transport() != wire::Transport::kCnp) {
    ++counters.dropped_type;
    return false;
  }
  if (!StateTakes(packet)) {
    ++counters.dropped_state;
    return false;
  }
  // A CNP comes from a destination of ours, so its source is checked even for
  // UD.
  const bool any_source =
      is_datagram() && packet.transport() == wire::Transport::kUd;
  if (received.origin == Origin::kElsewhere && !any_source) {
    return AdmitElsewhere(packet);
  }
  if (!PkeyMatches(packet)) {
    ++counters.dropped_pkey;
    return false;
  }
  if (is_datagram()) return true;
  if (received.origin != Origin::kPeerPort) return AdmitPort(received, now);
  peer_port_.Heard(now);
  return true;
}

bool QueuePair::AdmitElsewhere(const wire::PacketView& packet) {
  QpCounters& counters = core_.counters;
  const bool takes =
      packet.transport() == core_.transport && AcceptsAnySource(packet);
  if (takes && PkeyMatches(packet)) return true;
  ++(takes ? counters.dropped_pkey : counters.dropped_source);
  return false;
}

bool QueuePair::AdmitPort(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  const uint16_t port = received.datagram->source_port;
  const bool notification = packet.opcode() == wire::kOpcodeCnp;
  const bool expected = !notification && IsExpected(packet);
  if (peer_port_.known() && !(expected && IsBeginning(packet))) {
    const bool may_change = !notification && peer_port_.MayChange(now);
    if (may_change && !expected) peer_port_.Refuse(now);
    if (!may_change || !expected || !peer_port_.Claim(port, now)) {
      ++core_.counters.dropped_port;
      return false;
    }
  }
  if (!expected) {
    if (packet.info().is_request && peer_port_.NoteEarlyPort(port)) {
      ForgetOutOfOrder();
    }
    return true;
  }
  if (peer_port_.known() || peer_port_.NoteEarlyPort(port)) ForgetOutOfOrder();
  peer_port_.Heard(now);
  if (state() == QpState::kRtr && !communication_established_) {
    communication_established_ = true;
    RaiseEvent(QpEvent::kCommEstablished);
  }
  return true;
}

bool QueuePair::OnRequest(const Received& /*received*/, Time /*now*/) {
  ++core_.counters.dropped_type;
  return false;
}

bool QueuePair::OnResponse(const Received& /*received*/, Time /*now*/) {
  ++core_.counters.dropped_type;
  return false;
}

bool QueuePair::OnPacket(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  if (!Admit(received, now)) return false;
  ++core_.counters.rx_packets;
  core_.counters.rx_bytes += received.datagram->bytes.size();
  if (packet.opcode() == wire::kOpcodeCnp) {
    ++core_.counters.cnps_received;
    OnNotification(now);
    // In RTR there are no requests to limit.
    if (state() != QpState::kRtr && core_.path != nullptr) {
      if (!core_.path->OnCongestionNotification(now)) {
        ++core_.counters.cnps_ignored;
      }
    }
    return false;
  }
  // Until the port is known, only expected packets certainly come from the
  // peer.
  const bool in_window =
      (packet.info().is_request ? OnRequest(received, now)
                                : OnResponse(received, now)) &&
      peer_port_.known();
  if (in_window) NoteCongestion(received, now);
  ActOnFindings(now);
  return in_window;
}

inline void QueuePair::NoteCongestion(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  const bool response = packet.info().is_response;
  if (!packet.payload().empty()) {
    received_data_ = true;
  } else if (response) {
    return;  // an acknowledgement: see docs/reliability.md, "Congestion"
  }
  if (received.congestion_experienced) {
    ++core_.counters.ecn_marked;
    // The requester of a READ limits the responses in flight, so it acts on the
    // mark too.
    if (RequestCnp(packet.pkey(), now) && response) {
      core_.path->OnCongestionNotification(now);
    }
  }
}

bool QueuePair::RequestCnp(uint16_t pkey, Time now) {
  if (!flow_ || now - last_cnp_ < kCnpInterval) return false;
  last_cnp_ = now;
  cnp_due_ = true;
  cnp_pkey_ = pkey;
  return true;
}

void QueuePair::OnReceiveOverflow(Time now) {
  RequestCnp(wire::kDefaultPkey, now);
}

void QueuePair::OnTimer(Time now) {
  OnServiceTimer(now);
  ActOnFindings(now);
}

int QueuePair::CancelSends(uint64_t wr_id, int* count) {
  if (state() != QpState::kSqd || config().type != QpType::kRc) return EINVAL;
  *count = 0;
  SendQueue& queue = core_.send_queue;
  for (uint64_t i = FirstUnbegun(); i != queue.tail(); ++i) {
    SendWqe& wqe = queue.at(i);
    if (wqe.wr_id != wr_id) continue;
    ++*count;
    if (wqe.opcode == SendOpcode::kNop) continue;
    wqe.row = &CanceledOperation(wqe.operation());
    wqe.opcode = SendOpcode::kNop;
  }
  return 0;
}

// --- Errors and events.

bool QueuePair::ActOnFindingsNow(Time now) {
  core_.has_findings = false;
  const bool failed = core_.failed;
  core_.failed = false;
  if (failed && Survives(now)) {
    core_.failure_event.reset();
  } else if (failed) {
    EnterError(now, std::exchange(core_.failure_event, std::nullopt));
  }
  const bool sends_failed = core_.sends_failed;
  core_.sends_failed = false;
  if (sends_failed && sends()) {
    SetState(QpState::kSqe, now);
    FlushSends(now);
  }
  const bool data_error = core_.data_error;
  core_.data_error = false;
  if (data_error && state() == QpState::kRts) {
    SetState(QpState::kSqd, now);
    core_.attributes.en_sqd_async_notify = true;
    Drain(now);
  }
  const bool drained = core_.sq_drained;
  core_.sq_drained = false;
  if (drained && attributes().en_sqd_async_notify) {
    RaiseEvent(QpEvent::kSqDrained);
  }
  return failed || sends_failed;
}

void QueuePair::EnterError(Time now, std::optional<QpEvent> event) {
  if (state() == QpState::kErr) return;
  SetState(QpState::kErr, now);
  cnp_due_ = false;
  OnError();
  FlushSends(now);
  FlushReceives(now);
  if (event) RaiseEvent(*event);
}

void QueuePair::RaiseEvent(QpEvent event) {
  if (config().events != nullptr) config().events->OnQpEvent(*this, event);
}

void QueuePair::FlushSends(Time now) {
  if (flushing_sends_) return;  // posted by a sink during the flush
  flushing_sends_ = true;
  while (!core_.send_queue.empty()) {
    core_.CompleteSend({WcStatus::kFlushed, core_.first_error}, now);
  }
  flushing_sends_ = false;
}

void QueuePair::FlushReceives(Time now) {
  receiver_.Flush(now);
  const bool shared =
      config().srq != nullptr ||
      TraitsOf(config().type).receives_from == ReceivesFrom::kDomainSrqs;
  if (shared && !last_wqe_reported_) {
    last_wqe_reported_ = true;
    RaiseEvent(QpEvent::kLastWqeReached);
  }
}

// --- Outputs.

Interests QueuePair::TakeInterests(Time now) {
  Interests want = TakeServiceInterests(now);
  AddInterests(&want);
  return want;
}

Interests QueuePair::Transmit(Time now, const TransmitTurn& turn,
                              Burst* burst) {
  if (link().flow == nullptr) return TakeInterests(now);
  if (cnp_due_) TransmitCnp(burst);
  Interests want = TransmitService(now, turn, burst);
  core_.counters.tx_packets += burst->segments();
  core_.counters.tx_bytes += burst->bytes().size();
  if (ActOnFindings(now)) want = TakeServiceInterests(now);
  AddInterests(&want);
  return want;
}

// Only types whose queue pairs are all in one lane share bursts: there an
// application sends by one queue pair and receives by another. Queue pairs of
// other types do both.
uint32_t QueuePair::SharesBurstsTo() const {
  return TraitsOf(config().type).one_lane ? attributes().dest_qpn : 0;
}

void QueuePair::TransmitAnswers(Time now, Burst* burst) {
  if (!burst->empty()) return;
  endpoint_.TransmitAnswers(this, now, burst);
  // Transmit counts the whole burst.
  core_.counters.tx_packets -= burst->segments();
  core_.counters.tx_bytes -= burst->bytes().size();
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
  headers.bth.pkey = cnp_pkey_;
  headers.bth.dest_qpn = attributes().dest_qpn;
  uint8_t header[wire::kMaxHeaderSize];
  const size_t size = wire::EmitHeaders(headers, header);
  std::memcpy(out, header, size);
  std::memset(out + size, 0, wire::kCnpPayloadSize);
  burst->Commit();
  cnp_due_ = false;
  ++core_.counters.cnps_sent;
}

}  // namespace transport
