// Shared by the responder's tests: a connected queue pair and its peer.
#ifndef TRANSPORT_TESTING_RESPONDER_FIXTURE_H_
#define TRANSPORT_TESTING_RESPONDER_FIXTURE_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/testing/wire_peer.h"

namespace transport {

using Bytes = std::vector<uint8_t>;

class ResponderTest : public ::testing::Test {
 protected:
  ResponderTest() { peer.Connect(); }

  Bytes Target(size_t offset, size_t bytes) const {
    const auto from = peer.target->bytes.begin() + offset;
    return Bytes(from, from + bytes);
  }
  // Whether nothing has been written.
  bool Untouched() const {
    return std::all_of(peer.target->bytes.begin(), peer.target->bytes.end(),
                       [](uint8_t byte) { return byte == 0; });
  }
  // The 8 bytes at `offset` of the target.
  uint64_t Word(size_t offset) const {
    uint64_t word;
    std::memcpy(&word, peer.target->bytes.data() + offset, 8);
    return word;
  }
  void SetWord(size_t offset, uint64_t word) {
    std::memcpy(peer.target->bytes.data() + offset, &word, 8);
  }
  // The queue pair has refused a request with `nak` and is in ERR.
  void ExpectRefused(const std::string& nak, const std::string& event) {
    EXPECT_EQ(peer.qp->state(), QpState::kErr);
    EXPECT_EQ(peer.TakeEvents(), event);
    EXPECT_EQ(peer.Transmit(), nak);
    EXPECT_EQ(peer.Transmit(), "");
    EXPECT_EQ(peer.qp->counters().fatal_naks_sent, 1u);
    EXPECT_EQ(peer.qp->counters().sequence_naks_sent, 0u);
  }

  WirePeer peer;
};

// Event numbers in TakeEvents.
inline constexpr char kFatalEvent[] = "1";
inline constexpr char kRequestErrorEvent[] = "2";
inline constexpr char kAccessErrorEvent[] = "3";

}  // namespace transport

#endif  // TRANSPORT_TESTING_RESPONDER_FIXTURE_H_
