// An injector with the rules of a test, and packets of one queue pair that pass
// it.
#ifndef TRANSPORT_TESTING_INJECTOR_FIXTURE_H_
#define TRANSPORT_TESTING_INJECTOR_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "transport/faults/injector.h"
#include "transport/faults/rule_parser.h"
#include "wire/aeth.h"
#include "wire/packet.h"

namespace transport::faults {

using wire::MakeOpcode;
using wire::Operation;
using wire::Transport;

inline constexpr uint32_t kQpn = 0x1234;
inline constexpr uint32_t kSendPsn = 0xfffffe;  // wraps
inline constexpr uint32_t kReceivePsn = 500;

class InjectorTest : public testing::Test {
 protected:
  Injector Make(const std::string& text, uint64_t seed = 1) {
    std::vector<Rule> rules;
    const auto error = ParseRules(text, &rules);
    EXPECT_FALSE(error.has_value()) << error->ToString();
    Injector injector(std::move(rules), seed, 0);
    Add(&injector, kQpn);
    return injector;
  }
  static void Add(Injector* injector, uint32_t qpn) {
    injector->OnCreated(qpn);
    injector->OnReceivePsn(qpn, kReceivePsn);
    injector->OnSendPsn(qpn, kSendPsn);
  }

  // The fate of a packet, with 64 bytes of payload if its operation has any.
  Fate Decide(Injector* injector, bool transmitted, Operation operation,
              uint32_t psn, Time now = 0, uint32_t qpn = kQpn,
              size_t payload = 64) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, operation);
    headers.bth.psn = psn & wire::kPsnMask;
    const wire::OpcodeInfo& info = wire::GetOpcodeInfo(headers.bth.opcode);
    if (!info.carries_payload) payload = 0;
    headers.bth.pad_count = wire::PadCount(payload);
    bytes_.assign(
        info.header_length + payload + headers.bth.pad_count + wire::kIcrcSize,
        0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    return injector->Decide({.transmitted = transmitted,
                             .qpn = qpn,
                             .packet = &packet_,
                             .peer = *wire::IpAddress::Parse("192.0.2.7")},
                            now);
  }
  // An acknowledgement of the peer's request `psn`. Returns whether it is
  // dropped.
  bool AckIsDropped(Injector* injector, uint32_t psn,
                    uint8_t syndrome = wire::MakeAckSyndrome(0)) {
    wire::Headers headers;
    headers.bth.opcode = MakeOpcode(Transport::kRc, Operation::kAcknowledge);
    headers.bth.psn = psn;
    headers.aeth.syndrome = syndrome;
    bytes_.assign(wire::kAcknowledgeSize, 0);
    wire::EmitHeaders(headers, bytes_.data());
    EXPECT_EQ(wire::PacketView::Parse(bytes_, &packet_), wire::ParseError::kOk);
    const Fate fate = injector->Decide({.transmitted = true,
                                        .qpn = kQpn,
                                        .packet = &packet_,
                                        .peer = wire::IpAddress()},
                                       0);
    EXPECT_EQ(fate.is_consequence, fate.rule != nullptr);
    return fate.rule != nullptr;
  }
  // The numbers, from 1, of the packets of `count` that are hit. Each has a PSN
  // of its own.
  std::vector<int> Hits(Injector* injector, int count, Time step = 0) {
    std::vector<int> hits;
    for (int i = 1; i <= count; ++i) {
      if (Decide(injector, true, Operation::kWriteMiddle,
                 kSendPsn + static_cast<uint32_t>(i), step * i)
              .rule != nullptr) {
        hits.push_back(i);
      }
    }
    return hits;
  }

  std::vector<uint8_t> bytes_;
  wire::PacketView packet_;
};

using Numbers = std::vector<int>;

}  // namespace transport::faults

#endif  // TRANSPORT_TESTING_INJECTOR_FIXTURE_H_
