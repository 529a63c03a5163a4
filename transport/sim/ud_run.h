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
#include <vector>

#include "transport/sim/service_run.h"

namespace sim {

// Counts messages "sent", "received" (duplicates included), and "damaged"
// packets.
class UdRun final : public ServiceRun {
 public:
  explicit UdRun(uint64_t seed);

 private:
  // A queue pair and its application.
  struct End : Sender {
    int index = 0;
    Pool pool;  // receives, then messages being sent
    SimCq recv_cq;
    transport::AddressVector av;  // of the last message
    bool plenty = true;           // always has a receive posted
    size_t receives_posted = 0;
    size_t receives_done = 0;
  };

  static constexpr int kHosts = 3;
  static constexpr int kEndsPerHost = 2;

  void Play() override;
  void Count(Statistics* statistics) override;
  void Address(Sender& sender, const Message& message,
               transport::SendRequest* request) override;

  void Create(End& end);
  void MakeMessages(End& end);
  uint64_t Slot(size_t receive) const { return receive % kSlots * slot_bytes_; }

  // The application: polls completions, posts requests, and schedules itself.
  void RunApp(End& end);
  // Posts up to `count` receives, as long as there are slots.
  void PostReceives(End& end, size_t count);
  void PostReceive(End& end);
  void OnReceived(End& end, const transport::Completion& completion);
  bool IsFrom(const End& from, const Message& message, const End& end,
              const transport::Completion& completion) const;
  // Runs until nothing is left to happen, polls completions, and checks the
  // result.
  void Finish();

  // Receives posted at a time.
  static constexpr size_t kSlots = 64;

  const size_t first_messages_;  // of each end, over the bad network
  bool mended_ = false;
  std::vector<std::unique_ptr<End>> ends_;
};

}  // namespace sim

#endif  // TRANSPORT_SIM_UD_RUN_H_
