#include "transport/sim/xrc_run.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::QpState;
using transport::SendOpcode;
using transport::WcOpcode;

namespace {

constexpr transport::PdId kFirstPd = 7;
constexpr uint64_t kGap = 64;  // guard between two allocations
constexpr uint32_t kAtomicBytes = 8;

WcOpcode CompletionOf(SendOpcode opcode) {
  switch (opcode) {
    case SendOpcode::kRdmaWrite:
    case SendOpcode::kRdmaWriteWithImm:
      return WcOpcode::kRdmaWrite;
    case SendOpcode::kRdmaRead:
      return WcOpcode::kRdmaRead;
    case SendOpcode::kCompareSwap:
      return WcOpcode::kCompareSwap;
    case SendOpcode::kFetchAdd:
      return WcOpcode::kFetchAdd;
    default:
      return WcOpcode::kSend;
  }
}

}  // namespace

bool XrcRun::Message::writes() const {
  return opcode == SendOpcode::kRdmaWrite ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
bool XrcRun::Message::has_imm() const {
  return opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
bool XrcRun::Message::atomic() const {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
bool XrcRun::Message::takes_receive() const {
  return opcode == SendOpcode::kSend || has_imm();
}

uint64_t XrcRun::Pd::Reserve(uint64_t length) {
  const uint64_t at = bytes;
  bytes += (length + kGap + 63) / 64 * 64;
  return at;
}

bool XrcRun::Host::FindSrq(uint32_t srqn, transport::XrcSrq* out) {
  for (int i = 0; i < kSrqs; ++i) {
    if (NumberOf(*this, i) != srqn) continue;
    Srq& srq = srqs[i];
    *out = {srq.pd->id, &srq.queue, srq.cq};
    return true;
  }
  return false;
}

uint32_t XrcRun::NumberOf(const Host& host, int srq) {
  return 0x100 * (host.node->index() + 1) + srq;
}

XrcRun::XrcRun(uint64_t seed)
    : scenario_(Scenario::Make(seed)),
      random_(Mix(seed)),
      path_mtu_(scenario_.connections[0].path_mtu),
      max_length_(
          random_.Pick<uint32_t>({300, 3 * path_mtu_, 12 * path_mtu_, 40'000})),
      slot_bytes_((max_length_ + 63) / 64 * 64),
      net_(scenario_.seed, &checker_) {
  net_.SetAllLinks(scenario_.link);
  for (int i = 0; i < 2; ++i) {
    Host& host = hosts_[i];
    host.node = &net_.AddNode();
    host.node->profile() = scenario_.hosts[i].profile;
    host.node->memory().set_span_bytes(scenario_.hosts[i].span_bytes);
    host.plenty = random_.Percent(60);
    for (int pd = 0; pd < kPds; ++pd) host.pds[pd].id = kFirstPd + pd;
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
      MakeMessages(connection);
    }
  }
  for (Host& host : hosts_) MakeHost(host);
  uint32_t qpn = 0x0a0001;
  for (Connection& connection : connections_) Connect(connection, qpn += 2);
  if (random_.Percent(25)) ScheduleBreak();
}

XrcRun::~XrcRun() = default;

void XrcRun::MakeMessages(Connection& connection) {
  const int count = random_.Between(8, max_length_ > 20'000 ? 25 : 60);
  connection.counter = connection.to->pds[0].Reserve(kAtomicBytes);
  uint64_t value = 0;
  for (int i = 0; i < count; ++i) {
    Message message;
    message.opcode = random_.Pick(
        {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kRdmaWrite,
         SendOpcode::kRdmaWriteWithImm, SendOpcode::kRdmaRead,
         SendOpcode::kFetchAdd, SendOpcode::kCompareSwap});
    message.srq = static_cast<int>(random_.Below(kSrqs));
    uint32_t length = random_.Below(max_length_ + 1);
    if (message.atomic()) {
      length = kAtomicBytes;
      message.srq = 0;  // that of the counter's protection domain
      message.operand = random_.Next();
      message.found = value;
      value = message.opcode == SendOpcode::kFetchAdd ? value + message.operand
                                                      : message.operand;
    }
    if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
    if (message.takes_receive() && random_.Percent(20)) {
      message.flags |= transport::kSendSolicited;
    }
    if (random_.Percent(10)) message.flags |= transport::kSendFence;
    if (message.has_imm()) {
      message.imm_be = static_cast<uint32_t>(random_.Next());
    }
    message.content.resize(length);
    random_.Fill(message.content.data(), length);
    message.local = connection.from->pds[0].Reserve(length);
    Srq& srq = connection.to->srqs[message.srq];
    message.remote =
        message.atomic() ? connection.counter : srq.pd->Reserve(length);
    if (message.takes_receive()) {
      srq.slots.push_back(srq.pd->Reserve(slot_bytes_));
    }
    connection.messages.push_back(std::move(message));
  }
  connection.messages.back().flags |= transport::kSendSignaled;
}

void XrcRun::MakeHost(Host& host) {
  uint64_t va = 0x700000000000 + (uint64_t(host.node->index()) << 36);
  for (Pd& pd : host.pds) {
    pd.bytes = std::max<uint64_t>(pd.bytes, kGap);
    pd.buffer.reset(new uint8_t[pd.bytes]());
    pd.region = host.node->memory().Register(
        pd.id, pd.buffer.get(), va, pd.bytes,
        transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
            transport::kAccessRemoteRead | transport::kAccessRemoteAtomic);
    va += uint64_t{1} << 34;
  }
}

void XrcRun::Connect(Connection& connection, uint32_t qpn) {
  for (const Message& message : connection.messages) {
    if (message.opcode != SendOpcode::kRdmaRead) continue;
    const Pd& pd = *connection.to->srqs[message.srq].pd;
    std::copy(message.content.begin(), message.content.end(),
              pd.buffer.get() + message.remote);
  }
  transport::QpConfig config;
  config.type = transport::QpType::kXrcInitiator;
  config.qpn = qpn;
  config.pd = kFirstPd;
  config.capacity = {.max_send_wr = 64, .max_send_sge = 2};
  config.memory = &connection.from->node->memory();
  config.send_cq = &connection.send_cq;
  config.events = &connection.from->events;
  connection.initiator =
      transport::MakeQueuePair(connection.from->node->endpoint(), config);
  config = {};
  config.type = transport::QpType::kXrcTarget;
  config.qpn = qpn + 1;
  config.memory = &connection.to->node->memory();
  config.events = &connection.to->events;
  config.xrc = connection.to;
  connection.target =
      transport::MakeQueuePair(connection.to->node->endpoint(), config);
  BringUp(*connection.target, *connection.to, *connection.from, qpn);
  BringUp(*connection.initiator, *connection.from, *connection.to, qpn + 1);
  net_.rules().Watch({.host = connection.from->node->index(),
                      .qpn = qpn,
                      .peer_host = connection.to->node->index(),
                      .peer_qpn = qpn + 1,
                      .first_psn = connection.initiator->attributes().sq_psn,
                      .path_mtu = path_mtu_,
                      .max_rd_atomic = 4});
}

void XrcRun::BringUp(transport::QueuePair& qp, const Host& own,
                     const Host& peer, uint32_t peer_qpn) {
  const EndScenario& end = scenario_.connections[0].end[0];
  transport::QpAttributes to = transport::ConnectionTo(
      peer_qpn, own.node->address(), peer.node->address());
  to.path_mtu = path_mtu_;
  to.sq_psn = to.rq_psn = end.first_psn;
  to.max_rd_atomic = to.max_dest_rd_atomic = 4;
  to.min_rnr_timer = end.min_rnr_timer;
  to.timeout = end.timeout;
  to.av.source_port = static_cast<uint16_t>(0xc000 + (qp.qpn() & 0xff));
  if (const int error = transport::BringUp(qp, to, 0)) {
    Fail(absl::StrCat("modify: ", std::strerror(error)));
  }
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
  net_.At(when, *host.node, [this, &connection, initiator, to] {
    Break(connection, initiator, to);
  });
  // An initiator without a timeout never detects it, so break it too.
  if (initiator || scenario_.connections[0].end[0].timeout != 0) return;
  net_.At(when + 20 * transport::kMillisecond, *connection.from->node,
          [this, &connection] { Break(connection, true, QpState::kErr); });
}

void XrcRun::Break(Connection& connection, bool initiator, QpState to) {
  // Earlier completions must still be correct.
  TakeSends(connection);
  TakeReceives(*connection.to);
  connection.broken = true;
  transport::QueuePair& qp =
      initiator ? *connection.initiator : *connection.target;
  transport::QpAttributes attributes;
  attributes.state = to;
  if (qp.Modify(attributes, transport::kQpState, net_.now()) != 0) {
    Fail("a connection could not be broken");
  }
  net_.Touch(initiator ? *connection.from->node : *connection.to->node);
}

// A failed request completes even if unsignaled.
bool XrcRun::MayFollowBreak(Connection& connection,
                            const Completion& completion) const {
  const bool succeeded = completion.status == transport::WcStatus::kSuccess;
  const bool may = completion.wr_id >= connection.completed &&
                   completion.wr_id < connection.posted &&
                   !(succeeded && connection.send_failed);
  connection.send_failed = connection.send_failed || !succeeded;
  connection.completed = completion.wr_id + 1;
  return may;
}

bool XrcRun::Execute() {
  for (Host& host : hosts_) {
    net_.At(0, *host.node, [this, &host] { RunApp(host); });
  }
  if (!net_.RunUntilIdle(60 * transport::kSecond)) Fail("still busy");
  for (Host& host : hosts_) TakeReceives(host);
  if (net_.undetected() != 0) return !checker_.failed();
  for (Connection& connection : connections_) {
    TakeSends(connection);
    CheckEnd(connection);
  }
  return !checker_.failed();
}

void XrcRun::AddTo(XrcStatistics* sum) const {
  sum->packets += net_.packets();
  sum->undetected += net_.undetected();
  for (const Connection& connection : connections_) {
    sum->messages += connection.messages.size();
    sum->broken += connection.broken;
    sum->received += connection.target->counters().receives;
    sum->not_ready += connection.target->counters().rnr_naks_sent;
  }
}

// --- The application.

void XrcRun::RunApp(Host& host) {
  TakeReceives(host);
  bool done = true;
  for (Srq& srq : host.srqs) {
    size_t some = host.plenty ? srq.slots.size() : random_.Below(4);
    while (some-- > 0 && srq.posted < srq.slots.size()) PostReceive(host, srq);
    done = done && srq.posted == srq.slots.size();
  }
  for (Connection& connection : connections_) {
    if (connection.from != &host) continue;
    TakeSends(connection);
    for (uint64_t i = random_.Below(6);
         i > 0 && connection.posted < connection.messages.size(); --i) {
      PostSend(connection);
    }
    done = done && connection.posted == connection.messages.size();
  }
  if (done) return;
  const Time pause = random_.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
  net_.At(net_.now() + 1 + random_.Below(pause + 1), *host.node,
          [this, &host] { RunApp(host); });
}

void XrcRun::PostReceive(Host& /*host*/, Srq& srq) {
  const size_t index = srq.posted++;
  srq.queue.Post(index, {{srq.pd->region.va + srq.slots[index], slot_bytes_,
                          srq.pd->region.lkey}});
}

void XrcRun::PostSend(Connection& connection) {
  const size_t index = connection.posted++;
  const Message& message = connection.messages[index];
  const Pd& local = connection.from->pds[0];
  const Pd& remote = *connection.to->srqs[message.srq].pd;
  if (message.takes_receive() || message.writes()) {
    std::copy(message.content.begin(), message.content.end(),
              local.buffer.get() + message.local);
  }
  const transport::Sge sge = {local.region.va + message.local, message.length(),
                              local.region.lkey};
  transport::SendRequest request;
  request.wr_id = index;
  request.opcode = message.opcode;
  request.flags = message.flags;
  request.sges = {&sge, 1};
  request.imm_be = message.imm_be;
  request.remote_addr = remote.region.va + message.remote;
  request.rkey = remote.region.rkey;
  request.remote_srqn = NumberOf(*connection.to, message.srq);
  if (message.opcode == SendOpcode::kFetchAdd) {
    request.compare_add = message.operand;
  } else {
    request.compare_add = message.found;
    request.swap = message.operand;
  }
  const int error = connection.initiator->PostSend(request, net_.now());
  if (error != 0) {
    Fail(absl::StrCat("post_send ", index, ": ", std::strerror(error)));
  }
  net_.Touch(*connection.from->node);
}

void XrcRun::TakeSends(Connection& connection) {
  for (const Completion& completion : connection.send_cq.TakeAll()) {
    if (connection.broken) {
      if (!MayFollowBreak(connection, completion)) {
        Fail(
            absl::StrCat("send ", completion.wr_id, " of a broken connection"));
      }
      continue;
    }
    std::vector<Message>& messages = connection.messages;
    size_t& next = connection.completed;
    while (next < connection.posted &&
           (messages[next].flags & transport::kSendSignaled) == 0) {
      ++next;
    }
    if (next == connection.posted || completion.wr_id != next ||
        completion.status != transport::WcStatus::kSuccess ||
        completion.opcode != CompletionOf(messages[next].opcode)) {
      Fail(absl::StrCat("send ", completion.wr_id, " instead of ", next,
                        ": status ", static_cast<int>(completion.status)));
      return;
    }
    ++next;
  }
}

void XrcRun::TakeReceives(Host& host) {
  for (SimCq& cq : host.recv_cq) {
    for (const Completion& completion : cq.TakeAll()) {
      OnReceived(host, cq, completion);
    }
  }
}

// Messages of one queue pair for one SRQ arrive in posting order.
void XrcRun::OnReceived(Host& host, const SimCq& cq,
                        const Completion& completion) {
  if (net_.undetected() != 0) return;
  for (Connection& connection : connections_) {
    if (connection.to != &host || connection.target->qpn() != completion.qpn) {
      continue;
    }
    if (connection.broken &&
        completion.status != transport::WcStatus::kSuccess) {
      return;  // a receive that was in use
    }
    for (int i = 0; i < kSrqs; ++i) {
      Srq& srq = host.srqs[i];
      if (srq.cq != &cq) continue;
      size_t& next = connection.received[i];
      while (next < connection.posted &&
             (connection.messages[next].srq != i ||
              !connection.messages[next].takes_receive())) {
        ++next;
      }
      if (next == connection.posted) continue;
      const Message& message = connection.messages[next];
      const bool writes = message.writes();
      const auto opcode =
          writes ? WcOpcode::kReceiveRdmaWithImm : WcOpcode::kReceive;
      const bool solicited = (message.flags & transport::kSendSolicited) != 0;
      if (completion.status != transport::WcStatus::kSuccess ||
          completion.opcode != opcode ||
          completion.byte_len != message.length() ||
          completion.imm_be_or_rkey != message.imm_be ||
          completion.solicited != solicited || completion.wr_id >= srq.posted ||
          !Holds(*srq.pd, writes ? message.remote : srq.slots[completion.wr_id],
                 message.content)) {
        continue;
      }
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

bool XrcRun::Holds(const Pd& pd, uint64_t offset,
                   const std::vector<uint8_t>& content) const {
  return std::equal(content.begin(), content.end(), pd.buffer.get() + offset);
}

void XrcRun::CheckEnd(const Connection& connection) {
  if (connection.broken) {
    if (connection.completed != connection.messages.size()) {
      Fail("not all of a broken connection has completed");
    }
    return;
  }
  if (connection.completed != connection.messages.size()) {
    Fail(absl::StrCat("only ", connection.completed, " of ",
                      connection.messages.size(), " messages have completed"));
    return;
  }
  size_t receives = 0;
  for (size_t i = 0; i < connection.messages.size(); ++i) {
    const Message& message = connection.messages[i];
    const Pd& remote = *connection.to->srqs[message.srq].pd;
    const Pd& local = connection.from->pds[0];
    receives += message.takes_receive();
    if (message.writes() && !Holds(remote, message.remote, message.content)) {
      Fail(absl::StrCat("WRITE ", i, " is not there"));
    }
    if (message.opcode == SendOpcode::kRdmaRead &&
        !Holds(local, message.local, message.content)) {
      Fail(absl::StrCat("READ ", i, " is not what was read"));
    }
    uint64_t found;
    std::memcpy(&found, local.buffer.get() + message.local, sizeof(found));
    if (message.atomic() && found != message.found) {
      Fail(absl::StrCat("atomic ", i, " has found ", found, " instead of ",
                        message.found));
    }
  }
  if (connection.target->counters().receives != receives) {
    Fail(absl::StrCat(connection.target->counters().receives, " receives for ",
                      receives, " messages"));
  }
}

void XrcRun::Fail(const std::string& text) {
  checker_.Fail(absl::StrCat("at ", net_.now(), " ns: ", text));
}

}  // namespace sim
