// What verbs_pair does: each scenario runs on both ends at once.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_

#include <span>

#include "tests/kernel_peer/verbs_pair/rig.h"

namespace verbs_pair {

struct Scenario {
  const char* name;
  // Throws Failure or NotSupported. The responder ends when the requester has
  // its completions: an acknowledgement may be lost and asked for again.
  void (*run)(const Rig& rig);
  // Only when it is asked for by name.
  bool on_request = false;
};

// Every operation with its content compared.
std::span<const Scenario> DataScenarios();
// What memory extensions add (annex A19): ATOMIC WRITE and FLUSH.
std::span<const Scenario> PlacementScenarios();
// Memory windows: what they let in, and until when.
std::span<const Scenario> WindowScenarios();
// Connections: made anew, numbered from elsewhere, their address vectors.
std::span<const Scenario> ConnectionScenarios();
// What must fail, and how both ends learn of it.
std::span<const Scenario> ErrorScenarios();

// Unreliable connections: what arrives, and what is dropped without a word.
std::span<const Scenario> UnreliableScenarios();

// Connections by the RDMA CM: made, refused, rejected, given up, ended.
std::span<const Scenario> CmScenarios();

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_
