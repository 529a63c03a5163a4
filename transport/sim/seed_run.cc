#include "transport/sim/seed_run.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/congestion/path.h"
#include "transport/sim/pair.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::kSecond;
using transport::QpState;
using transport::SendOpcode;
using transport::WcStatus;

namespace {

// Per host. Plans use up to 4 MB; untouched pages take no memory.
constexpr size_t kArenaBytes = 12 << 20;
// A run that has not ended by then is stuck.
constexpr Time kMaxVirtualTime = 300 * kSecond;
// A run without a completion for this time is stuck.
constexpr Time kLongestSilence = 30 * kSecond;

}  // namespace

SeedRun::SeedRun(uint64_t seed, bool chaos)
    : Run(seed ^ 0x6e6574),
      chaos_(chaos),
      scenario_(Scenario::Make(seed)),
      random_(seed ^ 0x617070) {}

SeedRun::~SeedRun() {
  // Queue pairs are destroyed before what they borrow.
  for (auto& end : ends_) end->qp.reset();
}

void SeedRun::FailAt(const End& end, const std::string& text) {
  checker_.Fail(absl::StrFormat("%.3f us, host %d, QP %06x: %s",
                                static_cast<double>(network_.now()) / 1000,
                                end.host->node->index(), end.qpn, text));
}

// --- Building.

void SeedRun::Build() {
  network_.SetAllLinks(scenario_.link);
  for (const HostScenario& from : scenario_.hosts) {
    auto host = std::make_unique<Host>(kArenaBytes);
    host->scenario = &from;
    const int number = hosts_.size() + 1;
    host->node = &network_.AddNode(*wire::IpAddress::Parse(
        absl::StrCat(from.v6 ? "fd00::" : "10.0.0.", number)));
    host->node->profile() = from.profile;
    host->node->memory().set_span_bytes(from.span_bytes);
    for (int i = 0; i < from.cqs; ++i) {
      host->cqs.push_back(std::make_unique<SimCq>());
      host->cqs.back()->on_push = [this, h = host.get()](const Completion& wc) {
        const auto it = h->by_qpn.find(wc.qpn);
        if (it == h->by_qpn.end()) {
          checker_.Fail(absl::StrFormat("a completion for QP %06x", wc.qpn));
          return;
        }
        if (it->second->gone) {
          FailAt(*it->second, "a completion after RESET or destruction");
        }
        if (IsReceive(wc) && wc.status == WcStatus::kSuccess) {
          ++it->second->receives_pushed;
        }
        ScheduleApp(
            *h, network_.now() + random_.Below(h->scenario->poll_delay + 1));
      };
    }
    host->events.on_event = [this, node = host->node](
                                uint32_t qpn, transport::QpEvent event) {
      if (event != transport::QpEvent::kSqDrained) return;
      network_.rules().SetQueue(node->index(), qpn, WireRules::Queue::kDrained);
    };
    hosts_.push_back(std::move(host));
  }
  for (const ConnectionScenario& connection : scenario_.connections) {
    for (const EndScenario& from : connection.end) {
      auto end = std::make_unique<End>();
      end->scenario = &from;
      end->connection = &connection;
      end->host = hosts_[from.host].get();
      end->host->ends.push_back(end.get());
      if (from.srq) {
        auto& shared = end->host->shared[from.pd];
        if (shared == nullptr) {
          shared = std::make_unique<SharedReceives>(from.pd);
        }
        end->shared = shared.get();
      }
      ends_.push_back(std::move(end));
    }
    End* a = ends_[ends_.size() - 2].get();
    End* b = ends_[ends_.size() - 1].get();
    a->peer = b;
    b->peer = a;
  }
  PlanWorkload(random_, scenario_, hosts_, ends_);
  for (auto& end : ends_) CreateQueuePair(*end, random_);
  for (auto& end : ends_) {
    network_.rules().Watch({.host = end->host->node->index(),
                            .qpn = end->qpn,
                            .peer_host = end->peer->host->node->index(),
                            .peer_qpn = end->peer->qpn,
                            .first_psn = end->scenario->first_psn,
                            .path_mtu = end->connection->path_mtu,
                            .max_rd_atomic = end->scenario->max_rd_atomic});
  }
  for (auto& end : ends_) Connect(*end);
}

void SeedRun::CreateQueuePair(End& end, Random& random) {
  do {
    end.qpn = 2 + random.Below(0xfffffd);
  } while (end.host->by_qpn.count(end.qpn) != 0);
  end.host->by_qpn[end.qpn] = &end;
  transport::QpConfig config;
  config.qpn = end.qpn;
  config.pd = end.scenario->pd;
  config.capacity = end.scenario->capacity;
  config.signal_all = end.scenario->signal_all;
  config.memory_placement = true;
  config.memory = &end.host->node->memory();
  config.send_cq = end.host->cqs[end.scenario->send_cq].get();
  config.recv_cq = end.host->cqs[end.scenario->recv_cq].get();
  config.srq = end.shared != nullptr ? &end.shared->srq : nullptr;
  config.events = &end.host->events;
  end.qp = transport::MakeQueuePair(end.host->node->endpoint(), config);
}

void SeedRun::Modify(End& end, QpState state) {
  if (end.gone || end.qp->state() == QpState::kErr) return;
  const EndScenario& s = *end.scenario;
  const EndScenario& p = *end.peer->scenario;
  transport::QpAttributes to;
  to.state = state;
  to.path_mtu = end.connection->path_mtu;
  to.access_flags = kAllAccess;
  to.dest_qpn = end.peer->qpn;
  to.sq_psn = s.first_psn;
  to.rq_psn = p.first_psn;
  to.av.source = end.host->node->address();
  to.av.destination = end.peer->host->node->address();
  to.av.source_port = s.source_port;
  to.av.traffic_class = s.traffic_class;
  to.max_rd_atomic = s.max_rd_atomic;
  to.max_dest_rd_atomic = p.max_rd_atomic;
  to.min_rnr_timer = s.min_rnr_timer;
  to.timeout = s.timeout;
  to.retry_cnt = s.retry_cnt;
  to.rnr_retry = 7;
  const int error = end.qp->Modify(
      to, transport::RequiredAttributes(transport::QpType::kRc, state),
      network_.now());
  if (error != 0) {
    FailAt(end, absl::StrCat("modify to state ", static_cast<int>(state), ": ",
                             std::strerror(error)));
  }
}

// INIT at once, with the initial receives; RTR and RTS later.
void SeedRun::Connect(End& end) {
  Modify(end, QpState::kInit);
  if (end.shared == nullptr) {
    const size_t ahead = end.scenario->recv_ahead;
    while (end.receives_posted < std::min(ahead, end.receives.size()) &&
           end.receives_posted < end.scenario->capacity.max_recv_wr) {
      const Receive& receive = end.receives[end.receives_posted++];
      const int error = end.qp->PostReceive(
          {.wr_id = receive.wr_id, .sges = receive.sges}, network_.now());
      if (error != 0) FailAt(end, "post_recv in INIT");
    }
  }
  const Time ready = end.scenario->ready_after;
  network_.At(ready, *end.host->node,
              [this, &end] { Modify(end, QpState::kRtr); });
  network_.At(ready + ready / 2, *end.host->node, [this, &end] {
    Modify(end, QpState::kRts);
    ScheduleApp(*end.host, network_.now());
    for (int i = 0; i < end.scenario->pauses; ++i) SchedulePause(end);
  });
}

// To SQD for a while: requests posted meanwhile wait, and after the drained
// event nothing is outstanding.
void SeedRun::SchedulePause(End& end) {
  const Time when =
      network_.now() +
      random_.Below(random_.Pick<Time>({20, 200, 2000, 20'000}) * kMicrosecond);
  network_.At(when, *end.host->node, [this, &end] {
    if (end.gone || end.qp->state() != QpState::kRts) return;
    network_.rules().SetQueue(end.host->node->index(), end.qpn,
                              WireRules::Queue::kDraining);
    transport::QpAttributes to;
    to.state = QpState::kSqd;
    to.en_sqd_async_notify = true;
    if (end.qp->Modify(to, transport::kQpState | transport::kQpEnSqdAsyncNotify,
                       network_.now()) != 0) {
      FailAt(end, "modify to SQD");
    }
    SchedulePauseEnd(end);
  });
}

void SeedRun::SchedulePauseEnd(End& end) {
  network_.At(
      network_.now() + 1 + random_.Below(300 * kMicrosecond), *end.host->node,
      [this, &end] {
        if (end.gone || end.qp->state() != QpState::kSqd) return;
        if (end.host->events.Count(end.qpn, transport::QpEvent::kSqDrained) ==
            end.drains) {
          SchedulePauseEnd(end);
          return;
        }
        ++end.drains;
        if (end.host->events.Count(end.qpn, transport::QpEvent::kSqDrained) !=
            end.drains) {
          FailAt(end, "drained twice");
        }
        network_.rules().SetQueue(end.host->node->index(), end.qpn,
                                  WireRules::Queue::kRunning);
        transport::QpAttributes to;
        to.state = QpState::kRts;
        if (end.qp->Modify(to, transport::kQpState, network_.now()) != 0) {
          FailAt(end, "modify from SQD to RTS");
        }
        ScheduleApp(*end.host, network_.now());
      });
}

// --- The application.

void SeedRun::ScheduleApp(Host& host, Time when) {
  if (host.next_app_run <= when) return;
  host.next_app_run = when;
  network_.At(when, *host.node, [this, &host, when] {
    if (host.next_app_run != when) return;  // an earlier poll was scheduled
    host.next_app_run = transport::kNever;
    RunApp(host);
  });
}

void SeedRun::RunApp(Host& host) {
  for (auto& cq : host.cqs) {
    Completion completion;
    while (cq->Poll(&completion)) OnCompletion(host, *cq, completion);
  }
  for (auto& [pd, shared] : host.shared) {
    PostShared(*shared);
    if (shared->posted < shared->receives.size()) {
      ScheduleApp(host, std::max(shared->next_post, network_.now() + 1));
    }
  }
  for (End* end : host.ends) {
    if (end->gone) continue;
    PostReceives(*end);
    PostSends(*end);
  }
}

void SeedRun::PostSends(End& end) {
  const QpState state = end.qp->state();
  if (state != QpState::kRts && state != QpState::kSqd &&
      state != QpState::kErr) {
    return;
  }
  if (network_.now() < end.next_send) {
    if (end.posted < end.ops.size()) ScheduleApp(*end.host, end.next_send);
    return;
  }
  const EndScenario& s = *end.scenario;
  for (int batch = 0; batch < s.send_batch; ++batch) {
    if (end.posted == end.ops.size()) return;
    if (end.posted - end.completed >= s.capacity.max_send_wr) return;
    const Op& op = end.ops[end.posted];
    // Destroyed after PostSend, so that a kept pointer is detected.
    const std::vector<transport::Sge> sges = op.sges;
    transport::SendRequest request;
    request.wr_id = op.wr_id;
    request.opcode = op.opcode;
    request.flags = op.flags;
    request.sges = sges;
    request.imm_be = op.imm_be;
    request.invalidate_rkey = op.invalidate_rkey;
    request.remote_addr = op.remote_addr;
    request.rkey = op.rkey;
    request.compare_add = op.compare_add;
    request.swap = op.swap;
    if (const int error = end.qp->PostSend(request, network_.now());
        error != 0) {
      FailAt(end, absl::StrCat("post_send of request ", end.posted, ": ",
                               std::strerror(error)));
      return;
    }
    if (network_.trace()) {
      network_.Trace(absl::StrFormat(
          "%d  QP %06x posts send %d: opcode %d flags %x length %d",
          end.host->node->index(), end.qpn, end.posted,
          static_cast<int>(op.opcode), op.flags, op.length));
    }
    ++end.posted;
    if ((op.flags & transport::kSendInline) != 0 && op.scribble) {
      for (const Piece& piece : op.local) {
        random_.Fill(end.host->arena.actual(piece.offset), piece.length);
        end.host->arena.Accept(piece.offset, piece.length);
      }
    }
  }
  end.next_send = network_.now() + 1 + random_.Below(s.send_pause + 1);
  ScheduleApp(*end.host, end.next_send);
}

void SeedRun::PostReceives(End& end) {
  if (end.shared != nullptr || end.receives_posted == end.receives.size()) {
    return;
  }
  if (network_.now() < end.next_receive) {
    ScheduleApp(*end.host, end.next_receive);
    return;
  }
  const EndScenario& s = *end.scenario;
  for (int batch = 0; batch < s.recv_batch; ++batch) {
    if (end.receives_posted == end.receives.size()) return;
    if (end.receives_posted - end.receives_completed >=
        s.capacity.max_recv_wr) {
      return;
    }
    const Receive& receive = end.receives[end.receives_posted++];
    const std::vector<transport::Sge> sges = receive.sges;
    if (const int error = end.qp->PostReceive(
            {.wr_id = receive.wr_id, .sges = sges}, network_.now());
        error != 0) {
      FailAt(end, absl::StrCat("post_recv: ", std::strerror(error)));
      return;
    }
  }
  end.next_receive = network_.now() + 1 + random_.Below(s.recv_pause + 1);
  ScheduleApp(*end.host, end.next_receive);
}

void SeedRun::PostShared(SharedReceives& shared) {
  if (network_.now() < shared.next_post) return;
  for (int batch = 0; batch < shared.recv_batch; ++batch) {
    if (shared.posted == shared.receives.size()) return;
    const Receive& receive = shared.receives[shared.posted++];
    shared.srq.Post(receive.wr_id, receive.sges);
  }
  shared.next_post = network_.now() + 1 + random_.Below(shared.recv_pause + 1);
}

// --- The run.

bool SeedRun::Done() const {
  for (const auto& end : ends_) {
    if (end->gone) continue;
    if (!end->sends_done()) return false;
    if (end->broken) {
      // Its own receives are flushed; in other states they may stay posted.
      if (end->shared == nullptr && end->qp->state() == QpState::kErr &&
          end->receives_completed < end->receives.size()) {
        return false;
      }
      continue;
    }
    if (end->receives_completed < end->peer->messages.size()) return false;
  }
  return true;
}

void SeedRun::Play() {
  Build();
  if (chaos_) ScheduleChaos();
  while (!checker_.failed() && !Done()) {
    if (!network_.Step()) {
      checker_.Fail("stuck: nothing left to happen");
    } else if (network_.now() > kMaxVirtualTime ||
               network_.now() - last_progress_ > kLongestSilence) {
      checker_.Fail("stuck: no progress");
    }
  }
  if (!checker_.failed()) {
    if (!network_.RunUntilIdle(network_.now() + 20 * kSecond) &&
        !checker_.failed()) {
      checker_.Fail("busy long after all work was done");
    }
  }
  if (!checker_.failed()) CheckEnd();
  if (checker_.failed()) checker_.Explain("  " + StateOfAll() + "\n");
}

void SeedRun::CheckEnd() {
  for (auto& host : hosts_) {
    for (auto& cq : host->cqs) {
      if (cq->size() != 0) checker_.Fail("completions after the end");
    }
  }
  CheckQuiet();
  for (auto& end : ends_) {
    for (const Op& op : end->ops) {
      if (op.opcode == SendOpcode::kSendWithInvalidate && op.done &&
          !end->peer->host->node->memory()
               .FindByRkey(op.invalidate_rkey)
               ->invalidated) {
        FailAt(*end, "R_Key was not invalidated");
      }
    }
  }
  if (network_.undetected() == 0) CheckMemory();
}

void SeedRun::CheckQuiet() {
  for (auto& end : ends_) {
    if (end->qp == nullptr) continue;
    if (const transport::Path* path = end->qp->path();
        path != nullptr && path->in_flight() != path->held()) {
      FailAt(*end, absl::StrCat(path->in_flight(),
                                " bytes in flight on an idle path"));
    }
  }
  for (auto& host : hosts_) CheckIdle(*host->node);
}

// The memory of a broken connection's targets is unknown; bytes outside of them
// must be unchanged.
void SeedRun::AcceptBroken(End& end) {
  Host& mine = *end.host;
  Host& theirs = *end.peer->host;
  for (const Op& op : end.ops) {
    if (!op.is_send() && !op.is_atomic()) {
      if (op.opcode == SendOpcode::kRdmaRead) {
        for (const Piece& piece : op.local) {
          mine.arena.Accept(piece.offset, piece.length);
        }
      } else {
        theirs.arena.Accept(op.remote.offset, op.remote.length);
      }
    }
    if (op.is_atomic()) {
      mine.arena.Accept(op.local[0].offset, 8);
      theirs.words[op.word].uncertain = true;
    }
  }
  for (const Receive& receive : end.receives) {
    for (const Piece& piece : receive.pieces) {
      mine.arena.Accept(piece.offset, piece.length);
    }
  }
  if (end.shared != nullptr) {
    for (const Receive& receive : end.shared->receives) {
      for (const Piece& piece : receive.pieces) {
        mine.arena.Accept(piece.offset, piece.length);
      }
    }
  }
}

void SeedRun::CheckMemory() {
  for (auto& end : ends_) {
    if (end->broken) AcceptBroken(*end);
  }
  for (auto& host : hosts_) {
    for (size_t word = 0; word < host->words.size(); ++word) {
      if (!host->words[word].uncertain) {
        const std::string wrong = CheckAtomicWord(*host, word, ends_);
        if (!wrong.empty()) {
          checker_.Fail(absl::StrCat("host ", host->node->index(), ", word ",
                                     word, ": ", wrong));
        }
      }
      host->arena.Accept(host->words[word].offset, 8);
    }
  }
  for (auto& host : hosts_) {
    const size_t at = host->arena.FirstDifference();
    if (at == host->arena.used()) continue;
    checker_.Fail(absl::StrFormat("host %d: memory differs at offset %d",
                                  host->node->index(), at));
  }
}

void SeedRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  sum["requests"] = requests_;
  for (const auto& end : ends_) {
    if (end->qp == nullptr) continue;
    sum["retransmitted"] += end->qp->counters().retransmitted;
    sum["timeouts"] += end->qp->counters().timeouts;
  }
}

std::string SeedRun::StateOfAll() const {
  std::string text = scenario_.ToString();
  absl::StrAppendFormat(
      &text, "\n    at %.3f us:", static_cast<double>(network_.now()) / 1000);
  for (const auto& end : ends_) {
    absl::StrAppendFormat(
        &text,
        "\n    host %d QP %06x: sends %d posted %d completed %d, "
        "receives %d of %d (posted %d)%s",
        end->host->node->index(), end->qpn, end->ops.size(), end->posted,
        end->completed, end->receives_completed, end->peer->messages.size(),
        end->receives_posted, end->broken ? ", broken" : "");
    if (end->qp == nullptr) continue;
    const transport::QpCounters& c = end->qp->counters();
    absl::StrAppendFormat(
        &text,
        ", state %d, tx %d rx %d retransmitted %d timeouts %d probes %d "
        "naks %d/%d rnr %d/%d",
        static_cast<int>(end->qp->state()), c.tx_packets, c.rx_packets,
        c.retransmitted, c.timeouts, c.probes, c.sequence_naks_sent,
        c.sequence_naks_received, c.rnr_naks_sent, c.rnr_naks_received);
  }
  return text;
}

}  // namespace sim
