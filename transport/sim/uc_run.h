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

#include "transport/sim/service_run.h"

namespace sim {

// Counts messages "sent", those "consuming" a receive and, of these, those
// "received"; "answers", the sent reports of runs with loss; and "complete"
// runs, in which everything had to arrive.
class UcRun final : public ServiceRun {
 public:
  explicit UcRun(uint64_t seed);

 private:
  // A queue pair and its application.
  struct End : Sender {
    End* peer = nullptr;
    Pool pool;  // slots of receives, message sources, targets of the peer
    SimCq recv_cq;
    bool plenty = true;  // always has a receive posted
    // Its reports are dropped in this interval.
    Time silent_from = 0;
    Time silent_until = 0;
    size_t receives_posted = 0;  // receive i has slot i
    // For each completed receive, the index of the peer's message.
    std::vector<size_t> received;
    std::vector<uint8_t> before;  // initial content of the buffer
  };

  void Play() override;
  void Count(Statistics* statistics) override;

  LinkProfile BadLink() const;
  void MakeEnd(End& end, uint32_t qpn);
  void MakeMessages(End& end);
  void Connect(End& end);
  void MakeSilent(End& end);
  void FilterAnswers();
  uint64_t Slot(size_t receive) const { return receive * slot_bytes_; }

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(End& end);
  void PostReceive(End& end);
  void PostReceives(End& end, size_t limit);
  void OnReceived(End& end, const transport::Completion& completion);
  // Where `end` finds `message` of its peer.
  const uint8_t* DataOf(const End& end, const Message& message,
                        size_t receive) const;

  // Runs until nothing is left to happen, polls completions, and checks the
  // result.
  void Finish();
  void CheckQuiet(const End& end);
  void CheckTarget(const End& end, const Message& message, bool whole);
  // Checks that all messages to `end` from `first` on have arrived.
  void CheckArrived(const End& end, size_t first);

  size_t first_messages_ = 0;  // sent over the bad network
  bool complete_ = false;      // no losses: everything must arrive
  size_t may_come_ = 0;        // earlier messages can no longer arrive
  uint64_t answers_ = 0;
  End ends_[2];
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UC_RUN_H_
