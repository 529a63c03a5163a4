// Packets that a queue pair's peer has not sent, as a fuzz input says them. The
// ICRC is right unless the input wants it wrong.
#ifndef TESTS_FUZZ_ENDPOINT_FORGER_H_
#define TESTS_FUZZ_ENDPOINT_FORGER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/fuzz/fuzz_input.h"
#include "transport/endpoint/datagram.h"
#include "transport/sim/pair.h"

namespace fuzz {

enum class Sender : uint8_t {
  kPeer,       // its address and its port
  kOtherPort,  // its address
  kElsewhere,  // another address, or to another one of the victim's
};

// One or several that come together, as GRO merges them.
struct ForgedBatch {
  std::vector<uint8_t> bytes;
  size_t segment_size = 0;
  bool icrc_right = true;
  transport::GroBatch batch;  // its bytes are `bytes`
};

// What is forged for `victim`, whose peer is `peer`. Numbers in the headers are
// near those that would mean something: PSNs in use, keys that there are.
ForgedBatch Forge(FuzzInput& input, Sender sender,
                  const sim::Pair::Side& victim, const sim::Pair::Side& peer,
                  const sim::Region& forbidden);

}  // namespace fuzz

#endif  // TESTS_FUZZ_ENDPOINT_FORGER_H_
