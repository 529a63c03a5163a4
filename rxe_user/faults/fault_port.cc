#include "rxe_user/faults/fault_port.h"

#include <sys/timerfd.h>
#include <time.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/errno_status.h"
#include "rxe_user/base/high_fd.h"
#include "rxe_user/observe/recorder.h"
#include "transport/base/rare_event.h"
#include "wire/bytes.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace rxe_user {
namespace {

using transport::Burst;
using transport::Direction;
using transport::Flow;
using transport::GroBatch;
using transport::kNever;
using transport::ObservedFault;
using transport::ObservedPacket;
using transport::Time;
using transport::faults::Action;
using transport::faults::Fate;

constexpr uint8_t kCongestionExperienced = 3;  // ECN field
constexpr size_t kBurstBytes = 65536;
// Every kernel with segmentation accepts this many segments.
constexpr int kBurstSegments = 64;

// Whether the packet is lost. The packet that takes the link down is lost, too.
bool Drops(const Fate& fate) {
  return fate.rule->action == Action::kDrop ||
         fate.rule->action == Action::kLink || fate.is_consequence;
}

ObservedFault FaultOf(const Fate& fate) {
  return {.rule = fate.rule->number,
          .action = static_cast<uint8_t>(fate.rule->action),
          .dropped = Drops(fate),
          .is_consequence = fate.is_consequence,
          .delay = fate.delay,
          .text = fate.rule->text};
}

// Applies kCorrupt. The ICRC was right for IP identification 0, or was wrong
// before.
void Corrupt(const Fate& fate, const wire::IcrcFlow& flow,
             std::vector<uint8_t>* bytes) {
  assert(fate.flipped.offset < bytes->size());
  (*bytes)[fate.flipped.offset] ^= fate.flipped.mask;
  if (fate.rule->corruption.resealed) flow.Store(*bytes, 0);
}

// The last four bytes; 0 if there are fewer.
uint32_t StoredIcrc(std::span<const uint8_t> bytes) {
  return bytes.size() < wire::kIcrcSize
             ? 0
             : wire::LoadLe32(bytes.last(wire::kIcrcSize).data());
}

// Packet `index` of the batch.
std::span<const uint8_t> PacketOf(const GroBatch& batch, size_t index) {
  const size_t at = index * batch.segment_size;
  return batch.bytes.subspan(
      at, std::min(batch.segment_size, batch.bytes.size() - at));
}

wire::IcrcFlow IcrcOf(const GroBatch& batch) {
  return wire::IcrcFlow(batch.source, batch.destination, batch.source_port,
                        wire::kRoceUdpPort);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Port>> FaultPort::Create(
    std::unique_ptr<Port> inner, ProcessFaults* faults) {
  return Create(std::move(inner), faults, &MonotonicNs);
}

absl::StatusOr<std::unique_ptr<Port>> FaultPort::Create(
    std::unique_ptr<Port> inner, ProcessFaults* faults, Clock clock) {
  auto port = std::unique_ptr<FaultPort>(
      new FaultPort(std::move(inner), faults, clock));
  port->timer_ = UniqueFd(
      MoveHigh(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)));
  if (!port->timer_.valid()) return ErrnoStatus(errno, "timerfd_create");
  return port;
}

FaultPort::FaultPort(std::unique_ptr<Port> inner, ProcessFaults* faults,
                     Clock clock)
    : inner_(std::move(inner)),
      faults_(*faults),
      clock_(clock),
      buffer_(kBurstBytes) {}

FaultPort::~FaultPort() {
  const auto send = [this](const LonePacket& packet) {
    if (packet.is_transmitted()) (void)TrySendAlone(packet);
  };
  for (const LonePacket& packet : pending_) send(packet);
  for (const LonePacket& packet : stalled_) send(packet);
  for (const auto& [due, packet] : delayed_) send(packet);
  for (const LonePacket& packet : behind_) send(packet);
  inner_->Flush();
}

size_t FaultPort::CloseUnusedSenders(const ForEachUsed& for_each_used) {
  return inner_->CloseUnusedSenders([&](const auto& visit) {
    for_each_used(visit);
    const auto use = [&](const LonePacket& packet) {
      if (packet.flow) visit(packet.flow->av);
    };
    for (const auto& [due, packet] : delayed_) use(packet);
    for (const LonePacket& packet : behind_) use(packet);
    for (const LonePacket& packet : stalled_) use(packet);
    for (const LonePacket& packet : pending_) use(packet);
  });
}

std::vector<int> FaultPort::ReceiveDescriptors() const {
  std::vector<int> descriptors = inner_->ReceiveDescriptors();
  if (timer_.valid()) descriptors.push_back(timer_.get());
  return descriptors;
}

void FaultPort::AbandonInChild() {
  timer_.Reset();
  pending_.clear();
  delayed_.clear();
  behind_.clear();
  stalled_.clear();
  inner_->AbandonInChild();
}

transport::PacketObserver* FaultPort::Watch(transport::PacketObserver* observer,
                                            Recorder* recorder) {
  observer_ = inner_->Watch(observer, recorder);
  recorder_ = recorder;
  return this;
}

void FaultPort::OnPacket(const ObservedPacket& packet) {
  // Called before Queue, which decides about the packet.
  if (packet.direction == Direction::kTransmitted) {
    faults_.OnSent(packet.qpn, packet.bytes);
  }
  if (packet.direction == Direction::kTransmitted && transmits_) {
    // The packet is shown when it leaves.
    sent_ = packet;
    sent_.bytes = {};
    sent_qpns_.push_back(packet.qpn);
    return;
  }
  if (observer_ == nullptr) return;
  if (packet.direction == Direction::kReceived) {
    const auto found = delivered_.find(packet.bytes.data());
    if (found != delivered_.end()) return ShowDelivered(packet, found->second);
  }
  observer_->OnPacket(packet);
}

Fate FaultPort::Decide(bool transmitted, uint32_t qpn,
                       std::span<const uint8_t> bytes,
                       const wire::IpAddress& peer, wire::PacketView* packet,
                       Time now) {
  // Data that is not a valid packet passes; the endpoint drops it.
  if (wire::PacketView::Parse(bytes, packet) != wire::ParseError::kOk) {
    return {};
  }
  if (!transmitted) qpn = packet->bth().dest_qpn;
  // A DC target receives by the numbers of its connections, which rules do not
  // know.
  if (packet->info().Has(wire::kDcEth) &&
      packet->dceth().from_initiator != transmitted) {
    qpn = packet->dceth().dct;
  }
  const Fate fate = faults_.Decide(
      {.transmitted = transmitted, .qpn = qpn, .packet = packet, .peer = peer},
      now);
  // Packets that are lost while the link is down are noted, too: they may fail
  // a queue pair that no rule has hit.
  if (fate.rule != nullptr &&
      (!fate.is_consequence || fate.rule->action == Action::kLink)) {
    Note(fate, qpn, packet->bth().psn, now);
  }
  return fate;
}

void FaultPort::Note(const Fate& fate, uint32_t qpn, uint32_t psn, Time now) {
  if (recorder_ == nullptr) return;
  recorder_->Add({.time = now,
                  .qpn = qpn,
                  .kind = transport::RareEventKind::kFault,
                  .value = static_cast<uint16_t>(fate.rule->number),
                  .psn = psn});
}

// --- Receive.

std::span<const GroBatch> FaultPort::Receive(bool thorough) {
  out_.clear();
  copies_.clear();
  delivered_.clear();
  const bool held = holds_some();
  const bool receives = faults_.concerns_received();
  if (!receives && !held) return inner_->Receive(thorough);
  const Time now = clock_();
  CheckStall(now);
  if (held) {
    EndStall(now);
    ReleaseDue(now);
  }
  for (const GroBatch& batch : inner_->Receive(thorough)) {
    if (receives || is_stalled_ || !behind_.empty()) {
      Filter(batch, now);
    } else {
      out_.push_back(batch);
    }
  }
  SetTimer();
  if (held) inner_->Flush();
  return out_;
}

bool FaultPort::DecideAll(const GroBatch& batch, Time now) {
  fates_.clear();
  packets_.clear();
  bool is_hit = false;
  do {  // once for an empty datagram, too
    const auto bytes = PacketOf(batch, fates_.size());
    packets_.emplace_back();
    fates_.push_back(
        Decide(false, 0, bytes, batch.source, &packets_.back(), now));
    is_hit |= fates_.back().rule != nullptr;
  } while (fates_.size() * batch.segment_size < batch.bytes.size());
  return is_hit;
}

void FaultPort::Filter(const GroBatch& batch, Time now) {
  const bool holds_back = !behind_.empty() || is_stalled_;
  if (!DecideAll(batch, now) && !holds_back) {
    out_.push_back(batch);
    return;
  }
  const wire::IcrcFlow icrc = IcrcOf(batch);
  PlainPackets plain;
  for (size_t i = 0; i < fates_.size(); ++i) {
    const std::span<const uint8_t> bytes = PacketOf(batch, i);
    const Fate& fate = fates_[i];
    const auto index = static_cast<uint16_t>(i);
    // Gives the packet the ICRC of its new place. An ICRC that does not match
    // its old place stays: other devices count IP identifications, and the
    // endpoint finds that out.
    const auto seal = [&](std::span<uint8_t> packet, uint16_t place) {
      if (place != index && icrc.Verify(packet, index)) {
        icrc.Store(packet, place);
      }
    };
    const wire::PacketView& packet = packets_[i];
    const auto alone_with = [&](std::optional<ObservedFault> fault) {
      LonePacket alone;
      alone.bytes.assign(bytes.begin(), bytes.end());
      seal(alone.bytes, 0);
      alone.qpn = packet.bth().dest_qpn;
      alone.arrival = batch;
      alone.shown.icrc = StoredIcrc(bytes);
      alone.shown.fault = std::move(fault);
      return alone;
    };
    const bool arrives_plain =
        fate.rule == nullptr || fate.rule->action == Action::kDuplicate;
    if (arrives_plain && is_stalled_) {
      DeliverPlain(batch, &plain);
      HoldForStall(alone_with(std::nullopt));
    } else if (arrives_plain) {
      const size_t at = plain.bytes.size();
      plain.bytes.insert(plain.bytes.end(), bytes.begin(), bytes.end());
      seal(std::span(plain.bytes).subspan(at),
           static_cast<uint16_t>(plain.icrcs.size()));
      plain.icrcs.push_back(StoredIcrc(bytes));
    }
    if (fate.rule != nullptr) {
      DeliverPlain(batch, &plain);
      const ObservedFault fault = FaultOf(fate);
      LonePacket alone = alone_with(fault);
      switch (fate.rule->action) {
        case Action::kDrop:
        case Action::kLink:
          if (observer_ != nullptr) {
            observer_->OnPacket(Arrived(batch, bytes, fault, now));
          }
          continue;
        case Action::kDelay:
        case Action::kReorder:
          if (observer_ != nullptr) {
            alone.shown.fault->held =
                observer_->OnHeld(Arrived(batch, bytes, fault, now));
          }
          Hold(std::move(alone), fate, now);
          continue;
        case Action::kCorrupt:
          Corrupt(fate, icrc, &alone.bytes);
          alone.shown.flipped = fate.flipped;
          break;
        case Action::kMark:
          alone.arrival.traffic_class |= kCongestionExperienced;
          break;
        case Action::kStall:
          CheckStall(now);
          break;
        case Action::kDuplicate:
        // The responder, or its response, is hit, not this packet.
        case Action::kNoAck:
        case Action::kRnr:
        case Action::kNak:
        case Action::kEvent:
        // These actions hit no packet.
        case Action::kUnmap:
        case Action::kFail:
        case Action::kComplete:
        case Action::kOverrun:
        case Action::kLateCompletion:
          break;
      }
      Deliver(std::move(alone));
    }
    if (!behind_.empty()) {
      DeliverPlain(batch, &plain);
      Overtake(false, packet.bth().dest_qpn);
    }
  }
  DeliverPlain(batch, &plain);
}

void FaultPort::DeliverPlain(const GroBatch& batch, PlainPackets* plain) {
  if (plain->icrcs.empty()) return;
  copies_.push_back(std::move(plain->bytes));
  GroBatch part = batch;
  part.bytes = copies_.back();
  out_.push_back(part);
  std::span<uint8_t> rest = copies_.back();
  for (const uint32_t icrc : plain->icrcs) {
    const std::span<uint8_t> packet =
        rest.first(std::min(rest.size(), batch.segment_size));
    rest = rest.subspan(packet.size());
    Delivered& whole = delivered_[packet.data()];
    whole.bytes = packet;
    whole.icrc = icrc;
  }
  *plain = PlainPackets();
}

void FaultPort::Deliver(LonePacket packet) {
  if (is_stalled_) return HoldForStall(std::move(packet));
  copies_.push_back(std::move(packet.bytes));
  packet.shown.bytes = copies_.back();
  delivered_[copies_.back().data()] = packet.shown;
  packet.arrival.bytes = copies_.back();
  packet.arrival.segment_size = std::max<size_t>(copies_.back().size(), 1);
  out_.push_back(packet.arrival);
}

// Makes `bytes` those that arrived.
void FaultPort::Restore(const Delivered& shown, std::span<uint8_t> bytes) {
  if (bytes.size() >= wire::kIcrcSize) {
    wire::StoreIcrc(bytes.last(wire::kIcrcSize).data(), shown.icrc);
  }
  const transport::faults::PacketBit& flipped = shown.flipped;
  if (flipped.mask != 0 && flipped.offset + wire::kIcrcSize < bytes.size()) {
    bytes[flipped.offset] ^= flipped.mask;
  }
}

// The endpoint has processed the packet: the copy is not needed any more.
void FaultPort::ShowDelivered(const ObservedPacket& packet,
                              const Delivered& delivered) {
  Restore(delivered, delivered.bytes);
  ObservedPacket shown = packet;
  if (delivered.fault) shown.fault = &*delivered.fault;
  observer_->OnPacket(shown);
}

ObservedPacket FaultPort::Arrived(const GroBatch& batch,
                                  std::span<const uint8_t> bytes,
                                  const ObservedFault& fault, Time now) {
  return {.direction = Direction::kReceived,
          .time = now,
          .bytes = bytes,
          .source = batch.source,
          .destination = batch.destination,
          .source_port = batch.source_port,
          .traffic_class = batch.traffic_class,
          .hop_limit = batch.hop_limit,
          .fault = &fault};
}

// --- Transmit.

Burst* FaultPort::Begin(const Flow& flow) {
  transmits_ =
      faults_.concerns_transmitted() || holds_some() || !pending_.empty();
  if (!transmits_) return inner_->Begin(flow);
  if (!pending_.empty()) return nullptr;
  const Burst* const inner = inner_->Begin(flow);
  if (inner == nullptr) return nullptr;
  sent_qpns_.clear();
  burst_.emplace(std::span<uint8_t>(buffer_), kBurstSegments);
  burst_->Begin(&flow);
  burst_->set_hop_mark(inner->hop_mark());
  return &*burst_;
}

void FaultPort::Queue() {
  if (!transmits_) return inner_->Queue();
  inner_burst_ = nullptr;
  const Time now = clock_();
  CheckStall(now);
  const Flow& flow = *burst_->flow();
  std::span<const uint8_t> rest = burst_->bytes();
  for (size_t index = 0; !rest.empty(); ++index) {
    const std::span<const uint8_t> bytes =
        rest.first(std::min(rest.size(), burst_->segment_size()));
    rest = rest.subspan(bytes.size());
    // A burst may have packets of two queue pairs of DC or XRC.
    if (index < sent_qpns_.size()) sent_.qpn = sent_qpns_[index];
    wire::PacketView packet;
    const Fate fate =
        Decide(true, sent_.qpn, bytes, flow.av.destination, &packet, now);
    if (fate.rule == nullptr) {
      SendPlain(bytes);
    } else {
      EndInnerBurst();
      const ObservedFault fault = FaultOf(fate);
      LonePacket alone;
      alone.bytes.assign(bytes.begin(), bytes.end());
      flow.icrc.Store(alone.bytes, 0);
      alone.qpn = sent_.qpn;
      alone.flow = flow;
      alone.hop_mark = burst_->hop_mark();
      if (fate.rule->action == Action::kCorrupt) {
        Corrupt(fate, flow.icrc, &alone.bytes);
      } else if (fate.rule->action == Action::kMark) {
        alone.flow->av.traffic_class |= kCongestionExperienced;
      }
      ShowSent(alone.bytes, 0, alone.flow->av.traffic_class, &fault);
      if (Drops(fate)) continue;
      if (fate.rule->action == Action::kDelay ||
          fate.rule->action == Action::kReorder) {
        Hold(std::move(alone), fate, now);
        continue;
      }
      if (fate.rule->action == Action::kStall) CheckStall(now);
      if (fate.rule->action == Action::kDuplicate) SendAlone(alone);
      SendAlone(std::move(alone));
    }
    if (!behind_.empty()) {
      EndInnerBurst();
      Overtake(true, sent_.qpn);
    }
  }
  EndInnerBurst();
  SetTimer();
}

void FaultPort::SendPlain(std::span<const uint8_t> bytes) {
  for (int attempt = 0; pending_.empty() && !is_stalled_ && attempt < 2;
       ++attempt) {
    if (inner_burst_ == nullptr) inner_burst_ = inner_->Begin(*burst_->flow());
    if (inner_burst_ == nullptr) break;
    inner_burst_->set_hop_mark(burst_->hop_mark());
    if (uint8_t* const out = inner_burst_->Reserve(bytes.size())) {
      const auto index = static_cast<uint16_t>(inner_burst_->segments());
      std::memcpy(out, bytes.data(), bytes.size() - wire::kIcrcSize);
      inner_burst_->Commit();
      return ShowSent({out, bytes.size()}, index, sent_.traffic_class, nullptr);
    }
    EndInnerBurst();
  }
  LonePacket alone;
  alone.bytes.assign(bytes.begin(), bytes.end());
  alone.flow = *burst_->flow();
  alone.hop_mark = burst_->hop_mark();
  alone.flow->icrc.Store(alone.bytes, 0);
  ShowSent(alone.bytes, 0, sent_.traffic_class, nullptr);
  SendAlone(std::move(alone));
}

void FaultPort::EndInnerBurst() {
  if (inner_burst_ != nullptr && !inner_burst_->empty()) inner_->Queue();
  inner_burst_ = nullptr;
}

void FaultPort::SendAlone(LonePacket packet) {
  if (is_stalled_) return HoldForStall(std::move(packet));
  if (pending_.empty() && TrySendAlone(packet)) return;
  pending_.push_back(std::move(packet));
}

// The packet's ICRC stays as it is, right or wrong.
bool FaultPort::TrySendAlone(const LonePacket& packet) {
  Burst* const burst = inner_->Begin(*packet.flow);
  if (burst == nullptr) return false;
  burst->set_hop_mark(packet.hop_mark);  // the packet was shown with this mark
  uint8_t* const out = burst->Reserve(packet.bytes.size());
  assert(out != nullptr);
  std::memcpy(out, packet.bytes.data(), packet.bytes.size());
  burst->Commit(wire::LoadLe32(packet.bytes.data() + packet.bytes.size() -
                               wire::kIcrcSize));
  inner_->Queue();
  return true;
}

void FaultPort::SendPending() {
  while (!pending_.empty() && TrySendAlone(pending_.front())) {
    pending_.pop_front();
  }
}

void FaultPort::Flush() {
  inner_->Flush();
  if (pending_.empty()) return;
  CheckStall(clock_());
  SetTimer();
  SendPending();
  inner_->Flush();
}

void FaultPort::ShowSent(std::span<const uint8_t> bytes, uint16_t index,
                         uint8_t traffic_class, const ObservedFault* fault) {
  if (observer_ == nullptr) return;
  ObservedPacket shown = sent_;
  shown.bytes = bytes;
  shown.segment_index = index;
  shown.traffic_class = traffic_class;
  shown.fault = fault;
  observer_->OnPacket(shown);
}

// --- Held packets.

bool FaultPort::HasRoom(size_t bytes, const transport::faults::Rule& rule) {
  if (delayed_.size() + behind_.size() + stalled_.size() < kMaxHeld &&
      bytes <= kMaxHeldBytes - held_bytes_) {
    return true;
  }
  faults_.CountNoRoom(rule);
  return false;
}

void FaultPort::Hold(LonePacket packet, const Fate& fate, Time now) {
  const size_t bytes = packet.bytes.size();
  if (!HasRoom(bytes, *fate.rule)) return;
  if (fate.rule->action == Action::kReorder) {
    packet.behind = fate.rule->behind;
    packet.latest = now + kReorderWait;
    behind_.push_back(std::move(packet));
  } else {
    delayed_.emplace(now + fate.delay, std::move(packet));
  }
  held_bytes_ += bytes;
}

void FaultPort::Leave(LonePacket packet) {
  held_bytes_ -= packet.bytes.size();
  if (faults_.link_is_down(clock_())) return ShowLost(packet);
  if (packet.is_transmitted()) {
    SendAlone(std::move(packet));
  } else {
    Deliver(std::move(packet));
  }
}

void FaultPort::ShowLost(const LonePacket& packet) {
  if (observer_ == nullptr || packet.is_transmitted()) return;
  std::optional<ObservedFault> fault = packet.shown.fault;
  if (!fault) {
    const FaultLink link = faults_.link();
    if (link.rule == nullptr) return;
    Fate lost;
    lost.rule = link.rule;
    lost.is_consequence = true;
    fault = FaultOf(lost);
  }
  fault->dropped = true;
  std::vector<uint8_t> bytes = packet.bytes;
  Restore(packet.shown, bytes);
  observer_->OnPacket(Arrived(packet.arrival, bytes, *fault, clock_()));
}

void FaultPort::CheckStall(Time now) {
  stall_ = faults_.stall();
  is_stalled_ = now < stall_.until || !stalled_.empty();
  if (!is_stalled_ || now >= stall_.until) return;
  for (; !pending_.empty(); pending_.pop_back()) {
    LonePacket& packet = pending_.back();
    if (!HasRoom(packet.bytes.size(), *stall_.rule)) continue;
    held_bytes_ += packet.bytes.size();
    stalled_.push_front(std::move(packet));
  }
}

void FaultPort::HoldForStall(LonePacket packet) {
  if (!HasRoom(packet.bytes.size(), *stall_.rule)) return;
  held_bytes_ += packet.bytes.size();
  stalled_.push_back(std::move(packet));
}

void FaultPort::EndStall(Time now) {
  if (now < stall_.until) return;
  is_stalled_ = false;
  for (LonePacket& packet : std::exchange(stalled_, {})) {
    Leave(std::move(packet));
  }
}

template <typename Leaves>
void FaultPort::LeaveBehind(Leaves&& leaves) {
  for (auto at = behind_.begin(); at != behind_.end();) {
    if (!leaves(*at)) {
      ++at;
      continue;
    }
    LonePacket packet = std::move(*at);
    at = behind_.erase(at);
    Leave(std::move(packet));
  }
}

void FaultPort::Overtake(bool transmitted, uint32_t qpn) {
  LeaveBehind([&](LonePacket& packet) {
    return packet.is_transmitted() == transmitted && packet.qpn == qpn &&
           --packet.behind == 0;
  });
}

void FaultPort::ReleaseDue(Time now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    LonePacket packet = std::move(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    Leave(std::move(packet));
  }
  LeaveBehind([&](const LonePacket& packet) { return packet.latest <= now; });
}

void FaultPort::SetTimer() {
  Time next = delayed_.empty() ? kNever : delayed_.begin()->first;
  for (const LonePacket& packet : behind_) next = std::min(next, packet.latest);
  // The end of a stall that was removed is 0, which would disarm the timer.
  if (!stalled_.empty()) {
    next = std::min(next, std::max<Time>(stall_.until, 1));
  }
  if (next == timer_at_ || !timer_.valid()) return;
  timer_at_ = next;
  itimerspec when{};
  if (next != kNever) {
    when.it_value.tv_sec = next / transport::kSecond;
    when.it_value.tv_nsec = next % transport::kSecond;
  }
  // Cannot fail, since the descriptor and the times are valid. An expiration
  // that was not read is forgotten, so the descriptor stops being readable.
  (void)::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace rxe_user
