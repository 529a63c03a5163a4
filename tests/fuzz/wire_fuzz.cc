// A libFuzzer target: any bytes, as a UDP payload or as a frame of any link
// type, are refused or decoded without reading outside of them. Decoded packets
// are emitted again unchanged, except for reserved bits.

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "wire/describe.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace {

void Require(bool condition) {
  if (!condition) std::abort();
}

void UsePacket(std::span<const uint8_t> bytes, const wire::IcrcFlow& flow) {
  wire::PacketView packet;
  if (wire::PacketView::Parse(bytes, &packet) != wire::ParseError::kOk) return;
  Require(packet.udp_payload().size() == bytes.size());
  Require(!wire::DescribePacket(packet).empty());

  const wire::Headers headers = packet.headers();
  const std::vector<uint8_t> payload(packet.payload().begin(),
                                     packet.payload().end());
  const std::vector<uint8_t> rebuilt =
      wire::BuildPacket(headers, payload, flow, 0);
  wire::PacketView again;
  Require(wire::PacketView::Parse(rebuilt, &again) == wire::ParseError::kOk);
  wire::Headers expected = headers;
  expected.bth.pad_count = wire::PadCount(payload.size());
  Require(again.headers() == expected);
  Require(flow.Verify(rebuilt, 0));
  (void)wire::VerifyAnyId(flow, bytes, 1, 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const wire::IcrcFlow kFlow(*wire::IpAddress::Parse("192.0.2.1"),
                                    *wire::IpAddress::Parse("192.0.2.2"), 49441,
                                    wire::kRoceUdpPort);
  UsePacket({data, size}, kFlow);
  if (size == 0) return 0;
  constexpr int kLinkTypes[] = {0, 1, 12, 113, 276};
  wire::Frame frame;
  if (wire::DecodeFrame(kLinkTypes[data[0] % 5], {data + 1, size - 1},
                        &frame) == wire::FrameKind::kUdp) {
    UsePacket(frame.udp_payload, frame.headers.icrc_flow());
  }
  return 0;
}
