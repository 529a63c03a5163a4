#include "tools/trace/sim_recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "wire/frame.h"
#include "wire/packet.h"

namespace trace {

using rxe_user::trace::PacketEvent;
using rxe_user::trace::PacketOutcome;
using transport::Direction;

SimRecorder::SimRecorder(sim::Network* network, sim::Node* node,
                         std::string_view program, uint8_t boot, int64_t clock,
                         size_t frame_bytes)
    : network_(network), node_(node), clock_(clock), frame_bytes_(frame_bytes) {
  rxe_user::trace::RecordingEvent about;
  about.header.id = ++last_id_;
  about.header.time = Now();
  about.pid = 100 + boot;
  std::fill(std::begin(about.boot_id), std::end(about.boot_id), boot);
  rxe_user::trace::SetText(program, about.program);
  rxe_user::trace::AppendBeginning(about, &bytes_);
  wire::pcapng::AppendInterface(wire::LinkType::kLinuxSll, "rxeu0", &bytes_);
  node->endpoint().Observe(this);
}

SimRecorder::~SimRecorder() { node_->endpoint().Observe(nullptr); }

int64_t SimRecorder::Now() const {
  return kSimStart + network_->now() + clock_;
}

void SimRecorder::OnPacket(const transport::ObservedPacket& packet) {
  wire::FrameHeaders headers;
  headers.src = packet.source;
  headers.dst = packet.destination;
  headers.src_port = packet.source_port;
  headers.tos = packet.traffic_class;
  headers.ip_id = packet.segment_index;
  headers.ttl = packet.hop_limit;
  const bool sent = packet.direction == Direction::kTransmitted;
  std::array<uint8_t, wire::kCookedSize + wire::kMaxIpUdpSize> before;
  wire::EmitCooked(sent, true, before.data());
  const size_t size =
      wire::kCookedSize + wire::EmitIpUdp(headers, packet.bytes.size(),
                                          before.data() + wire::kCookedSize);

  PacketEvent event;
  event.header.id = ++last_id_;
  event.header.time = Now();
  event.header.qpn = packet.qpn;
  wire::PacketView view;
  if (!sent &&
      wire::PacketView::Parse(packet.bytes, &view) == wire::ParseError::kOk) {
    event.header.qpn = view.bth().dest_qpn;
  }
  event.disposition = static_cast<uint8_t>(packet.disposition);
  event.what = static_cast<uint8_t>(
      sent ? PacketOutcome::kSent
           : (packet.disposition == transport::Disposition::kDelivered
                  ? PacketOutcome::kReceived
                  : PacketOutcome::kDropped));
  if (packet.bytes.size() >= 4) {
    std::memcpy(&event.icrc, packet.bytes.data() + packet.bytes.size() - 4, 4);
  }
  rxe_user::trace::AppendPacketEvent(
      event,
      {.headers = {before.data(), size},
       .rest = packet.bytes.first(
           std::min(packet.bytes.size(), frame_bytes_ - size)),
       .original_size = size + packet.bytes.size()},
      &bytes_);
}

std::string SimRecorder::Write(const std::string& name) const {
  const std::string path = testing::TempDir() + "/" + name;
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  EXPECT_NE(file, nullptr);
  std::fwrite(bytes_.data(), 1, bytes_.size(), file);
  std::fclose(file);
  return path;
}

}  // namespace trace
