#include "tools/rxe_user_cli/explain_files.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "rxe_user/base/qpn.h"
#include "rxe_user/observe/explain.h"
#include "rxe_user/observe/recorder.h"
#include "rxe_user/observe/refusals.h"
#include "rxe_user/observe/report_text.h"
#include "tools/rxe_user_cli/explain.h"
#include "tools/rxe_user_cli/explain_connections.h"
#include "tools/rxe_user_cli/explain_index.h"
#include "tools/rxe_user_cli/progress.h"
#include "tools/trace/conversation.h"
#include "tools/trace/escape.h"
#include "tools/trace/recording.h"
#include "transport/base/rare_event.h"
#include "transport/faults/rule.h"
#include "transport/qp/qp_type.h"
#include "wire/aeth.h"
#include "wire/psn.h"

namespace rxe_user_cli {
namespace {

namespace events = rxe_user::trace;

using rxe_user::Recorder;
using rxe_user::Witness;
using transport::QpReport;
using transport::QpState;
using transport::RareEvent;
using transport::RareEventKind;

// A work request that was posted and not completed.
struct Posted {
  uint64_t wr_id = 0;
  uint8_t opcode = 0;
  bool begun = false;
  uint32_t first_psn = 0;
  int64_t begin = 0;  // of its first packet
};

// What a file contains about a queue pair.
struct QueuePair {
  QpReport report;
  Recorder recorder;
  std::map<uint64_t, Posted> sends;    // by the id of the event
  std::map<uint64_t, bool> receives;   // likewise
  int64_t failed_at = trace::kNoTime;  // with a reason
  int64_t rnr_until = 0;
  uint32_t failed_psn = 0;  // of the request that failed
  bool has_failed_psn = false;
  bool destroyed = false;
  bool has_incident = false;  // other than a change of state
  std::vector<events::BegunEvent> begun;
  std::vector<std::pair<int64_t, events::FaultEvent>> faults;
  size_t failed = 0;  // work requests
  size_t done = 0;

  bool needs_explaining() const {
    return failed_at != trace::kNoTime || has_incident ||
           (!destroyed && !sends.empty());
  }
};

using QueuePairs = std::map<uint32_t, QueuePair>;
// Those whose number another one has by now.
using PastQueuePairs = std::multimap<uint32_t, QueuePair>;

template <size_t kSize>
std::string TextOf(const char (&member)[kSize]) {
  return trace::Printable(events::TextOf(member));
}

class File {
 public:
  // Everything in the file.
  explicit File(const FileIndex& index)
      : index_(index), end_(INT64_MAX), now_(index.last_event()) {
    AddCalls();
    AddRules();
    for (const auto& [qpn, entries] : index.queue_pairs()) Add(entries);
  }
  // Only the events of queue pair `qpn`, until `end`.
  File(const FileIndex& index, int64_t end, uint32_t qpn)
      : index_(index),
        end_(end),
        now_(end == INT64_MAX ? index.last_event() : end) {
    if (index.last() < end && end != INT64_MAX) {
      ended_ago_ = static_cast<uint64_t>(end - index.last());
    }
    AddRules();
    const auto found = index.queue_pairs().find(qpn);
    if (found != index.queue_pairs().end()) Add(found->second);
  }

  const QueuePairs& queue_pairs() const { return queue_pairs_; }
  const PastQueuePairs& past_queue_pairs() const { return past_; }
  int64_t now() const { return now_; }

  // What the process would have reported about its queue pair before that was
  // destroyed.
  Witness ReportOwn(const QueuePair& qp) const {
    rxe_user::LaneReport lane;
    AddTo(qp, true, &lane);
    lane.slot = rxe_user::SlotOf(qp.report.qpn);
    return Report(std::move(lane));
  }
  // What the process would have reported to a peer that asks about queue pair
  // `qpn` of `address`.
  Witness ReportPeer(uint32_t qpn, const wire::IpAddress& address) const {
    rxe_user::LaneReport lane;
    const auto found = queue_pairs_.find(qpn);
    if (found != queue_pairs_.end() &&
        (found->second.report.source.is_unspecified() ||
         found->second.report.source == address)) {
      AddTo(found->second, false, &lane);
    }
    if (index_.HasSlot(rxe_user::SlotOf(qpn), address, end_)) {
      lane.slot = rxe_user::SlotOf(qpn);
    }
    return Report(std::move(lane));
  }

  // Lines that say what faults hit, how many packets were retransmitted, and
  // what became of the work requests. Empty without faults.
  std::string Outcome(uint32_t qpn, const QueuePair& qp) const {
    if (qp.faults.empty()) return "";
    std::string text;
    for (size_t i = 0; i < qp.faults.size(); ++i) {
      if (i == kShownFaults) {
        absl::StrAppendFormat(&text, "    ... %d more\n",
                              qp.faults.size() - kShownFaults);
        break;
      }
      const auto& [time, fault] = qp.faults[i];
      const std::string_view target = transport::faults::TargetOf(
          static_cast<transport::faults::Action>(fault.action));
      absl::StrAppendFormat(
          &text, "  fault         %.6f s before the end, rule %d (%s): %s %s\n",
          static_cast<double>(now_ - time) / 1e9, fault.rule,
          TextOf(fault.text),
          target == "packet" ? PacketName(qpn, qp, fault)
                             : "a " + std::string(target),
          transport::faults::PastOf(
              static_cast<transport::faults::Action>(fault.action)));
    }
    absl::StrAppendFormat(
        &text, "  outcome       %d request packets were sent again; %s\n",
        qp.report.counters.retransmitted,
        qp.failed == 0
            ? absl::StrFormat("no completion failed (%d succeeded)", qp.done)
            : absl::StrFormat("%d of %d completions failed", qp.failed,
                              qp.failed + qp.done));
    return text;
  }

  // A line for each call that was refused.
  std::string Refusals() const {
    std::string text;
    for (const events::CallEvent& call : refused_) {
      absl::StrAppendFormat(&text, "%s failed with %s: %s\n",
                            TextOf(call.function),
                            rxe_user::ErrnoName(static_cast<int>(call.error)),
                            TextOf(call.arguments));
    }
    return text;
  }

 private:
  static constexpr size_t kShownFaults = 8;

  void AddTo(const QueuePair& qp, bool with_destroyed,
             rxe_user::LaneReport* lane) const {
    lane->events = qp.recorder.Events();
    lane->events_lost = qp.recorder.lost();
    if (!qp.destroyed || with_destroyed) {
      lane->queue_pairs.push_back(Complete(qp));
    }
  }

  Witness Report(rxe_user::LaneReport lane) const {
    rxe_user::DeviceReport device;
    device.now = now_;
    lane.port.rx_overflow = index_.OverflowUntil(end_);
    device.lanes.push_back(std::move(lane));
    for (const auto& [number, rule] : rules_) {
      device.fault_rules.push_back({.number = number, .text = rule});
    }
    const auto& about = index_.recording().about;
    Witness witness =
        rxe_user::WitnessOf(about ? static_cast<pid_t>(about->pid) : 0,
                            rxe_user::ReportText(device));
    witness.command = about ? TextOf(about->program) : "";
    witness.ended_ago = ended_ago_;
    witness.unread_for = unread_for_;
    return witness;
  }

  // "RC_RDMA_WRITE_MIDDLE, PSN 2005, of wr_id 0x3".
  std::string PacketName(uint32_t qpn, const QueuePair& qp,
                         const events::FaultEvent& fault) const {
    if (fault.opcode == 0 && fault.psn == 0) {  // an older file
      return absl::StrFormat("a packet of queue pair 0x%06x", qpn);
    }
    const wire::OpcodeInfo& info = wire::GetOpcodeInfo(fault.opcode);
    const std::string name =
        absl::StrFormat("%s, PSN %d", info.name, fault.psn);
    // Its own requests, and the responses to them.
    const bool is_sent =
        fault.way == static_cast<uint8_t>(events::WhichWay::kSent);
    if (is_sent != info.is_request) return name + ",";
    for (auto begun = qp.begun.rbegin(); begun != qp.begun.rend(); ++begun) {
      if (wire::PsnDiff(fault.psn, begun->first_psn) >= 0 &&
          wire::PsnDiff(fault.psn, begun->last_psn) <= 0) {
        return absl::StrFormat("%s, of wr_id 0x%x,", name, begun->wr_id);
      }
    }
    return name + ",";
  }

  QpReport Complete(const QueuePair& qp) const {
    QpReport report = qp.report;
    report.uses_srq = index_.HasShared(end_);
    report.send_queued = static_cast<uint32_t>(qp.sends.size());
    report.recv_queued = static_cast<uint32_t>(qp.receives.size());
    report.unacked_psn = qp.has_failed_psn ? qp.failed_psn : report.send_psn;
    if (qp.sends.empty()) return report;
    const Posted& oldest = qp.sends.begin()->second;
    report.wr_id = oldest.wr_id;
    report.opcode = static_cast<transport::SendOpcode>(oldest.opcode);
    if (!oldest.begun) {
      report.waits_for = transport::WaitsFor::kWindow;
      return report;
    }
    report.unacked_psn = oldest.first_psn;
    report.waits_for = transport::WaitsFor::kAck;
    report.waits_since = oldest.begin;
    if (qp.rnr_until != 0) {
      report.waits_for = transport::WaitsFor::kRnr;
      report.waits_until = qp.rnr_until;
    }
    return report;
  }

  void Note(QueuePair* qp, int64_t time, RareEventKind kind, uint32_t psn,
            uint32_t reason, uint32_t value) {
    RareEvent event;
    event.time = time;
    event.qpn = qp->report.qpn;
    event.kind = kind;
    event.psn = psn;
    event.value = static_cast<uint16_t>(value);
    const auto* const known = transport::FindReason(reason);
    if (known != nullptr) event.reason = known->reason;
    qp->recorder.Add(event);
    qp->has_incident |= kind != RareEventKind::kState &&
                        kind != RareEventKind::kDestroyed &&
                        kind != RareEventKind::kProbe;
  }

  void AddCalls() {
    for (const trace::TimedEvent* timed : index_.calls()) {
      const auto call = timed->event->As<events::CallEvent>();
      if (call->error != 0) refused_.push_back(*call);
    }
  }
  void AddRules() {
    for (const trace::TimedEvent* timed : index_.rules()) {
      if (timed->time > end_) break;
      const auto rule = timed->event->As<events::FaultRuleEvent>();
      rules_[rule->rule] = TextOf(rule->text);
    }
  }

  void Add(const FileIndex::QueuePair& entries) {
    for (const trace::TimedEvent* timed : entries.events) {
      if (timed->time <= end_) Add(*timed->event, timed->time);
    }
    for (const trace::Arrow* arrow : entries.sent) {
      if (arrow->t0 <= end_) OnSent(*arrow);
    }
    for (const trace::Arrow* arrow : entries.received) {
      const int64_t waited = arrow->received->waited();
      if (arrow->t1 <= end_) {
        OnReceived(*arrow);
      } else if (arrow->t1 - waited <= end_) {
        unread_for_ = std::max(unread_for_, static_cast<uint64_t>(waited));
      }
    }
  }

  void Add(const trace::Event& event, int64_t time) {
    const uint32_t qpn = event.header().qpn;
    if (const auto post = event.As<events::PostedEvent>()) {
      if (post->error == 0) OnPosted(*post);
      return;
    }
    const auto state = event.As<events::QpStateEvent>();
    const auto known = queue_pairs_.find(qpn);
    if (state && known != queue_pairs_.end() && known->second.destroyed) {
      past_.insert(queue_pairs_.extract(known));
    }
    QueuePair& qp = queue_pairs_[qpn];
    qp.report.qpn = qpn;
    if (state) {
      OnState(*state, time, &qp);
    } else if (const auto begun = event.As<events::BegunEvent>()) {
      qp.begun.push_back(*begun);
      const auto sent = qp.sends.find(begun->header.cause);
      if (sent == qp.sends.end()) return;
      sent->second.begun = true;
      sent->second.first_psn = begun->first_psn;
      sent->second.begin = time;
    } else if (const auto done = event.As<events::CompletedEvent>()) {
      OnCompleted(*done, &qp);
      ++(done->status != 0 ? qp.failed : qp.done);
      qp.sends.erase(done->posted);
      qp.receives.erase(done->posted);
      if (done->status == 0) qp.rnr_until = 0;
    } else if (const auto timer = event.As<events::TimerEvent>()) {
      if (timer->action != static_cast<uint8_t>(events::TimerAction::kFired)) {
        return;
      }
      const auto kind = static_cast<events::TimerKind>(timer->kind);
      if (kind == events::TimerKind::kAck) {
        Note(&qp, time, RareEventKind::kAckTimeout, timer->psn, 0, 0);
      } else if (kind == events::TimerKind::kProbe) {
        Note(&qp, time, RareEventKind::kProbe, timer->psn, 0, 0);
      }
    } else if (const auto again = event.As<events::RetransmissionEvent>()) {
      Note(&qp, time, RareEventKind::kRetransmission, again->first_psn, 0, 0);
    } else if (const auto fault = event.As<events::FaultEvent>()) {
      rules_[fault->rule] = TextOf(fault->text);
      qp.faults.emplace_back(time, *fault);
      Note(&qp, time, RareEventKind::kFault, fault->psn, 0, fault->rule);
    } else if (const auto incident = event.As<events::IncidentEvent>()) {
      OnIncident(*incident, time, &qp);
    }
  }

  void OnPosted(const events::PostedEvent& post) {
    const auto queue = static_cast<events::QueueKind>(post.queue);
    QueuePair& qp = queue_pairs_[post.header.qpn];
    if (queue == events::QueueKind::kReceive) {
      qp.receives[post.header.id] = true;
      return;
    }
    Posted& posted = qp.sends[post.header.id];
    posted.wr_id = post.wr_id;
    posted.opcode = post.opcode;
  }

  void OnState(const events::QpStateEvent& state, int64_t time, QueuePair* qp) {
    QpReport& report = qp->report;
    report.type = transport::FindTraits(
                      static_cast<transport::QpType>(state.type)) != nullptr
                      ? static_cast<transport::QpType>(state.type)
                      : transport::QpType::kRc;
    if (state.from > static_cast<uint8_t>(QpState::kErr) ||
        state.to > static_cast<uint8_t>(QpState::kErr)) {
      return;
    }
    report.state = static_cast<QpState>(state.to);
    report.dest_qpn = state.dest_qpn;
    report.source = wire::IpAddress::FromGid(state.source);
    report.destination = wire::IpAddress::FromGid(state.destination);
    report.source_port = state.source_port;
    report.path_mtu = state.path_mtu;
    report.timeout = state.timeout;
    report.retry_cnt = state.retry_count;
    report.rnr_retry = state.rnr_retry;
    report.min_rnr_timer = state.min_rnr_timer;
    if (report.state == QpState::kRts) {
      report.send_psn = state.send_psn;
      report.first_error = transport::Reason::kNone;
    } else if (report.state == QpState::kRtr) {
      report.expected_psn = state.receive_psn;
    } else if (report.state == QpState::kReset) {
      qp->sends.clear();
      qp->receives.clear();
      report.first_error = transport::Reason::kNone;
    }
    const auto* const reason = transport::FindReason(state.reason);
    if (reason != nullptr && reason->reason != transport::Reason::kNone) {
      if (report.first_error == transport::Reason::kNone) {
        report.first_error = reason->reason;
      }
      if (qp->failed_at == trace::kNoTime) qp->failed_at = time;
    }
    Note(qp, time, RareEventKind::kState, 0, state.reason,
         static_cast<uint32_t>(state.from) << 8 | state.to);
  }

  void OnIncident(const events::IncidentEvent& incident, int64_t time,
                  QueuePair* qp) {
    if (incident.kind > static_cast<uint8_t>(RareEventKind::kDestroyed)) {
      return;
    }
    const auto kind = static_cast<RareEventKind>(incident.kind);
    Note(qp, time, kind, incident.psn, incident.reason, incident.value);
    if (kind == RareEventKind::kDestroyed) qp->destroyed = true;
    if (kind == RareEventKind::kRnrNakReceived) {
      qp->rnr_until =
          time + wire::RnrTimerNanos(static_cast<uint8_t>(incident.value & 31));
    }
  }

  static void OnCompleted(const events::CompletedEvent& done, QueuePair* qp) {
    const auto failed = qp->sends.find(done.posted);
    if (done.status == 0 || qp->has_failed_psn || failed == qp->sends.end() ||
        !failed->second.begun) {
      return;
    }
    qp->has_failed_psn = true;
    qp->failed_psn = failed->second.first_psn;
  }

  // The PSN after a request. A READ has one for each packet of its response.
  static uint32_t PsnAfter(const trace::Packet& packet,
                           const QpReport& report) {
    const bool is_read =
        wire::OperationOf(packet.opcode) == wire::Operation::kReadRequest;
    const uint32_t mtu = std::max<uint32_t>(report.path_mtu, 1);
    const uint32_t packets =
        is_read && packet.length > 0 ? (packet.length - 1) / mtu + 1 : 1;
    return wire::PsnAdd(packet.psn, packets);
  }

  void OnReceived(const trace::Arrow& arrow) {
    const trace::Packet& packet = *arrow.received;
    const auto found = queue_pairs_.find(packet.qpn);
    if (found == queue_pairs_.end() || !packet.info().is_request ||
        packet.dropped || packet.psn != found->second.report.expected_psn) {
      return;
    }
    QpReport& report = found->second.report;
    report.expected_psn = PsnAfter(packet, report);
  }

  void OnSent(const trace::Arrow& arrow) {
    const trace::Packet& packet = *arrow.sent;
    const auto qp = queue_pairs_.find(arrow.local_qpn);
    if (!packet.info().is_request || qp == queue_pairs_.end()) return;
    if (arrow.repeat != 0) {
      ++qp->second.report.counters.retransmitted;
    } else {
      qp->second.report.send_psn = PsnAfter(packet, qp->second.report);
    }
  }

  const FileIndex& index_;
  const int64_t end_;
  const int64_t now_;
  uint64_t ended_ago_ = 0;
  uint64_t unread_for_ = 0;
  QueuePairs queue_pairs_;
  PastQueuePairs past_;
  std::vector<events::CallEvent> refused_;
  std::map<uint32_t, std::string> rules_;  // fault rules, by number
};

// The reports of the peer's processes at the time of the failure, or at the
// end.
std::vector<Witness> Others(const std::vector<FileIndex>& files,
                            const QueuePair& own) {
  const int64_t end =
      own.failed_at != trace::kNoTime ? own.failed_at : INT64_MAX;
  std::vector<Witness> others;
  for (const FileIndex& file : files) {
    others.push_back(
        File(file, end, own.report.dest_qpn)
            .ReportPeer(own.report.dest_qpn, own.report.destination));
  }
  return others;
}

}  // namespace

std::string ExplainTimeline(const trace::Timeline& timeline) {
  std::string text;
  const std::vector<FileIndex> files = FileIndex::OfFiles(timeline);
  for (size_t file = 0; file < files.size(); ++file) {
    const File own(files[file]);
    const Connections connections(timeline, file);
    text += own.Refusals() + connections.Failed();
    const auto explain = [&](uint32_t qpn, const QueuePair& qp) {
      if (!qp.needs_explaining()) return;
      text +=
          rxe_user::ExplainQueuePair(own.ReportOwn(qp), qpn, Others(files, qp),
                                     rxe_user::WitnessOrigin::kRecordings) +
          connections.MessagesOf(qpn, own.now());
      text += own.Outcome(qpn, qp);
    };
    for (const auto& [qpn, qp] : own.past_queue_pairs()) explain(qpn, qp);
    for (const auto& [qpn, qp] : own.queue_pairs()) explain(qpn, qp);
  }
  return text;
}

int ExplainFiles(const std::vector<std::string>& files, std::FILE* out,
                 std::FILE* err) {
  int status = 0;
  Progress progress(out, err);
  uint64_t read = 0;  // packets and events of the previous files
  std::vector<std::unique_ptr<trace::Recording>> recordings;
  std::vector<const trace::Recording*> readable;
  for (const std::string& path : files) {
    auto recording = std::make_unique<trace::Recording>();
    const bool opened = trace::ReadRecording(
        path, recording.get(), trace::MaxRecords(files.size()),
        [&] { progress.Show(read + recording->read()); });
    read += recording->read();
    progress.Clear();
    if (!recording->error.empty()) {
      std::fprintf(err, "rxe-user explain: %s: %s\n",
                   trace::Printable(path).c_str(),
                   trace::Printable(recording->error).c_str());
      status = 1;
    }
    if (!opened) return 1;
    if (!recording->about) {
      std::fprintf(err,
                   "rxe-user explain: %s is no recording of rxe-user run "
                   "--trace: packets alone do not tell causes\n",
                   trace::Printable(path).c_str());
      return 1;
    }
    readable.push_back(recording.get());
    recordings.push_back(std::move(recording));
  }
  trace::Timeline timeline = trace::MakeTimeline(readable, {});
  trace::Analyze(&timeline);
  const std::string text = ExplainTimeline(timeline);
  return Write(text, out, err) == 0 ? status : 1;
}

}  // namespace rxe_user_cli
