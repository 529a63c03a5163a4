// Finds the positions of sockets in their reuseport group while their owners
// use them.
#ifndef RXE_USER_BROKER_PROBER_H_
#define RXE_USER_BROKER_PROBER_H_

#include <cstdint>
#include <vector>

#include "rxe_user/base/unique_fd.h"
#include "rxe_user/broker/udp.h"

namespace rxe_user::broker {

// A probe is a datagram with an index, which the group's program steers to the
// socket at that index (steering.h). A filter on each socket drops probes. The
// drop shows in the socket's drop counter, whichever process reads its queue.
// Locked sockets have had their filter since their creation.
//
// Other drops (a full queue) and late probes can mislead a search. So its
// result is verified with probes that name the expected socket, which only that
// socket drops.
class Prober {
 public:
  // Attaches the filters to `sockets`, all of one group, which takes some
  // microseconds for each. Probes are sent by `sender`. The sockets must
  // outlive the prober.
  Prober(std::vector<int> sockets, UniqueFd sender, const LocalAddress& address,
         uint32_t probe_word);
  // Removes the filters of sockets that are not locked.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // Whether each socket is at its index. Sets the index of those that are not
  // to kNoIndex. Waits up to `wait_ns` for the probes.
  bool Verify(std::vector<uint16_t>& indexes, int64_t wait_ns) const;

  // The state of a search.
  struct Search {
    // The index of each socket; kNoIndex: not found yet. The caller sets those
    // that are known.
    std::vector<uint16_t> indexes;
    uint16_t next = 0;     // the index to probe next
    int64_t spent_ns = 0;  // so far
  };
  enum class Outcome { kFound, kFailed, kMore };
  // Searches for the probable index of each socket until `deadline_ns`
  // (CLOCK_MONOTONIC); may exceed it by one or two probes. Waits up to
  // `wait_ns` for a probe. A probe costs time for each socket that is not found
  // yet.
  Outcome Continue(Search& search, int64_t wait_ns, int64_t deadline_ns) const;

 private:
  bool SendProbe(uint16_t index, uint32_t identity) const;

  const std::vector<int> sockets_;
  const UniqueFd sender_;
  const SocketAddress to_;
  const uint32_t probe_word_;
};

int64_t MonotonicNs();

// The name of a socket in probes; constant for its lifetime.
uint32_t ProbeIdentity(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PROBER_H_
