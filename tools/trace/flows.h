// Sorts the packets of a capture into flows, and pairs requests with their
// responses.
#ifndef TOOLS_TRACE_FLOWS_H_
#define TOOLS_TRACE_FLOWS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "tools/trace/recording.h"
#include "wire/address.h"

namespace trace {

// Packets from one address to a queue pair of another. For the requests of a DC
// initiator: its address, no destination, and its own number, since it has one
// sequence of PSNs for all its targets.
using FlowKey = std::tuple<wire::IpAddress, wire::IpAddress, uint32_t>;
FlowKey KeyOf(const Packet& packet);

// A jump by more PSNs than any window means another connection with the number
// of an earlier one.
inline constexpr int32_t kOtherConnection = 1 << 16;

bool IsReliable(const Packet& packet);   // RC, XRC or DC
bool IsConnected(const Packet& packet);  // these, or UC

// The requests of one queue pair to another, at one of the two ends.
struct Flow {
  FlowKey requests;
  // The flow of the responses, once it is known.
  std::optional<FlowKey> responses;
  bool at_requester = true;
  bool reliable = true;
  // PSNs are counted from that of the first packet, beyond 2^24.
  uint32_t first_psn = 0;
  int64_t next = 0;  // after the highest request
  // `next` is uncertain: the last request was a READ of unknown size, or a
  // packet was damaged.
  bool unsure = false;
  // Not all of its requests are known: a packet between these addresses was
  // damaged, or a READ is of unknown size.
  bool lacks_some = false;
  uint32_t path_mtu = 0;  // bytes; 0: not known
  // Attributes of the requester, if a recording contains them; as in
  // ibv_modify_qp(3).
  std::optional<uint8_t> timeout;
  std::optional<uint8_t> retry_count;
  std::optional<uint8_t> rnr_retry;

  int64_t IndexOf(uint32_t psn) const;
  uint32_t PsnOf(int64_t index) const;
};

// A packet in its flow.
struct FlowPacket {
  const Packet& packet;
  Flow& flow;
  int64_t index = 0;  // its PSN, counted as in Flow
  // --- For requests.
  // The number of its PSNs; 0: unknown.
  int64_t psns = 1;
  // `index` minus that of the next new PSN. Negative: a repeat. Positive: PSNs
  // are missing.
  int64_t ahead = 0;
  // `ahead` is meaningless: the packet is the first of the flow, or an unsure
  // one.
  bool unsure = false;

  // The last PSN that is known.
  int64_t last() const { return index + std::max<int64_t>(psns, 1) - 1; }
};

class Flows {
 public:
  // `senders`: for files without directions, the addresses whose packets count
  // as sent here.
  Flows(const Recording& recording, std::span<const wire::IpAddress> senders);

  // In files without directions, a packet may count as both.
  bool WasSentHere(const Packet& packet) const;
  static bool WasReceivedHere(const Packet& packet);

  // Call these in the order of the file.
  void OnEvent(const Event& event);
  void OnDamaged(const Packet& packet);
  // A request that was sent or received here.
  FlowPacket OnRequest(const Packet& packet, bool sent);
  // The same for a response, if it is known which requests it answers.
  std::optional<FlowPacket> OnResponse(const Packet& packet, bool sent);

 private:
  struct Mtu {
    uint32_t bytes = 0;
    bool ambiguous = false;

    void Add(uint32_t seen);
    uint32_t value() const { return ambiguous ? 0 : bytes; }
  };
  using FlowMap = std::map<FlowKey, Flow*>;

  // A connected queue pair of this end.
  struct Connected {
    rxe_user::trace::QpStateEvent state;
    FlowKey to_peer;
    FlowKey to_local;
  };

  Flow* Create(const FlowKey& key, const Packet& packet, bool sent);
  void SetResponses(Flow* flow, const FlowKey& responses);
  // Copies the attributes of the local queue pair to the flow, if the flow is
  // its own.
  void Adopt(const Connected& connected, Flow* flow);
  // Ends the flows to and from a queue pair.
  void Forget(uint32_t qpn);
  // The path MTU of the request's flow.
  uint32_t MtuOf(const Packet& request, const Flow& flow) const;
  int64_t PsnsOf(const Packet& packet, const Flow& flow) const;

  const Recording& recording_;
  const std::vector<wire::IpAddress> senders_;
  std::deque<Flow> flows_;
  // Current flows by requests, separated by where they were captured: [1] was
  // sent here.
  FlowMap current_[2];
  // By the key of their responses.
  FlowMap answered_[2];
  // Current flows by the destination queue pairs of their requests or
  // responses. Some have ended.
  std::map<uint32_t, std::vector<Flow*>> flows_of_;
  std::map<uint32_t, Connected> connected_;   // by number
  std::map<FlowKey, uint32_t> connected_to_;  // its keys are `to_peer`
  std::map<std::pair<wire::IpAddress, wire::IpAddress>, Mtu> path_mtus_;
  std::map<FlowKey, Mtu> flow_mtus_;
  // For DC packets: the bytes that a view needs beyond the head.
  std::vector<uint8_t> whole_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_FLOWS_H_
