#include "transport/sim/dc_run.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "transport/testing/bring_up.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::kMillisecond;
using transport::kSecond;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;
using transport::WcOpcode;
using transport::WcStatus;

namespace {

constexpr uint64_t kGap = 64;  // guard between two allocations
constexpr uint32_t kAtomicBytes = 8;
constexpr uint32_t kFirstDct = 0x0c0000;
constexpr uint32_t kFirstDci = 0x0d0000;
constexpr uint64_t kKey = 0x5eed;

}  // namespace

bool DcRun::Message::writes() const {
  return opcode == SendOpcode::kRdmaWrite ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
bool DcRun::Message::has_imm() const {
  return opcode == SendOpcode::kSendWithImm ||
         opcode == SendOpcode::kRdmaWriteWithImm;
}
bool DcRun::Message::atomic() const {
  return opcode == SendOpcode::kCompareSwap || opcode == SendOpcode::kFetchAdd;
}
bool DcRun::Message::takes_receive() const {
  return opcode == SendOpcode::kSend || has_imm();
}

std::optional<uint32_t> DcRun::Host::AllocateNumber() { return next_number++; }
uint32_t DcRun::Host::Random() { return static_cast<uint32_t>(random.Next()); }

uint64_t DcRun::Host::Reserve(uint64_t length) {
  const uint64_t at = bytes;
  bytes += (length + kGap + 63) / 64 * 64;
  return at;
}

DcRun::DcRun(uint64_t seed)
    : scenario_(Scenario::Make(seed)),
      random_(Mix(seed)),
      path_mtu_(scenario_.connections[0].path_mtu),
      max_length_(
          random_.Pick<uint32_t>({300, 3 * path_mtu_, 12 * path_mtu_, 40'000})),
      slot_bytes_((max_length_ + 63) / 64 * 64),
      crowded_(random_.Percent(30)),
      plenty_(random_.Percent(60)),
      net_(scenario_.seed, &checker_) {
  net_.SetAllLinks(scenario_.link);
  net_.strangers = true;
  const int initiators = random_.Between(2, 8);
  for (int i = 0; i < kHosts; ++i) {
    Host& host = hosts_[i];
    const HostScenario& like = scenario_.hosts[i % scenario_.hosts.size()];
    host.node = &net_.AddNode();
    host.node->profile() = like.profile;
    host.node->memory().set_span_bytes(like.span_bytes);
    host.random = sim::Random(Mix(seed + static_cast<uint64_t>(i) + 77));
    host.connections = std::make_unique<transport::DcConnections>(
        host.node->endpoint(), host,
        crowded_ ? static_cast<size_t>(initiators + 1) / 2
                 : transport::DcConnections::kMost);
  }
  targets_.resize(static_cast<size_t>(random_.Between(1, 3)));
  for (int i = 0; i < initiators; ++i) {
    Initiator& initiator = initiators_.emplace_back();
    initiator.host = &hosts_[i % 2 == 0 ? 0 : 2];
    MakeMessages(initiator);
  }
  if (random_.Percent(25)) {
    Initiator& one = initiators_[random_.Below(initiators_.size())];
    one.reset_at = 1 + random_.Below(one.messages.size());
  }
  for (Host& host : hosts_) MakeHost(host);
  MakeQueuePairs();
}

DcRun::~DcRun() {
  for (Target& target : targets_) target.qp.reset();
}

void DcRun::MakeMessages(Initiator& initiator) {
  Host& remote = hosts_[kTargetHost];
  const int count = random_.Between(5, max_length_ > 20'000 ? 15 : 40);
  initiator.counter = remote.Reserve(kAtomicBytes);
  uint64_t value = 0;
  size_t target = 0;
  const uint32_t change = random_.Pick<uint32_t>({5, 30, 100});
  for (int i = 0; i < count; ++i) {
    Message message;
    if (random_.Percent(change)) target = random_.Below(targets_.size());
    message.target = target;
    message.opcode = random_.Pick(
        {SendOpcode::kSend, SendOpcode::kSendWithImm, SendOpcode::kRdmaWrite,
         SendOpcode::kRdmaWriteWithImm, SendOpcode::kRdmaRead,
         SendOpcode::kFetchAdd, SendOpcode::kCompareSwap});
    uint32_t length = random_.Below(max_length_ + 1);
    if (message.atomic()) {
      length = kAtomicBytes;
      message.operand = random_.Next();
      message.found = value;
      value = message.opcode == SendOpcode::kFetchAdd ? value + message.operand
                                                      : message.operand;
    }
    if (random_.Percent(70)) message.flags |= transport::kSendSignaled;
    if (random_.Percent(10)) message.flags |= transport::kSendFence;
    if (message.has_imm()) {
      message.imm_be = static_cast<uint32_t>(random_.Next());
    }
    message.content.resize(length);
    random_.Fill(message.content.data(), length);
    message.local = initiator.host->Reserve(length);
    message.remote =
        message.atomic() ? initiator.counter : remote.Reserve(length);
    if (message.takes_receive()) {
      targets_[target].slots.push_back(remote.Reserve(slot_bytes_));
    }
    initiator.messages.push_back(std::move(message));
  }
  initiator.messages.back().flags |= transport::kSendSignaled;
}

void DcRun::MakeHost(Host& host) {
  const uint64_t va =
      0x700000000000 + (static_cast<uint64_t>(host.node->index()) << 36);
  host.bytes = std::max<uint64_t>(host.bytes, kGap);
  host.buffer.reset(new uint8_t[host.bytes]());
  host.region = host.node->memory().Register(
      kPd, host.buffer.get(), va, host.bytes,
      transport::kAccessLocalWrite | transport::kAccessRemoteWrite |
          transport::kAccessRemoteRead | transport::kAccessRemoteAtomic);
}

void DcRun::MakeQueuePairs() {
  Host& there = hosts_[kTargetHost];
  transport::QpConfig config;
  for (size_t i = 0; i < targets_.size(); ++i) {
    Target& target = targets_[i];
    config = {};
    config.type = QpType::kDct;
    config.qpn = kFirstDct + static_cast<uint32_t>(i);
    config.pd = kPd;
    config.memory = &there.node->memory();
    config.send_cq = config.recv_cq = &target.cq;
    config.events = &there.events;
    config.srq = &target.srq;
    target.qp = transport::MakeQueuePair(
        there.node->endpoint(), config, 0, {},
        {.connections = there.connections.get(), .access_key = kKey});
    BringUp(*target.qp);
  }
  uint32_t qpn = kFirstDci;
  for (Initiator& initiator : initiators_) {
    for (const Message& message : initiator.messages) {
      if (message.opcode != SendOpcode::kRdmaRead) continue;
      std::copy(message.content.begin(), message.content.end(),
                there.buffer.get() + message.remote);
    }
    config = {};
    config.type = QpType::kDci;
    config.qpn = qpn++;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 64, .max_send_sge = 2};
    config.memory = &initiator.host->node->memory();
    config.send_cq = config.recv_cq = &initiator.cq;
    config.events = &initiator.host->events;
    initiator.qp = transport::MakeQueuePair(
        initiator.host->node->endpoint(), config, 0, {},
        {.connections = initiator.host->connections.get()});
    BringUp(*initiator.qp);
  }
}

void DcRun::BringUp(transport::QueuePair& qp) {
  const EndScenario& end = scenario_.connections[0].end[0];
  transport::QpAttributes to =
      transport::ConnectionTo(0, wire::IpAddress(), wire::IpAddress());
  to.path_mtu = path_mtu_;
  to.sq_psn = end.first_psn;
  to.max_rd_atomic = 4;
  to.min_rnr_timer = end.min_rnr_timer;
  // Where connections are scarce, a CONNECT may wait for seconds.
  to.timeout = crowded_ ? 0 : end.timeout;
  const QpType type = qp.config().type;
  for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
    if (state == QpState::kRts && type == QpType::kDct) break;
    to.state = state;
    if (const int error = qp.Modify(
            to, transport::RequiredAttributes(type, state), net_.now())) {
      Fail(absl::StrCat("modify: ", std::strerror(error)));
    }
  }
}

void DcRun::Reset(Initiator& initiator) {
  TakeSends(initiator);
  initiator.reset_at = SIZE_MAX;
  initiator.was_reset = true;
  ++resets_;
  for (size_t i = initiator.completed; i < initiator.posted; ++i) {
    initiator.messages[i].abandoned = true;
  }
  initiator.completed = initiator.posted;
  transport::QpAttributes reset;
  if (initiator.qp->Modify(reset, transport::kQpState, net_.now()) != 0) {
    Fail("an initiator could not be reset");
  }
  BringUp(*initiator.qp);
  net_.Touch(*initiator.host->node);
}

bool DcRun::Execute() {
  net_.At(0, *hosts_[kTargetHost].node, [this] { RunTargets(); });
  for (Initiator& initiator : initiators_) {
    net_.At(0, *initiator.host->node,
            [this, &initiator] { RunInitiator(initiator); });
  }
  if (!net_.RunUntilIdle(600 * kSecond)) Fail("still busy");
  for (size_t i = 0; i < targets_.size(); ++i) TakeReceives(i);
  if (net_.undetected() != 0) return !checker_.failed();
  for (Initiator& initiator : initiators_) {
    TakeSends(initiator);
    CheckEnd(initiator);
  }
  return !checker_.failed();
}

void DcRun::AddTo(DcStatistics* sum) const {
  sum->packets += net_.packets();
  sum->undetected += net_.undetected();
  sum->resets += resets_;
  const transport::Endpoint& there =
      const_cast<Host&>(hosts_[kTargetHost]).node->endpoint();
  sum->connects += there.counters().dc_connects;
  sum->evicted += there.counters().dc_evicted;
  for (const Initiator& initiator : initiators_) {
    sum->messages += initiator.messages.size();
    sum->not_ready += initiator.qp->counters().rnr_naks_received;
  }
}

// --- The applications.

void DcRun::RunTargets() {
  Host& host = hosts_[kTargetHost];
  bool done = true;
  for (size_t i = 0; i < targets_.size(); ++i) {
    TakeReceives(i);
    Target& target = targets_[i];
    size_t some = plenty_ ? target.slots.size() : random_.Below(4);
    while (some-- > 0 && target.posted < target.slots.size()) {
      const size_t index = target.posted++;
      target.srq.Post(index, {{host.region.va + target.slots[index],
                               slot_bytes_, host.region.lkey}});
    }
    done = done && target.posted == target.slots.size();
  }
  if (done) return;
  net_.At(net_.now() + 1 + random_.Below(300 * kMicrosecond), *host.node,
          [this] { RunTargets(); });
}

void DcRun::RunInitiator(Initiator& initiator) {
  TakeSends(initiator);
  for (uint64_t i = random_.Below(6);
       i > 0 && initiator.posted < initiator.messages.size(); --i) {
    PostSend(initiator);
  }
  if (initiator.posted >= initiator.reset_at) Reset(initiator);
  if (initiator.posted == initiator.messages.size()) return;
  Time pause = random_.Pick<Time>({0, 1, 20, 300}) * kMicrosecond;
  // Long enough for an eviction.
  if (crowded_ && random_.Percent(20)) pause = 5 * kSecond;
  net_.At(net_.now() + 1 + random_.Below(pause + 1), *initiator.host->node,
          [this, &initiator] { RunInitiator(initiator); });
}

void DcRun::PostSend(Initiator& initiator) {
  const size_t index = initiator.posted++;
  const Message& message = initiator.messages[index];
  const Host& local = *initiator.host;
  const Host& remote = hosts_[kTargetHost];
  if (message.takes_receive() || message.writes()) {
    std::copy(message.content.begin(), message.content.end(),
              local.buffer.get() + message.local);
  }
  const transport::Sge sge = {local.region.va + message.local, message.length(),
                              local.region.lkey};
  transport::AddressVector av;
  av.source = local.node->address();
  av.destination = remote.node->address();
  av.source_port = static_cast<uint16_t>(0xc000 + (initiator.qp->qpn() & 0xff));
  transport::SendRequest request;
  request.wr_id = index;
  request.opcode = message.opcode;
  request.flags = message.flags;
  request.sges = {&sge, 1};
  request.imm_be = message.imm_be;
  request.remote_addr = remote.region.va + message.remote;
  request.rkey = remote.region.rkey;
  request.ah = &av;
  request.remote_qpn = kFirstDct + static_cast<uint32_t>(message.target);
  request.dc_access_key = kKey;
  if (message.opcode == SendOpcode::kFetchAdd) {
    request.compare_add = message.operand;
  } else {
    request.compare_add = message.found;
    request.swap = message.operand;
  }
  const int error = initiator.qp->PostSend(request, net_.now());
  if (error != 0) {
    Fail(absl::StrCat("post_send ", index, ": ", std::strerror(error)));
  }
  net_.Touch(*initiator.host->node);
}

void DcRun::TakeSends(Initiator& initiator) {
  for (const Completion& completion : initiator.cq.TakeAll()) {
    const std::vector<Message>& messages = initiator.messages;
    if (completion.wr_id < initiator.completed) continue;  // before a reset
    size_t& next = initiator.completed;
    while (next < initiator.posted &&
           (messages[next].flags & transport::kSendSignaled) == 0) {
      ++next;
    }
    if (next == initiator.posted || completion.wr_id != next ||
        completion.status != WcStatus::kSuccess) {
      Fail(absl::StrCat("send ", completion.wr_id, " instead of ", next,
                        ": status ", static_cast<int>(completion.status)));
      return;
    }
    ++next;
  }
}

void DcRun::TakeReceives(size_t target) {
  for (const Completion& completion : targets_[target].cq.TakeAll()) {
    if (net_.undetected() != 0) continue;
    ++targets_[target].completed;
    // A receive that was in use by a connection that is gone.
    if (completion.status == WcStatus::kFlushed && resets_ != 0) continue;
    if (completion.qpn != targets_[target].qp->qpn() ||
        completion.status != WcStatus::kSuccess || !Match(target, completion)) {
      Fail(absl::StrCat("receive ", completion.wr_id, " of ",
                        completion.byte_len, " bytes, status ",
                        static_cast<int>(completion.status),
                        ", is not the next message of any initiator"));
    }
  }
}

// Messages of one initiator to one target arrive in posting order.
bool DcRun::Match(size_t target, const Completion& completion) {
  const Host& host = hosts_[kTargetHost];
  for (Initiator& initiator : initiators_) {
    for (size_t i = 0; i < initiator.posted; ++i) {
      Message& message = initiator.messages[i];
      if (message.target != target || !message.takes_receive() ||
          message.received) {
        continue;
      }
      const bool writes = message.writes();
      const uint64_t at =
          writes ? message.remote : targets_[target].slots[completion.wr_id];
      if (completion.opcode ==
              (writes ? WcOpcode::kReceiveRdmaWithImm : WcOpcode::kReceive) &&
          completion.byte_len == message.length() &&
          completion.imm_be_or_rkey == message.imm_be &&
          std::equal(message.content.begin(), message.content.end(),
                     host.buffer.get() + at)) {
        message.received = true;
        return true;
      }
      if (!message.abandoned) break;
    }
  }
  return false;
}

void DcRun::CheckEnd(const Initiator& initiator) {
  if (initiator.completed != initiator.messages.size()) {
    Fail(absl::StrCat("only ", initiator.completed, " of ",
                      initiator.messages.size(), " messages have completed"));
    return;
  }
  const uint8_t* const remote = hosts_[kTargetHost].buffer.get();
  const uint8_t* const local = initiator.host->buffer.get();
  for (size_t i = 0; i < initiator.messages.size(); ++i) {
    const Message& message = initiator.messages[i];
    if (message.abandoned) continue;
    const auto holds = [&message](const uint8_t* at) {
      return std::equal(message.content.begin(), message.content.end(), at);
    };
    if (message.takes_receive() && !message.received) {
      Fail(absl::StrCat("message ", i, " was not received"));
    }
    if (message.writes() && !holds(remote + message.remote)) {
      Fail(absl::StrCat("WRITE ", i, " is not there"));
    }
    if (message.opcode == SendOpcode::kRdmaRead &&
        !holds(local + message.local)) {
      Fail(absl::StrCat("READ ", i, " is not what was read"));
    }
    uint64_t found;
    std::memcpy(&found, local + message.local, sizeof(found));
    // An atomic that was abandoned may have been executed.
    if (message.atomic() && !initiator.was_reset && found != message.found) {
      Fail(absl::StrCat("atomic ", i, " has found ", found, " instead of ",
                        message.found));
    }
  }
}

void DcRun::Fail(const std::string& text) {
  checker_.Fail(absl::StrCat("at ", net_.now(), " ns: ", text));
}

}  // namespace sim
