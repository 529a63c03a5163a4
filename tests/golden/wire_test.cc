// Every RoCEv2 frame that the kernel's rxe and hardware NICs sent: it is
// parsed, its ICRC is correct, building it from its headers gives the same
// bytes, and its IP identification can be derived without reading it.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/golden/golden_files.h"
#include "wire/dc.h"
#include "wire/describe.h"
#include "wire/frame.h"
#include "wire/icrc.h"
#include "wire/packet.h"

namespace golden {
namespace {

using wire::Frame;
using wire::IcrcFlow;
using wire::PacketView;

// A parsed RoCEv2 frame of a capture. `frame` points into `captured`.
struct RoceFrame {
  CapturedFrame captured;
  Frame frame;
  PacketView packet;
  // The fields that its ICRC covers.
  IcrcFlow flow;
};

// The headers of a packet, built from its fields.
std::vector<uint8_t> Rebuild(const PacketView& packet) {
  std::array<uint8_t, wire::kMaxHeaderSize> bytes;
  uint8_t* const out = bytes.data();
  const wire::OpcodeInfo& info = packet.info();
  size_t size;
  if (!info.Has(wire::kDcEth)) {
    size = wire::EmitHeaders(packet.headers(), out);
  } else if (packet.is_dc_answer()) {
    size = wire::EmitDcAnswer(packet.bth(), packet.dceth(), out);
  } else if (info.Has(wire::kDccEth)) {
    size =
        wire::EmitDcConnect(packet.bth(), packet.dceth(), packet.dcceth(), out);
  } else {
    size = wire::EmitDcHeaders(packet.headers(), packet.dceth(), out);
  }
  return {out, out + size};
}

// The flow of a frame. Some capturing devices overwrite the UDP source port by
// 4791. The ICRC covers the original port, which is then searched for.
class FlowFinder {
 public:
  IcrcFlow Find(const wire::FrameHeaders& h, const PacketView& packet) {
    if (h.src_port != wire::kRoceUdpPort) return h.icrc_flow();
    const auto key = std::make_tuple(h.src, h.dst, packet.bth().dest_qpn);
    const auto known = ports_.find(key);
    if (known != ports_.end() && IsGood(h, packet, known->second)) {
      return FlowOf(h, known->second);
    }
    for (uint32_t port = 0; port < 65536; ++port) {
      if (IsGood(h, packet, static_cast<uint16_t>(port))) {
        ports_[key] = static_cast<uint16_t>(port);
        return FlowOf(h, static_cast<uint16_t>(port));
      }
    }
    return h.icrc_flow();
  }

 private:
  static IcrcFlow FlowOf(const wire::FrameHeaders& h, uint16_t port) {
    return IcrcFlow(h.src, h.dst, port, wire::kRoceUdpPort);
  }
  static bool IsGood(const wire::FrameHeaders& h, const PacketView& packet,
                     uint16_t port) {
    return FlowOf(h, port).Compute(packet.bytes_covered(), h.ip_id, h.df) ==
           packet.icrc();
  }

  std::map<std::tuple<wire::IpAddress, wire::IpAddress, uint32_t>, uint16_t>
      ports_;
};

class CaptureTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    FlowFinder flows;
    for (CapturedFrame& captured : ReadCapture(GetParam())) {
      Frame frame;
      const wire::FrameKind kind =
          wire::DecodeFrame(captured.link_type, captured.bytes, &frame);
      if (kind != wire::FrameKind::kUdp || !frame.headers.is_rocev2()) continue;
      ASSERT_FALSE(frame.is_truncated()) << "frame " << captured.number;
      PacketView packet;
      const wire::ParseError error =
          PacketView::Parse(frame.udp_payload, &packet);
      ASSERT_EQ(error, wire::ParseError::kOk) << "frame " << captured.number;
      const IcrcFlow flow = flows.Find(frame.headers, packet);
      // Moving the vector does not move its bytes, to which `frame` points.
      frames_.push_back({std::move(captured), frame, packet, flow});
    }
    ASSERT_FALSE(frames_.empty()) << "no RoCEv2 frame";
  }

  std::vector<RoceFrame> frames_;
};

std::string Name(const RoceFrame& f) {
  return "frame " + std::to_string(f.captured.number) + ": " +
         wire::DescribePacket(f.packet);
}

TEST_P(CaptureTest, IcrcIsGood) {
  for (const RoceFrame& f : frames_) {
    const wire::FrameHeaders& h = f.frame.headers;
    EXPECT_EQ(f.flow.Compute(f.packet.bytes_covered(), h.ip_id, h.df),
              f.packet.icrc())
        << Name(f);
  }
}

// Including reserved bits, which no device here sets.
TEST_P(CaptureTest, HeadersAndFramesAreRebuiltToTheSameBytes) {
  for (const RoceFrame& f : frames_) {
    const std::vector<uint8_t> headers = Rebuild(f.packet);
    const std::span<const uint8_t> sent =
        f.packet.udp_payload().first(headers.size());
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), headers.begin()))
        << Name(f);

    const wire::FrameHeaders& h = f.frame.headers;
    const std::vector<uint8_t> packet =
        wire::BuildPacket(headers, f.packet.payload(), f.flow, h.ip_id, h.df);
    EXPECT_EQ(wire::BuildFrame(h, packet), f.captured.bytes) << Name(f);
  }
}

TEST_P(CaptureTest, IpIdIsFoundWithoutLookingAtIt) {
  for (const RoceFrame& f : frames_) {
    const wire::FrameHeaders& h = f.frame.headers;
    if (!h.src.is_v4()) continue;
    const IcrcFlow& flow = f.flow;
    const std::span<const uint8_t> covered = f.packet.bytes_covered();
    EXPECT_EQ(wire::SolveIpId(f.packet.icrc(), flow.Compute(covered, 0), 0,
                              covered.size()),
              h.ip_id)
        << Name(f);
  }
}

// As in the device: for each flow, in order of arrival, with the window that
// grows over time.
TEST_P(CaptureTest, EveryFrameIsAcceptedWithoutItsIpId) {
  struct Last {
    uint16_t id;
    int64_t time_ns;
  };
  std::map<std::tuple<wire::IpAddress, uint16_t>, Last> flows;
  for (const RoceFrame& f : frames_) {
    const wire::FrameHeaders& h = f.frame.headers;
    const auto key = std::make_tuple(h.src, h.src_port);
    const auto last = flows.find(key);
    const bool first_contact = last == flows.end();
    const std::optional<uint16_t> id = wire::VerifyAnyId(
        f.flow, f.frame.udp_payload, 0,
        first_contact ? std::nullopt : std::optional<uint16_t>(last->second.id),
        first_contact ? 0
                      : wire::IpIdForwardWindow(f.captured.time_ns -
                                                last->second.time_ns));
    ASSERT_TRUE(id) << Name(f);
    EXPECT_EQ(*id, h.src.is_v4() ? h.ip_id : 0) << Name(f);
    flows[key] = {*id, f.captured.time_ns};
  }
}

// On the first frame of each opcode: from BTH to ICRC, with a known IP
// identification and with one to be found in the window.
TEST_P(CaptureTest, EverySingleBitErrorIsFound) {
  std::set<uint8_t> seen;
  for (const RoceFrame& f : frames_) {
    if (!seen.insert(f.packet.opcode()).second) continue;
    const wire::FrameHeaders& h = f.frame.headers;
    const IcrcFlow& flow = f.flow;
    std::vector<uint8_t> bytes(f.frame.udp_payload.begin(),
                               f.frame.udp_payload.end());
    for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      const bool masked = bit / 8 == 4;
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      ASSERT_EQ(flow.Verify(bytes, h.ip_id, h.df), masked)
          << Name(f) << ", bit " << bit;
      ASSERT_EQ(wire::VerifyAnyId(flow, bytes, 0, h.ip_id).has_value(), masked)
          << Name(f) << ", bit " << bit;
      bytes[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    }
  }
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem();
}

INSTANTIATE_TEST_SUITE_P(KernelRxe, CaptureTest,
                         testing::ValuesIn(KernelRxeFiles()), TestName);
INSTANTIATE_TEST_SUITE_P(Hardware, CaptureTest,
                         testing::ValuesIn(HardwareFiles()), TestName);

TEST(GoldenFilesTest, KernelRxeIsHere) {
  EXPECT_EQ(KernelRxeFiles().size(), 28u);
}

// The dynamically connected transport, which the kernel's rxe lacks.
TEST(GoldenFilesTest, FramesOfDynamicConnections) {
  if (HardwareFiles().empty()) {
    GTEST_SKIP() << "no captures of hardware: see tests/golden/README.md";
  }
  std::map<std::string, int> found;
  for (const std::string& path : HardwareFiles()) {
    for (const CapturedFrame& captured : ReadCapture(path)) {
      Frame frame;
      PacketView packet;
      if (wire::DecodeFrame(captured.link_type, captured.bytes, &frame) ==
              wire::FrameKind::kUdp &&
          frame.headers.is_rocev2() &&
          PacketView::Parse(frame.udp_payload, &packet) ==
              wire::ParseError::kOk &&
          packet.transport() == wire::Transport::kDc) {
        EXPECT_EQ(packet.dceth().version, wire::kDcVersion);
        ++found[packet.info().name];
      }
    }
  }
  const std::map<std::string, int> expected = {{"DC_CONNECT", 1},
                                               {"DC_CONNECT_ANSWER", 1},
                                               {"DC_ACKNOWLEDGE", 8},
                                               {"DC_RDMA_WRITE_FIRST", 1},
                                               {"DC_RDMA_WRITE_MIDDLE", 25},
                                               {"DC_RDMA_WRITE_ONLY", 12}};
  EXPECT_EQ(found, expected);
}

TEST(GoldenFilesTest, HardwareIsHere) {
  if (HardwareFiles().empty()) {
    GTEST_SKIP() << "no captures of hardware: see tests/golden/README.md";
  }
  for (const std::string& path : HardwareFiles()) {
    EXPECT_FALSE(ReadCapture(path).empty()) << path;
  }
}

}  // namespace
}  // namespace golden
