#include "transport/sim/xrc_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::QpState;
using transport::QpType;
using transport::WcStatus;

bool XrcRun::Host::FindSrq(uint32_t srqn, transport::XrcSrq* out) {
  for (int i = 0; i < kSrqs; ++i) {
    if (NumberOf(*this, i) != srqn) continue;
    Srq& srq = srqs[i];
    *out = {srq.pool->pd, &srq.queue, srq.cq};
    return true;
  }
  return false;
}

uint32_t XrcRun::NumberOf(const Host& host, int srq) {
  return 0x100 * (host.node->index() + 1) + srq;
}

XrcRun::XrcRun(uint64_t seed) : ServiceRun(seed, false) {
  DrawMaxLength(40'000);
  for (Host& host : hosts_) {
    host.node = &AddHost();
    host.plenty = random_.Percent(60);
    host.pds[1].pd = host.pds[0].pd + 1;
    // Two of them share a protection domain and a completion queue.
    for (int pd : {0, 1, 0}) {
      host.srqs.emplace_back(&host.pds[pd], &host.recv_cq[pd]);
    }
  }
  for (int i = random_.Between(1, 3); i > 0; --i) {
    for (int from : {0, 1}) {
      Connection& connection = connections_.emplace_back();
      connection.from = &hosts_[from];
      connection.to = &hosts_[1 - from];
      connection.node = connection.from->node;
      MakeMessages(connection);
    }
  }
  for (Host& host : hosts_) {
    uint64_t va = 0x700000000000 + (uint64_t(host.node->index()) << 36);
    for (Pool& pd : host.pds) {
      pd.Register(*host.node, va);
      std::fill_n(pd.buffer.get(), pd.bytes, 0);
      va += uint64_t{1} << 34;
    }
  }
  uint32_t qpn = 0x0a0001;
  for (Connection& connection : connections_) Connect(connection, qpn += 2);
  if (random_.Percent(25)) ScheduleBreak();
}

void XrcRun::MakeMessages(Connection& connection) {
  const int count = random_.Between(8, max_length_ > 20'000 ? 25 : 60);
  Pool& local = connection.from->pds[0];
  const uint64_t counter = connection.to->pds[0].Reserve(kAtomicBytes);
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    Message message;
    message.opcode = DrawReliableOpcode();
    message.to = static_cast<int>(random_.Below(kSrqs));
    // The SRQ in the protection domain of the atomics' counter.
    if (message.atomic()) message.to = 0;
    DrawReliable(message, &value, /*solicited=*/true);
    const uint32_t length = message.length();
    message.local = {&local, local.Reserve(length)};
    Srq& srq = connection.to->srqs[message.to];
    message.remote = {srq.pool,
                      message.atomic() ? counter : srq.pool->Reserve(length)};
    if (message.takes_receive()) {
      srq.slots.push_back({srq.pool, srq.pool->Reserve(slot_bytes_)});
    }
    connection.messages.push_back(std::move(message));
  }
  connection.messages.back().flags |= transport::kSendSignaled;
}

void XrcRun::Connect(Connection& connection, uint32_t qpn) {
  PlaceReads(connection);
  Host& from = *connection.from;
  Host& to = *connection.to;
  connection.qp = transport::MakeQueuePair(
      from.node->endpoint(), Config(QpType::kXrcInitiator, qpn, *from.node,
                                    &connection.send_cq, nullptr));
  transport::QpConfig config =
      Config(QpType::kXrcTarget, qpn + 1, *to.node, nullptr, nullptr);
  config.pd = 0;
  config.capacity = {};
  config.xrc = &to;
  connection.target = transport::MakeQueuePair(to.node->endpoint(), config);
  BringUp(*connection.target, to, from, qpn);
  BringUp(*connection.qp, from, to, qpn + 1);
  network_.rules().Watch({.host = from.node->index(),
                          .qpn = qpn,
                          .peer_host = to.node->index(),
                          .peer_qpn = qpn + 1,
                          .first_psn = connection.qp->attributes().sq_psn,
                          .path_mtu = path_mtu_,
                          .max_rd_atomic = 4});
}

void XrcRun::BringUp(transport::QueuePair& qp, const Host& own,
                     const Host& peer, uint32_t peer_qpn) {
  transport::QpAttributes to =
      Attributes(peer_qpn, own.node->address(), peer.node->address());
  to.av.source_port = static_cast<uint16_t>(0xc000 + (qp.qpn() & 0xff));
  ServiceRun::BringUp(qp, to);
}

// --- Breaking a connection.

void XrcRun::ScheduleBreak() {
  Connection& connection = connections_[random_.Below(connections_.size())];
  const bool initiator = random_.Percent(40);
  const auto to =
      initiator || random_.Percent(50) ? QpState::kErr : QpState::kReset;
  const Time when =
      random_.Below(random_.Pick<Time>({10, 100, 1000, 10'000}) * kMicrosecond);
  const Host& host = initiator ? *connection.from : *connection.to;
  network_.At(when, *host.node, [this, &connection, initiator, to] {
    Break(connection, initiator, to);
  });
  // An initiator without a timeout never detects it, so break it too.
  if (initiator || scenario_.connections[0].end[0].timeout != 0) return;
  network_.At(when + 20 * transport::kMillisecond, *connection.node,
              [this, &connection] { Break(connection, true, QpState::kErr); });
}

void XrcRun::Break(Connection& connection, bool initiator, QpState to) {
  // Earlier completions must still be correct.
  TakeSends(connection);
  TakeReceives(*connection.to);
  connection.broken = true;
  transport::QueuePair& qp = initiator ? *connection.qp : *connection.target;
  transport::QpAttributes attributes;
  attributes.state = to;
  if (qp.Modify(attributes, transport::kQpState, network_.now()) != 0) {
    Fail("a connection could not be broken");
  }
  network_.Touch(initiator ? *connection.node : *connection.to->node);
}

bool XrcRun::TakesOutOfOrder(Sender& sender, const Completion& completion) {
  Connection& connection = static_cast<Connection&>(sender);
  if (!connection.broken) return false;
  // A failed request completes even if unsignaled.
  const bool succeeded = completion.status == WcStatus::kSuccess;
  if (completion.wr_id < connection.completed ||
      completion.wr_id >= connection.posted ||
      (succeeded && connection.send_failed)) {
    FailAt(sender,
           absl::StrCat("send ", completion.wr_id, " of a broken connection"));
  }
  connection.send_failed = connection.send_failed || !succeeded;
  connection.completed = completion.wr_id + 1;
  return true;
}

void XrcRun::Play() {
  for (Host& host : hosts_) {
    network_.At(0, *host.node, [this, &host] { RunApp(host); });
  }
  if (!network_.RunUntilIdle(60 * transport::kSecond)) Fail("still busy");
  for (Host& host : hosts_) TakeReceives(host);
  if (network_.undetected() != 0) return;
  for (Connection& connection : connections_) {
    TakeSends(connection);
    CheckEnd(connection);
  }
}

void XrcRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  for (const Connection& connection : connections_) {
    sum["messages"] += connection.messages.size();
    sum["broken"] += connection.broken;
    sum["received"] += connection.target->counters().receives;
    sum["not ready"] += connection.target->counters().rnr_naks_sent;
  }
}

// --- The application.

void XrcRun::RunApp(Host& host) {
  TakeReceives(host);
  bool done = true;
  for (Srq& srq : host.srqs) done &= PostReceives(srq, host.plenty);
  for (Connection& connection : connections_) {
    if (connection.from != &host) continue;
    TakeSends(connection);
    PostSends(connection, connection.messages.size());
    done = done && connection.posted == connection.messages.size();
  }
  if (done) return;
  RunAgain(*host.node, DrawPause(), [this, &host] { RunApp(host); });
}

void XrcRun::Address(Sender& sender, const Message& message,
                     transport::SendRequest* request) {
  request->remote_srqn =
      NumberOf(*static_cast<Connection&>(sender).to, message.to);
}

void XrcRun::TakeReceives(Host& host) {
  for (SimCq& cq : host.recv_cq) {
    for (const Completion& completion : cq.TakeAll()) {
      OnReceived(host, cq, completion);
    }
  }
}

// Checks that messages of one queue pair for one SRQ arrive in posting order.
void XrcRun::OnReceived(Host& host, const SimCq& cq,
                        const Completion& completion) {
  if (network_.undetected() != 0) return;
  for (Connection& connection : connections_) {
    if (connection.to != &host || connection.target->qpn() != completion.qpn) {
      continue;
    }
    if (connection.broken && completion.status != WcStatus::kSuccess) {
      return;  // a receive that was in use
    }
    for (int i = 0; i < kSrqs; ++i) {
      Srq& srq = host.srqs[i];
      if (srq.cq != &cq) continue;
      size_t& next = connection.received[i];
      while (next < connection.posted &&
             (connection.messages[next].to != i ||
              !connection.messages[next].takes_receive())) {
        ++next;
      }
      if (next == connection.posted || completion.wr_id >= srq.posted) continue;
      Message& message = connection.messages[next];
      const Place& at =
          message.writes() ? message.remote : srq.slots[completion.wr_id];
      if (!Matches(message, completion, at.bytes())) continue;
      ++message.arrived;
      ++next;
      return;
    }
    Fail(absl::StrCat("receive ", completion.wr_id, " of ", completion.byte_len,
                      " bytes, status ", static_cast<int>(completion.status),
                      ", is not the next message of any SRQ"));
    return;
  }
  Fail(absl::StrCat("a receive of queue pair ", completion.qpn));
}

void XrcRun::CheckEnd(const Connection& connection) {
  if (connection.broken) {
    if (connection.completed != connection.messages.size()) {
      Fail("not all of a broken connection has completed");
    }
    return;
  }
  CheckEffects(connection);
  size_t receives = 0;
  for (const Message& message : connection.messages) {
    receives += message.takes_receive();
  }
  if (connection.target->counters().receives != receives) {
    Fail(absl::StrCat(connection.target->counters().receives, " receives for ",
                      receives, " messages"));
  }
}

}  // namespace sim
