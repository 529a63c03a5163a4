// Finds out where sockets stand in their reuseport group, while their owners
// use them.
#ifndef RXE_USER_BROKER_PROBER_H_
#define RXE_USER_BROKER_PROBER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

// A probe is a datagram with an index in it, which the group's program steers
// to the socket at that index (steering.h). A filter on each socket drops
// probes, which shows in that socket's drop counter, whoever reads its queue
// meanwhile. Sockets that are locked have had theirs since they were made.
//
// Other drops (a full queue) and probes that arrive late can mislead a search.
// So what it finds is verified by probes that name the very socket that is
// thought to be there, which no other drops.
class Prober {
 public:
  // Attaches the filters. `sockets` of the group, and one to send from; they
  // outlive the prober.
  Prober(std::vector<int> sockets, int sender, const LocalAddress& address,
         uint32_t probe_word);
  // Removes the filters of those that are not locked.
  ~Prober();

  // Whether each socket stands at its index. Probes have `wait_ns` to arrive.
  bool Verify(const std::vector<uint16_t>& indexes, int64_t wait_ns) const;

  // A search that goes on, by whichever prober of the same sockets.
  struct Search {
    // Of each socket; kNoIndex: not found yet.
    std::vector<uint16_t> indexes;
    uint16_t next = 0;     // the index that is probed next
    size_t found = 0;      // sockets
    int64_t spent_ns = 0;  // so far
  };
  enum class Outcome { kFound, kFailed, kMore };
  // Looks for the index of each socket, until `deadline_ns` (CLOCK_MONOTONIC)
  // and a probe or two longer. A probe has `wait_ns` to arrive. What is found
  // is likely, and no more than that.
  Outcome Continue(Search& search, int64_t wait_ns, int64_t deadline_ns) const;

 private:
  bool SendProbe(uint16_t index, uint32_t identity) const;
  std::optional<std::vector<uint32_t>> Drops() const;

  const std::vector<int> sockets_;
  const int sender_;
  const SocketAddress to_;
  const uint32_t probe_word_;
};

int64_t MonotonicNs();

// How probes name a socket. It stays as long as the socket does.
uint32_t ProbeIdentity(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PROBER_H_
