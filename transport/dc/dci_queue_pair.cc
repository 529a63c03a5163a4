#include "transport/dc/dci_queue_pair.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <vector>

#include "transport/qp/send_operation.h"
#include "wire/aeth.h"
#include "wire/dc.h"
#include "wire/psn.h"

namespace transport {
namespace {

bool IsLocal(SendOpcode opcode) {
  return GetSendOperation(opcode).kind == SendKind::kLocal;
}

}  // namespace

DciQueuePair::DciQueuePair(Endpoint& endpoint, const QpConfig& config,
                           DcLane& lane)
    : QueuePair(endpoint, config, wire::Transport::kDc),
      lane_(lane),
      mask_(std::bit_ceil(std::max(config.capacity.max_send_wr, 1u)) - 1),
      targets_(std::make_unique_for_overwrite<Target[]>(mask_ + 1)),
      destinations_(endpoint),
      requester_(core()) {
  core().front = this;
  errored_.reserve(config.dci_errored_streams);
}

DciQueuePair::~DciQueuePair() { EnterReset(); }

// --- States.

void DciQueuePair::StartSending(Time now) {
  requester_.Start(now);
  phase_ = Phase::kIdle;
  held_ = core().send_queue.head();
}

void DciQueuePair::OnError() {
  requester_.Stop();
  phase_ = Phase::kStopped;
}

void DciQueuePair::OnReset() {
  OnError();
  current_ = {};
  errored_.clear();
  restarted_ = false;
  destinations_.Clear();
}

void DciQueuePair::ReportService(QpReport* report) const {
  report->send_psn = requester_.send_psn();
  report->unacked_psn = requester_.unacked_psn();
}

// --- Work requests.

int DciQueuePair::CheckServiceFields(const SendRequest& request) const {
  if ((request.flags & kSendIpChecksum) != 0) return EINVAL;
  if (IsLocal(request.opcode)) return 0;
  const bool addressed =
      request.ah != nullptr && request.remote_qpn <= wire::kQpnMask &&
      !request.ah->destination.is_unspecified() &&
      !request.ah->destination.is_multicast() &&
      request.ah->source.is_v4() == request.ah->destination.is_v4();
  return addressed ? 0 : EINVAL;
}

int DciQueuePair::PrepareServiceFields(const SendRequest& request) {
  next_target_ = {};
  if (IsLocal(request.opcode)) return 0;
  if (destinations_.full()) {
    const SendQueue& queue = core().send_queue;
    for (uint64_t i = queue.head(); i < queue.tail(); ++i) {
      if (TargetOf(i).to != nullptr) TargetOf(i).to->in_use = true;
    }
    if (current_.to != nullptr) current_.to->in_use = true;
    destinations_.DeleteUnused();
  }
  next_target_ = {.to = destinations_.Find(*request.ah, request.via),
                  .key = request.dc_access_key,
                  .dct = request.remote_qpn,
                  .stream = has_streams() ? request.dc_stream : uint16_t{0}};
  return next_target_.to != nullptr ? 0 : ENOMEM;
}

void DciQueuePair::StoreServiceFields(const SendRequest& /*request*/) {
  TargetOf(core().send_queue.tail() - 1) = next_target_;
}

void DciQueuePair::OnPosted(Time now) {
  requester_.OnPosted(now);
  FlushErroredStreams(now);
}

void DciQueuePair::ForEachAddress(const VisitAddress& visit) const {
  QueuePair::ForEachAddress(visit);
  const SendQueue& queue = core().send_queue;
  for (uint64_t i = queue.head(); i < queue.tail(); ++i) {
    if (TargetOf(i).to != nullptr) visit(TargetOf(i).to->flow.av);
  }
}

// --- Streams.

std::optional<Reason> DciQueuePair::WhyErrored(const Target& target) const {
  if (target.to == nullptr) return std::nullopt;
  for (const ErroredStream& errored : errored_) {
    if (errored.stream == target.stream) return errored.reason;
  }
  return std::nullopt;
}

void DciQueuePair::FlushErroredStreams(Time now) {
  if (errored_.empty() || flushing_) return;  // posted by a sink during this
  flushing_ = true;
  const SendQueue& queue = core().send_queue;
  while (phase_ != Phase::kStopped && !core().failed && !queue.empty()) {
    const std::optional<Reason> reason = WhyErrored(TargetOf(queue.head()));
    if (!reason) break;
    requester_.CompleteUnsent({WcStatus::kFlushed, *reason}, now);
  }
  flushing_ = false;
}

bool DciQueuePair::Survives(Time now) {
  // The failed request has been completed, and its slot is not reused yet.
  const Target& failed = TargetOf(core().send_queue.head() - 1);
  if (!has_streams() || failed.to == nullptr || core().send_cq_lost) {
    return false;
  }
  errored_.push_back({failed.stream, core().first_error});
  if (errored_.size() >= config().dci_errored_streams) return false;
  core().first_error = Reason::kNone;
  current_ = {};
  phase_ = Phase::kIdle;
  held_ = core().send_queue.head();
  requester_.Restart();
  requester_.HoldAt(held_);
  restarted_ = true;
  requester_.RunLocalWork(now);  // requests without packets may be next
  FlushErroredStreams(now);
  return true;
}

int DciQueuePair::ResetStream(uint16_t stream) {
  if (state() != QpState::kRts) return EINVAL;
  return std::erase_if(errored_,
                       [&](const ErroredStream& errored) {
                         return errored.stream == stream;
                       }) != 0
             ? 0
             : EINVAL;
}

// --- Connecting.

void DciQueuePair::ExtendHeld() {
  const SendQueue& queue = core().send_queue;
  held_ = std::max(held_, queue.head());
  // Nothing is in flight: another stream may use the connection.
  if (held_ == queue.head() && held_ < queue.tail() &&
      TargetOf(held_).IsSamePeer(current_)) {
    current_.stream = TargetOf(held_).stream;
  }
  while (held_ < queue.tail() &&
         (TargetOf(held_).to == nullptr ||
          (phase_ == Phase::kOpen && TargetOf(held_) == current_))) {
    ++held_;
  }
  requester_.HoldAt(held_);
}

bool DciQueuePair::NeedsConnection(Time now) const {
  const SendQueue& queue = core().send_queue;
  if (queue.empty() || TargetOf(queue.head()).to == nullptr) return false;
  if (queue.head() == held_) return true;
  // The connection has long been idle. A message that was sent in part must
  // continue: a receive of the target is in use for it.
  return phase_ == Phase::kOpen && now - heard_ >= kIdle && requester_.idle();
}

void DciQueuePair::BeginConnecting(Time now) {
  const uint32_t psn = requester_.send_psn();
  requester_.ChangePeer(wire::PsnAdd(psn, 1));
  held_ = core().send_queue.head();
  requester_.HoldAt(held_);
  current_ = TargetOf(held_);
  core().attributes.av = current_.to->flow.av;
  core().attributes.dest_qpn = wire::kNoDcQpn;
  JoinPath();  // `current_.to` is a member of the path
  const uint32_t last = dceth_.initiator_session;
  dceth_ = {.from_initiator = true,
            .src_qpn = qpn(),
            .initiator_session = lane_.Random() & wire::kQpnMask,
            .responder_session = wire::kNoDcSession,
            .dct = current_.dct};
  while (dceth_.initiator_session == last ||
         dceth_.initiator_session == wire::kNoDcSession) {
    dceth_.initiator_session = (dceth_.initiator_session + 1) & wire::kQpnMask;
  }
  phase_ = Phase::kConnecting;
  const Time timeout = wire::AckTimeoutNanos(core().attributes.timeout);
  attempt_ = {.psn = psn,
              .due = true,
              .repeat_after = core().path->ProbeTimeout(),
              .timeout_at = timeout == 0 ? kNever : now + timeout};
}

void DciQueuePair::OnConnectTimer(Time now) {
  if (now >= attempt_.timeout_at) {
    ++core().counters.timeouts;
    if (!attempt_.retries.Spend(core().attributes.retry_cnt)) {
      ++core().counters.retries_exceeded;
      OnError();
      core().CompleteSend({WcStatus::kRetryExceeded, Reason::kNeverAnswered},
                          now);
      core().Fail(Reason::kNeverAnswered);
      return;
    }
    attempt_.timeout_at =
        now + wire::AckTimeoutNanos(core().attributes.timeout);
    attempt_.due = true;
  } else if (now >= attempt_.repeat_at) {
    ++core().counters.probes;
    attempt_.due = true;
  }
  if (attempt_.due) attempt_.repeat_at = kNever;  // until it is sent
}

Interests DciQueuePair::ConnectInterests() const {
  Interests want;
  if (attempt_.due) want.wants = Interests::kAcks;
  want.deadline = std::min(attempt_.repeat_at, attempt_.timeout_at);
  return want;
}

void DciQueuePair::TransmitConnect(Time now, Burst* burst) {
  uint8_t* const out = burst->Reserve(wire::kDcConnectSize);
  if (out == nullptr) return;
  wire::EmitDcConnect(
      {.dest_qpn = wire::kNoDcQpn, .ack_req = true, .psn = attempt_.psn},
      dceth_, {.access_key = current_.key}, out);
  burst->Commit();
  attempt_.due = false;
  attempt_.repeat_at = now + attempt_.repeat_after;
  attempt_.repeat_after = std::min(2 * attempt_.repeat_after, kLongestRepeat);
}

bool DciQueuePair::IsAnswer(const wire::PacketView& packet) const {
  if (phase_ != Phase::kConnecting || !packet.is_dc_answer() ||
      packet.psn() != attempt_.psn) {
    return false;
  }
  const wire::DcEth dc = packet.dceth();
  return dc.version == wire::kDcVersion && !dc.from_initiator &&
         dc.src_qpn != 0 && dc.src_qpn != wire::kNoDcQpn &&
         dc.initiator_session == dceth_.initiator_session &&
         dc.responder_session != 0 &&
         dc.responder_session != wire::kNoDcSession && dc.dct == current_.dct;
}

bool DciQueuePair::IsOfConnection(const wire::PacketView& packet) const {
  if (phase_ != Phase::kOpen || packet.is_dc_answer()) return false;
  const wire::DcEth dc = packet.dceth();
  return dc.version == wire::kDcVersion && !dc.from_initiator &&
         dc.src_qpn == attributes().dest_qpn &&
         dc.initiator_session == dceth_.initiator_session &&
         dc.responder_session == dceth_.responder_session &&
         dc.dct == current_.dct &&
         // Not the syndrome of a DC answer without the answer's bytes. RC would
         // take it for a NAK of reliable datagrams, which is fatal.
         !(packet.info().Has(wire::kAeth) &&
           packet.aeth().syndrome == wire::kDcAnswerSyndrome);
}

// --- Packets.

bool DciQueuePair::OnResponse(const Received& received, Time now) {
  const wire::PacketView& packet = *received.packet;
  if (IsAnswer(packet)) {
    const wire::DcEth dc = packet.dceth();
    core().attributes.dest_qpn = dc.src_qpn;
    dceth_.responder_session = dc.responder_session;
    phase_ = Phase::kOpen;
    heard_ = now;
    return true;
  }
  if (!IsOfConnection(packet)) {
    ++core().counters.dropped_response;
    return false;
  }
  if (!requester_.OnResponse(packet, now)) return false;
  heard_ = now;
  FlushErroredStreams(now);
  return true;
}

bool DciQueuePair::IsExpected(const wire::PacketView& packet) const {
  return packet.info().is_response &&
         (IsAnswer(packet) ||
          (IsOfConnection(packet) && requester_.Answers(packet)));
}

void DciQueuePair::OnServiceTimer(Time now) {
  if (phase_ == Phase::kConnecting) return OnConnectTimer(now);
  requester_.OnTimer(now);
  FlushErroredStreams(now);
}

Interests DciQueuePair::TakeServiceInterests(Time now) {
  if (phase_ == Phase::kStopped) return {};
  if (restarted_) {
    restarted_ = false;
    Interests soon;
    soon.deadline = now;
    return soon;
  }
  if (phase_ != Phase::kConnecting) {
    ExtendHeld();
    if (NeedsConnection(now)) BeginConnecting(now);
  }
  return phase_ == Phase::kOpen         ? requester_.TakeInterests(now)
         : phase_ == Phase::kConnecting ? ConnectInterests()
                                        : Interests();
}

// A connection to another target begins between bursts (TakeServiceInterests):
// `burst` is for the flow to this one.
Interests DciQueuePair::TransmitService(Time now, const TransmitTurn& turn,
                                        Burst* burst) {
  switch (phase_) {
    case Phase::kStopped:
    case Phase::kIdle:
      break;
    case Phase::kConnecting:
      if (attempt_.due) TransmitConnect(now, burst);
      return ConnectInterests();
    case Phase::kOpen:
      ExtendHeld();
      if (turn.acks_only) return requester_.TakeInterests(now);
      return requester_.Transmit(now, turn, burst);
  }
  return {};
}

}  // namespace transport
