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
  // microseconds for each. `sender` sends the probes. The sockets must outlive
  // the prober.
  Prober(std::vector<int> sockets, UniqueFd sender, const LocalAddress& address,
         uint32_t probe_word);
  // Removes the filters of sockets that are not locked.
  ~Prober();
  Prober(const Prober&) = delete;
  Prober& operator=(const Prober&) = delete;

  // The state of a search.
  struct Search {
    // The index of each socket: first the caller's guess; if that was wrong,
    // kNoIndex until the socket is found.
    std::vector<uint16_t> indexes;
    size_t verified = 0;    // sockets whose guess was tried
    bool all_right = true;  // no guess was wrong so far
    uint16_t next = 0;      // the index to probe next
    int64_t spent_ns = 0;   // on these probes, of this thread
  };
  enum class Outcome { kFound, kFailed, kMore };
  // Tries the guesses, then searches the probable indexes for the sockets whose
  // guesses were wrong, until `deadline_ns` (CLOCK_MONOTONIC), which it may
  // exceed by a wait or two. Waits up to `wait_ns` for probes. A probe costs
  // time for each socket that is not found yet.
  Outcome Continue(Search& search, int64_t wait_ns, int64_t deadline_ns) const;

 private:
  void Verify(Search& search, int64_t wait_ns) const;
  bool SendProbe(uint16_t index, uint32_t identity) const;

  const std::vector<int> sockets_;
  const UniqueFd sender_;
  const SocketAddress to_;
  const uint32_t probe_word_;
};

// A socket's name in probes; constant for its lifetime.
uint32_t ProbeIdentity(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PROBER_H_
