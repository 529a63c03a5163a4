// A network in one thread: endpoints on one virtual clock, joined by links that
// lose, duplicate, reorder, delay and damage packets, controlled by a seed.
//
// Step() jumps to the next event; nothing else moves the clock. Packets are
// checked on the wire (burst shape, headers, ICRC), and can be written to a
// capture file with the fate of each packet as its comment.
//
// network.cc has the clock, timers and calls, network_send.cc and
// network_receive.cc the packets.
#ifndef TRANSPORT_SIM_NETWORK_H_
#define TRANSPORT_SIM_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/burst.h"
#include "transport/base/types.h"
#include "transport/endpoint/endpoint.h"
#include "transport/sim/checker.h"
#include "transport/sim/pcap_writer.h"
#include "transport/sim/random.h"
#include "transport/sim/sim_memory.h"
#include "transport/sim/wire_rules.h"
#include "wire/address.h"
#include "wire/icrc.h"

namespace sim {

using transport::Time;

// Impairments of a link in one direction. Probabilities in parts per million.
struct LinkProfile {
  uint32_t loss = 0;
  uint32_t loss_run = 1;  // maximum length of a run of losses
  uint32_t duplicate = 0;
  uint32_t reorder = 0;  // delayed by up to reorder_delay
  // Arrives at once, before all packets in the queue and in flight.
  uint32_t overtake = 0;
  uint32_t corrupt = 0;  // flips one to three bits
  // A third party sends a copy with other contents and a good ICRC, from
  // another host, or from another port of the peer's host.
  uint32_t forge = 0;
  Time delay = 5 * transport::kMicrosecond;
  Time jitter = 0;  // added to the delay; preserves order
  Time reorder_delay = 100 * transport::kMicrosecond;
  // The queue before the receiver. 0 = infinitely fast, or unlimited.
  uint64_t bytes_per_us = 0;
  uint64_t queue_bytes = 0;  // excess is dropped
  uint64_t ecn_threshold =
      0;  // ECN-capable packets are marked above; 0 = never
  bool receiver_queue = false;  // drops call OnReceiveOverflow
  bool down = false;            // drops everything

  // Whether a packet can vanish or arrive damaged.
  bool lossy() const {
    return loss != 0 || corrupt != 0 || queue_bytes != 0 || down;
  }
  bool impaired() const {
    return lossy() || duplicate != 0 || reorder != 0 || overtake != 0 ||
           jitter != 0 || bytes_per_us != 0;
  }
};

// How a node assigns IP IDs.
enum class IpIdMode : uint8_t {
  kSegment,   // segment i of a burst has ID i, as with UDP_SEGMENT
  kZero,      // every packet is sent alone with ID 0
  kCounting,  // one counter for all destinations, as in hardware
};

struct NodeProfile {
  IpIdMode ip_id = IpIdMode::kSegment;
  int max_segments = 64;
  size_t burst_bytes = 65507;
  bool gro = true;  // merges arrivals, so packets have a segment index
  // Delivers a GRO batch by one call of OnGroBatch, as a socket does; otherwise
  // each packet by OnDatagram.
  bool batches = false;
  Time timer_slack = 0;  // timers run up to this late
  uint64_t bytes_per_us =
      0;  // a send keeps the sender busy; 0 = no time at all
  // Emulates a hardware peer: answers CE marks by CNPs and clears them before
  // the endpoint sees the packet. Its requester asks for all READ data at once
  // and leaves pacing to the responder.
  bool hardware_cnps = false;
};

// The last switch before a node: one queue for all senders. It marks
// ECN-capable packets with a probability that rises linearly from 0 at
// `mark_from` to `mark_chance` at `mark_all`, and all of them above that.
struct SwitchPort {
  uint64_t bytes_per_us = 0;  // 0: no switch
  uint64_t queue_bytes = 0;   // excess is dropped
  uint64_t mark_from = 0;     // bytes in the queue; mark_all = 0: never marks
  uint64_t mark_all = 0;
  uint32_t mark_chance = 200'000;  // parts per million
  Time queue_free = 0;
  // Counters.
  uint64_t bytes = 0;    // forwarded
  uint64_t dropped = 0;  // packets
  uint64_t marked = 0;
  uint64_t longest = 0;  // longest queue, bytes
};

// The link from one node to another, one direction.
struct Link {
  LinkProfile profile;
  Time queue_free = 0;
  Time last_arrival = 0;
  uint32_t losing = 0;  // remaining losses of a run
  Time losing_until = 0;
  // Counters, packets.
  uint64_t sent = 0;
  uint64_t lost = 0;
  uint64_t overflowed = 0;
  uint64_t duplicated = 0;
  uint64_t reordered = 0;
  uint64_t corrupted = 0;
  uint64_t marked = 0;
};

class Network;

// A host: an endpoint, its memory and its address.
class Node {
 public:
  Node(Network* network, int index, const wire::IpAddress& address);
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  int index() const { return index_; }
  const wire::IpAddress& address() const { return address_; }
  SimMemory& memory() { return memory_; }
  // Call before queue pairs exist or after they are gone; see also Touch.
  transport::Endpoint& endpoint() { return *endpoint_; }
  NodeProfile& profile() { return profile_; }
  SwitchPort& port() { return port_; }

 private:
  friend class Network;

  // The datagram that GRO is merging into.
  struct Merge {
    wire::IpAddress source;
    uint16_t port = 0;
    uint8_t traffic_class = 0;
    Time last = -1;
    size_t size = 0;
    int count = 0;
  };
  // The GRO batch so far, and the properties of each packet.
  struct Batch {
    std::vector<uint8_t> bytes;
    wire::IpAddress destination;
    struct Segment {
      size_t offset = 0;
      size_t size = 0;
      uint16_t ip_id = 0;
      bool corrupted = false;
      bool forged = false;
    };
    std::vector<Segment> segments;  // empty: no batch
    uint32_t number = 0;            // sequence number of the batch
  };

  int index_;
  wire::IpAddress address_;
  SimMemory memory_;
  NodeProfile profile_;
  SwitchPort port_;
  std::unique_ptr<transport::Endpoint> endpoint_;
  std::unique_ptr<transport::OneBurst> sink_;
  const transport::Burst* burst_ = nullptr;  // last burst sent
  std::vector<uint8_t> burst_buffer_;
  Merge merge_;
  Batch batch_;
  Time busy_until_ = 0;
  bool ready_scheduled_ = false;
  Time timer_scheduled_ = transport::kNever;
  Time timer_slack_now_ = 0;
  uint16_t ip_id_ = 0;
  bool overflow_ = false;
  std::map<uint32_t, Time>
      notified_;  // when a queue pair has sent its last CNP
  // Detection of endless loops.
  Time last_time_ = -1;
  uint64_t timers_at_once_ = 0;
};

// A packet, or a GRO batch, in flight.
struct Packet {
  std::vector<uint8_t> bytes;
  size_t segment_size = 0;  // bytes; bytes.size() for a single packet
  wire::IpAddress source;
  wire::IpAddress destination;
  uint16_t source_port = 0;
  uint8_t traffic_class = 0;
  uint16_t ip_id = 0;  // of the first segment; counts up
  bool corrupted = false;
  bool forged = false;
  bool forged_port = false;  // from the peer's address with another port
};

class Network {
 public:
  explicit Network(uint64_t seed, Checker* checker);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // --- Building.
  Node& AddNode(const wire::IpAddress& address);
  Node& AddNode();  // 10.0.0.1, 10.0.0.2, ...
  Node& node(int index) { return *nodes_[index]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  // References stay valid.
  Link& link(const Node& from, const Node& to) {
    return links_.try_emplace({from.index(), to.index()}, all_links_)
        .first->second;
  }
  // Also applies to links that do not exist yet.
  void SetAllLinks(const LinkProfile& profile);
  // Writes every packet to a file (pcapng). Call before the first event.
  void WritePcap(const std::string& file);
  void set_trace(bool on) { trace_ = on; }
  bool trace() const { return trace_; }
  // Prints a trace line with the virtual time.
  void Trace(const std::string& line) const;

  // --- The clock.
  Time now() const { return now_; }
  // Calls `what` at `when` (now if that has passed), then lets `node` send.
  void At(Time when, Node& node, std::function<void()> what);
  // Call after the application has called into the endpoint outside of At.
  void Touch(Node& node);
  // Runs the next event. False when there is none.
  bool Step();
  // Runs events until `done` or until the clock passes `limit`. True: `done`.
  bool RunUntil(const std::function<bool()>& done, Time limit);
  // Runs events up to and including `when`, and sets the clock to it.
  void RunTo(Time when);
  // Runs until no events are left, at most until `limit`. True: none are left.
  bool RunUntilIdle(Time limit);

  // --- What happened.
  uint64_t events() const { return events_; }
  uint64_t packets() const { return packets_; }
  uint64_t bytes() const { return bytes_; }
  // Damaged packets that the receiver accepted. CRC-32 with an unknown IP ID
  // misses one in some millions. The transport is not responsible for what they
  // write.
  uint64_t undetected() const { return undetected_; }
  // Good packets whose counting IP ID was rejected.
  uint64_t refused() const { return refused_; }
  // A hash of all packets that were sent, in order, with their nodes and times.
  // Equal digests mean that two builds send the same at the same times.
  uint64_t digest() const { return digest_; }

  // Called for every packet before the link. Tests count and drop packets with
  // it. False drops the packet.
  std::function<bool(const Node& from, const wire::PacketView& packet)> filter;

  // Bursts to an address without a node are lost, as answers to forged CONNECTs
  // are (DC). Otherwise they are a bug.
  bool strangers = false;

  // Checks the connections that are registered there.
  WireRules& rules() { return rules_; }

  Random& random() { return random_; }
  Checker& checker() { return *checker_; }

 private:
  enum class Kind : uint8_t { kDeliver, kTimer, kReady, kCall, kBatch };
  struct Event {
    Time time;
    uint64_t order;
    Kind kind;
    int node;
    uint32_t index;  // index into packets, calls or batches
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };

  // Difference between the forger's port and the peer's.
  static constexpr uint16_t kForgedPort = 0x100;

  // A packet in words.
  static std::string Describe(std::span<const uint8_t> bytes);
  void Push(Time time, Kind kind, int node, uint32_t index);
  uint32_t NewPacket();
  Node* FindNode(const wire::IpAddress& address);
  void Pump(Node& node);
  void SendBurst(Node& node);
  // Sends one packet over the link; `bytes` are copied.
  void SendPacket(Node& from, Node& to, const transport::Flow& flow,
                  std::span<const uint8_t> bytes, uint16_t ip_id);
  // Whether the link loses this packet: the link is down, by `filter`, or by
  // chance.
  bool Loses(Node& from, Link& link, std::span<const uint8_t> bytes);
  // Passes `bytes` through the queue of the link, which may mark the packet.
  // False: it is full. `queued`: when the packet leaves it.
  bool PassQueue(Link& link, size_t bytes, uint8_t* traffic_class, bool* marked,
                 Time* queued);
  // Passes `bytes` through the switch port before `to`, which may mark the
  // packet. False: dropped. `queued`: when the packet leaves the queue.
  bool PassPort(Node& to, size_t bytes, uint8_t* traffic_class, Time* queued);
  // Sends a CNP to the peer of the queue pair that `packet` is for, unless one
  // was sent recently.
  void SendHardwareCnp(Node& node, std::span<const uint8_t> packet);
  void SendGroBatch(Node& from, Node& to, const transport::Flow& flow);
  void CheckBurst(Node& node);
  void AddToDigest(const Node& node);
  // Schedules a forged copy of `packet`.
  void Forge(Node& to, const Packet& packet);
  // Whether the receiver of a forged packet knows its peer's port, and heard
  // from it so recently that it rejects other ports.
  bool KnowsPeer(const Node& node, const Packet& forged) const;
  void Deliver(Node& node, const Packet& packet);
  void DeliverOne(Node& node, const Packet& packet,
                  std::span<const uint8_t> bytes, uint16_t ip_id);
  void DeliverBatch(Node& node);
  // Checks whether the endpoint was right to accept a packet.
  void CheckDelivered(Node& node, const transport::Datagram& datagram,
                      uint16_t ip_id, bool corrupted, bool forged,
                      transport::Disposition disposition);
  void ArmTimer(Node& node);
  void RunTimer(Node& node);

  Random random_;
  Checker* checker_;
  Time now_ = 0;
  uint64_t order_ = 0;
  std::vector<Event> heap_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<std::pair<int, int>, Link> links_;  // by the nodes' indices
  Link all_links_;
  std::vector<std::unique_ptr<Packet>> packet_pool_;
  std::vector<uint32_t> free_packets_;
  std::vector<std::function<void()>> calls_;
  std::vector<uint32_t> free_calls_;
  std::unique_ptr<PcapWriter> pcap_;
  bool trace_ = false;
  uint64_t events_ = 0;
  uint64_t packets_ = 0;
  uint64_t bytes_ = 0;
  uint64_t undetected_ = 0;
  uint64_t refused_ = 0;
  uint64_t digest_ = 0;
  // Time of a queue pair's last good packet, by node and number.
  std::map<std::pair<int, uint32_t>, Time> heard_;
  WireRules rules_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_NETWORK_H_
