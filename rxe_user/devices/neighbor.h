// The neighbors of this host in the kernel's tables (ARP, NDP), by
// rtnetlink(7). No privilege is needed.
#ifndef RXE_USER_DEVICES_NEIGHBOR_H_
#define RXE_USER_DEVICES_NEIGHBOR_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"
#include "rxe_user/base/local_address.h"
#include "wire/address.h"

struct nl_sock;

namespace rxe_user {

// The next hop of packets to an address: that host itself, or a gateway.
struct Neighbor {
  uint32_t interface = 0;
  wire::IpAddress address;

  bool operator==(const Neighbor&) const = default;
};

enum class NeighborState : uint8_t {
  kUnknown,  // not asked for, or no answer yet
  kKnown,    // its link-layer address is known or not needed
  kFailed,   // it does not answer
};

// The following functions query the kernel: some microseconds each, without
// waiting. The result is absent if there is no memory. Thread: any.

// The neighbor for packets from `source`, an address of this host (a link-local
// one with its interface), to `destination`. Absent if none is needed, since
// the packets stay on this host or are multicast, and if the kernel cannot be
// asked.
std::optional<Neighbor> NeighborOn(const LocalAddress& source,
                                   const wire::IpAddress& destination);
// Absent if the kernel cannot be asked (Linux before 5.0).
std::optional<NeighborState> StateOfNeighbor(const Neighbor& neighbor);
// Whether the interface uses ARP or NDP, unlike loopback and tunnels. True if
// that is unknown.
bool AsksForNeighbors(uint32_t interface);

// The kernel's events about neighbors. Thread: one at a time.
class NeighborEvents {
 public:
  using OnState = absl::FunctionRef<void(const Neighbor&, NeighborState)>;

  NeighborEvents() = default;
  NeighborEvents(const NeighborEvents&) = delete;
  NeighborEvents& operator=(const NeighborEvents&) = delete;
  ~NeighborEvents();

  // False if the system refuses.
  bool Subscribe();
  // Drops the queued events.
  void Unsubscribe();
  // Readable when there are events. Valid from the first Subscribe on.
  int fd() const;
  // Passes the queued events to `on_state`, in order. False: some were lost,
  // and there may be more.
  bool Read(OnState on_state);
  // In a child of fork(): closes the descriptor without affecting the parent.
  void AbandonInChild();

 private:
  nl_sock* socket_ = nullptr;
};

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_NEIGHBOR_H_
