#include "transport/endpoint/endpoint.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "transport/endpoint/endpoint_link.h"
#include "transport/endpoint/path.h"
#include "transport/endpoint/turns.h"
#include "transport/rc/held_packets.h"
#include "wire/packet.h"

namespace transport {
namespace {

// After a receive overflow, those that had data within this time are told.
constexpr Time kRecentlyReceived = kMillisecond;
constexpr uint8_t kCongestionExperienced = 3;  // ECN field
// By how many packets one may be overtaken and its IP ID still be believed:
// twice what a peer puts into bursts. wire::VerifyAnyId alone allows for 64.
constexpr uint16_t kOvertaken = 512;
// BTH's first byte.
constexpr uint8_t kAcknowledgement =
    wire::MakeOpcode(wire::Transport::kRc, wire::Operation::kAcknowledge);

// A path and who shares it.
struct SharedPath : Path {
  wire::IpAddress destination;
  int users = 0;
  TurnList waiting;
};

Disposition DispositionOf(wire::ParseError error) {
  switch (error) {
    case wire::ParseError::kOk:
      return Disposition::kDelivered;
    case wire::ParseError::kTooShort:
      return Disposition::kTooShort;
    case wire::ParseError::kUnknownOpcode:
      return Disposition::kUnknownOpcode;
    case wire::ParseError::kBadVersion:
    case wire::ParseError::kBadPad:
      break;
  }
  return Disposition::kBadHeader;
}

}  // namespace

struct Endpoint::Impl {
  void RemoveFromRecent(EndpointLink* link);

  absl::flat_hash_map<uint32_t, QueuePair*> queue_pairs;
  QueuePair* found_last = nullptr;  // in there; packets come in trains
  absl::flat_hash_map<wire::IpAddress, std::unique_ptr<SharedPath>> paths;
  Turns turns;
  TimerHeap timers;
  // Those whose timers OnTimer is running; null where one has gone.
  std::vector<EndpointLink*> due;
  QueuePair* to_update = nullptr;  // has taken packets since its last Update
  EndpointLink* newest = nullptr;  // of those that received data
  HoldPool hold_pool;
};

Endpoint::Endpoint() : impl_(std::make_unique<Impl>()) {}
Endpoint::~Endpoint() = default;

// --- Inputs.

Disposition Endpoint::Drop(Disposition why) {
  ++counters_.dropped[static_cast<size_t>(why)];
  return why;
}

void Endpoint::OnTrain(const Train& train, Time now, StraySink* strays) {
  Datagram datagram;
  datagram.source = train.source;
  datagram.destination = train.destination;
  datagram.source_port = train.source_port;
  datagram.traffic_class = train.traffic_class;
  datagram.hop_limit = train.hop_limit;
  const auto take = [&](size_t index) {
    datagram.segment_index = static_cast<uint16_t>(index);
    datagram.bytes = train.bytes.subspan(index * train.segment_size);
    datagram.bytes = datagram.bytes.first(
        std::min(train.segment_size, datagram.bytes.size()));
    Take(datagram, now, strays);
  };
  size_t count =
      (train.bytes.size() + train.segment_size - 1) / train.segment_size;
  count = std::max<size_t>(count, 1);  // an empty datagram is one, too
  // It comes last, being the shortest, but was due before them. A program that
  // answers what it receives expects to hear of its former answer first.
  if (count > 1 &&
      train.bytes[(count - 1) * train.segment_size] == kAcknowledgement) {
    take(--count);
  }
  for (size_t i = 0; i < count; ++i) take(i);
  FinishUpdate(now);
}

Disposition Endpoint::OnDatagram(const Datagram& datagram, Time now) {
  const Disposition disposition = Take(datagram, now, nullptr);
  FinishUpdate(now);
  return disposition;
}

void Endpoint::FinishUpdate(Time now) {
  QueuePair* const qp = std::exchange(impl_->to_update, nullptr);
  if (qp != nullptr) qp->Update(now);
}

Disposition Endpoint::Take(const Datagram& datagram, Time now,
                           StraySink* strays) {
  ++counters_.rx_datagrams;
  counters_.rx_bytes += datagram.bytes.size();
  wire::PacketView packet;
  const wire::ParseError error =
      wire::PacketView::Parse(datagram.bytes, &packet);
  if (error != wire::ParseError::kOk) return Drop(DispositionOf(error));
  // Looked up before, judged after the ICRC: its peer's last IP ID helps there.
  QueuePair* qp = Find(packet.bth().dest_qpn);
  if (!VerifyIcrc(datagram, qp, now)) return Drop(Disposition::kBadIcrc);
  if (qp == nullptr) {
    if (strays != nullptr) strays->OnStray(datagram, packet.bth().dest_qpn);
    return Drop(Disposition::kUnknownQp);
  }
  const Received received = {
      .packet = &packet,
      .source = datagram.source,
      .destination = datagram.destination,
      .source_port = datagram.source_port,
      .traffic_class = datagram.traffic_class,
      .hop_limit = datagram.hop_limit,
      .congestion_experienced =
          (datagram.traffic_class & 3) == kCongestionExperienced,
  };
  if (impl_->to_update != qp) {
    FinishUpdate(now);
    impl_->to_update = qp;
  }
  qp->OnPacket(received, now);
  return Disposition::kDelivered;
}

bool Endpoint::VerifyIcrc(const Datagram& datagram, QueuePair* qp, Time now) {
  const auto make_flow = [&datagram] {
    return wire::IcrcFlow(datagram.source, datagram.destination,
                          datagram.source_port, wire::kRoceUdpPort);
  };
  if (qp == nullptr || datagram.source != qp->attributes_.av.destination ||
      datagram.destination != qp->attributes_.av.source) {
    return wire::VerifyAnyId(make_flow(), datagram.bytes,
                             datagram.segment_index, std::nullopt)
        .has_value();
  }
  EndpointLink& link = qp->link_;
  if (!link.peer_flow || link.peer_source_port != datagram.source_port) {
    link.peer_flow = make_flow();
    link.peer_source_port = datagram.source_port;
    link.last_ip_id.reset();
  }
  // The window that is believed begins kOvertaken before the last ID.
  std::optional<uint16_t> from = link.last_ip_id;
  if (from) *from = static_cast<uint16_t>(*from - kOvertaken);
  const std::optional<uint16_t> id = wire::VerifyAnyId(
      *link.peer_flow, datagram.bytes, datagram.segment_index, from,
      std::min<uint32_t>(
          wire::IpIdForwardWindow(now - link.last_ip_id_time) + kOvertaken,
          0x10000));
  if (!id) return false;
  link.last_ip_id_time = now;
  // One that was overtaken does not take the window back.
  if (!link.last_ip_id ||
      static_cast<uint16_t>(*link.last_ip_id - *id) > kOvertaken) {
    link.last_ip_id = id;
  }
  return true;
}

void Endpoint::OnTimer(Time now) {
  // Each timer once: one that asks for `now` again has its turn at the next
  // call.
  std::vector<EndpointLink*>& due = impl_->due;
  while (!impl_->timers.empty() && impl_->timers.top()->deadline <= now) {
    EndpointLink* link = impl_->timers.top();
    impl_->timers.Remove(link);
    due.push_back(link);
  }
  for (size_t i = 0; i < due.size(); ++i) {
    if (due[i] != nullptr) due[i]->qp->OnTimer(now);
  }
  due.clear();
}

void Endpoint::OnReceiveOverflow(Time now) {
  for (EndpointLink* link = impl_->newest;
       link != nullptr && now - link->last_data <= kRecentlyReceived;
       link = link->older) {
    link->qp->RequestCnp(now);
  }
}

// --- Outputs.

bool Endpoint::PollTransmit(Time now, Burst* burst) {
  // A turn without output leaves the lists, so this ends; the bound is there
  // for those that are woken on the way.
  for (size_t turns = 4 * impl_->turns.size() + 16; turns > 0; --turns) {
    const Turns::Next next = impl_->turns.Take();
    if (next.link == nullptr) return false;
    QueuePair* const qp = next.link->qp;
    if (!qp->flow_) continue;
    burst->Begin(&*qp->flow_);
    if (next.answers_only) {
      if (qp->TransmitAnswers(now, burst)) impl_->turns.Answer(next.link);
    } else {
      const bool more = qp->Transmit(now, burst);
      impl_->turns.Transmitted(next.link, burst->bytes().size(),
                               more && !burst->empty());
      // The window that it left open is for the next one that waits.
      if (qp->path_ != nullptr && next.link->turn != Turn::kWaiting) {
        WindowOpened(qp->path_);
      }
    }
    if (!burst->empty()) {
      ++counters_.tx_bursts;
      counters_.tx_datagrams += burst->segments();
      counters_.tx_bytes += burst->bytes().size();
      return true;
    }
  }
  return false;
}

Time Endpoint::NextTimeout() const {
  return impl_->timers.empty() ? kNever : impl_->timers.top()->deadline;
}

bool Endpoint::HasTransmit() const { return !impl_->turns.empty(); }

size_t Endpoint::Transmitters() const { return impl_->turns.size(); }

QueuePair* Endpoint::Find(uint32_t qpn) const {
  QueuePair*& last = impl_->found_last;
  if (last != nullptr && last->qpn() == qpn) return last;
  const auto it = impl_->queue_pairs.find(qpn);
  if (it == impl_->queue_pairs.end()) return nullptr;
  return last = it->second;
}

// --- For queue pairs and their halves.

void Endpoint::Register(QueuePair* qp) {
  impl_->queue_pairs[qp->qpn()] = qp;
  impl_->found_last = qp;
  qp->link_.deficit = Turns::kFirstQuantum;
}

void Endpoint::Unregister(QueuePair* qp) {
  EndpointLink* link = &qp->link_;
  if (impl_->found_last == qp) impl_->found_last = nullptr;
  if (impl_->to_update == qp) impl_->to_update = nullptr;
  impl_->turns.Remove(link);
  impl_->timers.Remove(link);
  impl_->RemoveFromRecent(link);
  std::replace(impl_->due.begin(), impl_->due.end(), link,
               static_cast<EndpointLink*>(nullptr));
  const auto it = impl_->queue_pairs.find(qp->qpn());
  if (it != impl_->queue_pairs.end() && it->second == qp) {
    impl_->queue_pairs.erase(it);
  }
}

void Endpoint::Activate(QueuePair* qp) { impl_->turns.Activate(&qp->link_); }

void Endpoint::Answer(QueuePair* qp) { impl_->turns.Answer(&qp->link_); }

void Endpoint::Deactivate(QueuePair* qp) {
  impl_->turns.Remove(&qp->link_);
  impl_->timers.Remove(&qp->link_);
}

void Endpoint::TimerChanged(QueuePair* qp) {
  const Time deadline = qp->NextTimeout();
  if (deadline == qp->link_.deadline) return;
  impl_->timers.Set(&qp->link_, deadline);
}

void Endpoint::WaitForWindow(QueuePair* qp) {
  if (qp->path_ == nullptr) return;
  impl_->turns.Wait(&qp->link_, &static_cast<SharedPath*>(qp->path_)->waiting);
}

void Endpoint::StopWaiting(QueuePair* qp) {
  impl_->turns.StopWaiting(&qp->link_);
  // It may have been woken for a window that it will not use.
  if (qp->path_ != nullptr) WindowOpened(qp->path_);
}

// One at a time: PollTransmit wakes the next when the first has had its turn
// and the window is still open.
void Endpoint::WindowOpened(Path* path) {
  if (path->MaySend(1)) {
    impl_->turns.Wake(&static_cast<SharedPath*>(path)->waiting);
  }
}

void Endpoint::EndTurn(QueuePair* qp) { impl_->turns.End(&qp->link_); }

bool Endpoint::TurnIsOver(const QueuePair* qp, size_t bytes) const {
  if (qp->link_.deficit > static_cast<int64_t>(bytes)) return false;
  return !impl_->turns.active_empty() ||
         !static_cast<const SharedPath*>(qp->path_)->waiting.empty();
}

Path* Endpoint::AcquirePath(const wire::IpAddress& destination) {
  std::unique_ptr<SharedPath>& path = impl_->paths[destination];
  if (path == nullptr) {
    path = std::make_unique<SharedPath>();
    path->destination = destination;
  }
  ++path->users;
  return path.get();
}

void Endpoint::ReleasePath(Path* path) {
  auto* shared = static_cast<SharedPath*>(path);
  if (--shared->users == 0) {
    // By value: the key must outlive what it names.
    const wire::IpAddress destination = shared->destination;
    impl_->paths.erase(destination);
  }
}

void Endpoint::NoteReceivedData(QueuePair* qp, Time now) {
  EndpointLink* link = &qp->link_;
  link->last_data = now;
  if (impl_->newest == link) return;
  impl_->RemoveFromRecent(link);
  link->received_data = true;
  link->older = impl_->newest;
  if (impl_->newest != nullptr) impl_->newest->newer = link;
  impl_->newest = link;
}

void Endpoint::Impl::RemoveFromRecent(EndpointLink* link) {
  if (!link->received_data) return;
  (link->newer != nullptr ? link->newer->older : newest) = link->older;
  if (link->older != nullptr) link->older->newer = link->newer;
  link->newer = nullptr;
  link->older = nullptr;
  link->received_data = false;
}

HoldPool* Endpoint::hold_pool() { return &impl_->hold_pool; }

}  // namespace transport
