#include "transport/endpoint/endpoint.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "transport/congestion/path.h"
#include "transport/endpoint/endpoint_impl.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/endpoint/packet_observer.h"
#include "wire/bytes.h"
#include "wire/packet.h"

namespace transport {
namespace {

// After a receive overflow, queue pairs that received data within this time are
// notified.
constexpr Time kRecentlyReceived = kMillisecond;
constexpr uint8_t kCongestionExperienced = 3;  // ECN field
// The longest ACK: that of DC.
constexpr size_t kLongestAcknowledge =
    wire::kAcknowledgeSize + wire::kDcEthSize;
// A peer steers a burst as a whole by these bits of its first packet's queue
// pair number (docs/design/broker.md).
constexpr int kSteeringShift = 12;

Disposition DispositionOf(wire::ParseError error) {
  switch (error) {
    case wire::ParseError::kOk:
      return Disposition::kDelivered;
    case wire::ParseError::kTooShort:
      return Disposition::kTooShort;
    case wire::ParseError::kUnknownOpcode:
      return Disposition::kUnknownOpcode;
    case wire::ParseError::kBadLength:
      return Disposition::kBadLength;
    case wire::ParseError::kBadSyndrome:
      return Disposition::kBadSyndrome;
    case wire::ParseError::kBadVersion:
    case wire::ParseError::kBadPad:
      break;
  }
  return Disposition::kBadHeader;
}

}  // namespace

Endpoint::Endpoint() : impl_(std::make_unique<Impl>()) {}
Endpoint::~Endpoint() = default;

// --- Inputs.

namespace {

// Not inline: rare, and it would slow down good packets.
[[gnu::noinline]] bool AcceptUnordered(EndpointQp* qp,
                                       const wire::PacketView& packet) {
  return qp->WouldTake(packet) && qp->link().peer_icrc.AcceptUnordered();
}

// Whether `packets`, of `size` bytes each, contain a response.
bool HasResponse(std::span<const uint8_t> packets, size_t size) {
  for (size_t at = 0; at < packets.size(); at += size) {
    if (wire::GetOpcodeInfo(packets[at]).is_response) return true;
  }
  return false;
}

}  // namespace

Disposition Endpoint::Drop(Disposition why) {
  ++counters_.dropped[static_cast<size_t>(why)];
  return why;
}

void Endpoint::OnGroBatch(const GroBatch& batch, Time now, StraySink* strays) {
  if (batch.has_icrc) [[likely]] {
    TakeBatch<true>(batch, now, strays);
  } else {
    TakeBatch<false>(batch, now, nullptr);
  }
}

template <bool kHasIcrc>
void Endpoint::TakeBatch(const GroBatch& batch, Time now, StraySink* strays) {
  counters_.rx_bytes += batch.bytes.size();
  Datagram datagram;
  datagram.source = batch.source;
  datagram.destination = batch.destination;
  datagram.source_port = batch.source_port;
  datagram.traffic_class = batch.traffic_class;
  datagram.hop_limit = batch.hop_limit;
  const auto take = [&](size_t index, std::span<const uint8_t> bytes) {
    ++counters_.rx_datagrams;
    datagram.segment_index = static_cast<uint16_t>(index);
    datagram.bytes = bytes;
    const Disposition disposition = Take<kHasIcrc>(datagram, now, strays);
    if (observer_ != nullptr) ShowReceived(datagram, disposition, now);
  };
  std::span<const uint8_t> rest = batch.bytes;
  if (rest.size() > batch.segment_size) {
    const size_t last = (rest.size() - 1) / batch.segment_size;
    const size_t before = last * batch.segment_size;
    // An ACK is the last packet because it is shorter, but was due before the
    // requests in its GRO batch. Processed first, it lets a ping-pong program
    // see its own completion first. Responses before it keep their order
    // (9.7.5.1).
    if (wire::OperationOf(rest[before]) == wire::Operation::kAcknowledge &&
        !HasResponse(rest.first(before), batch.segment_size)) {
      take(last, rest.subspan(before));
      rest = rest.first(before);
    }
  }
  size_t index = 0;
  do {  // runs once for an empty datagram too
    const size_t bytes = std::min(rest.size(), batch.segment_size);
    take(index++, rest.first(bytes));
    rest = rest.subspan(bytes);
  } while (!rest.empty());
  FinishUpdate(now);
}

Disposition Endpoint::OnDatagram(const Datagram& datagram, Time now) {
  ++counters_.rx_datagrams;
  counters_.rx_bytes += datagram.bytes.size();
  const Disposition disposition = Take<true>(datagram, now, nullptr);
  if (observer_ != nullptr) ShowReceived(datagram, disposition, now);
  FinishUpdate(now);
  return disposition;
}

void Endpoint::FinishUpdate(Time now) {
  EndpointQp* const qp = std::exchange(impl_->to_update, nullptr);
  if (qp != nullptr) Update(qp, now);
}

template <bool kHasIcrc>
inline Disposition Endpoint::Take(const Datagram& datagram, Time now,
                                  StraySink* strays) {
  wire::PacketView packet;
  const wire::ParseError error =
      wire::PacketView::Parse(datagram.bytes, &packet);
  if (error != wire::ParseError::kOk) return Drop(DispositionOf(error));
  // Looked up before the ICRC check, which needs the peer's last IP ID.
  EndpointQp* const qp = Find(packet.dest_qpn());
  const Flow* const flow = qp != nullptr ? qp->link().flow : nullptr;
  Origin origin = Origin::kElsewhere;
  bool good = true;
  if (flow == nullptr || datagram.source != flow->av.destination ||
      datagram.destination != flow->av.source) {
    if (kHasIcrc) good = PeerIcrc::VerifyUnknown(datagram);
  } else if (PeerIcrc& icrc = qp->link().peer_icrc;
             icrc.Knows(datagram.source_port)) {
    origin = Origin::kPeerPort;
    if (kHasIcrc) good = icrc.Verify(datagram, now);
  } else {
    origin = Origin::kPeerAddress;
    if (kHasIcrc) good = icrc.VerifyOther(datagram);
  }
  if (!good) [[unlikely]] {
    good = origin == Origin::kPeerPort && AcceptUnordered(qp, packet);
    if (!good) return TakeTranslated(qp, packet, datagram, now, strays);
  }
  // A connected peer never sends multicast.
  if (origin == Origin::kElsewhere && datagram.destination.is_multicast()) {
    return TakeMulticast({.packet = &packet, .datagram = &datagram}, now);
  }
  if (qp == nullptr) {
    return TakeUnaddressed({.packet = &packet, .datagram = &datagram}, now,
                           strays);
  }
  const Received received = {
      .packet = &packet,
      .datagram = &datagram,
      .origin = origin,
      .congestion_experienced =
          (datagram.traffic_class & 3) == kCongestionExperienced,
  };
  if (Deliver(qp, received, now)) qp->link().peer_icrc.Learn(datagram, now);
  return Disposition::kDelivered;
}

inline bool Endpoint::Deliver(EndpointQp* qp, const Received& received,
                              Time now) {
  if (impl_->to_update != qp) {
    FinishUpdate(now);
    impl_->to_update = qp;
  }
  return qp->OnPacket(received, now);
}

// Not inline: rare.
[[gnu::noinline]] Disposition Endpoint::TakeTranslated(
    EndpointQp* qp, const wire::PacketView& packet, const Datagram& datagram,
    Time now, StraySink* strays) {
  if (datagram.destination.is_multicast()) return Drop(Disposition::kBadIcrc);
  if (qp == nullptr) {
    // The owner of the queue pair verifies it again.
    if (strays == nullptr || !translations_.MayPassOn(now)) {
      return Drop(Disposition::kBadIcrc);
    }
    strays->OnStray(datagram, packet.dest_qpn());
    return Drop(Disposition::kUnknownQp);
  }
  // The cheap checks first: a flood of packets that no queue pair would accept
  // must not use up the quota.
  const bool is_datagram = packet.transport() == wire::Transport::kUd;
  const bool fits = is_datagram ? qp->TakesDatagram(packet)
                                : FitsConnection(*qp, packet, datagram);
  if (!fits || !translations_.MayCheck(now)) {
    return Drop(Disposition::kBadIcrc);
  }
  const bool take = translations_.take();
  const std::optional<TrueSource> source =
      is_datagram ? TrueSourceOfDatagram(datagram)
                  : Translations::Match(datagram, qp->peer_address(), !take);
  if (!source) return Drop(Disposition::kBadIcrc);
  Translation translation = {
      .local = datagram.destination,
      .peer = source->address,
      .peer_qpn = is_datagram ? packet.deth().src_qpn : 0,
      .seen = {.address = datagram.source, .port = datagram.source_port},
      .source_port = source->port,
      .taken = take};
  if (!take) {
    ++counters_.translated_dropped;
    translations_.sink()->OnTranslation(translation);
    return Drop(Disposition::kBadIcrc);
  }
  translations_.CheckWasUseful();
  // The program sees the sender's own address. It answers to that, and the
  // route is known from the sink.
  Datagram known = datagram;
  if (is_datagram) {
    known.source = source->address;
    translations_.sink()->OnTranslation(translation);
  }
  const Received received = {
      .packet = &packet,
      .datagram = &known,
      .origin = is_datagram ? Origin::kElsewhere : Origin::kPeerAddress,
      .congestion_experienced =
          (datagram.traffic_class & 3) == kCongestionExperienced,
  };
  if (Deliver(qp, received, now)) {
    qp->link().peer_icrc.LearnTranslated(source->flow, source->ip_id, datagram,
                                         now);
    qp->SetVia(translation.seen);
    ++counters_.translated_peers;
    translations_.sink()->OnTranslation(translation);
  }
  return Disposition::kDelivered;
}

bool Endpoint::FitsConnection(EndpointQp& qp, const wire::PacketView& packet,
                              const Datagram& datagram) {
  const Flow* const flow = qp.link().flow;
  return flow != nullptr && qp.link().path != nullptr &&
         datagram.destination == flow->av.source && qp.WouldTake(packet);
}

std::optional<TrueSource> Endpoint::TrueSourceOfDatagram(
    const Datagram& datagram) {
  const Via seen = {.address = datagram.source, .port = datagram.source_port};
  for (const wire::IpAddress& peer : translations_.sink()->KnownPeers(seen)) {
    if (auto found = Translations::Match(datagram, peer, false)) return found;
  }
  if (!datagram.destination.is_v4()) return std::nullopt;
  // Perhaps only its port is translated.
  auto found = Translations::Match(datagram, datagram.source, false);
  return found ? found : Translations::SolveSource(datagram);
}

[[gnu::noinline]] Disposition Endpoint::TakeUnaddressed(
    const Received& received, Time now, StraySink* strays) {
  const wire::PacketView& packet = *received.packet;
  uint32_t qpn = packet.dest_qpn();
  if (qpn == wire::kNoDcQpn && packet.transport() == wire::Transport::kDc &&
      packet.info().is_request) {
    qpn = packet.dceth().dct;
    if (EndpointQp* const target = Find(qpn)) {
      Deliver(target, received, now);
      return Disposition::kDelivered;
    }
  }
  if (strays != nullptr) strays->OnStray(*received.datagram, qpn);
  return Drop(Disposition::kUnknownQp);
}

Disposition Endpoint::TakeMulticast(const Received& received, Time now) {
  // A multicast packet is UD and names queue pair 0xffffff (IBA vol. 1,
  // 9.6.1.2.1).
  if (received.packet->bth().dest_qpn != wire::kMulticastQpn ||
      received.packet->transport() != wire::Transport::kUd) {
    return Drop(Disposition::kUnknownQp);
  }
  const wire::IpAddress& group = received.datagram->destination;
  size_t taken = 0;
  while (EndpointQp* const qp = impl_->groups.At(group, taken)) {
    ++taken;
    qp->OnPacket(received, now);
    Update(qp, now);
  }
  return taken != 0 ? Disposition::kDelivered : Drop(Disposition::kUnknownQp);
}

// `link` leaves the scheduler; its interests are asked for again in OnRoom, or
// after its next input.
void Endpoint::Impl::Hold(EndpointLink* link, Time now) {
  const bool window_left = scheduler.Deactivate(link);
  scheduler.RemoveAcks(link);
  if (!link->held) held.push_back(link);  // does not allocate: Register
  link->held = true;
  if (window_left && link->path != nullptr) WakeWaiting(link->path, now);
}

void Endpoint::OnRoom(Time now) {
  while (!impl_->held.empty()) {
    EndpointLink* const link = impl_->held.back();
    impl_->held.pop_back();
    link->held = false;
    Update(link->qp, now);
  }
}

void Endpoint::OnTimer(Time now) {
  // Runs each timer once: one set to `now` again runs in the next call.
  std::vector<EndpointLink*>& due = impl_->due;
  while (!impl_->timers.empty() && impl_->timers.top()->deadline <= now) {
    EndpointLink* link = impl_->timers.top();
    impl_->timers.Remove(link);
    due.push_back(link);
  }
  for (size_t i = 0; i < due.size(); ++i) {
    if (due[i] == nullptr) continue;
    due[i]->qp->OnTimer(now);
    if (due[i] != nullptr) Update(due[i]->qp, now);
  }
  due.clear();
}

void Endpoint::OnReceiveOverflow(Time now, uint64_t packets) {
  if (observer_ != nullptr) observer_->OnOverflow(packets);
  for (EndpointLink* link = impl_->newest;
       link != nullptr && now - link->last_data <= kRecentlyReceived;
       link = link->older) {
    link->qp->OnReceiveOverflow(now);
    Update(link->qp, now);
  }
}

// --- Outputs.

namespace {

// Whether packets of both may be in one burst: they are sent as one flow, and
// reach the same lane of the peer.
bool MayShareBurst(EndpointQp& a, EndpointQp& b) {
  const Flow& x = *a.link().flow;
  const Flow& y = *b.link().flow;
  const uint32_t to = a.SharesBurstsTo();
  return to != 0 &&
         to >> kSteeringShift == b.SharesBurstsTo() >> kSteeringShift &&
         x.av.source_port == y.av.source_port &&
         x.av.destination == y.av.destination && x.av.source == y.av.source &&
         x.av.traffic_class == y.av.traffic_class &&
         x.av.hop_limit == y.av.hop_limit &&
         // Translated addresses are not those that the ICRC covers.
         x.destination_port == wire::kRoceUdpPort &&
         y.destination_port == wire::kRoceUdpPort;
}

}  // namespace

// Always inline: it is most of TransmitNext.
[[gnu::always_inline]] inline void Endpoint::Impl::TakeTurn(
    const TransmitScheduler::Next& next, Time now, Burst* burst) {
  EndpointLink* const link = next.link;
  scheduler.Take(next);
  Interests want = link->qp->Transmit(
      now, {.acks_only = next.acks_only, .bytes = TurnBytes(*link)}, burst);
  bool window_left = false;
  if (!next.acks_only) {
    if (want.Has(Interests::kEndTurn)) scheduler.EndTurn(link);
    if (want.Has(Interests::kWindow)) {
      scheduler.Wait(link, &link->path->waiting);
    }
    const bool more =
        want.Has(Interests::kUnwindowed) ||
        (want.Has(Interests::kData) && !want.Has(Interests::kWindow));
    scheduler.Transmitted(link, burst->bytes().size(), more && !burst->empty());
    want.wants &= ~uint64_t{Interests::kEndTurn};
    window_left = link->schedule != Schedule::kWaiting;
  }
  Apply(link, want, window_left, now);
}

Burst* Endpoint::PollTransmit(Time now, BurstSink* sink) {
  return HasTransmit() ? TransmitNext(now, sink) : nullptr;
}

Burst* Endpoint::TransmitNext(Time now, BurstSink* sink) {
  TransmitScheduler& scheduler = impl_->scheduler;
  // A turn without output leaves the lists, so this ends. The bound covers
  // queue pairs that are woken meanwhile.
  for (size_t turns = 4 * scheduler.size() + 16; turns > 0; --turns) {
    const TransmitScheduler::Next next = scheduler.Peek();
    if (next.link == nullptr) return nullptr;
    assert(next.link->flow != nullptr);
    Burst* const burst = sink->Begin(*next.link->flow);
    if (burst == nullptr) [[unlikely]] {
      if (!sink->only_that_flow()) return nullptr;
      impl_->Hold(next.link, now);
      continue;
    }
    impl_->TakeTurn(next, now, burst);
    if (!burst->empty()) return Transmitted(burst, now);
  }
  return nullptr;
}

[[gnu::always_inline]] inline Burst* Endpoint::Transmitted(Burst* burst,
                                                           Time now) {
  ++counters_.tx_bursts;
  counters_.tx_datagrams += burst->segments();
  counters_.tx_bytes += burst->bytes().size();
  if (observer_ != nullptr) ShowTransmitted(*burst, now);
  return burst;
}

[[gnu::noinline]] Burst* Endpoint::PollTransmitOf(EndpointQp* qp, Time now,
                                                  BurstSink* sink) {
  EndpointLink* const link = &qp->link();
  if (link->held) {
    std::erase(impl_->held, link);
    link->held = false;
    Update(qp, now);
  }
  const bool acks_only = link->schedule != Schedule::kActive;
  if (link->flow == nullptr || (acks_only && !link->acks)) return nullptr;
  Burst* const burst = sink->Begin(*link->flow);
  if (burst == nullptr) return nullptr;
  impl_->TakeTurn({.link = link, .acks_only = acks_only}, now, burst);
  return burst->empty() ? nullptr : Transmitted(burst, now);
}

void Endpoint::TransmitAnswers(EndpointQp* qp, Time now, Burst* burst) {
  EndpointLink* const next = impl_->scheduler.NextFresh();
  if (next == nullptr || !MayShareBurst(*next->qp, *qp)) return;
  burst->KeepRoom(kLongestAcknowledge);
  impl_->TakeTurn({.link = next}, now, burst);
  burst->FreeRoom();
  if (observer_ == nullptr) return;
  impl_->answers = burst->segments();
  impl_->answers_qpn = next->qp->qpn();
}

Time Endpoint::NextTimeout() const {
  return impl_->timers.empty() ? kNever : impl_->timers.top()->deadline;
}

bool Endpoint::HasTransmit() const { return !impl_->scheduler.empty(); }

size_t Endpoint::Transmitters() const { return impl_->scheduler.size(); }

EndpointQp* Endpoint::Find(uint32_t qpn) const {
  EndpointQp* const last = impl_->found_last;
  return last != nullptr && last->qpn() == qpn ? last : impl_->Search(qpn);
}

EndpointQp* Endpoint::Impl::Search(uint32_t qpn) {
  const auto it = queue_pairs.find(qpn);
  if (it == queue_pairs.end()) return nullptr;
  return found_last = it->second;
}

std::vector<uint32_t> Endpoint::QueuePairNumbers() const {
  std::vector<uint32_t> numbers;
  numbers.reserve(impl_->queue_pairs.size());
  for (const auto& [qpn, qp] : impl_->queue_pairs) numbers.push_back(qpn);
  return numbers;
}

void Endpoint::ForEachAddress(const EndpointQp::VisitAddress& visit) const {
  for (const auto& [qpn, qp] : impl_->queue_pairs) qp->ForEachAddress(visit);
}

// --- Observers.

namespace {

// Null if the queue pair has no path.
const ObservedPath* ReportPath(EndpointQp* qp, ObservedPath* report) {
  const Path* const path = qp != nullptr ? qp->link().path : nullptr;
  if (path == nullptr) return nullptr;
  report->window = path->window();
  report->in_flight = path->in_flight();
  report->rate = path->responses().rate() * (kSecond / ResponsePace::kInterval);
  report->round_trip = path->smoothed_rtt();
  return report;
}

}  // namespace

void Endpoint::ShowReceived(const Datagram& datagram, Disposition disposition,
                            Time now) {
  EndpointQp* const qp = disposition == Disposition::kDelivered
                             ? Find(wire::LoadBe24(datagram.bytes.data() +
                                                   wire::kBthDestQpnOffset))
                             : nullptr;
  ObservedPath path;
  const ObservedPath* const its = ReportPath(qp, &path);
  if (its != nullptr && datagram.bytes[0] == wire::kOpcodeCnp) {
    path.cnps_ignored = qp->Report().counters.cnps_ignored;
  }
  observer_->OnPacket({.direction = Direction::kReceived,
                       .time = now,
                       .bytes = datagram.bytes,
                       .source = datagram.source,
                       .destination = datagram.destination,
                       .source_port = datagram.source_port,
                       .traffic_class = datagram.traffic_class,
                       .hop_limit = datagram.hop_limit,
                       .segment_index = datagram.segment_index,
                       .disposition = disposition,
                       .path = its});
}

// 0 if it has none.
uint32_t Endpoint::Impl::FindByFlow(const Flow* flow) {
  const auto known = numbers_by_flow.find(flow);
  if (known != numbers_by_flow.end()) {
    const auto at = queue_pairs.find(known->second);
    if (at != queue_pairs.end() && at->second->link().flow == flow) {
      return at->first;
    }
  }
  for (const auto& [qpn, qp] : queue_pairs) {
    if (qp->link().flow != flow) continue;
    // Some flows no longer exist.
    if (numbers_by_flow.size() > 2 * queue_pairs.size() + 64) {
      numbers_by_flow.clear();
    }
    try {
      numbers_by_flow[flow] = qpn;
    } catch (const std::bad_alloc&) {
      // The next search takes as long.
    }
    return qpn;
  }
  return 0;
}

void Endpoint::ShowTransmitted(const Burst& burst, Time now) {
  const AddressVector& av = burst.flow()->av;
  ObservedPacket packet;
  packet.direction = Direction::kTransmitted;
  packet.time = now;
  // A search, so that a transmit without an observer need not keep the number.
  const uint32_t qpn = impl_->FindByFlow(burst.flow());
  const int answers = std::exchange(impl_->answers, 0);
  packet.source = av.source;
  packet.destination = av.destination;
  packet.source_port = av.source_port;
  packet.traffic_class = av.traffic_class;
  packet.hop_limit = av.hop_limit_on_wire() - burst.hop_mark();
  ObservedPath path;
  packet.path = ReportPath(Find(qpn), &path);
  for (std::span<const uint8_t> rest = burst.bytes(); !rest.empty();) {
    packet.bytes = rest.first(std::min(rest.size(), burst.segment_size()));
    packet.qpn = packet.segment_index < answers ? impl_->answers_qpn : qpn;
    observer_->OnPacket(packet);
    rest = rest.subspan(packet.bytes.size());
    ++packet.segment_index;
  }
}

// --- Interests of queue pairs.

void Endpoint::Update(EndpointQp* qp, Time now) {
  impl_->Apply(&qp->link(), qp->TakeInterests(now), false, now);
}

void Endpoint::Impl::Apply(EndpointLink* link, Interests want, bool window_left,
                           Time now) {
  if (want.Has(Interests::kEndTurn)) scheduler.EndTurn(link);
  if (!want.Has(Interests::kData | Interests::kUnwindowed)) {
    if (link->schedule != Schedule::kIdle || link->woken) {
      window_left |= scheduler.Deactivate(link);
    }
  } else if (link->schedule != Schedule::kActive) {
    if (want.Has(Interests::kUnwindowed)) {
      scheduler.Activate(link);
    } else if (want.Has(Interests::kWindow)) {
      scheduler.Wait(link, &link->path->waiting);
    } else if (link->schedule == Schedule::kIdle) {
      scheduler.Activate(link);  // one that waits keeps waiting
    }
  }
  const bool acks = want.Has(Interests::kAcks);
  if (acks != link->acks) {
    acks ? scheduler.AddAcks(link) : scheduler.RemoveAcks(link);
  }
  if (want.deadline != link->deadline) timers.Set(link, want.deadline);
  if (want.Has(Interests::kReceivedData)) NoteReceivedData(link, now);
  if (link->path != nullptr && (link->path->TakeOpened() || window_left)) {
    WakeWaiting(link->path, now);
  }
}

void Endpoint::Impl::WakeWaiting(SharedPath* path, Time now) {
  if (path->paused() && !path->EndPause(now)) {
    EndpointLink* const next = path->waiting.front();
    if (next != nullptr && path->paused_until() < next->deadline) {
      timers.Set(next, path->paused_until());
    }
    return;
  }
  if (!path->waiting.empty() && path->MaySend(1)) {
    scheduler.Wake(&path->waiting);
  }
}

// Unlimited if no other queue pair has anything to send or waits for the path.
size_t Endpoint::Impl::TurnBytes(const EndpointLink& link) const {
  const bool alone = scheduler.active_empty() &&
                     (link.path == nullptr || link.path->waiting.empty());
  if (alone) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(std::max(link.deficit, 0));
}

// --- Calls by queue pairs.

void Endpoint::Register(EndpointQp* qp) {
  // Allocates for its timers now, so that they need no memory later.
  const size_t links = impl_->queue_pairs.size() + 1;
  impl_->timers.Reserve(links);
  if (links > impl_->due.capacity()) impl_->due.reserve(std::bit_ceil(links));
  if (links > impl_->held.capacity()) {
    impl_->held.reserve(std::bit_ceil(links));
  }
  impl_->queue_pairs[qp->qpn()] = qp;
  impl_->found_last = qp;
  qp->link().deficit = TransmitScheduler::kFirstQuantum;
}

void Endpoint::Attach(EndpointQp* qp, const wire::IpAddress& group) {
  impl_->groups.Attach(qp, group);
}
void Endpoint::Detach(EndpointQp* qp, const wire::IpAddress& group) {
  impl_->groups.Detach(qp, group);
}
bool Endpoint::IsAttached(const EndpointQp* qp,
                          const wire::IpAddress& group) const {
  return impl_->groups.Has(qp, group);
}
std::vector<wire::IpAddress> Endpoint::GroupsOf(const EndpointQp* qp) const {
  return impl_->groups.Of(qp);
}

void Endpoint::Unregister(EndpointQp* qp, const QpCounters& counters) {
  retired_.Add(counters);
  EndpointLink* const link = &qp->link();
  Disconnect(qp);
  if (impl_->found_last == qp) impl_->found_last = nullptr;
  if (impl_->to_update == qp) impl_->to_update = nullptr;
  impl_->scheduler.Remove(link);
  if (link->held) std::erase(impl_->held, link);
  impl_->timers.Remove(link);
  impl_->RemoveFromRecent(link);
  impl_->groups.DetachAll(qp);
  std::replace(impl_->due.begin(), impl_->due.end(), link,
               static_cast<EndpointLink*>(nullptr));
  const auto it = impl_->queue_pairs.find(qp->qpn());
  if (it != impl_->queue_pairs.end() && it->second == qp) {
    impl_->queue_pairs.erase(it);
  }
}

Path* Endpoint::Connect(EndpointQp* qp, const Flow* flow) {
  EndpointLink* const link = &qp->link();
  SharedPath* const joined = Join(flow->av.destination);
  Disconnect(qp);
  link->flow = flow;
  link->path = joined;
  link->peer_icrc.Reset();
  return joined;
}

void Endpoint::Disconnect(EndpointQp* qp) {
  EndpointLink* const link = &qp->link();
  link->flow = nullptr;
  SharedPath* const path = std::exchange(link->path, nullptr);
  if (path == nullptr) return;
  impl_->scheduler.StopWaiting(link);
  // It may have been woken for a window that it will not use.
  impl_->WakeWaiting(path, 0);
  impl_->Leave(path);
}

void Endpoint::Direct(EndpointQp* qp, const Flow* flow) {
  qp->link().flow = flow;
}

Path* Endpoint::JoinPath(const wire::IpAddress& destination) {
  return Join(destination);
}

void Endpoint::LeavePath(Path* path) {
  impl_->Leave(static_cast<SharedPath*>(path));
}

SharedPath* Endpoint::Join(const wire::IpAddress& destination) {
  auto& paths = impl_->paths;
  auto known = paths.find(destination);
  if (known == paths.end()) {
    auto path = std::make_unique<SharedPath>();
    path->destination = destination;
    known = paths.emplace(destination, std::move(path)).first;
  }
  known->second->Join();
  return known->second.get();
}

void Endpoint::Impl::Leave(SharedPath* path) {
  if (!path->Leave()) return;
  // A leaving queue pair removes its bytes.
  assert(path->in_flight() == path->held());
  // A copy: erase destroys path->destination.
  const wire::IpAddress destination = path->destination;
  paths.erase(destination);
}

// --- Queue pairs that received data.

void Endpoint::Impl::NoteReceivedData(EndpointLink* link, Time now) {
  link->last_data = now;
  if (newest == link) return;
  RemoveFromRecent(link);
  link->received_data = true;
  link->older = newest;
  if (newest != nullptr) newest->newer = link;
  newest = link;
}

void Endpoint::Impl::RemoveFromRecent(EndpointLink* link) {
  if (!link->received_data) return;
  (link->newer != nullptr ? link->newer->older : newest) = link->older;
  if (link->older != nullptr) link->older->newer = link->newer;
  link->newer = nullptr;
  link->older = nullptr;
  link->received_data = false;
}

PacketArenaPool* Endpoint::arena_pool() { return &impl_->arena_pool; }

}  // namespace transport
