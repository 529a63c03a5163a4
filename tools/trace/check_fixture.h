// Captures that tests build packet by packet, and check.
#ifndef TOOLS_TRACE_CHECK_FIXTURE_H_
#define TOOLS_TRACE_CHECK_FIXTURE_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tools/trace/check.h"
#include "tools/trace/recording.h"
#include "transport/base/types.h"
#include "wire/address.h"
#include "wire/aeth.h"
#include "wire/opcode.h"
#include "wire/packet.h"
#include "wire/pcapng.h"

namespace trace {

using wire::IpAddress;
using wire::NakCode;
using wire::Operation;
using wire::pcapng::Direction;

inline constexpr uint32_t kRequester = 0x11;  // queue pairs
inline constexpr uint32_t kResponder = 0x12;
inline constexpr int64_t kMillisecond = 1'000'000;

// The packets of a capture.
class Capture {
 public:
  explicit Capture(bool at_requester = true) : at_requester_(at_requester) {}

  Packet& Request(Operation operation, uint32_t psn, uint32_t payload = 0) {
    Packet& p = Add(operation, psn, payload);
    p.src = *IpAddress::Parse("10.0.0.1");
    p.dst = *IpAddress::Parse("10.0.0.2");
    p.qpn = kResponder;
    p.direction = at_requester_ ? Direction::kSent : Direction::kReceived;
    return p;
  }
  Packet& Answer(uint8_t syndrome, uint32_t psn, uint32_t msn = 0,
                 Operation operation = Operation::kAcknowledge) {
    Packet& p = Add(operation, psn, 0);
    p.src = *IpAddress::Parse("10.0.0.2");
    p.dst = *IpAddress::Parse("10.0.0.1");
    p.qpn = kRequester;
    p.syndrome = syndrome;
    p.msn = msn;
    p.direction = at_requester_ ? Direction::kReceived : Direction::kSent;
    return p;
  }
  Packet& Read(uint32_t psn, uint32_t length, uint64_t va = 0x10000,
               uint32_t rkey = 5) {
    Packet& p = Request(Operation::kReadRequest, psn);
    p.length = length;
    wire::Headers headers;
    headers.bth = {.opcode = p.opcode, .psn = p.psn};
    headers.reth = {.va = va, .rkey = rkey, .length = length};
    SetHead(headers);
    return p;
  }
  Packet& Response(Operation operation, uint32_t psn, uint32_t payload) {
    Packet& p = Answer(wire::MakeAckSyndrome(31), psn, 1, operation);
    p.payload = payload;
    return p;
  }
  Packet& Cnp() {
    Packet& p = Answer(0, 0);
    p.opcode = wire::kOpcodeCnp;
    return p;
  }
  // Sets the head of the last packet.
  void SetHead(const wire::Headers& headers) {
    std::array<uint8_t, wire::kMaxHeaderSize> bytes;
    SetHead(std::span(bytes).first(wire::EmitHeaders(headers, bytes.data())));
  }
  void SetHead(std::span<const uint8_t> bytes) {
    Packet& p = recording.packets.back();
    p.head = recording.heads.size();
    p.head_size = static_cast<uint16_t>(bytes.size());
    p.size = static_cast<uint32_t>(bytes.size() + p.payload + wire::kIcrcSize);
    recording.heads.insert(recording.heads.end(), bytes.begin(), bytes.end());
  }
  // Adds an event at the time of the next packet. Returns its id.
  template <typename Struct>
  uint64_t Add(Struct event, uint32_t qpn) {
    event.header.type = static_cast<uint16_t>(Struct::kType);
    event.header.size = sizeof(event);
    event.header.id = recording.events.size() + 1;
    event.header.time =
        static_cast<int64_t>(recording.packets.size() + 1) * kMillisecond;
    event.header.qpn = qpn;
    std::array<uint8_t, sizeof(event)> bytes;
    std::memcpy(bytes.data(), &event, sizeof(event));
    recording.events.push_back(*Event::Parse(bytes));
    return event.header.id;
  }
  // Adds the event that the requester is connected.
  void AddConnected(uint8_t timeout, uint8_t retry_count, uint8_t rnr_retry) {
    rxe_user::trace::QpStateEvent state;
    state.to = static_cast<uint8_t>(transport::QpState::kRts);
    state.dest_qpn = kResponder;
    state.path_mtu = 1024;
    state.timeout = timeout;
    state.retry_count = retry_count;
    state.rnr_retry = rnr_retry;
    const auto local = *IpAddress::Parse("10.0.0.1");
    const auto peer = *IpAddress::Parse("10.0.0.2");
    std::copy(local.bytes.begin(), local.bytes.end(), state.source);
    std::copy(peer.bytes.begin(), peer.bytes.end(), state.destination);
    Add(state, kRequester);
  }
  // The broken rules with their packets: "psn-hole 3".
  std::vector<std::string> Check(const CheckOptions& options = {}) const {
    std::vector<std::string> broken;
    for (const Finding& f : CheckRecording(recording, options)) {
      broken.push_back(std::string(f.rule) + " " + std::to_string(f.frame));
    }
    return broken;
  }

  Recording recording;

 private:
  Packet& Add(Operation operation, uint32_t psn, uint32_t payload) {
    Packet p;
    p.opcode = wire::MakeOpcode(wire::Transport::kRc, operation);
    p.psn = psn & 0xffffff;
    p.payload = payload;
    p.icrc = IcrcVerdict::kGood;
    p.frame = recording.packets.size() + 1;
    p.time = static_cast<int64_t>(p.frame) * kMillisecond;
    recording.packets.push_back(p);
    return recording.packets.back();
  }

  const bool at_requester_;
};

using Broken = std::vector<std::string>;
inline constexpr uint8_t kAck = wire::MakeAckSyndrome(wire::kCreditNone);
inline constexpr uint8_t kSequenceNak =
    wire::MakeNakSyndrome(NakCode::kPsnSequence);

}  // namespace trace

#endif  // TOOLS_TRACE_CHECK_FIXTURE_H_
