// Selects the raw packet queue pairs that receive a frame: manual page
// ibv_create_flow(3).
//
// A sniffer receives every frame. Among rules of kind kNormal, the first match
// takes the frame: lower priority numbers first, then older rules. Rules of
// equal priority and specs share: each receives a copy. A rule with `dont_trap`
// receives a copy, and the search continues. Frames that no rule takes go to
// the default rules (all, or multicast): each receives a copy.
#ifndef TRANSPORT_RAW_FLOW_TABLE_H_
#define TRANSPORT_RAW_FLOW_TABLE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/base/frames.h"
#include "transport/base/types.h"

namespace transport {

// IBV_FLOW_ATTR_*.
enum class FlowKind : uint8_t {
  kNormal = 0,
  kAllDefault = 1,
  kMulticastDefault = 2,
  kSniffer = 3,
};

enum class FlowLayer : uint8_t { kEthernet, kIpv4, kIpv6, kTcp, kUdp };
inline constexpr size_t kFlowLayers = 5;

// A header that a frame must have, with a mask of the bits that are compared.
// The bytes are, in this order and in network order (struct ibv_flow_*_filter):
//   kEthernet    destination, source (6 each), EtherType, VLAN tag (2 each); a
//                nonzero mask of the tag requires a tag
//   kIpv4        source, destination (4 each), protocol, TOS, TTL, flags (1
//                each; 2: do not fragment, 4: more fragments)
//   kIpv6        source, destination (16 each), flow label (4), next header,
//                traffic class, hop limit (1 each)
//   kTcp, kUdp   destination port, source port (2 each)
struct FlowSpec {
  static constexpr size_t kBytes = 40;
  using Bytes = std::array<uint8_t, kBytes>;

  FlowLayer layer = FlowLayer::kEthernet;
  Bytes value{};
  Bytes mask{};

  bool operator==(const FlowSpec&) const = default;
};

// Frames that rules have taken. Written under the lane's lock, read without it.
struct FlowCount {
  std::atomic<uint64_t> packets = 0;
  std::atomic<uint64_t> bytes = 0;
};

// A rule; immutable while it is in a table.
struct FlowRule {
  FlowKind kind = FlowKind::kNormal;
  uint16_t priority = 0;
  bool dont_trap = false;
  bool drop = false;  // discard the frames that it takes
  uint32_t tag = 0;
  std::vector<FlowSpec> specs;
  FrameDestination* destination = nullptr;  // outlives the rule
  std::vector<std::shared_ptr<FlowCount>> counts;
};

class FlowKey;

// All calls with the lane's lock held. The caller owns the rules, which outlive
// their time in the table.
class FlowTable {
 public:
  void Add(FlowRule* rule);
  void Remove(const FlowRule* rule);
  bool empty() const { return normal_.empty() && others_.empty(); }

  void Deliver(const ReceivedFrame& received, Time now);
  // Number of frames that can be received without a drop: the fewest receives
  // of any destination.
  size_t FrameRoom() const;

 private:
  // Runs the rules of kNormal; true if one of them has taken the frame.
  bool DeliverNormal(const FlowKey& key, const ReceivedFrame& received,
                     Time now);
  static void DeliverTo(FlowRule* rule, const ReceivedFrame& received,
                        Time now);

  std::vector<FlowRule*> normal_;  // by priority
  std::vector<FlowRule*> others_;
};

}  // namespace transport

#endif  // TRANSPORT_RAW_FLOW_TABLE_H_
