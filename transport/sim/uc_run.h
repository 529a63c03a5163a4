// One seed of an unreliable connection.
//
// Both ends send messages of every UC operation over a network that loses,
// duplicates, reorders and damages packets, to a peer that sometimes has no
// receive. Sends always succeed in order. A received message was sent, is
// whole, and arrives in order and at most once. A WRITE has written a prefix of
// its message and nothing else. Queue pairs stay in RTS. Then the network is
// repaired, and every further message arrives. Some ends never send reports,
// like other devices; some fall silent for a while, and some lose reports.
#ifndef TRANSPORT_SIM_UC_RUN_H_
#define TRANSPORT_SIM_UC_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "transport/sim/pair.h"
#include "transport/sim/random.h"
#include "transport/sim/scenario.h"

namespace sim {

struct UcStatistics {
  uint64_t packets = 0;
  uint64_t sent = 0;        // messages
  uint64_t consuming = 0;   // sent messages that take a receive
  uint64_t received = 0;    // of those, arrived
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
  uint64_t answers = 0;     // sent reports, where some may be lost
  int complete = 0;         // runs in which everything had to arrive
};

class UcRun {
 public:
  explicit UcRun(uint64_t seed);

  // Runs the seed; call once. True: all checks passed.
  bool Execute();

  Network& network() { return pair_.net; }
  const Checker& checker() const { return pair_.checker; }
  // Adds this run's statistics.
  void AddTo(UcStatistics* sum) const;

 private:
  struct Message {
    transport::SendOpcode opcode = transport::SendOpcode::kSend;
    uint32_t flags = 0;
    uint32_t imm_be = 0;
    uint64_t source = 0;  // offset into the sender's buffer
    uint64_t target = 0;  // WRITE: offset into the receiver's
    std::vector<uint8_t> content;

    bool writes() const;
    bool has_imm() const;
    bool takes_receive() const { return !writes() || has_imm(); }
    uint32_t length() const { return static_cast<uint32_t>(content.size()); }
  };
  // A queue pair and its application.
  struct End {
    End(const char* name, Pair::Side* side, End* peer)
        : name(name), side(side), peer(peer) {}

    const char* const name;
    Pair::Side* const side;
    End* const peer;
    std::vector<Message> messages;  // to the peer
    size_t posted = 0;
    size_t completed = 0;  // by signaled completions, or skipped by them
    bool plenty = true;    // always has a receive posted
    // Its reports are dropped in this interval.
    Time silent_from = 0;
    Time silent_until = 0;
    size_t receives_posted = 0;  // receive i has slot i
    // For each completed receive, the index of the peer's message.
    std::vector<size_t> received;
    std::vector<uint8_t> before;  // initial content of the buffer
  };

  PairOptions Options() const;
  void MakeMessages(End& end);
  void Watch(const End& end, uint32_t first_psn);
  void MakeSilent(End& end);
  void FilterAnswers();
  uint64_t Slot(size_t receive) const { return receive * slot_bytes_; }

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(End& end);
  void PostSend(End& end);
  void PostReceive(End& end);
  void OnSent(End& end, const transport::Completion& completion);
  void OnReceived(End& end, const transport::Completion& completion);
  // Whether `completion` of `end` can belong to `message`.
  bool Matches(const End& end, const Message& message,
               const transport::Completion& completion) const;
  bool At(const End& end, uint64_t offset,
          const std::vector<uint8_t>& content) const;

  // Runs until nothing is left to happen, polls completions, and checks the
  // result.
  void Finish();
  void CheckQuiet(const End& end);
  void CheckTarget(const End& end, const Message& message, bool whole);
  // Checks that all messages of `end` from `first` on have arrived.
  void CheckArrived(const End& end, size_t first);
  void Fail(const End& end, const std::string& text);

  const Scenario scenario_;
  Random random_;
  uint32_t path_mtu_ = 0;
  uint32_t max_length_ = 0;
  uint32_t slot_bytes_ = 0;
  size_t first_messages_ = 0;  // sent over the bad network
  bool complete_ = false;      // no losses: everything must arrive
  size_t may_come_ = 0;        // earlier messages can no longer arrive
  uint64_t answers_ = 0;
  Pair pair_;
  End a_;
  End b_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UC_RUN_H_
