// One seed of unreliable datagrams.
//
// Queue pairs on three hosts send to each other and to themselves over a
// network that loses, duplicates, reorders and damages packets, to peers that
// sometimes have no receive. Sends always succeed in order. A received message
// was sent by the queue pair that it names, is whole, and has the right IP
// header before it; without duplication by the network it arrives at most once.
// Nothing else is written. Queue pairs stay in RTS. Then the network is
// repaired, and every further message arrives.
#ifndef TRANSPORT_SIM_UD_RUN_H_
#define TRANSPORT_SIM_UD_RUN_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/queue_pairs.h"
#include "transport/sim/checker.h"
#include "transport/sim/network.h"
#include "transport/sim/queues.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"

namespace sim {

struct UdStatistics {
  uint64_t packets = 0;
  uint64_t sent = 0;        // messages
  uint64_t received = 0;    // arrived, duplicates included
  uint64_t damaged = 0;     // damaged packets
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
};

class UdRun {
 public:
  explicit UdRun(uint64_t seed);

  // Runs the seed; call once. True: all checks passed.
  bool Execute();

  Network& network() { return net_; }
  const Checker& checker() const { return checker_; }
  // Adds this run's statistics.
  void AddTo(UdStatistics* sum);

 private:
  struct Message {
    int to = 0;  // index of the end
    uint32_t flags = 0;
    uint32_t imm_be = 0;
    bool has_imm = false;
    bool is_segment = false;  // starts with the header of kTso
    uint8_t traffic_class = 0;
    // Starts with sender and number, if they fit, so that it is unique.
    std::vector<uint8_t> content;
    size_t arrived = 0;

    uint32_t length() const { return static_cast<uint32_t>(content.size()); }
  };
  // A queue pair and its application.
  struct End {
    int index = 0;
    Node* node = nullptr;
    std::vector<uint8_t> buffer;  // receives, then messages being sent
    Region region;
    SimCq send_cq;
    SimCq recv_cq;
    SimEvents events;
    std::unique_ptr<transport::QueuePair> qp;
    std::vector<Message> messages;
    size_t posted = 0;
    size_t completed = 0;
    bool plenty = true;  // always has a receive posted
    size_t receives_posted = 0;
    size_t receives_done = 0;
  };

  static constexpr int kHosts = 3;
  static constexpr int kEndsPerHost = 2;

  void Create(End& end);
  void MakeMessages(End& end);
  uint64_t Slot(size_t receive) const { return receive % kSlots * slot_bytes_; }
  transport::AddressVector Address(const End& from, const Message& message);

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(End& end);
  void PostSend(End& end);
  void PostReceive(End& end);
  void OnSent(End& end, const transport::Completion& completion);
  void OnReceived(End& end, const transport::Completion& completion);
  bool Matches(const End& end, const End& from, const Message& message,
               const transport::Completion& completion) const;
  // Runs until nothing is left to happen, polls completions, and checks the
  // result.
  void Finish();
  void Fail(const End& end, const std::string& text);

  // Receives posted at a time.
  static constexpr size_t kSlots = 64;

  const Scenario scenario_;
  Random random_;
  const uint32_t mtu_;
  const uint32_t slot_bytes_;
  const size_t first_messages_;  // of each end, over the bad network
  LinkProfile link_;
  bool mended_ = false;
  Checker checker_;
  Network net_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UD_RUN_H_
