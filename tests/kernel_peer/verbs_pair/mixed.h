// A scenario of verbs_pair: mixed operations at both ends.
#ifndef TESTS_KERNEL_PEER_VERBS_PAIR_MIXED_H_
#define TESTS_KERNEL_PEER_VERBS_PAIR_MIXED_H_

#include "tests/kernel_peer/verbs_pair/rig.h"

namespace verbs_pair {

// Both ends at once: some hundreds of SENDs, WRITEs and READs of all sizes, up
// to sixteen outstanding, checked against a model of the peer's memory.
void Mixed(const Rig& rig);

}  // namespace verbs_pair

#endif  // TESTS_KERNEL_PEER_VERBS_PAIR_MIXED_H_
