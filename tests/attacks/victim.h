// One end of a connection under attack: a process that exchanges messages with
// the other end and checks every byte.
#ifndef TESTS_ATTACKS_VICTIM_H_
#define TESTS_ATTACKS_VICTIM_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace attacks {

// The victim's report, in memory shared with the test.
struct VictimStatus {
  std::atomic<uint64_t> rounds;  // completed and correct rounds
  std::atomic<uint32_t> qpn;
  std::atomic<uint32_t> rkey;
  std::atomic<uint64_t> address;        // of the memory that the peer may write
  std::atomic<int64_t> round_began_ns;  // CLOCK_MONOTONIC
  std::atomic<int> outstanding;         // requests of this round
  std::atomic<bool> stopped;            // has no outstanding requests any more
  std::atomic<bool> failed;             // `message` says why
  char message[240];
};

// The test's orders to both victims.
struct VictimOrders {
  std::atomic<bool> stop;  // start no more rounds, but keep responding
};

// Starts a victim at 127.0.0.1, or at ::1. `uc`: over an unreliable connection,
// where a round counts what was sent, and received messages must be correct but
// need not be complete. `link`: a socket that is connected to the other victim.
// It responds until it is killed, at the latest when the caller ends.
pid_t StartVictim(bool ipv6, bool uc, int link, VictimStatus* status,
                  const VictimOrders* orders);

}  // namespace attacks

#endif  // TESTS_ATTACKS_VICTIM_H_
