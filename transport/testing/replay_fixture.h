// A responder whose peer repeats packets or leaves gaps.
#ifndef TRANSPORT_TESTING_REPLAY_FIXTURE_H_
#define TRANSPORT_TESTING_REPLAY_FIXTURE_H_

#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/wire_peer.h"

namespace transport {

using Bytes = std::vector<uint8_t>;

class ReplayTest : public ::testing::Test {
 protected:
  ReplayTest() { peer.Connect(); }

  Bytes Target(size_t offset, size_t bytes) const {
    const auto from = peer.target->bytes.begin() + offset;
    return Bytes(from, from + bytes);
  }
  uint64_t Word(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, peer.target->bytes.data() + offset, 8);
    return word;
  }
  const QpCounters& counters() const { return peer.qp->counters(); }

  WirePeer peer;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_REPLAY_FIXTURE_H_
