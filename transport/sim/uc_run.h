// One simulated run of an unreliable connection, from a seed to a verdict.
//
// Both ends send messages of every operation that UC has through a network
// that loses, copies, reorders and damages packets, to a peer that sometimes
// has no receive for them. Whatever happens: sends succeed in order; what is
// received was sent, whole, in the order of sending and at most once; a WRITE
// has written the beginning of its message and nothing else; queue pairs stay
// in RTS. Then the network is mended, and every further message arrives. Some
// ends never answer those who ask, as other devices, some fall silent for a
// while, and some lose answers.
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
  uint64_t consuming = 0;   // of those, the ones that take a receive
  uint64_t received = 0;    // and arrived
  uint64_t undetected = 0;  // damaged packets that passed the ICRC
  uint64_t answers = 0;     // that got out, counted where some may not
  int complete = 0;         // runs in which everything had to arrive
};

class UcRun {
 public:
  explicit UcRun(uint64_t seed);

  // Runs it to its end. True when all was as it must be. To be called once.
  bool Execute();

  Network& network() { return pair_.net; }
  const Checker& checker() const { return pair_.checker; }
  // Adds what happened in this run.
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
  // A queue pair and the application that uses it.
  struct End {
    End(const char* name, Pair::Side* side, End* peer)
        : name(name), side(side), peer(peer) {}

    const char* const name;
    Pair::Side* const side;
    End* const peer;
    std::vector<Message> messages;  // to the peer
    size_t posted = 0;
    size_t completed = 0;  // of those signaled, or passed over
    bool plenty = true;    // always has a receive
    // Answers do not get out between these.
    Time silent_from = 0;
    Time silent_until = 0;
    size_t receives_posted = 0;  // receive i has slot i
    // Of each receive that has completed, the message of the peer's.
    std::vector<size_t> received;
    std::vector<uint8_t> before;  // the buffer, as it was at first
  };

  PairOptions Options() const;
  void MakeMessages(End& end);
  void Watch(const End& end, uint32_t first_psn);
  void MakeSilent(End& end);
  void FilterAnswers();
  uint64_t Slot(size_t receive) const { return receive * slot_bytes_; }

  // The application: takes completions, posts what it may, comes again.
  void Look(End& end);
  void PostSend(End& end);
  void PostReceive(End& end);
  void OnSent(End& end, const transport::Completion& completion);
  void OnReceived(End& end, const transport::Completion& completion);
  // Whether `completion` of `end` can be of `message`.
  bool Matches(const End& end, const Message& message,
               const transport::Completion& completion) const;
  bool At(const End& end, uint64_t offset,
          const std::vector<uint8_t>& content) const;

  // Until nothing happens; takes what has completed, and checks what must be.
  void Finish();
  void CheckQuiet(const End& end);
  void CheckTarget(const End& end, const Message& message, bool whole);
  // The messages of `end` from `first` on have all arrived.
  void CheckArrived(const End& end, size_t first);
  void Fail(const End& end, const std::string& text);

  const Scenario scenario_;
  Random random_;
  uint32_t path_mtu_ = 0;
  uint32_t max_length_ = 0;
  uint32_t slot_bytes_ = 0;
  size_t first_messages_ = 0;  // through the bad network
  bool complete_ = false;      // nothing is lost, so everything arrives
  size_t may_come_ = 0;        // messages before this are not under way
  uint64_t answers_ = 0;
  Pair pair_;
  End a_;
  End b_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UC_RUN_H_
