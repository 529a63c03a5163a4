// One simulated run of unreliable datagrams, from a seed to a verdict.
//
// Queue pairs on three hosts send to each other, and to themselves, through a
// network that loses, copies, reorders and damages packets, to peers that
// sometimes have no receive for them. Whatever happens: sends succeed in order;
// what is received is what one of them has sent, whole, from where it says and
// with its IP header before it; if the network makes no copies, at most once;
// nothing else is written; queue pairs stay in RTS. Then the network is mended,
// and every further message arrives.
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
  uint64_t received = 0;    // and arrived, copies included
  uint64_t damaged = 0;     // packets, by the network
  uint64_t undetected = 0;  // and passed the ICRC
};

class UdRun {
 public:
  explicit UdRun(uint64_t seed);

  // Runs it to its end. True when all was as it must be. To be called once.
  bool Execute();

  Network& network() { return net_; }
  const Checker& checker() const { return checker_; }
  // Adds what happened in this run.
  void AddTo(UdStatistics* sum);

 private:
  struct Message {
    int to = 0;  // index of the end
    uint32_t flags = 0;
    uint32_t imm_be = 0;
    bool has_imm = false;
    bool is_segment = false;  // its first bytes are the header of kTso
    uint8_t traffic_class = 0;
    // Begins with the sender and the number, if it has room, so that it is like
    // no other one.
    std::vector<uint8_t> content;
    size_t arrived = 0;

    uint32_t length() const { return static_cast<uint32_t>(content.size()); }
  };
  // A queue pair and the application that uses it.
  struct End {
    int index = 0;
    Node* node = nullptr;
    std::vector<uint8_t> buffer;  // receives, then what is being sent
    Region region;
    SimCq send_cq;
    SimCq recv_cq;
    SimEvents events;
    std::unique_ptr<transport::QueuePair> qp;
    std::vector<Message> messages;
    size_t posted = 0;
    size_t completed = 0;
    bool plenty = true;  // always has a receive
    size_t receives_posted = 0;
    size_t receives_done = 0;
  };

  static constexpr int kHosts = 3;
  static constexpr int kEndsPerHost = 2;

  void Create(End& end);
  void MakeMessages(End& end);
  uint64_t Slot(size_t receive) const { return receive % kSlots * slot_bytes_; }
  transport::AddressVector Address(const End& from, const Message& message);

  // The application: takes completions, posts what it may, comes again.
  void Look(End& end);
  void PostSend(End& end);
  void PostReceive(End& end);
  void OnSent(End& end, const transport::Completion& completion);
  void OnReceived(End& end, const transport::Completion& completion);
  bool Matches(const End& end, const End& from, const Message& message,
               const transport::Completion& completion) const;
  // Until nothing happens; takes what has completed, and checks what must be.
  void Finish();
  void Fail(const End& end, const std::string& text);

  // Receives that are posted at a time.
  static constexpr size_t kSlots = 64;

  const Scenario scenario_;
  Random random_;
  const uint32_t mtu_;
  const uint32_t slot_bytes_;
  const size_t first_messages_;  // of each end, through the bad network
  LinkProfile link_;
  bool mended_ = false;
  Checker checker_;
  Network net_;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UD_RUN_H_
