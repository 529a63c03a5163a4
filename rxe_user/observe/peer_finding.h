// What the processes of this host know about the peer of a queue pair. A NAK or
// a silence tells little on the wire; the peer's process knows the reason.
#ifndef RXE_USER_OBSERVE_PEER_FINDING_H_
#define RXE_USER_OBSERVE_PEER_FINDING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "rxe_user/observe/explain.h"
#include "transport/base/reason.h"

namespace rxe_user {

struct PeerFinding {
  std::string what;
  transport::Side side = transport::Side::kEither;
  std::string advice;  // empty: the reason's own
};

// Whether the peer knows more about `reason` than this side.
bool DependsOnPeer(transport::Reason reason);

// `qp`: the record of a queue pair that failed for `reason`, or that has been
// waiting for a long time (kNone). `unacked`: the PSN for which it waits, if
// known.
PeerFinding FindPeer(const ReportRecord& qp, std::optional<uint32_t> unacked,
                     const std::vector<Witness>& others,
                     transport::Reason reason, WitnessOrigin origin);

}  // namespace rxe_user

#endif  // RXE_USER_OBSERVE_PEER_FINDING_H_
