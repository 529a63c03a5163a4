#include "transport/raw/flow_table.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace transport {
namespace {

constexpr size_t kVlanAt = 14;  // offset in a kEthernet FlowSpec

}  // namespace

// The headers of a frame in FlowSpec's layout.
class FlowKey {
 public:
  explicit FlowKey(const wire::EthernetFrame& frame);
  bool Matches(const FlowSpec& spec) const;

 private:
  uint8_t* Begin(FlowLayer layer) {
    has_[static_cast<size_t>(layer)] = true;
    return bytes_[static_cast<size_t>(layer)].data();
  }
  void SetIpv4(const uint8_t* ip, uint8_t protocol);
  void SetIpv6(const uint8_t* ip, uint8_t next_header);

  bool has_[kFlowLayers] = {};
  bool has_vlan_;
  FlowSpec::Bytes bytes_[kFlowLayers] = {};
};

FlowKey::FlowKey(const wire::EthernetFrame& frame) : has_vlan_(frame.has_vlan) {
  uint8_t* const ethernet = Begin(FlowLayer::kEthernet);
  std::memcpy(ethernet, frame.bytes.data(), 12);
  ethernet[12] = static_cast<uint8_t>(frame.ether_type >> 8);
  ethernet[13] = static_cast<uint8_t>(frame.ether_type);
  ethernet[kVlanAt] = static_cast<uint8_t>(frame.vlan_tag >> 8);
  ethernet[kVlanAt + 1] = static_cast<uint8_t>(frame.vlan_tag);
  if (frame.layer3 == wire::Layer3::kIpv4) {
    SetIpv4(frame.ip_header(), frame.protocol);
  } else if (frame.layer3 == wire::Layer3::kIpv6) {
    SetIpv6(frame.ip_header(), frame.protocol);
  }
  if (frame.layer4 != wire::Layer4::kOther) {
    uint8_t* const ports = Begin(
        frame.layer4 == wire::Layer4::kTcp ? FlowLayer::kTcp : FlowLayer::kUdp);
    std::memcpy(ports, frame.transport_header() + 2, 2);
    std::memcpy(ports + 2, frame.transport_header(), 2);
  }
}

void FlowKey::SetIpv4(const uint8_t* ip, uint8_t protocol) {
  uint8_t* const key = Begin(FlowLayer::kIpv4);
  std::memcpy(key, ip + 12, 8);
  key[8] = protocol;
  key[9] = ip[1];
  key[10] = ip[8];
  key[11] = static_cast<uint8_t>(((ip[6] & 0x40) != 0 ? 2 : 0) |
                                 ((ip[6] & 0x20) != 0 ? 4 : 0));
}

void FlowKey::SetIpv6(const uint8_t* ip, uint8_t next_header) {
  uint8_t* const key = Begin(FlowLayer::kIpv6);
  std::memcpy(key, ip + 8, 32);
  key[33] = ip[1] & 0x0f;
  key[34] = ip[2];
  key[35] = ip[3];
  key[36] = next_header;
  key[37] = static_cast<uint8_t>(ip[0] << 4 | ip[1] >> 4);
  key[38] = ip[7];
}

bool FlowKey::Matches(const FlowSpec& spec) const {
  const auto layer = static_cast<size_t>(spec.layer);
  if (!has_[layer]) return false;
  if (spec.layer == FlowLayer::kEthernet && !has_vlan_ &&
      (spec.mask[kVlanAt] | spec.mask[kVlanAt + 1]) != 0) {
    return false;
  }
  for (size_t i = 0; i < FlowSpec::kBytes; ++i) {
    if (((bytes_[layer][i] ^ spec.value[i]) & spec.mask[i]) != 0) return false;
  }
  return true;
}

namespace {

bool Matches(const FlowKey& key, const FlowRule& rule) {
  return std::ranges::all_of(
      rule.specs, [&key](const FlowSpec& spec) { return key.Matches(spec); });
}

}  // namespace

void FlowTable::Add(FlowRule* rule) {
  if (rule->kind != FlowKind::kNormal) {
    others_.push_back(rule);
    return;
  }
  const auto behind = std::ranges::upper_bound(normal_, rule->priority, {},
                                               &FlowRule::priority);
  normal_.insert(behind, rule);
}

void FlowTable::Remove(const FlowRule* rule) {
  std::erase(normal_, rule);
  std::erase(others_, rule);
}

void FlowTable::DeliverTo(FlowRule* rule, const ReceivedFrame& received,
                          Time now) {
  for (const std::shared_ptr<FlowCount>& count : rule->counts) {
    count->packets.fetch_add(1, std::memory_order_relaxed);
    count->bytes.fetch_add(received.frame.bytes.size(),
                           std::memory_order_relaxed);
  }
  if (!rule->drop) rule->destination->OnFrame(received, rule->tag, now);
}

void FlowTable::Deliver(const ReceivedFrame& received, Time now) {
  const FlowKey key(received.frame);
  for (FlowRule* const rule : others_) {
    if (rule->kind == FlowKind::kSniffer && Matches(key, *rule)) {
      DeliverTo(rule, received, now);
    }
  }
  if (DeliverNormal(key, received, now) || received.is_outgoing) return;
  for (FlowRule* const rule : others_) {
    const bool takes_it = rule->kind == FlowKind::kAllDefault ||
                          (rule->kind == FlowKind::kMulticastDefault &&
                           received.frame.is_multicast());
    if (takes_it && Matches(key, *rule)) DeliverTo(rule, received, now);
  }
}

size_t FlowTable::FrameRoom() const {
  size_t room = kManyFrames;
  for (const std::vector<FlowRule*>* rules : {&normal_, &others_}) {
    for (const FlowRule* const rule : *rules) {
      if (rule->drop) continue;
      room = std::min(room, rule->destination->FrameRoom());
    }
  }
  return room;
}

bool FlowTable::DeliverNormal(const FlowKey& key, const ReceivedFrame& received,
                              Time now) {
  const FlowRule* taken = nullptr;
  for (FlowRule* const rule : normal_) {
    if (taken != nullptr && rule->priority != taken->priority) break;
    const bool matches =
        taken == nullptr ? Matches(key, *rule) : rule->specs == taken->specs;
    if (!matches) continue;
    DeliverTo(rule, received, now);
    if (!rule->dont_trap && taken == nullptr) taken = rule;
  }
  return taken != nullptr;
}

}  // namespace transport
