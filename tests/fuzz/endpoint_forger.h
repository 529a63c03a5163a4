// Packets that a queue pair's peer has not sent, built from a fuzz input. The
// ICRC is correct unless the input says otherwise.
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
  kPeer,       // the peer's address and port
  kOtherPort,  // the peer's address, another port
  kElsewhere,  // another source address, or another address of the victim
};

// One packet or a GRO batch.
struct ForgedBatch {
  std::vector<uint8_t> bytes;
  size_t segment_size = 0;
  bool icrc_right = true;
  transport::GroBatch batch;  // its bytes are `bytes`
};

// Forges a batch for `victim`, whose peer is `peer`. Numbers in the headers are
// near meaningful ones: PSNs in use, existing keys.
ForgedBatch Forge(FuzzInput& input, Sender sender,
                  const sim::Pair::Side& victim, const sim::Pair::Side& peer,
                  const sim::Region& forbidden);

}  // namespace fuzz

#endif  // TESTS_FUZZ_ENDPOINT_FORGER_H_
