// The hosts on the links of this one, as the kernel's tables of neighbors (ARP,
// NDP) know them. Anybody may ask for those, without rights: rtnetlink(7).
#ifndef RXE_USER_DEVICES_NEIGHBOR_H_
#define RXE_USER_DEVICES_NEIGHBOR_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "rxe_user/base/local_address.h"
#include "wire/address.h"

struct nl_sock;

namespace rxe_user {

// Who takes the packets to an address on their way: that host itself, or a
// gateway.
struct Neighbor {
  uint32_t interface = 0;
  wire::IpAddress address;

  bool operator==(const Neighbor&) const = default;
};

enum class NeighborState : uint8_t {
  kUnknown,  // nobody has asked for it, or it has not answered yet
  kKnown,    // its link-layer address is there, or none is needed
  kFailed,   // it does not answer
};

// Asks the kernel: some microseconds a question, without waiting. Without
// memory the answer is absent. Thread: any.

// Of packets from `source`, an address of this host (link-local ones on their
// interface), to `destination`. Absent if nobody has to be known for them (they
// stay on this host, or are for many), and if that cannot be asked.
std::optional<Neighbor> NeighborOn(const LocalAddress& source,
                                   const wire::IpAddress& destination);
// Absent if it cannot be asked (Linux before 5.0).
std::optional<NeighborState> StateOfNeighbor(const Neighbor& neighbor);
// Whether hosts behind the interface are found by asking, which those behind
// loopback and tunnels are not. True if that is not known.
bool AsksForNeighbors(uint32_t interface);

// The kernel's news of neighbors, while somebody wants them. Thread: one at a
// time.
class NeighborNews {
 public:
  using OnState = absl::FunctionRef<void(const Neighbor&, NeighborState)>;

  NeighborNews() = default;
  NeighborNews(const NeighborNews&) = delete;
  NeighborNews& operator=(const NeighborNews&) = delete;
  ~NeighborNews();

  // False if they cannot be had.
  bool Subscribe();
  // What is there already is thrown away.
  void Unsubscribe();
  // Readable when there are some; valid from the first Subscribe on.
  int fd() const;
  // Tells those that have come, in order. False: some were lost, and there may
  // be more.
  bool Read(OnState on_state);
  // In a child of fork(): closes the descriptor, and leaves the rest to the
  // parent.
  void AbandonInChild();

 private:
  nl_sock* socket_ = nullptr;
};

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NEIGHBOR_H_
