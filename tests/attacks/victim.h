// One end of a connection under attack: a process of its own that exchanges
// messages with the other end, and looks at every byte.
#ifndef TESTS_ATTACKS_VICTIM_H_
#define TESTS_ATTACKS_VICTIM_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>

namespace attacks {

// What a victim tells, in memory that it shares with the test.
struct VictimStatus {
  std::atomic<uint64_t> rounds;  // that are complete, and were right
  std::atomic<uint32_t> qpn;
  std::atomic<uint32_t> rkey;
  std::atomic<uint64_t> address;  // of what the peer may write
  std::atomic<int64_t> round_began_ns;  // CLOCK_MONOTONIC
  std::atomic<int> outstanding;         // requests of this round
  std::atomic<bool> stopped;            // has no more requests outstanding
  std::atomic<bool> failed;       // `message` says why
  char message[240];
};

// What the test tells both.
struct VictimOrders {
  std::atomic<bool> stop;  // no more rounds; still answers
};

// Starts a victim at 127.0.0.1, or at ::1. `uc`: on an unreliable connection,
// where a round is what was sent, and what arrives is right, but need not be
// all. `link`: a connected socket, whose other end the other victim has. It
// answers until it is killed, at the latest when the caller ends.
pid_t StartVictim(bool ipv6, bool uc, int link, VictimStatus* status,
                  const VictimOrders* orders);

}  // namespace attacks

#endif  // TESTS_ATTACKS_VICTIM_H_
