#include "transport/sim/dc_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace sim {

using transport::Completion;
using transport::kMicrosecond;
using transport::kSecond;
using transport::QpType;
using transport::WcStatus;

namespace {

constexpr uint32_t kFirstDct = 0x0c0000;
constexpr uint32_t kFirstDci = 0x0d0000;
constexpr uint64_t kKey = 0x5eed;

}  // namespace

DcRun::DcRun(uint64_t seed) : ServiceRun(seed, false) {
  DrawMaxLength(40'000);
  crowded_ = random_.Percent(30);
  plenty_ = random_.Percent(60);
  network_.strangers = true;
  const int initiators = random_.Between(2, 8);
  for (int i = 0; i < kHosts; ++i) {
    Host& host = hosts_[i];
    host.node = &AddHost();
    host.random = sim::Random(Mix(seed + static_cast<uint64_t>(i) + 77));
    host.connections = std::make_unique<transport::DcConnections>(
        host.node->endpoint(), host,
        crowded_ ? static_cast<size_t>(initiators + 1) / 2
                 : transport::DcConnections::kMax);
  }
  for (int64_t i = random_.Between(1, 3); i > 0; --i) {
    targets_.emplace_back(&there().pool);
  }
  for (int i = 0; i < initiators; ++i) {
    Initiator& initiator = initiators_.emplace_back();
    initiator.host = &hosts_[i % 2 == 0 ? 0 : 2];
    initiator.node = initiator.host->node;
    MakeMessages(initiator);
  }
  if (random_.Percent(25)) {
    Initiator& one = initiators_[random_.Below(initiators_.size())];
    one.reset_at = 1 + random_.Below(one.messages.size());
  }
  for (Host& host : hosts_) {
    host.pool.Register(
        *host.node,
        0x700000000000 + (static_cast<uint64_t>(host.node->index()) << 36));
    std::fill_n(host.pool.buffer.get(), host.pool.bytes, 0);
  }
  MakeQueuePairs();
}

DcRun::~DcRun() {
  for (Target& target : targets_) target.qp.reset();
}

void DcRun::MakeMessages(Initiator& initiator) {
  Pool& local = initiator.host->pool;
  Pool& remote = there().pool;
  const int count = random_.Between(5, max_length_ > 20'000 ? 15 : 40);
  const uint64_t counter = remote.Reserve(kAtomicBytes);
  uint64_t value = 0;
  size_t target = 0;
  const uint32_t change = random_.Pick<uint32_t>({5, 30, 100});
  for (int i = 0; i < count; ++i) {
    Message message;
    if (random_.Percent(change)) target = random_.Below(targets_.size());
    message.to = static_cast<int>(target);
    message.opcode = DrawReliableOpcode();
    DrawReliable(message, &value, /*solicited=*/false);
    const uint32_t length = message.length();
    message.local = {&local, local.Reserve(length)};
    message.remote = {&remote,
                      message.atomic() ? counter : remote.Reserve(length)};
    if (message.takes_receive()) {
      targets_[target].srq.slots.push_back(
          {&remote, remote.Reserve(slot_bytes_)});
    }
    initiator.messages.push_back(std::move(message));
  }
  initiator.messages.back().flags |= transport::kSendSignaled;
}

void DcRun::MakeQueuePairs() {
  uint32_t qpn = kFirstDct;
  for (Target& target : targets_) {
    transport::QpConfig config =
        Config(QpType::kDct, qpn++, *there().node, &target.cq, &target.cq);
    config.capacity = {};
    config.srq = &target.srq.queue;
    target.qp = transport::MakeQueuePair(
        there().node->endpoint(), config, 0, {},
        {.connections = there().connections.get(), .access_key = kKey});
    BringUp(*target.qp);
  }
  qpn = kFirstDci;
  for (Initiator& initiator : initiators_) {
    PlaceReads(initiator);
    initiator.qp = transport::MakeQueuePair(
        initiator.node->endpoint(),
        Config(QpType::kDci, qpn++, *initiator.node, &initiator.send_cq,
               &initiator.send_cq),
        0, {}, {.connections = initiator.host->connections.get()});
    BringUp(*initiator.qp);
    initiator.av.source = initiator.node->address();
    initiator.av.destination = there().node->address();
    initiator.av.source_port =
        static_cast<uint16_t>(0xc000 + (initiator.qp->qpn() & 0xff));
  }
}

void DcRun::BringUp(transport::QueuePair& qp) {
  transport::QpAttributes to =
      Attributes(0, wire::IpAddress(), wire::IpAddress());
  // Where connections are scarce, a CONNECT may wait for seconds.
  if (crowded_) to.timeout = 0;
  ServiceRun::BringUp(qp, to);
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
  if (initiator.qp->Modify(reset, transport::kQpState, network_.now()) != 0) {
    Fail("an initiator could not be reset");
  }
  BringUp(*initiator.qp);
  network_.Touch(*initiator.node);
}

void DcRun::Play() {
  network_.At(0, *there().node, [this] { RunTargets(); });
  for (Initiator& initiator : initiators_) {
    network_.At(0, *initiator.node,
                [this, &initiator] { RunInitiator(initiator); });
  }
  if (!network_.RunUntilIdle(600 * kSecond)) Fail("still busy");
  for (Target& target : targets_) TakeReceives(target);
  if (network_.undetected() != 0) return;
  for (Initiator& initiator : initiators_) {
    TakeSends(initiator);
    // An atomic that was abandoned may have been executed.
    CheckEffects(initiator, /*atomics=*/!initiator.was_reset);
  }
}

void DcRun::Count(Statistics* statistics) {
  Statistics& sum = *statistics;
  sum["resets"] = resets_;
  sum["connects"] = there().node->endpoint().counters().dc_connects;
  sum["evicted"] = there().node->endpoint().counters().dc_evicted;
  for (const Initiator& initiator : initiators_) {
    sum["messages"] += initiator.messages.size();
    sum["not ready"] += initiator.qp->counters().rnr_naks_received;
  }
}

// --- The applications.

void DcRun::RunTargets() {
  bool done = true;
  for (Target& target : targets_) {
    TakeReceives(target);
    done &= PostReceives(target.srq, plenty_);
  }
  if (done) return;
  RunAgain(*there().node, 300 * kMicrosecond - 1, [this] { RunTargets(); });
}

void DcRun::RunInitiator(Initiator& initiator) {
  TakeSends(initiator);
  PostSends(initiator, initiator.messages.size());
  if (initiator.posted >= initiator.reset_at) Reset(initiator);
  if (initiator.posted == initiator.messages.size()) return;
  Time pause = DrawPause();
  // Long enough for an eviction.
  if (crowded_ && random_.Percent(20)) pause = 5 * kSecond;
  RunAgain(*initiator.node, pause,
           [this, &initiator] { RunInitiator(initiator); });
}

void DcRun::Address(Sender& sender, const Message& message,
                    transport::SendRequest* request) {
  request->ah = &static_cast<Initiator&>(sender).av;
  request->remote_qpn = kFirstDct + static_cast<uint32_t>(message.to);
  request->dc_access_key = kKey;
}

// Completions from before a reset.
bool DcRun::TakesOutOfOrder(Sender& sender, const Completion& completion) {
  return completion.wr_id < sender.completed;
}

void DcRun::TakeReceives(Target& target) {
  for (const Completion& completion : target.cq.TakeAll()) {
    if (network_.undetected() != 0) continue;
    // A receive that was in use by a connection that is gone.
    if (completion.status == WcStatus::kFlushed && resets_ != 0) continue;
    if (completion.qpn != target.qp->qpn() || !IsNext(target, completion)) {
      Fail(absl::StrCat("receive ", completion.wr_id, " of ",
                        completion.byte_len, " bytes, status ",
                        static_cast<int>(completion.status),
                        ", is not the next message of any initiator"));
    }
  }
}

// Checks that messages of one initiator to one target arrive in posting order.
bool DcRun::IsNext(const Target& target, const Completion& completion) {
  for (Initiator& initiator : initiators_) {
    for (size_t i = 0; i < initiator.posted; ++i) {
      Message& message = initiator.messages[i];
      if (&targets_[static_cast<size_t>(message.to)] != &target ||
          !message.takes_receive() || message.arrived != 0) {
        continue;
      }
      const Place& at = message.writes() ? message.remote
                                         : target.srq.slots[completion.wr_id];
      if (Matches(message, completion, at.bytes())) {
        ++message.arrived;
        return true;
      }
      if (!message.abandoned) break;
    }
  }
  return false;
}

}  // namespace sim
