// Finds the positions of sockets in their reuseport group while their owners
// use them.
#ifndef RXE_USER_BROKER_PROBER_H_
#define RXE_USER_BROKER_PROBER_H_

#include <cstdint>
#include <optional>
#include <vector>

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
  // Attaches the filters to `sockets`, all of one group. Probes are sent by
  // `sender`. All must outlive the prober.
  Prober(std::vector<int> sockets, int sender, const LocalAddress& address,
         uint32_t probe_word);
  // Removes the filters of sockets that are not locked.
  ~Prober();

  // Whether each socket is at its index.
  bool Verify(const std::vector<uint16_t>& indexes) const;
  // The probable index of each socket. Absent if the search failed. Waits up to
  // `wait_ns` for a probe.
  std::optional<std::vector<uint16_t>> Search(int64_t wait_ns) const;

 private:
  bool SendProbe(uint16_t index, uint32_t identity) const;
  std::optional<std::vector<uint32_t>> Drops() const;

  const std::vector<int> sockets_;
  const int sender_;
  const SocketAddress to_;
  const uint32_t probe_word_;
};

// The name of a socket in probes; constant for its lifetime.
uint32_t ProbeIdentity(int fd);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PROBER_H_
