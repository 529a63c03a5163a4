// The hosts on the links of this one, as the kernel's tables of neighbors (ARP,
// NDP) know them. Anybody may ask for those, without rights: rtnetlink(7).
#ifndef RXE_USER_DEVICES_NEIGHBOR_H_
#define RXE_USER_DEVICES_NEIGHBOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/function_ref.h"
#include "rxe_user/base/local_address.h"
#include "rxe_user/base/unique_fd.h"
#include "wire/address.h"

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

// Asks the kernel: a few microseconds a question, without waiting. Thread: one
// at a time. Nothing here needs memory.
class NeighborTable {
 public:
  // False if the system refuses.
  bool Open();

  // Of packets from `source`, an address of this host (link-local ones on their
  // interface), to `destination`. Absent if nobody has to be known for them
  // (they stay on this host, or are for many), and if that cannot be asked.
  std::optional<Neighbor> On(const LocalAddress& source,
                             const wire::IpAddress& destination);
  // Absent if it cannot be asked (Linux before 5.0).
  std::optional<NeighborState> StateOf(const Neighbor& neighbor);

 private:
  UniqueFd fd_;
  uint32_t sequence_ = 0;
};

// Whether hosts behind the interface are found by asking, which those behind
// loopback and tunnels are not. True if that is not known.
bool AsksForNeighbors(uint32_t interface);

// The groups of rtnetlink that bring changes: RTM_NEWNEIGH.
inline constexpr uint32_t kNeighborGroup = 3;  // RTNLGRP_NEIGH
// Of what one recvmsg of such a socket brought: whole messages, of any kinds.
using OnNeighborState = absl::FunctionRef<void(const Neighbor&, NeighborState)>;
void ReadNeighborNews(std::span<const uint8_t> bytes, OnNeighborState on_state);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NEIGHBOR_H_
