// Packets on their way: checks of what endpoints send, switch ports, and links
// with their impairments.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "transport/sim/endpoint_call.h"
#include "transport/sim/network.h"
#include "wire/packet.h"
#include "wire/psn.h"

namespace sim {
namespace {

// This number of bursts at one instant is an endless loop.
constexpr uint64_t kMaxBurstsAtOnce = 1'000'000;
// Limits a run of losses to a burst, so that it does not take every retry.
constexpr Time kLossRunTime = 100 * transport::kMicrosecond;

}  // namespace

Node* Network::FindNode(const wire::IpAddress& address) {
  for (const auto& node : nodes_) {
    if (node->address() == address) return node.get();
  }
  return nullptr;
}

uint32_t Network::NewPacket() {
  if (free_packets_.empty()) {
    packet_pool_.push_back(std::make_unique<Packet>());
    return packet_pool_.size() - 1;
  }
  const uint32_t index = free_packets_.back();
  free_packets_.pop_back();
  return index;
}

void Network::Pump(Node& node) {
  if (node.sink_ == nullptr) {
    node.burst_buffer_.resize(node.profile_.burst_bytes);
    node.sink_ = std::make_unique<transport::OneBurst>(
        node.burst_buffer_, node.profile_.max_segments);
  }
  for (uint64_t bursts = 0; now_ >= node.busy_until_; ++bursts) {
    if (bursts == kMaxBurstsAtOnce) {
      checker_->Fail(absl::StrCat("node ", node.index(), ": sends for ever"));
      return;
    }
    const bool has = node.endpoint_->HasTransmit();
    {
      const ScopedEndpointCall inside(true);
      node.burst_ = node.endpoint_->PollTransmit(now_, node.sink_.get());
    }
    if (node.burst_ == nullptr) {
      if (node.endpoint_->HasTransmit()) {
        checker_->Fail(absl::StrCat(
            "node ", node.index(),
            ": HasTransmit after PollTransmit had nothing to send"));
      }
      break;
    }
    if (!has) {
      checker_->Fail(absl::StrCat("node ", node.index(),
                                  ": sends although HasTransmit denied it"));
    }
    if (node.burst_->empty()) {
      checker_->Fail(absl::StrCat("node ", node.index(), ": empty burst"));
      return;
    }
    SendBurst(node);
    if (checker_->failed()) return;
  }
  if (now_ < node.busy_until_ && !node.ready_scheduled_) {
    node.ready_scheduled_ = true;
    Push(node.busy_until_, Kind::kReady, node.index(), 0);
  }
  ArmTimer(node);
}

void Network::CheckBurst(Node& node) {
  const transport::Burst& burst = *node.burst_;
  const size_t size = burst.segment_size();
  const std::span<const uint8_t> bytes = burst.bytes();
  const auto fail = [&](const std::string& what) {
    checker_->Fail(absl::StrCat("node ", node.index(), ": burst ", what));
  };
  if (burst.flow() == nullptr || size == 0) return fail("without a flow");
  if (burst.segments() > node.profile_.max_segments ||
      bytes.size() > node.profile_.burst_bytes ||
      (bytes.size() + size - 1) / size !=
          static_cast<size_t>(burst.segments())) {
    return fail("of the wrong size");
  }
  if (burst.flow()->av.source != node.address()) {
    return fail("from another address");
  }
  uint32_t qpn = 0;
  uint16_t id = 0;
  for (size_t at = 0; at < bytes.size(); at += size, ++id) {
    const auto segment = bytes.subspan(at, std::min(size, bytes.size() - at));
    wire::PacketView view;
    if (const auto error = wire::PacketView::Parse(segment, &view);
        error != wire::ParseError::kOk) {
      return fail(
          absl::StrCat("with a bad packet: ", wire::ParseErrorName(error)));
    }
    if (segment.size() % 4 != 0) return fail("with a packet not padded");
    if (id != 0 && view.bth().dest_qpn != qpn) return fail("to two QPs");
    qpn = view.bth().dest_qpn;
    if (!burst.flow()->icrc.Verify(segment, id)) {
      return fail(absl::StrCat("with a bad ICRC: ", Describe(segment)));
    }
    const Node* to = FindNode(burst.flow()->av.destination);
    if (to == nullptr && strangers) continue;
    if (to == nullptr) return fail("to nobody");
    if (const std::string wrong =
            rules_.OnSent(node.index(), to->index(), view);
        !wrong.empty()) {
      return fail(absl::StrCat("with ", wrong, ": ", Describe(segment)));
    }
  }
}

// Not cryptographic: it only has to show accidental differences.
void Network::AddToDigest(const Node& node) {
  const auto add = [this](uint64_t value) {
    digest_ = (digest_ ^ value) * 0x9e3779b97f4a7c15;  // 2^64 / golden ratio
    digest_ ^= digest_ >> 32;
  };
  const transport::Burst& burst = *node.burst_;
  const transport::AddressVector& av = burst.flow()->av;
  add(static_cast<uint64_t>(now_));
  add(static_cast<uint64_t>(node.index()) << 32 | av.source_port << 8 |
      av.traffic_class);
  add(burst.segment_size());
  std::span<const uint8_t> bytes = burst.bytes();
  add(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t part = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), part);
    add(word);
    bytes = bytes.subspan(part);
  }
}

void Network::SendBurst(Node& node) {
  CheckBurst(node);
  if (checker_->failed()) return;
  AddToDigest(node);
  const transport::Burst& burst = *node.burst_;
  const transport::Flow& flow = *burst.flow();
  packets_ += burst.segments();
  bytes_ += burst.bytes().size();
  if (node.profile_.bytes_per_us != 0) {
    node.busy_until_ =
        now_ + 1 + burst.bytes().size() * 1000 / node.profile_.bytes_per_us;
  }
  Node* to = FindNode(flow.av.destination);
  if (to == nullptr) return;
  if (!link(node, *to).profile.impaired() && to->port_.bytes_per_us == 0 &&
      pcap_ == nullptr && !trace_ && !filter &&
      node.profile_.ip_id == IpIdMode::kSegment) {
    SendGroBatch(node, *to, flow);
    return;
  }
  const size_t size = burst.segment_size();
  const std::span<const uint8_t> bytes = burst.bytes();
  uint16_t segment = 0;
  for (size_t at = 0; at < bytes.size(); at += size, ++segment) {
    uint16_t id = segment;
    if (node.profile_.ip_id == IpIdMode::kZero) id = 0;
    if (node.profile_.ip_id == IpIdMode::kCounting) {
      node.ip_id_ += 1 + (random_.Percent(10) ? random_.Below(20) : 0);
      id = node.ip_id_;
    }
    SendPacket(node, *to, flow,
               bytes.subspan(at, std::min(size, bytes.size() - at)), id);
  }
}

void Network::SendGroBatch(Node& from, Node& to, const transport::Flow& flow) {
  Link& link = this->link(from, to);
  const uint32_t index = NewPacket();
  Packet& packet = *packet_pool_[index];
  packet.bytes.assign(from.burst_->bytes().begin(), from.burst_->bytes().end());
  packet.segment_size = from.burst_->segment_size();
  packet.source = flow.av.source;
  packet.destination = flow.av.destination;
  packet.source_port = flow.av.source_port;
  packet.traffic_class = flow.av.traffic_class;
  packet.ip_id = 0;
  packet.corrupted = packet.forged = packet.forged_port = false;
  link.sent += from.burst_->segments();
  link.last_arrival = std::max(now_ + link.profile.delay, link.last_arrival);
  Push(link.last_arrival, Kind::kDeliver, to.index(), index);
}

bool Network::PassPort(Node& to, size_t bytes, uint8_t* traffic_class,
                       Time* queued) {
  SwitchPort& port = to.port_;
  if (port.bytes_per_us == 0) return true;
  const Time start = std::max(*queued, port.queue_free);
  const uint64_t backlog =
      static_cast<uint64_t>(start - *queued) * port.bytes_per_us / 1000;
  if (backlog + bytes > port.queue_bytes) {
    ++port.dropped;
    return false;
  }
  port.longest = std::max(port.longest, backlog + bytes);
  port.bytes += bytes;
  const bool capable = (*traffic_class & transport::kEcnBits) != 0;
  if (capable && port.mark_all != 0 && backlog > port.mark_from) {
    const uint64_t chance = backlog >= port.mark_all
                                ? 1'000'000
                                : port.mark_chance *
                                      (backlog - port.mark_from) /
                                      (port.mark_all - port.mark_from);
    if (random_.Chance(static_cast<uint32_t>(chance))) {
      *traffic_class |= transport::kEcnBits;
      ++port.marked;
    }
  }
  *queued = start + static_cast<Time>(bytes * 1000 / port.bytes_per_us);
  port.queue_free = *queued;
  return true;
}

bool Network::Loses(Node& from, Link& link, std::span<const uint8_t> bytes) {
  bool lost = link.profile.down;
  if (filter) {
    wire::PacketView view;
    wire::PacketView::Parse(bytes, &view);
    if (!filter(from, view)) lost = true;
  }
  if (lost) return true;
  if (link.losing > 0 && now_ <= link.losing_until) {
    --link.losing;
    return true;
  }
  if (!random_.Chance(link.profile.loss)) return false;
  link.losing = random_.Below(link.profile.loss_run);
  link.losing_until = now_ + kLossRunTime;
  return true;
}

bool Network::PassQueue(Link& link, size_t bytes, uint8_t* traffic_class,
                        bool* marked, Time* queued) {
  const LinkProfile& profile = link.profile;
  const Time start = std::max(now_, link.queue_free);
  const uint64_t backlog =
      static_cast<uint64_t>(start - now_) * profile.bytes_per_us / 1000;
  if (profile.queue_bytes != 0 && backlog + bytes > profile.queue_bytes) {
    ++link.overflowed;
    return false;
  }
  *marked = profile.ecn_threshold != 0 && backlog > profile.ecn_threshold &&
            (*traffic_class & 3) != 0;
  if (*marked) {
    *traffic_class |= 3;
    ++link.marked;
  }
  *queued = start + static_cast<Time>(bytes * 1000 / profile.bytes_per_us);
  link.queue_free = *queued;
  return true;
}

void Network::SendPacket(Node& from, Node& to, const transport::Flow& flow,
                         std::span<const uint8_t> bytes, uint16_t ip_id) {
  Link& link = this->link(from, to);
  const LinkProfile& profile = link.profile;
  ++link.sent;
  std::string fate;
  uint8_t traffic_class = flow.av.traffic_class;

  bool drop = Loses(from, link, bytes);
  if (drop) {
    ++link.lost;
    fate = "lost";
  }

  const bool overtakes = !drop && random_.Chance(profile.overtake);
  Time queued = now_;
  if (!drop && !overtakes && profile.bytes_per_us != 0) {
    bool marked = false;
    drop = !PassQueue(link, bytes.size(), &traffic_class, &marked, &queued);
    if (drop) {
      fate = "queue overflow";
      if (profile.receiver_queue) to.overflow_ = true;
    } else if (marked) {
      fate += "marked ";
    }
  }

  if (!drop && !PassPort(to, bytes.size(), &traffic_class, &queued)) {
    drop = true;
    fate = "dropped by the switch";
  }

  int copies = 0;
  if (!drop) {
    copies = 1;
    while (copies < 4 && random_.Chance(profile.duplicate)) ++copies;
  }
  for (int copy = 0; copy < copies; ++copy) {
    Time arrival =
        queued + profile.delay +
        (profile.jitter > 0 ? static_cast<Time>(random_.Below(profile.jitter))
                            : 0);
    const bool straggler = copy > 0 || random_.Chance(profile.reorder);
    if (overtakes && copy == 0) {
      arrival = now_;
      ++link.reordered;
      absl::StrAppend(&fate, "overtakes ");
    } else if (straggler) {
      arrival += random_.Below(profile.reorder_delay + 1);
    } else {
      arrival = std::max(arrival, link.last_arrival);
      link.last_arrival = arrival;
    }
    const uint32_t index = NewPacket();
    Packet& packet = *packet_pool_[index];
    packet.bytes.assign(bytes.begin(), bytes.end());
    packet.segment_size = bytes.size();
    packet.source = flow.av.source;
    packet.destination = flow.av.destination;
    packet.source_port = flow.av.source_port;
    packet.traffic_class = traffic_class;
    packet.ip_id = ip_id;
    packet.corrupted = packet.forged = packet.forged_port = false;
    if (from.profile_.ip_id != IpIdMode::kSegment) {
      flow.icrc.Store(packet.bytes, ip_id);
    }
    if (copy > 0) {
      ++link.duplicated;
      absl::StrAppend(&fate, "copy ");
    } else if (straggler && !overtakes) {
      ++link.reordered;
      absl::StrAppend(&fate, "held back ");
    }
    if (random_.Chance(profile.forge)) Forge(to, packet);
    if (random_.Chance(profile.corrupt)) {
      ++link.corrupted;
      packet.corrupted = true;
      for (int bits = 1 + random_.Below(3); bits > 0; --bits) {
        const uint64_t bit = random_.Below(packet.bytes.size() * 8);
        packet.bytes[bit / 8] ^= 1 << bit % 8;
      }
      absl::StrAppend(&fate, "damaged ");
    }
    if (trace_ || pcap_ != nullptr) {
      absl::StrAppendFormat(&fate, "arrives %.3f us ",
                            static_cast<double>(arrival) / 1000);
    }
    Push(arrival, Kind::kDeliver, to.index(), index);
  }
  if (trace_) {
    Trace(absl::StrFormat("%d > %d  %s  [%s]", from.index(), to.index(),
                          Describe(bytes), fate));
  }
  if (pcap_ != nullptr) {
    pcap_->Write({.time = now_,
                  .source = flow.av.source,
                  .destination = flow.av.destination,
                  .source_port = flow.av.source_port,
                  .traffic_class = traffic_class,
                  .ip_id = ip_id,
                  .udp_payload = bytes},
                 fate);
  }
}

void Network::Forge(Node& to, const Packet& packet) {
  const uint32_t index = NewPacket();
  Packet& forged = *packet_pool_[index];
  forged = packet;
  forged.forged = true;
  if (random_.Percent(50)) {
    forged.source.bytes[15] ^= 0x80;  // same address family
  } else {
    forged.source_port ^= kForgedPort;
    forged.forged_port = true;
  }
  forged.ip_id = 0;
  wire::PacketView view;
  wire::PacketView::Parse(forged.bytes, &view);
  const size_t header = view.info().header_length;
  for (size_t i = header; i + wire::kIcrcSize < forged.bytes.size(); ++i) {
    forged.bytes[i] ^= 0x5a;
  }
  if (random_.Percent(50)) {  // perhaps an expected PSN
    wire::StoreBe24(forged.bytes.data() + 9,
                    wire::PsnAdd(view.bth().psn, random_.Between(-2, 2)));
  }
  wire::IcrcFlow(forged.source, forged.destination, forged.source_port,
                 wire::kRoceUdpPort)
      .Store(forged.bytes, 0);
  Push(now_ + random_.Below(packet.bytes.size() + 20'000), Kind::kDeliver,
       to.index(), index);
}

}  // namespace sim
