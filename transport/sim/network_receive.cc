// Packets that arrive: GRO, the calls of endpoints, and the check of what they
// accept.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "transport/congestion/path.h"
#include "transport/endpoint/packet_observer.h"
#include "transport/sim/endpoint_call.h"
#include "transport/sim/network.h"
#include "wire/packet.h"

namespace sim {
namespace {

// GRO merges packets that arrive within this time.
constexpr Time kMergeTime = 10 * transport::kMicrosecond;
constexpr int kMaxMerged = 64;
// Less than transport::PeerPort::kSilence, after which a peer may change its
// port.
constexpr Time kHeardLately = 20 * transport::kMillisecond;

}  // namespace

bool Network::KnowsPeer(const Node& node, const Packet& forged) const {
  wire::PacketView view;
  wire::PacketView::Parse(forged.bytes, &view);
  transport::EndpointQp* const qp = node.endpoint_->Find(view.bth().dest_qpn);
  const auto heard = heard_.find({node.index(), view.bth().dest_qpn});
  return qp != nullptr &&
         qp->link().peer_icrc.Knows(forged.source_port ^ kForgedPort) &&
         heard != heard_.end() && now_ - heard->second < kHeardLately;
}

void Network::Deliver(Node& node, const Packet& packet) {
  if (packet.forged && packet.forged_port && !KnowsPeer(node, packet)) return;
  uint16_t id = packet.ip_id;
  const std::span<const uint8_t> bytes = packet.bytes;
  for (size_t at = 0; at < bytes.size(); at += packet.segment_size, ++id) {
    DeliverOne(
        node, packet,
        bytes.subspan(at, std::min(packet.segment_size, bytes.size() - at)),
        id);
  }
}

void Network::SendHardwareCnp(Node& node, std::span<const uint8_t> packet) {
  wire::PacketView view;
  wire::PacketView::Parse(packet, &view);
  transport::EndpointQp* const qp = node.endpoint_->Find(view.bth().dest_qpn);
  if (qp == nullptr || qp->link().flow == nullptr) return;
  const auto [last, first] = node.notified_.try_emplace(qp->qpn(), now_);
  if (!first && now_ - last->second < transport::Path::kNotificationInterval) {
    return;
  }
  last->second = now_;
  wire::Headers headers;
  headers.bth.opcode = wire::kOpcodeCnp;
  headers.bth.mig_req = false;
  headers.bth.becn = true;
  headers.bth.dest_qpn = qp->Report().dest_qpn;
  uint8_t cnp[wire::kBthSize + wire::kCnpPayloadSize + wire::kIcrcSize] = {};
  wire::EmitHeaders(headers, cnp);
  const transport::Flow& flow = *qp->link().flow;
  flow.icrc.Store(cnp, 0);
  if (Node* const to = FindNode(flow.av.destination)) {
    SendPacket(node, *to, flow, cnp, 0);
  }
}

void Network::DeliverOne(Node& node, const Packet& packet,
                         std::span<const uint8_t> bytes, uint16_t ip_id) {
  uint8_t traffic_class = packet.traffic_class;
  if (node.profile_.hardware_cnps &&
      (traffic_class & transport::kEcnBits) == transport::kEcnBits) {
    SendHardwareCnp(node, bytes);
    traffic_class ^= 1;  // ECT(0)
  }
  Node::Merge& merge = node.merge_;
  Node::Batch& batch = node.batch_;
  int index = 0;
  if (node.profile_.gro) {
    const bool joins =
        ip_id != 0 && merge.source == packet.source &&
        merge.port == packet.source_port &&
        (!node.profile_.batches ||
         (merge.traffic_class == traffic_class && !batch.segments.empty())) &&
        merge.last >= 0 && now_ - merge.last <= kMergeTime &&
        bytes.size() <= merge.size && merge.count < kMaxMerged;
    if (joins) {
      index = merge.count++;
      // A shorter packet ends the batch.
      if (bytes.size() < merge.size) merge.count = kMaxMerged;
    } else {
      if (node.profile_.batches) DeliverBatch(node);
      merge = {packet.source, packet.source_port, traffic_class,
               now_,          bytes.size(),       1};
    }
    merge.last = now_;
  }
  if (node.profile_.batches && node.profile_.gro) {
    if (index == 0) {
      batch.destination = packet.destination;
      Push(now_ + kMergeTime, Kind::kBatch, node.index(), batch.number);
    }
    batch.segments.push_back({.offset = batch.bytes.size(),
                              .size = bytes.size(),
                              .ip_id = ip_id,
                              .corrupted = packet.corrupted,
                              .forged = packet.forged});
    batch.bytes.insert(batch.bytes.end(), bytes.begin(), bytes.end());
    if (merge.count == kMaxMerged) DeliverBatch(node);
    return;
  }
  if (node.overflow_) {
    node.overflow_ = false;
    node.endpoint_->OnReceiveOverflow(now_);
  }
  const transport::Datagram datagram = {
      .bytes = bytes,
      .source = packet.source,
      .destination = packet.destination,
      .source_port = packet.source_port,
      .traffic_class = traffic_class,
      .hop_limit = 64,
      .segment_index = static_cast<uint16_t>(index),
  };
  transport::Disposition disposition;
  {
    const ScopedEndpointCall inside(true);
    disposition = node.endpoint_->OnDatagram(datagram, now_);
  }
  CheckDelivered(node, datagram, ip_id, packet.corrupted, packet.forged,
                 disposition);
}

namespace {

// Records the disposition of each packet of a batch.
class DispositionObserver : public transport::PacketObserver {
 public:
  explicit DispositionObserver(size_t packets) : dispositions(packets) {}
  void OnPacket(const transport::ObservedPacket& packet) override {
    if (packet.direction != transport::Direction::kReceived) return;
    dispositions.at(packet.segment_index) = packet.disposition;
    ++seen;
  }
  std::vector<transport::Disposition> dispositions;
  size_t seen = 0;
};

}  // namespace

void Network::DeliverBatch(Node& node) {
  const Node::Batch batch = std::move(node.batch_);
  node.batch_ = {};
  node.batch_.number = batch.number + 1;
  if (batch.segments.empty()) return;
  if (node.overflow_) {
    node.overflow_ = false;
    node.endpoint_->OnReceiveOverflow(now_);
  }
  const Node::Merge merge = node.merge_;
  DispositionObserver observer(batch.segments.size());
  node.endpoint_->Observe(&observer);
  {
    const ScopedEndpointCall inside(true);
    node.endpoint_->OnGroBatch({.bytes = batch.bytes,
                                .segment_size = batch.segments[0].size,
                                .source = merge.source,
                                .destination = batch.destination,
                                .source_port = merge.port,
                                .traffic_class = merge.traffic_class,
                                .hop_limit = 64},
                               now_, nullptr);
  }
  node.endpoint_->Observe(nullptr);
  if (observer.seen != batch.segments.size()) {
    checker_->Fail(absl::StrCat("node ", node.index(), ": took ", observer.seen,
                                " of ", batch.segments.size(), " packets"));
  }
  for (size_t i = 0; i < batch.segments.size(); ++i) {
    const Node::Batch::Segment& segment = batch.segments[i];
    CheckDelivered(
        node,
        {.bytes = std::span(batch.bytes).subspan(segment.offset, segment.size),
         .source = merge.source,
         .destination = batch.destination,
         .source_port = merge.port,
         .traffic_class = merge.traffic_class,
         .hop_limit = 64,
         .segment_index = static_cast<uint16_t>(i)},
        segment.ip_id, segment.corrupted, segment.forged,
        observer.dispositions[i]);
  }
}

void Network::CheckDelivered(Node& node, const transport::Datagram& datagram,
                             uint16_t ip_id, bool corrupted, bool forged,
                             transport::Disposition disposition) {
  if (forged) return;
  if (corrupted) {
    // The flips may hit bytes that the ICRC does not cover, or undo each other.
    const wire::IcrcFlow flow(datagram.source, datagram.destination,
                              datagram.source_port, wire::kRoceUdpPort);
    if (!flow.Verify(datagram.bytes, ip_id)) {
      if (disposition == transport::Disposition::kDelivered) ++undetected_;
      return;
    }
  }
  wire::PacketView view;
  wire::PacketView::Parse(datagram.bytes, &view);
  rules_.OnDelivered(node.index(), view);
  heard_[{node.index(), view.bth().dest_qpn}] = now_;
  if (disposition == transport::Disposition::kDelivered ||
      disposition == transport::Disposition::kUnknownQp) {
    return;
  }
  // A counting ID is accepted near the last one only: a packet overtaken by
  // many may be rejected, and counts as lost.
  const Node* from = FindNode(datagram.source);
  if (disposition == transport::Disposition::kBadIcrc && from != nullptr &&
      from->profile_.ip_id == IpIdMode::kCounting) {
    ++refused_;
    return;
  }
  checker_->Fail(absl::StrCat(
      "node ", node.index(), ": refused a good packet (disposition ",
      static_cast<int>(disposition), ", IP ID ", ip_id, ", segment index ",
      datagram.segment_index, "): ", Describe(datagram.bytes)));
}

}  // namespace sim
