// An endpoint with one queue pair, whose peer is the test.
#ifndef TRANSPORT_TESTING_ENDPOINT_FIXTURE_H_
#define TRANSPORT_TESTING_ENDPOINT_FIXTURE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "transport/endpoint/endpoint.h"
#include "transport/testing/wire_peer.h"
#include "wire/icrc.h"

namespace transport {

class EndpointTest : public ::testing::Test {
 protected:
  EndpointTest() { peer.Connect(); }
  uint64_t dropped(Disposition why) const {
    return peer.endpoint.counters().dropped[static_cast<size_t>(why)];
  }
  void Sign(std::vector<uint8_t>* packet, uint16_t ip_id = 0) const {
    wire::IcrcFlow(peer.datagram.source, peer.datagram.destination,
                   peer.datagram.source_port, wire::kRoceUdpPort)
        .Store(*packet, ip_id);
  }
  WirePeer peer;
};

}  // namespace transport

#endif  // TRANSPORT_TESTING_ENDPOINT_FIXTURE_H_
