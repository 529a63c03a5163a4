// The scenarios of verbs_pair. Each runs on both ends at once.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_

#include <span>

#include "tests/kernel_peer/verbs_pair/rig.h"

namespace verbs_pair {

struct Scenario {
  const char* name;
  // Throws Failure or NotSupported. The responder ends after the requester has
  // its completions, because an acknowledgement may be lost and requested
  // again.
  void (*run)(const Rig& rig);
  // Runs only if requested by name.
  bool on_request = false;
};

// Every operation, with contents compared.
std::span<const Scenario> DataScenarios();
// Memory placement extensions (annex A19): ATOMIC WRITE and FLUSH.
std::span<const Scenario> PlacementScenarios();
// Memory windows: what they allow, and until when.
std::span<const Scenario> WindowScenarios();
// Connections: reconnecting, reused numbers, address vectors.
std::span<const Scenario> ConnectionScenarios();
// Requests that must fail, and how both ends learn of it.
std::span<const Scenario> ErrorScenarios();

// Unreliable connections: what arrives, and what is dropped silently.
std::span<const Scenario> UnreliableScenarios();

// RDMA CM connections: established, refused, rejected, abandoned, ended.
std::span<const Scenario> CmScenarios();

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_SCENARIOS_H_
