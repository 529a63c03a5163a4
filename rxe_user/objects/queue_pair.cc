#include "rxe_user/objects/queue_pair.h"

#include <cerrno>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/statusor.h"
#include "rxe_user/base/nat_routes.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/faults/process_faults.h"
#include "rxe_user/memory/guarded_copy.h"
#include "rxe_user/objects/faulted_completions.h"
#include "rxe_user/objects/limits.h"
#include "rxe_user/observe/explainer.h"
#include "rxe_user/observe/process_files.h"
#include "rxe_user/observe/refusals.h"
#include "transport/qp/qp_type.h"

namespace rxe_user {

using transport::QpAttributes;
using transport::SendTarget;

namespace {

// Memory for the queues from the application's allocator, if there is one.
// nullopt: the allocator has none.
std::optional<QueueMemory> AllocateQueues(const QueuePair::Config& config) {
  if (config.pd == nullptr) return QueueMemory();
  transport::QpConfig inner;
  inner.type = config.type;
  inner.capacity = config.capacity;
  inner.srq = config.srq;
  return AllocateByApplication(config.pd->allocator.get(),
                               transport::QueueMemorySize(inner),
                               QueueKind::kQueuePair);
}

Context& ContextOf(const QueuePair::Config& config) {
  return config.pd != nullptr ? config.pd->context : config.xrc->context();
}

bool HasServiceState(const QueuePair::Config& config) {
  return transport::TraitsOf(config.type).has_request_fields() ||
         config.xrc != nullptr;
}

// A DCI has no receives, a DCT no sends. 0, or EINVAL.
int CompleteDc(QueuePair::Config* config) {
  if (config->type == transport::QpType::kDci) {
    config->recv_cq = config->send_cq;
    config->srq = nullptr;
    const bool receives =
        config->capacity.max_recv_wr != 0 || config->capacity.max_recv_sge != 0;
    return receives || config->send_cq == nullptr ? EINVAL : 0;
  }
  if (config->type == transport::QpType::kDct) {
    config->send_cq = config->recv_cq;
    config->capacity = {};
    const bool complete = config->srq != nullptr && config->recv_cq != nullptr;
    return complete ? 0 : EINVAL;
  }
  return 0;
}

// Completions that are late on command arrive after this time in any case: the
// program may poll without ever arming the queue.
constexpr transport::Time kLatest = 100 * transport::kMillisecond;

absl::StatusOr<uint32_t> AllocateQpn(Engine& engine, transport::QpType type) {
  const transport::QpTypeTraits& traits = transport::TraitsOf(type);
  if (traits.target == SendTarget::kFrame) return engine.AllocateRawQpn();
  return traits.one_lane ? engine.AllocateOneLaneQpn() : engine.AllocateQpn();
}

}  // namespace

struct QueuePair::Faulted {
  Faulted(ProcessFaults& faults, const transport::QpConfig& config,
          CompletionQueue& send_cq, CompletionQueue& recv_cq,
          const FaultedCompletions::OnFault& on_fault)
      : sends(faults, *config.send_cq, send_cq, true, on_fault),
        receives(faults, *config.recv_cq, recv_cq, false, on_fault) {}

  FaultedCompletions sends;
  FaultedCompletions receives;
  // 0: none.
  uint64_t alarm = 0;       // releases late completions
  uint64_t fail_alarm = 0;  // after kComplete: FailOnCommand
};

QueuePair::QueuePair(Passkey, const Config& config, uint32_t qpn,
                     QueueMemory queues)
    : pd_(config.pd),
      send_cq_(config.send_cq),
      recv_cq_(config.recv_cq),
      srq_(config.srq),
      async_(config.async),
      element_(config.element),
      account_(config.account),
      qpn_(qpn),
      lane_index_(
          static_cast<uint16_t>(ContextOf(config).engine().LaneOf(qpn))),
      type_(config.type),
      signal_all_(config.signal_all),
      lane_(ContextOf(config).engine().lane(lane_index_)),
      service_state_(HasServiceState(config) ? new ServiceState : nullptr),
      queues_(std::move(queues)) {
  if (service_state_ != nullptr) {
    service_state_->xrc = config.xrc;
    service_state_->rx_hash = config.rx_hash;
    service_state_->max_tso_header = config.max_tso_header;
  }
  transport::QpConfig inner;
  inner.type = config.type;
  inner.qpn = qpn;
  inner.pd = config.pd != nullptr ? config.pd->id : 0;
  inner.capacity = config.capacity;
  inner.port_mtu = static_cast<uint16_t>(context().device()->roce_mtu);
  inner.signal_all = config.signal_all;
  inner.dci_errored_streams = config.dci_errored_streams;
  inner.stops_at_data_errors = config.stops_at_data_errors;
  inner.memory_placement = true;
  inner.memory = &context().space().memory();
  inner.send_cq = config.send_cq;
  inner.recv_cq = config.recv_cq;
  if (Tracer* const tracer = CurrentTracer(); tracer != nullptr && has_cqs()) {
    const trace::QueueName receives =
        srq_ == nullptr
            ? trace::QueueName{trace::QueueKind::kReceive, qpn}
            : trace::QueueName{trace::QueueKind::kShared, srq_->id()};
    traced_.reset(
        new Traced{{*tracer, *send_cq_, {trace::QueueKind::kSend, qpn}},
                   {*tracer, *recv_cq_, receives}});
    inner.send_cq = &traced_->sends;
    inner.recv_cq = &traced_->receives;
  }
  if (ProcessFaults* const faults = ProcessFaults::Current();
      faults != nullptr && has_cqs()) {
    faulted_ = std::make_unique<Faulted>(
        *faults, inner, *send_cq_, *recv_cq_,
        [this](const transport::faults::Rule& rule,
               const transport::Completion& completion) {
          OnCompletionFault(rule, completion);
        });
    inner.send_cq = &faulted_->sends;
    inner.recv_cq = &faulted_->receives;
    const auto alarm = context().engine().AddAlarm([this] { RevealLate(); });
    if (alarm.ok()) faulted_->alarm = *alarm;
    const auto fails = context().engine().AddAlarm([this] { FailOnCommand(); });
    if (fails.ok()) faulted_->fail_alarm = *fails;
  }
  inner.srq = config.srq;
  inner.events = this;
  inner.xrc = config.xrc;
  inner.queue_memory = queues_.get();
  const transport::RawPacketConfig raw = {.frames = context().engine().frames(),
                                          .rx_hash = config.rx_hash.get()};
  {
    Lane::Guard guard(lane_);
    const transport::DcConfig dc = {
        .connections = transport::TraitsOf(type_).av_is_peer
                           ? nullptr
                           : &context().engine().dc_connections(lane_index_),
        .access_key = config.dct_access_key};
    if (ProcessFaults* const faults = ProcessFaults::Current()) {
      faults->OnCreated(qpn, has_cqs(), srq_ != nullptr);
      inner.may_refuse = true;
    }
    transport_ = transport::MakeQueuePair(lane_.endpoint(), inner,
                                          config.max_tso_header, raw, dc);
    if (transport::TraitsOf(type_).target == SendTarget::kFrame) {
      service_state_->raw =
          static_cast<transport::RawPacketQueuePair*>(transport_.get());
    }
  }
  if (xrc() == nullptr) {
    if (has_cqs()) AttachToCqs();
    ++pd_->users;
    if (srq_ != nullptr && has_cqs()) ++srq_->users;
  }
  if (ProcessFaults* const faults = ProcessFaults::Current()) {
    faults->targets().Add(qpn, this);
  }
}

void QueuePair::AttachToCqs() {
  absl::Cleanup forget = [this] {
    Lane::Guard guard(lane_);
    transport_.reset();
  };
  send_cq_->Attach(this);
  absl::Cleanup detach = [this] { send_cq_->Detach(this); };
  if (recv_cq_ != send_cq_) recv_cq_->Attach(this);
  std::move(detach).Cancel();
  std::move(forget).Cancel();
}

QueuePair::~QueuePair() {
  if (ProcessFaults* const faults = ProcessFaults::Current()) {
    faults->targets().Remove(qpn_, this);
  }
  if (faulted_ != nullptr) {
    for (const uint64_t alarm : {faulted_->alarm, faulted_->fail_alarm}) {
      if (alarm != 0) context().engine().RemoveAlarm(alarm);
    }
  }
  std::vector<wire::IpAddress> groups;
  {
    Lane::Guard guard(lane_);
    groups = lane_.endpoint().GroupsOf(transport_.get());
    // Pending packets, such as the acknowledgement of the peer's last message.
    lane_.TransmitLast(*transport_, Lane::Now());
    ForgetCompletions();  // they point to the queues
    Record(transport::RareEventKind::kDestroyed,
           static_cast<uint32_t>(transport_->attributes().state));
    transport_.reset();
  }
  // From here on, its completion queues and SRQ may be destroyed.
  if (xrc() != nullptr) {
    xrc()->RemoveTarget(this);
  } else if (has_cqs()) {
    send_cq_->Detach(this);
    if (recv_cq_ != send_cq_) recv_cq_->Detach(this);
  }
  for (const wire::IpAddress& group : groups) {
    context().engine().LeaveGroup(qpn_, group);
  }
  context().regions().ForgetQueuePair(qpn_);
  context().engine().ReleaseQpn(qpn_);
  if (srq_ != nullptr) --srq_->users;
  queues_.reset();  // while the allocator exists
  if (pd_ != nullptr) --pd_->users;
}

int QueuePair::Create(const Config& wanted, std::shared_ptr<QueuePair>* out) {
  Config config = wanted;
  if (transport::FindTraits(config.type) == nullptr) {
    return EOPNOTSUPP;
  }
  const transport::QpCapacity& capacity = config.capacity;
  if (capacity.max_send_wr > kMaxQpWr || capacity.max_recv_wr > kMaxQpWr ||
      capacity.max_send_sge > kMaxSge || capacity.max_recv_sge > kMaxSge ||
      capacity.max_inline_data > kMaxInlineData ||
      config.max_tso_header > kMaxTsoHeader) {
    return EINVAL;
  }
  if (const int error = CompleteDc(&config)) return error;
  std::optional<QueueMemory> queues = AllocateQueues(config);
  if (!queues.has_value()) return ENOMEM;
  PrepareGuardedAccess();
  Engine& engine = ContextOf(config).engine();
  const absl::StatusOr<uint32_t> qpn = AllocateQpn(engine, config.type);
  if (!qpn.ok()) return ReportedErrno(qpn.status());
  try {
    *out = std::make_shared<QueuePair>(Passkey(), config, *qpn,
                                       *std::move(queues));
  } catch (...) {
    engine.ReleaseQpn(*qpn);
    throw;
  }
  if (config.xrc != nullptr) config.xrc->AddTarget(*out);
  return 0;
}

int QueuePair::Modify(const QpAttributes& wanted, uint32_t mask) {
  if (service_state_ != nullptr && service_state_->rx_hash != nullptr) {
    return EOPNOTSUPP;
  }
  QpAttributes attributes = wanted;
  uint32_t remote = wanted.dest_qpn;
  if ((mask & transport::kQpDestQpn) == 0) remote = Query().dest_qpn;
  const bool to_peer =
      (mask & transport::kQpAv) != 0 && transport::TraitsOf(type_).av_is_peer;
  if ((mask & transport::kQpAv) != 0) {
    if (const int error = to_peer ? context().ResolveAddress(&attributes.av)
                                  : context().ResolveSource(&attributes.av)) {
      return error;
    }
  }
  if ((mask & transport::kQpAltPath) != 0) {
    if (wanted.alt_av == nullptr) return EINVAL;
    // Nothing is sent on the alternate path.
    transport::AddressVector av = *wanted.alt_av;
    if (const int error = context().ResolveAddress(&av)) return error;
    attributes.alt_av = std::make_shared<transport::AddressVector>(av);
  }
  if ((mask & transport::kQpPathMtu) != 0 &&
      attributes.path_mtu > context().device()->roce_mtu) {
    return EINVAL;
  }
  Lane::Guard guard(lane_);
  if (to_peer) {
    if (const int error = ResolvePort(remote, &attributes.av)) {
      return error;
    }
  }
  const transport::Time now = Lane::Now();
  // These states drop pending packets, as the destructor would.
  if ((mask & transport::kQpState) != 0 &&
      (attributes.state == transport::QpState::kReset ||
       attributes.state == transport::QpState::kErr)) {
    lane_.TransmitLast(*transport_, now);
  }
  const int error = transport_->Modify(attributes, mask, now);
  // Leaving SQD, or a probe of the new path, may have something to send.
  if (error == 0) lane_.Transmit(now);
  if (error == 0 && (mask & transport::kQpState) != 0 &&
      attributes.state == transport::QpState::kReset) {
    ForgetCompletions();
  }
  return error;
}

std::string QueuePair::WhyModifyRefused(const QpAttributes& wanted,
                                        uint32_t mask) {
  QpAttributes attributes = wanted;
  if ((mask & transport::kQpAv) != 0 &&
      context().ResolveAddress(&attributes.av) != 0) {
    return "IBV_QP_AV: sgid_index names no address, or one of another family "
           "than dgid";
  }
  if ((mask & transport::kQpAltPath) != 0 && wanted.alt_av != nullptr) {
    transport::AddressVector av = *wanted.alt_av;
    if (context().ResolveAddress(&av) != 0) {
      return "IBV_QP_ALT_PATH: alt_ah_attr is not valid";
    }
  }
  if ((mask & transport::kQpPathMtu) != 0 &&
      attributes.path_mtu > context().device()->roce_mtu) {
    return "IBV_QP_PATH_MTU: more than the port's active_mtu";
  }
  Lane::Guard guard(lane_);
  return transport_->WhyModifyRefused(attributes, mask);
}

void QueuePair::Record(const transport::RareEvent& event) {
  lane_.recorder().Add(event);
  if (Tracer* const tracer = CurrentTracer()) {
    tracer->OnRareEvent(event, type_, &transport_->attributes());
  }
  if (ProcessFaults* const faults = ProcessFaults::Current()) {
    faults->OnRareEvent(event, type_, transport_->attributes());
  }
}

void QueuePair::Record(transport::RareEventKind kind, uint32_t value) {
  Record({.time = Lane::Now(),
          .qpn = qpn_,
          .kind = kind,
          .value = static_cast<uint16_t>(value)});
}

std::optional<uint8_t> QueuePair::Refuse(
    const transport::RequestToExecute& request) {
  ProcessFaults* const faults = ProcessFaults::Current();
  if (faults == nullptr) return std::nullopt;
  return faults->Refuse(qpn_, request);
}

void QueuePair::OnRareEvent(const transport::RareEvent& event) {
  Record(event);
  if (!IsFailure(event) || !ExplainMode()) return;
  Failure failure = {.queue_pair = transport_->Report(),
                     .events = lane_.recorder().Events(),
                     .now = event.time};
  std::erase_if(failure.events, [this](const RecordedEvent& recorded) {
    return recorded.event.qpn != qpn_;
  });
  ExplainLater(std::move(failure));
}

// An XRC target has no completion queues: its receives complete in those of the
// SRQs.
void QueuePair::ForgetCompletions() {
  if (!has_cqs()) return;
  if (faulted_ != nullptr) {
    faulted_->sends.Forget();
    faulted_->receives.Forget();
  }
  send_cq_->Forget(qpn_);
  if (recv_cq_ != send_cq_) recv_cq_->Forget(qpn_);
}

QpAttributes QueuePair::Query() {
  Lane::Guard guard(lane_);
  return transport_->attributes();
}

transport::QpReport QueuePair::Report() {
  Lane::Guard guard(lane_);
  return transport_->Report();
}

int QueuePair::ResetStream(uint16_t stream) {
  Lane::Guard guard(lane_);
  return transport_->ResetStream(stream);
}

int QueuePair::CancelSends(uint64_t wr_id, int* count) {
  Lane::Guard guard(lane_);
  return transport_->CancelSends(wr_id, count);
}

int QueuePair::SetSourcePort(uint16_t port) {
  if (port == 0) return EINVAL;
  if (transport::TraitsOf(type_).target != SendTarget::kPeer) {
    return EOPNOTSUPP;
  }
  Lane::Guard guard(lane_);
  if (transport_->state() != transport::QpState::kRts) return EOPNOTSUPP;
  if (const absl::Status opened = context().engine().OpenSourcePort(
          transport_->attributes().av.source, port, qpn_);
      !opened.ok()) {
    return absl::IsUnimplemented(opened) ? EOPNOTSUPP : ReportedErrno(opened);
  }
  return transport_->SetSourcePort(port);
}

int QueuePair::AttachCounter(
    std::shared_ptr<transport::CompletionCounter> counter, uint32_t kinds) {
  Lane::Guard guard(lane_);
  return transport_->AttachCounter(std::move(counter), kinds);
}

// JoinGroup must not be called with the lane locked, so another thread may
// attach the same group meanwhile.
int QueuePair::AttachMulticast(const wire::IpAddress& group) {
  if (!transport::TraitsOf(type_).joins_groups || !group.is_multicast()) {
    return EINVAL;
  }
  Engine& engine = context().engine();
  if (const absl::Status joined = engine.JoinGroup(qpn_, group); !joined.ok()) {
    return ReportedErrno(joined);
  }
  absl::Cleanup leave = [&] { engine.LeaveGroup(qpn_, group); };
  bool fresh;
  {
    Lane::Guard guard(lane_);
    fresh = !lane_.endpoint().IsAttached(transport_.get(), group);
    lane_.endpoint().Attach(transport_.get(), group);
  }
  if (fresh) std::move(leave).Cancel();
  return 0;
}

int QueuePair::DetachMulticast(const wire::IpAddress& group) {
  {
    Lane::Guard guard(lane_);
    if (!lane_.endpoint().IsAttached(transport_.get(), group)) return EINVAL;
    lane_.endpoint().Detach(transport_.get(), group);
  }
  context().engine().LeaveGroup(qpn_, group);
  return 0;
}

bool QueuePair::AttachedToAny() {
  if (!transport::TraitsOf(type_).joins_groups) return false;
  Lane::Guard guard(lane_);
  return !lane_.endpoint().GroupsOf(transport_.get()).empty();
}

void QueuePair::OnCqError() {
  Lane::Guard guard(lane_);
  if (transport_ != nullptr) transport_->OnCqError(Lane::Now());
}

void QueuePair::FailOnCommand() {
  if (faulted_ == nullptr) return;
  Lane::Guard guard(lane_);
  if (transport_ == nullptr ||
      !(faulted_->sends.failed() || faulted_->receives.failed())) {
    return;
  }
  transport_->FailOnCommand(Lane::Now());
}

void QueuePair::RevealLate() {
  if (faulted_ == nullptr) return;
  Lane::Guard guard(lane_);
  faulted_->sends.Reveal();
  faulted_->receives.Reveal();
}

void QueuePair::OnCompletionFault(const transport::faults::Rule& rule,
                                  const transport::Completion& completion) {
  Record(transport::RareEventKind::kFault, rule.number);
  if (Tracer* const tracer = CurrentTracer()) {
    tracer->OnFault(rule, completion.qpn, {});
  }
  if (rule.action == transport::faults::Action::kComplete) {
    // The transport is pushing a completion, so the queue pair cannot fail now.
    // The next poll or the alarm fails it, whichever comes first.
    send_cq_->FailLater();
    recv_cq_->FailLater();
    if (faulted_->fail_alarm != 0) {
      context().engine().SetAlarm(faulted_->fail_alarm, 0);
    }
  }
  if (rule.action == transport::faults::Action::kLateCompletion &&
      faulted_->alarm != 0) {
    context().engine().SetAlarm(faulted_->alarm, kLatest);
  }
}

void QueuePair::OnEventOnCommand(const transport::faults::Rule& rule,
                                 bool received) {
  switch (rule.event_of) {
    case transport::faults::EventOf::kQueuePair:
      return PostEvent(rule.event);
    case transport::faults::EventOf::kCompletionQueue:
      if (has_cqs()) (received ? recv_cq_ : send_cq_)->RaiseError();
      return;
    case transport::faults::EventOf::kSharedReceiveQueue:
      if (srq_ != nullptr) srq_->Raise(rule.event);
      return;
    case transport::faults::EventOf::kDevice:
      return;
  }
}

void QueuePair::OnTransferFault(const transport::faults::Rule& rule,
                                bool received, uint32_t number) {
  Record(transport::RareEventKind::kFault, rule.number);
  if (Tracer* const tracer = CurrentTracer()) {
    tracer->OnFault(rule, qpn_, {.received = received, .number = number});
  }
}

void QueuePair::OnQpEvent(transport::QueuePair& /*qp*/,
                          transport::QpEvent event) {
  PostEvent(static_cast<int>(event));
}

void QueuePair::PostEvent(int type) {
  if (Tracer* const tracer = CurrentTracer()) tracer->OnAsyncEvent(qpn_, type);
  if (async_ != nullptr) {
    async_->Post({type, element_, 0, account_});
  }
  if (service_state_ == nullptr) return;
  for (const Listener& listener : service_state_->listeners) {
    listener.async->Post({type, listener.element, 0, listener.account});
  }
}

void QueuePair::Listen(const Listener& listener) {
  Lane::Guard guard(lane_);
  service_state_->listeners.push_back(listener);
}

void QueuePair::StopListening(const EventAccount* account) {
  Lane::Guard guard(lane_);
  std::erase_if(service_state_->listeners, [account](const Listener& listener) {
    return listener.account == account;
  });
}

void QueuePair::ForgetSrq(const transport::ReceiveSource* srq) {
  Lane::Guard guard(lane_);
  if (transport_ != nullptr) transport_->ForgetSrq(srq);
}

QueuePair::Posting::Posting(QueuePair& qp) : qp_(qp), guard_(qp.lane_) {
  if (qp_.has_cqs() && (qp_.send_cq_->overrun() || qp_.recv_cq_->overrun())) {
    qp_.transport_->OnCqError(Now());
  }
}

QueuePair::Posting::~Posting() {
  if (sends_.requests == 0) return;
  if (transport::RawPacketQueuePair* const raw = qp_.raw(); raw != nullptr) {
    raw->Flush(Now());
  } else {
    qp_.lane_.Posted(Now(), sends_);
  }
}

transport::Time QueuePair::Posting::Now() {
  if (!now_) now_ = Lane::Now();
  return *now_;
}

int QueuePair::ResolvePort(uint32_t remote_qpn, transport::AddressVector* av) {
  transport::AddressVector labeled = *av;
  if (transport::TraitsOf(type_).one_lane && av->flow_label == 0) {
    labeled.flow_label = FlowLabelOfSlot(remote_qpn);
  }
  const int error = context().ResolvePort(qpn_, remote_qpn, &labeled);
  av->source_port = labeled.source_port;
  return error;
}

int QueuePair::ChoosePort(uint32_t remote_qpn, transport::AddressVector* av) {
  ServiceState::ChosenPort& last = service_state_->chosen_port;
  Engine& engine = context().engine();
  if (last.port == 0 || last.remote_qpn != remote_qpn ||
      last.flow_label != av->flow_label || last.source != av->source ||
      last.epoch != engine.SourcePortEpoch(qpn_)) {
    if (const int error = ResolvePort(remote_qpn, av)) return error;
    last = {av->source, av->flow_label, remote_qpn, av->source_port,
            engine.SourcePortEpoch(qpn_)};
  }
  av->source_port = last.port;
  return 0;
}

int QueuePair::Posting::Send(const transport::SendRequest& request) {
  if (request.ah == nullptr) return SendComplete(request);
  transport::AddressVector av = *request.ah;
  if (const int error = qp_.ChoosePort(request.remote_qpn, &av)) return error;
  transport::SendRequest complete = request;
  complete.ah = &av;
  if (NatMode()) complete.via = FindRoute(av.destination, request.remote_qpn);
  return SendComplete(complete);
}

int QueuePair::Posting::SendComplete(const transport::SendRequest& request) {
  const int error = request.opcode == transport::SendOpcode::kTso
                        ? SendSegmented(request)
                    : (request.flags & transport::kSendInline) != 0
                        ? SendInline(request)
                        : qp_.transport_->PostSend(request, Now());
  if (error == 0) {
    ++sends_.requests;
    if (qp_.signal_all_ || (request.flags & transport::kSendSignaled) != 0) {
      ++sends_.signaled;
    }
    sends_.bytes += transport::TotalLength(request.sges);
  }
  return error;
}

// Inline data is in plain memory of the application, which may not be mapped.
int QueuePair::Posting::SendInline(const transport::SendRequest& request) {
  const uint64_t length = transport::TotalLength(request.sges);
  if (length == 0 || length > qp_.capacity().max_inline_data) {
    return qp_.transport_->PostSend(request, Now());
  }
  uint8_t data[kMaxInlineData];
  uint8_t* to = data;
  for (const transport::Sge& sge : request.sges) {
    if (!GuardedCopyFrom(to, reinterpret_cast<const void*>(sge.addr),
                         sge.length)) {
      return EFAULT;
    }
    to += sge.length;
  }
  const transport::Sge copy = {reinterpret_cast<uint64_t>(data),
                               static_cast<uint32_t>(length), 0};
  transport::SendRequest copied = request;
  copied.sges = {&copy, 1};
  return qp_.transport_->PostSend(copied, Now());
}

namespace {

// Whether the segments of a TSO request are within the device's limits.
bool FitSegments(const transport::SendRequest& request) {
  return transport::TotalLength(request.sges) <= kMaxTso &&
         request.tso_header.size() <= kMaxTsoHeader;
}

}  // namespace

// The header of segments is in plain memory of the application, too.
int QueuePair::Posting::SendSegmented(const transport::SendRequest& request) {
  uint8_t header[kMaxTsoHeader];
  if (!FitSegments(request)) return EINVAL;
  if (!request.tso_header.empty() &&
      !GuardedCopyFrom(header, request.tso_header.data(),
                       request.tso_header.size())) {
    return EFAULT;
  }
  transport::SendRequest copied = request;
  copied.tso_header = {header, request.tso_header.size()};
  return qp_.transport_->PostSend(copied, Now());
}

int QueuePair::Posting::SendAll(
    std::span<const transport::SendRequest> requests) {
  if (requests.size() > qp_.transport_->SendRoom()) return ENOMEM;
  for (const transport::SendRequest& request : requests) {
    if (const int error = qp_.transport_->CheckSend(request)) return error;
    if (request.opcode == transport::SendOpcode::kTso &&
        !FitSegments(request)) {
      return EINVAL;
    }
    if (request.ah == nullptr) continue;
    transport::AddressVector av = *request.ah;
    if (const int error = qp_.ChoosePort(request.remote_qpn, &av)) return error;
  }
  for (const transport::SendRequest& request : requests) {
    if (const int error = Send(request)) return error;
  }
  return 0;
}

int QueuePair::Posting::Receive(const transport::ReceiveRequest& request) {
  const bool flushed =
      qp_.transport_->attributes().state == transport::QpState::kErr;
  return qp_.transport_->PostReceive(request, flushed ? Now() : 0);
}

}  // namespace rxe_user
