#include "transport/sim/path_run.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/congestion/path.h"
#include "transport/sim/pair.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kSecond;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;
using transport::WcStatus;

namespace {

constexpr size_t kBuffer = 256 * 1024;
constexpr transport::PdId kPd = 7;
// Duration of the faults, maximum duration of their effects, and the time in
// which every end must then complete something.
constexpr Time kFaults = 2 * kSecond;
constexpr Time kAfter = 4 * kSecond;
constexpr Time kProgress = 2 * kSecond;

}  // namespace

PathRun::PathRun(uint64_t seed)
    : Run(seed ^ 0x6e6574), random_(seed ^ 0x70617468) {
  good_.delay = random_.Pick<Time>({2, 20, 500}) * kMicrosecond;
  good_.bytes_per_us = 1250;
  network_.SetAllLinks(good_);
  for (int i = 0; i < 2; ++i) {
    Node& node = network_.AddNode();
    node.profile().bytes_per_us = 1250;
    node.profile().batches = random_.Percent(50);
    node.profile().hardware_cnps = random_.Percent(20);
    buffers_[i].bytes.resize(kBuffer);
    buffers_[i].region = node.memory().Register(
        kPd, buffers_[i].bytes.data(), uint64_t{0x700000000000} + (i << 24),
        kBuffer, kAllAccess);
  }
  const uint64_t count = 2 + random_.Below(6);
  for (uint64_t i = 0; i < count; ++i) {
    connections_.push_back(std::make_unique<Connection>());
    Connection& connection = *connections_.back();
    connection.type = random_.Percent(50) ? QpType::kRc : QpType::kUc;
    connection.path_mtu = random_.Pick<uint32_t>({256, 1024, 4096});
    connection.depth = random_.Pick<uint32_t>({1, 3, 8});
    connection.max_message =
        random_.Pick<uint32_t>({64, 4096, 20'000, kBuffer / 2});
    connection.receives = random_.Pick<uint32_t>({1, 4, 64});
    connection.receives_late = random_.Pick<Time>({0, 3}) * kMillisecond;
    Make(connection);
  }
}

// --- Connections.

void PathRun::Make(Connection& connection) {
  connection.ended = false;
  for (int i = 0; i < 2; ++i) {
    connection.ends[i] = std::make_unique<End>();
    End& end = *connection.ends[i];
    transport::QpConfig config;
    config.type = connection.type;
    config.qpn = ++next_qpn_;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 16,
                       .max_recv_wr = connection.receives,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.memory = &network_.node(i).memory();
    config.send_cq = &end.send_cq;
    config.recv_cq = &end.recv_cq;
    config.events = &events_;
    end.qp = transport::MakeQueuePair(network_.node(i).endpoint(), config);
  }
  for (int i = 0; i < 2; ++i) {
    End& end = *connection.ends[i];
    transport::QpAttributes to = transport::ConnectionTo(
        connection.ends[1 - i]->qp->qpn(), network_.node(i).address(),
        network_.node(1 - i).address());
    to.path_mtu = connection.path_mtu;
    to.av.source_port = static_cast<uint16_t>(0xc000 + end.qp->qpn() % 1024);
    if (transport::BringUp(*end.qp, to, network_.now()) != 0) {
      Fail("cannot connect");
    }
    for (uint32_t r = 0; r < connection.receives; ++r) PostReceive(end, i);
  }
}

void PathRun::Destroy(End& end) {
  if (end.qp == nullptr) return;
  completed_ += end.completed;
  notified_ += end.qp->counters().cnps_received;
  end.send_cq.ForgetSlots(end.qp->qpn());
  end.recv_cq.ForgetSlots(end.qp->qpn());
  end.qp.reset();
}

void PathRun::MakeAnew(Connection& connection, Time after) {
  if (connection.ended) return;
  connection.ended = true;
  ++broken_;
  network_.At(network_.now() + after, network_.node(0), [this, &connection] {
    for (auto& end : connection.ends) {
      Destroy(*end);
      former_.push_back(std::move(end));
    }
    Make(connection);
    for (int i = 0; i < 2; ++i) network_.Touch(network_.node(i));
  });
}

// --- Applications.

void PathRun::PostReceive(End& end, int node) {
  const Region& region = buffers_[node].region;
  const transport::Sge sge = {region.va, kBuffer, region.lkey};
  (void)end.qp->PostReceive({.wr_id = 0, .sges = {&sge, 1}}, network_.now());
}

void PathRun::PostSends(Connection& connection, int node) {
  End& end = *connection.ends[node];
  const Region& mine = buffers_[node].region;
  const Region& theirs = buffers_[1 - node].region;
  while (end.outstanding < connection.depth) {
    const uint32_t length =
        random_.Percent(30)
            ? 0
            : static_cast<uint32_t>(random_.Below(connection.max_message + 1));
    const transport::Sge sge = {mine.va, length, mine.lkey};
    transport::SendRequest request;
    request.opcode =
        connection.type == QpType::kRc
            ? random_.Pick({SendOpcode::kSend, SendOpcode::kRdmaWrite,
                            SendOpcode::kRdmaRead})
            : random_.Pick({SendOpcode::kSend, SendOpcode::kRdmaWrite});
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = theirs.va;
    request.rkey = theirs.rkey;
    if (end.qp->PostSend(request, network_.now()) != 0) {
      Fail("cannot post");
      return;
    }
    ++end.outstanding;
  }
}

void PathRun::RunAppOn(Connection& connection, int node) {
  End& end = *connection.ends[node];
  for (transport::Completion wc; end.send_cq.Poll(&wc);) {
    --end.outstanding;
    if (wc.status == WcStatus::kSuccess) {
      ++end.completed;
    } else {
      MakeAnew(connection, random_.Below(20) * kMillisecond);
    }
    if (end.outstanding == 0) {
      end.next_post =
          network_.now() + random_.Pick<Time>({0, 1, 30, 60}) * kMillisecond;
    }
  }
  const auto works = [&connection, node, &end] {
    // The connection may have been created again.
    return connection.ends[node].get() == &end && end.qp != nullptr &&
           (end.qp->state() == QpState::kRts ||
            end.qp->state() == QpState::kSqd);
  };
  for (transport::Completion wc; end.recv_cq.Poll(&wc);) {
    network_.At(network_.now() + connection.receives_late, network_.node(node),
                [this, works, node, &end] {
                  if (works()) PostReceive(end, node);
                });
  }
  if (!works()) return;
  if (!posting_ || end.outstanding != 0 || end.next_post == transport::kNever) {
    return;
  }
  const Time when = std::exchange(end.next_post, transport::kNever);
  network_.At(when, network_.node(node), [this, works, &connection, node] {
    if (posting_ && works()) PostSends(connection, node);
  });
}

void PathRun::RunApp(Connection& connection) {
  for (int i = 0; i < 2; ++i) RunAppOn(connection, i);
}

// --- Faults.

void PathRun::ScheduleFault(Time when) {
  if (when >= kFaults) return;
  network_.At(when, network_.node(0), [this] {
    Fault();
    ScheduleFault(network_.now() +
                  random_.Pick<Time>({1, 10, 100, 300}) * kMillisecond);
  });
}

void PathRun::Fault() {
  const int node = static_cast<int>(random_.Below(2));
  Link& link = network_.link(network_.node(node), network_.node(1 - node));
  Connection& connection = *random_.Pick(connections_);
  const Time lasts = random_.Pick<Time>({1, 20, 100, 400}) * kMillisecond;
  switch (random_.Below(8)) {
    case 0:
      link.profile.down = true;
      break;
    case 1:  // such as a stopped peer
      link.profile.delay = lasts;
      break;
    case 2:
      link.profile.loss = random_.Pick<uint32_t>({1'000, 50'000, 500'000});
      break;
    case 3:
      link.profile.queue_bytes = random_.Pick<uint64_t>({6'000, 60'000});
      link.profile.bytes_per_us = 125;
      break;
    case 4:
    case 5:
      link.profile.ecn_threshold = random_.Pick<uint64_t>({1, 30'000});
      link.profile.bytes_per_us = random_.Pick<uint64_t>({1, 12, 125});
      break;
    case 6:
      if (connection.ended) return;
      Destroy(*connection.ends[node]);
      // The other end of an RC connection detects it by its retries.
      if (connection.type == QpType::kUc ||
          connection.ends[1 - node]->qp == nullptr) {
        MakeAnew(connection, lasts);
      }
      return;
    case 7:
      return Drain(connection, node, lasts);
  }
  Mend(link, lasts);
}

void PathRun::Drain(Connection& connection, int node, Time lasts) {
  End& end = *connection.ends[node];
  if (end.qp == nullptr || end.qp->state() != QpState::kRts) return;
  transport::QpAttributes to;
  to.state = QpState::kSqd;
  to.en_sqd_async_notify = true;
  if (end.qp->Modify(to, transport::kQpState | transport::kQpEnSqdAsyncNotify,
                     network_.now()) != 0) {
    Fail("cannot drain");
  }
  network_.At(network_.now() + lasts, network_.node(node),
              [this, &connection, node, &end] { GoOn(connection, node, end); });
}

void PathRun::GoOn(Connection& connection, int node, End& end) {
  if (connection.ends[node].get() != &end || end.qp == nullptr ||
      end.qp->state() != QpState::kSqd) {
    return;
  }
  if (events_.Count(end.qp->qpn(), transport::QpEvent::kSqDrained) ==
      end.drains) {
    network_.At(
        network_.now() + kMillisecond, network_.node(node),
        [this, &connection, node, &end] { GoOn(connection, node, end); });
    return;
  }
  ++end.drains;
  transport::QpAttributes to;
  to.state = QpState::kRts;
  if (end.qp->Modify(to, transport::kQpState, network_.now()) != 0) {
    Fail("cannot resume");
  }
}

void PathRun::Mend(Link& link, Time after) {
  network_.At(network_.now() + after, network_.node(0),
              [this, &link] { link.profile = good_; });
}

// --- The run.

void PathRun::RunTo(Time when) {
  network_.RunUntil(
      [this] {
        for (auto& connection : connections_) RunApp(*connection);
        return checker_.failed();
      },
      when);
  if (!checker_.failed()) network_.RunTo(when);
}

void PathRun::Play() {
  for (auto& connection : connections_) RunApp(*connection);
  ScheduleFault(20 * kMillisecond);
  RunTo(kFaults + kAfter);
  CheckProgress();
  posting_ = false;
  if (!checker_.failed()) RunTo(network_.now() + kAfter);
  if (!checker_.failed()) CheckQuiet();
  for (auto& connection : connections_) {
    for (auto& end : connection->ends) Destroy(*end);
  }
}

void PathRun::CheckProgress() {
  std::vector<uint64_t> before;
  for (auto& connection : connections_) {
    for (auto& end : connection->ends) before.push_back(end->completed);
  }
  RunTo(network_.now() + kProgress);
  size_t at = 0;
  for (auto& connection : connections_) {
    for (auto& end : connection->ends) {
      if (end->completed > before[at++]) continue;
      Fail(absl::StrCat("stuck: ", StateOf(*connection)));
    }
  }
}

void PathRun::CheckQuiet() {
  for (int i = 0; i < 2; ++i) {
    CheckIdle(network_.node(i));
    for (auto& connection : connections_) {
      const auto& qp = connection->ends[i]->qp;
      if (qp == nullptr || qp->path() == nullptr ||
          qp->path()->in_flight() == qp->path()->held()) {
        continue;
      }
      Fail(absl::StrCat("in flight on an idle path: ", StateOf(*connection)));
    }
  }
}

std::string PathRun::StateOf(const Connection& connection) const {
  std::string text = connection.type == QpType::kRc ? "RC" : "UC";
  absl::StrAppendFormat(&text, ", depth %d, up to %d bytes%s", connection.depth,
                        connection.max_message,
                        connection.ended ? ", ended" : "");
  for (const auto& end : connection.ends) {
    if (end->qp == nullptr) {
      text += "; destroyed";
      continue;
    }
    const transport::QpReport report = end->qp->Report();
    absl::StrAppendFormat(
        &text,
        "; QP %06x in state %d: %d outstanding, %d completed, PSN %d (%d), in "
        "flight %d, paused %d, window %d, round trip %.1f us",
        report.qpn, static_cast<int>(report.state), end->outstanding,
        end->completed, report.send_psn, report.unacked_psn, report.in_flight,
        report.paused, report.window,
        static_cast<double>(report.smoothed_rtt) / 1000);
  }
  return text;
}

void PathRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  sum["completed"] = completed_;
  sum["notified"] = notified_;
  sum["broken"] = broken_;
}

}  // namespace sim
