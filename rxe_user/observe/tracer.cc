#include "rxe_user/observe/tracer.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "rxe_user/base/clock.h"
#include "rxe_user/observe/observed_frame.h"
#include "transport/base/reason.h"
#include "wire/frame.h"
#include "wire/packet.h"
#include "wire/pcapng.h"

namespace rxe_user {
namespace {

using trace::BegunEvent;
using trace::CmMessageEvent;
using trace::CompletedEvent;
using trace::EventHeader;
using trace::FaultEvent;
using trace::FaultRuleEvent;
using trace::IncidentEvent;
using trace::MissedEvent;
using trace::PacketEvent;
using trace::PacketOutcome;
using trace::PostedEvent;
using trace::QpStateEvent;
using trace::RecordingEvent;
using trace::RetransmissionEvent;
using trace::TimerEvent;
using transport::Disposition;
using transport::RareEventKind;

constexpr BufferedFile::Words kWords = {.records = "events",
                                        .verb = "record",
                                        .participle = "recorded",
                                        .result = "a recording",
                                        .thread_name = "rxe-user-trace"};

// Bytes of a Custom Block in addition to its contents: type, length twice,
// enterprise number.
constexpr size_t kBlockBytes = 16;
constexpr size_t kMissedBytes = kBlockBytes + sizeof(MissedEvent);
// Bytes of a packet's block: fixed fields, options, padding and a comment.
constexpr size_t kPacketBytes = 160 + sizeof(PacketEvent);
constexpr size_t kFaultBytes = kBlockBytes + sizeof(FaultEvent);

// From the text of /proc/sys/kernel/random/boot_id; zeros where there is none.
void ReadBootId(uint8_t (&id)[16]) {
  const UniqueFd fd(
      ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64];
  const ssize_t n = fd.valid() ? ::read(fd.get(), text, sizeof(text)) : 0;
  size_t digits = 0;
  for (ssize_t i = 0; i < n && digits < 32; ++i) {
    const char c = text[i];
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                             : -1;
    if (digit < 0) continue;
    id[digits / 2] = static_cast<uint8_t>(id[digits / 2] << 4 | digit);
    ++digits;
  }
}

// The calling thread's number. `tracer` is another one in a child of fork.
uint32_t ThreadId(const void* tracer) {
  thread_local const void* known = nullptr;
  thread_local uint32_t id = 0;
  if (known != tracer) {
    known = tracer;
    id = static_cast<uint32_t>(::gettid());
  }
  return id;
}

// The time of a packet's event. Packets of one burst or batch were sent or
// received by one call, so the clock is read once, for the first packet.
// `tracer` is another one in a child of fork.
int64_t TimeOf(const transport::ObservedPacket& packet, const void* tracer) {
  struct First {
    const void* tracer = nullptr;
    transport::Time time = 0;
    transport::Direction direction = {};
    int64_t clock = 0;
  };
  thread_local First first;
  if (packet.segment_index == 0 || first.tracer != tracer ||
      first.time != packet.time || first.direction != packet.direction) {
    first = {tracer, packet.time, packet.direction, ClockNs(CLOCK_REALTIME)};
  }
  return first.clock;
}

// The maximum length of a rule's text in a comment, bytes.
constexpr size_t kMaxComment = 60;

// Why the device dropped a packet; empty: it did not.
std::string_view WhyDropped(Disposition disposition) {
  // In the order of Disposition.
  static constexpr std::string_view kWhy[] = {
      "dropped: too short",         "dropped: unknown opcode",
      "dropped: wrong length",      "dropped: wrong header",
      "dropped: wrong syndrome",    "dropped: wrong ICRC",
      "dropped: unknown queue pair"};
  static_assert(std::size(kWhy) == transport::kDropKinds);
  return disposition != Disposition::kDelivered
             ? kWhy[static_cast<size_t>(disposition)]
             : std::string_view();
}

// The event of the packet's fault, without its header.
FaultEvent FaultOf(const transport::ObservedPacket& packet) {
  FaultEvent event;
  event.delay = static_cast<uint64_t>(packet.fault->delay);
  event.rule = packet.fault->rule;
  event.action = packet.fault->action;
  trace::SetText(packet.fault->text, event.text);
  wire::PacketView view;
  if (wire::PacketView::Parse(packet.bytes, &view) == wire::ParseError::kOk) {
    event.psn = view.bth().psn;
    event.opcode = view.opcode();
  }
  event.way = static_cast<uint8_t>(packet.direction ==
                                           transport::Direction::kTransmitted
                                       ? trace::WhichWay::kSent
                                       : trace::WhichWay::kReceived);
  return event;
}

// How many of the packet's bytes a recording without payloads contains if
// `room` bytes remain in the frame. Readers need all of its headers.
size_t RecordedBytes(std::span<const uint8_t> bytes, size_t room) {
  if (bytes.size() <= room) return bytes.size();
  wire::PacketView view;
  return wire::PacketView::Parse(bytes, &view) == wire::ParseError::kOk
             ? std::max<size_t>(room, view.info().header_length)
             : room;
}

}  // namespace

int64_t Tracer::Now() { return ClockNs(CLOCK_REALTIME); }

std::unique_ptr<Tracer> Tracer::Begin(const std::string& name,
                                      const Options& options) {
  if (name.empty()) return std::unique_ptr<Tracer>(new Tracer({}, options));
  RecordingEvent about;
  about.header.id = 1;
  about.header.time = Now();
  about.monotonic = MonotonicNs();
  about.pid = static_cast<uint32_t>(::getpid());
  ReadBootId(about.boot_id);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  trace::SetText(host, about.host);
  trace::SetText(program_invocation_short_name, about.program);
  std::vector<uint8_t> beginning;
  trace::AppendBeginning(about, &beginning);
  wire::pcapng::AppendInterface(wire::LinkType::kLinuxSll, "rxe_user",
                                &beginning);
  auto file = BufferedFile::Begin(name, options.limits, kWords, beginning);
  if (file == nullptr) return nullptr;
  return std::unique_ptr<Tracer>(new Tracer(std::move(file), options));
}

Tracer::Tracer(std::unique_ptr<BufferedFile> file, const Options& options)
    : file_(std::move(file)), payload_(options.payload), tally_(options.tally) {
  queues_.NextId();  // of the RecordingEvent
}

Tracer::~Tracer() { Flush(std::chrono::milliseconds(0)); }

EventHeader Tracer::Header(uint64_t id, uint64_t cause, uint32_t qpn,
                           int64_t time) {
  EventHeader header;
  header.id = id;
  header.cause = cause;
  header.time = time;
  header.qpn = qpn;
  header.thread = ThreadId(this);
  return header;
}

template <typename Event>
void Tracer::Write(const Event& event) {
  if (file_ == nullptr) return;
  const size_t bytes = kMissedBytes + kBlockBytes + sizeof(Event);
  if (!file_->Append(bytes, [&](std::vector<uint8_t>* out) {
        WriteMissed(out);
        trace::AppendEvent(event, out);
      })) {
    ++missed_events_;
  }
}

template <typename Event>
void Tracer::WriteNow(Event event, int64_t now) {
  event.header =
      Header(event.header.id, event.header.cause, event.header.qpn, now);
  Write(event);
}

void Tracer::WriteMissed(std::vector<uint8_t>* out) {
  if (missed_events_ == 0 && missed_packets_ == 0) return;
  MissedEvent missed;
  missed.header = Header(queues_.NextId(), 0, 0, Now());
  missed.events = missed_events_.exchange(0);
  missed.packets = missed_packets_.exchange(0);
  trace::AppendEvent(missed, out);
}

void Tracer::Flush(std::chrono::milliseconds patience) {
  if (IsInterrupted(patience) || file_ == nullptr) return;
  if (missed_events_ != 0 || missed_packets_ != 0) {
    file_->Append(kMissedBytes,
                  [&](std::vector<uint8_t>* out) { WriteMissed(out); });
  }
  if (patience.count() > 0) file_->Flush(patience);
}

// --- The device.

void Tracer::OnPacket(const transport::ObservedPacket& packet) {
  if (no_file() && tally_ == nullptr) return;
  PacketEvent event;
  std::optional<BegunEvent> begun;
  std::optional<CmMessageEvent> message = trace::TraceCm::MessageIn(packet);
  trace::TracePaths::Events more;
  const bool is_sent = packet.direction == transport::Direction::kTransmitted;
  const uint64_t held = packet.fault != nullptr ? packet.fault->held : 0;
  const bool is_hit_now =
      packet.fault != nullptr && held == 0 && !packet.fault->is_consequence;
  const int64_t now = TimeOf(packet, this);
  {
    const std::lock_guard lock(mutex_);
    if (message && is_sent) {
      cm_.OnSent(queues_.NextId(), &*message);
      event.header.cause = message->header.id;
    }
    std::optional<uint32_t> repeated;
    begun = queues_.OnPacket(packet, &event, &repeated);
    if (message && !is_sent) {
      cm_.OnReceived(queues_.NextId(), event.header.id, &*message);
    }
    event.header.time = now;
    if (!no_file()) more = paths_.OnPacket(packet, event.header);
    if (tally_ != nullptr) {
      if (repeated) CountRepeated(event.header.qpn, *repeated);
      if (is_hit_now) tally_->OnFault(packet.fault->rule);
      if (packet.disposition != Disposition::kDelivered) {
        tally_->OnDropped(packet.disposition, {});
      }
    }
  }
  if (no_file()) return;
  if (begun) WriteNow(*begun, now);
  if (message && is_sent) WriteNow(*message, now);
  event.header = Header(event.header.id, held != 0 ? held : event.header.cause,
                        event.header.qpn, now);
  event.kernel_time = packet.kernel_time;
  event.disposition = static_cast<uint8_t>(packet.disposition);
  std::string fault_comment;
  std::string_view why = WhyDropped(packet.disposition);
  if (packet.fault != nullptr) {
    fault_comment = "fault rule " + std::to_string(packet.fault->rule) + ": ";
    fault_comment += packet.fault->text.substr(0, kMaxComment);
  }
  const bool is_dropped =
      !why.empty() || (packet.fault != nullptr && packet.fault->dropped);
  if (why.empty()) why = fault_comment;
  event.what = static_cast<uint8_t>(is_sent      ? PacketOutcome::kSent
                                    : is_dropped ? PacketOutcome::kDropped
                                                 : PacketOutcome::kReceived);
  if (packet.bytes.size() >= sizeof(event.icrc)) {
    std::memcpy(&event.icrc,
                packet.bytes.data() + packet.bytes.size() - sizeof(event.icrc),
                sizeof(event.icrc));
  }
  std::array<uint8_t, kMaxFrameHeaders> headers;
  // Messages of connection management are rare.
  const bool is_wanted = payload_ || message.has_value();
  const bool is_whole =
      is_wanted || packet.bytes.size() + kMaxFrameHeaders <= trace::kFrameBytes;
  const size_t size = EmitFrameHeaders(packet, is_whole, headers.data());
  const size_t most =
      is_wanted ? packet.bytes.size()
                : RecordedBytes(packet.bytes, trace::kFrameBytes - size);
  FaultEvent fault;
  if (is_hit_now) {
    fault = FaultOf(packet);
    fault.header =
        Header(queues_.NextId(), event.header.id, event.header.qpn, now);
  }
  if (!file_->Append(kMissedBytes + kPacketBytes + kFaultBytes + size + most,
                     [&](std::vector<uint8_t>* out) {
                       WriteMissed(out);
                       trace::AppendPacketEvent(
                           event,
                           {.headers = {headers.data(), size},
                            .rest = packet.bytes.first(most),
                            .original_size = size + packet.bytes.size(),
                            .comment = why},
                           out);
                       if (is_hit_now) trace::AppendEvent(fault, out);
                     })) {
    ++missed_packets_;
  }
  if (message && !is_sent) WriteNow(*message, now);
  if (more.cnp) {
    more.cnp->header.id = queues_.NextId();
    WriteNow(*more.cnp, now);
  }
  if (more.path) {
    more.path->header.id = queues_.NextId();
    WriteNow(*more.path, now);
  }
}

uint64_t Tracer::OnHeld(const transport::ObservedPacket& packet) {
  const uint64_t id = queues_.NextId();
  {
    const std::lock_guard lock(mutex_);
    if (tally_ != nullptr) tally_->OnFault(packet.fault->rule);
  }
  wire::PacketView view;
  const bool is_good =
      wire::PacketView::Parse(packet.bytes, &view) == wire::ParseError::kOk;
  FaultEvent fault = FaultOf(packet);
  fault.header = Header(id, 0, is_good ? view.bth().dest_qpn : 0, Now());
  Write(fault);
  return id;
}

void Tracer::OnRareEvent(const transport::RareEvent& event,
                         transport::QpType type,
                         const transport::QpAttributes* attributes) {
  if (no_file() && tally_ == nullptr) return;
  trace::TraceQueues::Id ids;
  uint32_t highest_psn;
  trace::RetransmissionReason why;
  {
    const std::lock_guard lock(mutex_);
    highest_psn = queues_.highest_psn(event.qpn);
    why = queues_.why(event.qpn);
    if (tally_ != nullptr) CountDecision(event);
    ids = queues_.OnDecision(event);
    if (event.kind == RareEventKind::kState && attributes != nullptr) {
      queues_.SetMtu(event.qpn, type, attributes->path_mtu);
    }
  }
  const EventHeader header = Header(ids.id, ids.cause, event.qpn, Now());
  switch (event.kind) {
    case RareEventKind::kState: {
      QpStateEvent state;
      state.header = header;
      state.type = static_cast<uint8_t>(type);
      state.from = static_cast<uint8_t>(event.value >> 8);
      state.to = static_cast<uint8_t>(event.value);
      if (state.to >= static_cast<uint8_t>(transport::QpState::kSqe) &&
          event.reason != transport::Reason::kModifiedToError) {
        state.reason = static_cast<uint32_t>(event.reason);
      }
      if (attributes != nullptr) {
        const transport::QpAttributes& a = *attributes;
        state.timeout = a.timeout;
        state.retry_count = a.retry_cnt;
        state.rnr_retry = a.rnr_retry;
        state.min_rnr_timer = a.min_rnr_timer;
        state.hop_limit = a.av.hop_limit;
        state.path_mtu = a.path_mtu;
        state.dest_qpn = a.dest_qpn;
        state.send_psn = a.sq_psn;
        state.receive_psn = a.rq_psn;
        state.access = a.access_flags;
        state.max_read_atomic = a.max_rd_atomic;
        state.max_dest_read_atomic = a.max_dest_rd_atomic;
        state.source_port = a.av.source_port;
        std::copy(a.av.source.bytes.begin(), a.av.source.bytes.end(),
                  state.source);
        std::copy(a.av.destination.bytes.begin(), a.av.destination.bytes.end(),
                  state.destination);
      }
      return Write(state);
    }
    case RareEventKind::kAckTimeout:
    case RareEventKind::kProbe: {
      TimerEvent timer;
      timer.header = header;
      timer.psn = event.psn;
      timer.kind = static_cast<uint8_t>(event.kind == RareEventKind::kProbe
                                            ? trace::TimerKind::kProbe
                                            : trace::TimerKind::kAck);
      timer.action = static_cast<uint8_t>(trace::TimerAction::kFired);
      return Write(timer);
    }
    case RareEventKind::kRetransmission: {
      RetransmissionEvent retransmission;
      retransmission.header = header;
      retransmission.first_psn = event.psn;
      retransmission.last_psn = highest_psn;
      retransmission.why = static_cast<uint8_t>(why);
      return Write(retransmission);
    }
    default: {
      IncidentEvent incident;
      incident.header = header;
      incident.psn = event.psn;
      incident.reason = static_cast<uint16_t>(event.reason);
      incident.value = event.value;
      incident.kind = static_cast<uint8_t>(event.kind);
      return Write(incident);
    }
  }
}

void Tracer::OnAsyncEvent(uint32_t qpn, int event) {
  trace::AsyncEventEvent async;
  async.header = Header(queues_.NextId(), 0, qpn, Now());
  async.event = static_cast<uint32_t>(event);
  async.object = qpn;
  Write(async);
}

void Tracer::OnOverflow(uint64_t packets) {
  trace::OverflowEvent overflow;
  overflow.header = Header(queues_.NextId(), 0, 0, Now());
  overflow.packets = packets;
  Write(overflow);
}

void Tracer::OnCompletion(const transport::Completion& completion,
                          const trace::QueueName& queue, uint64_t cq) {
  if (no_file() && tally_ == nullptr) return;
  std::vector<CompletedEvent> events;
  {
    const std::lock_guard lock(mutex_);
    std::optional<trace::Post> post;
    events = queues_.OnCompletion(completion, queue, cq, &post);
    if (tally_ != nullptr) CountCompletion(completion, queue, post);
  }
  const int64_t now = Now();
  for (const CompletedEvent& event : events) WriteNow(event, now);
}

// --- Counting. mutex_ is held.

void Tracer::CountCompletion(const transport::Completion& completion,
                             const trace::QueueName& queue,
                             const std::optional<trace::Post>& post) {
  const TallyQueue which = queue.kind == trace::QueueKind::kSend
                               ? TallyQueue::kSend
                               : TallyQueue::kReceive;
  TallyItem item;
  item.qpn = completion.qpn;
  item.wr_id = completion.wr_id;
  item.has_wr_id = 1;
  if (post && post->begun) {
    item.psn = post->first_psn;
    item.has_psn = 1;
  }
  tally_->OnCompletion(which, completion.status, item);
  tally_->OnLatency(
      which, post && post->time != 0 ? MonotonicNs() - post->time : -1, item);
}

void Tracer::CountRepeated(uint32_t qpn, uint32_t psn) {
  TallyItem item;
  if (!tally_->has_repeated()) item = ItemOf(qpn, psn);
  tally_->OnRepeated(item);
}

void Tracer::CountDecision(const transport::RareEvent& event) {
  TallyItem item;
  switch (event.kind) {
    case RareEventKind::kState:
    case RareEventKind::kDestroyed:
      item.qpn = event.qpn;
      break;
    case RareEventKind::kSequenceNakSent:
    case RareEventKind::kFatalNakSent:
    case RareEventKind::kRnrNakSent:  // a PSN of the peer's
      item.qpn = event.qpn;
      item.psn = event.psn;
      item.has_psn = 1;
      break;
    default:
      item = ItemOf(event.qpn, event.psn);
      break;
  }
  tally_->OnRareEvent(event.kind, item);
}

TallyItem Tracer::ItemOf(uint32_t qpn, uint32_t psn) const {
  TallyItem item;
  item.qpn = qpn;
  item.psn = psn;
  item.has_psn = 1;
  if (const trace::Post* const post = queues_.FindByPsn(qpn, psn)) {
    item.wr_id = post->wr_id;
    item.has_wr_id = 1;
  }
  return item;
}

// --- The program.

Tracer::Posting::Posting(Tracer& tracer, const trace::QueueName& queue,
                         uint32_t qpn, std::vector<trace::Post> posts)
    : tracer_(tracer),
      queue_(queue),
      qpn_(qpn),
      posts_(std::move(posts)),
      order_(tracer.orders_[queue.number % kOrders]),
      time_(Now()) {
  if (tracer_.tally_ != nullptr) {
    const int64_t now = MonotonicNs();
    for (trace::Post& post : posts_) post.time = now;
  }
  const std::lock_guard lock(tracer_.mutex_);
  tracer_.queues_.Add(queue_, posts_);
}

void Tracer::Posting::End(size_t accepted, int error) {
  accepted = std::min(accepted, posts_.size());
  if (accepted < posts_.size()) {
    const std::lock_guard lock(tracer_.mutex_);
    tracer_.queues_.Remove(queue_, std::span(posts_).subspan(accepted));
  }
  order_.unlock();
  for (size_t i = 0; i < posts_.size(); ++i) {
    const trace::Post& post = posts_[i];
    PostedEvent event;
    event.header = tracer_.Header(post.id, 0, qpn_, time_);
    event.wr_id = post.wr_id;
    event.remote_address = post.remote_address;
    event.bytes = post.bytes;
    event.rkey = post.rkey;
    event.flags = post.flags;
    event.queue_number = queue_.number;
    event.sges = post.sges;
    event.queue = static_cast<uint8_t>(queue_.kind);
    event.opcode = static_cast<uint8_t>(post.opcode);
    event.error = i == accepted ? static_cast<uint32_t>(error) : 0;
    tracer_.Write(event);
    if (i == accepted) break;  // later requests of the list were not examined
  }
}

void Tracer::OnPolled(uint64_t cq, uint32_t qpn, uint64_t wr_id) {
  trace::PolledEvent event;
  {
    const std::lock_guard lock(mutex_);
    event.header =
        Header(queues_.NextId(), queues_.OnPolled(cq, qpn, wr_id), qpn, Now());
    event.empty_polls = queues_.TakeEmptyPolls(cq);
  }
  event.wr_id = wr_id;
  event.cq = static_cast<uint32_t>(cq);
  Write(event);
}

void Tracer::OnEmptyPoll(uint64_t cq) {
  const std::lock_guard lock(mutex_);
  queues_.OnEmptyPoll(cq);
}

void Tracer::OnArmed(uint64_t cq, bool solicited_only, uint32_t unpolled) {
  trace::NotificationEvent event;
  event.header = Header(queues_.NextId(), 0, 0, Now());
  event.cq = static_cast<uint32_t>(cq);
  event.unpolled = unpolled;
  event.action = static_cast<uint8_t>(
      solicited_only ? trace::NotificationAction::kArmedSolicited
                     : trace::NotificationAction::kArmed);
  Write(event);
}

void Tracer::OnCall(std::string_view function, std::string_view arguments,
                    int64_t begin, int64_t result, int error) {
  trace::CallEvent event;
  event.header = Header(queues_.NextId(), 0, 0, begin);
  trace::SetText(function, event.function);
  trace::SetText(arguments, event.arguments);
  event.duration = static_cast<uint64_t>(std::max<int64_t>(0, Now() - begin));
  event.result = result;
  event.error = static_cast<uint32_t>(error);
  Write(event);
}

void Tracer::OnFault(const transport::faults::Rule& rule, uint32_t qpn,
                     const FaultHit& hit) {
  CountFault(rule.number);
  FaultEvent event;
  event.header = Header(queues_.NextId(), 0, qpn, Now());
  event.delay = static_cast<uint64_t>(hit.delay);
  event.rule = rule.number;
  event.action = static_cast<uint8_t>(rule.action);
  trace::SetText(rule.text, event.text);
  event.psn = hit.number;
  event.opcode = hit.attribute;
  event.way = static_cast<uint8_t>(hit.received ? trace::WhichWay::kReceived
                                                : trace::WhichWay::kSent);
  Write(event);
}

void Tracer::CountFault(uint32_t rule) {
  if (tally_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  tally_->OnFault(rule);
}

void Tracer::OnFaultRule(const FaultRuleStatus& rule) {
  FaultRuleEvent event;
  event.header = Header(queues_.NextId(), 0, 0, Now());
  event.fired = rule.fired;
  event.matched = rule.matched;
  event.rule = rule.number;
  event.maybe = rule.maybe ? 1 : 0;
  trace::SetText(rule.text, event.text);
  Write(event);
}

void Tracer::OnDestroyed(const trace::QueueName& queue) {
  const std::lock_guard lock(mutex_);
  queues_.ForgetQueue(queue);
}

void Tracer::OnCqDestroyed(uint64_t cq) {
  const std::lock_guard lock(mutex_);
  queues_.ForgetCq(cq);
}

// --- fork.

void Tracer::LockForFork() {
  mutex_.lock();
  if (file_ != nullptr) file_->LockForFork();
}

void Tracer::UnlockInParent() {
  if (file_ != nullptr) file_->UnlockInParent();
  mutex_.unlock();
}

void Tracer::AbandonInChild() {
  if (file_ != nullptr) file_->AbandonInChild();
  if (tally_ != nullptr) tally_->AbandonInChild();
  tally_ = nullptr;
  mutex_.unlock();
}

}  // namespace rxe_user
