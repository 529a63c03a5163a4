// Every CM message that the kernel and hardware NICs sent: it is parsed, and
// building it from its fields gives the same bytes.

#include "wire/cm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/golden/golden_files.h"
#include "transport/cm/connection_manager.h"
#include "transport/cm/mad_packet.h"
#include "wire/frame.h"
#include "wire/packet.h"
#include "wire/rdma_cm.h"

namespace golden {
namespace {

using Mad = std::array<uint8_t, wire::kMadSize>;
using wire::CmAttribute;

// The MADs to queue pair 1, in order of the capture.
std::vector<Mad> MadsOf(const std::string& path) {
  std::vector<Mad> mads;
  for (const CapturedFrame& captured : ReadCapture(path)) {
    wire::Frame frame;
    wire::PacketView packet;
    if (wire::DecodeFrame(captured.link_type, captured.bytes, &frame) !=
            wire::FrameKind::kUdp ||
        !frame.headers.is_rocev2() || frame.is_truncated() ||
        wire::PacketView::Parse(frame.udp_payload, &packet) !=
            wire::ParseError::kOk ||
        packet.bth().dest_qpn != wire::kGsiQpn) {
      continue;
    }
    EXPECT_EQ(packet.payload().size(), wire::kMadSize) << captured.number;
    EXPECT_EQ(packet.deth().qkey, wire::kGsiQkey) << captured.number;
    Mad mad{};
    std::copy_n(packet.payload().begin(),
                std::min(packet.payload().size(), mad.size()), mad.begin());
    mads.push_back(mad);
  }
  return mads;
}

Mad Rebuild(const wire::CmView& view) {
  const wire::CmTransaction transaction = {
      .id = view.transaction_id(),
      .attribute_modifier = view.header().attribute_modifier};
  Mad mad;
  mad.fill(0xa5);
  switch (view.attribute()) {
    case CmAttribute::kReq:
      EmitCm(transaction, view.req(), mad);
      break;
    case CmAttribute::kMra:
      EmitCm(transaction, view.mra(), mad);
      break;
    case CmAttribute::kRej:
      EmitCm(transaction, view.rej(), mad);
      break;
    case CmAttribute::kRep:
      EmitCm(transaction, view.rep(), mad);
      break;
    case CmAttribute::kRtu:
      EmitCm(transaction, view.rtu(), mad);
      break;
    case CmAttribute::kDreq:
      EmitCm(transaction, view.dreq(), mad);
      break;
    case CmAttribute::kDrep:
      EmitCm(transaction, view.drep(), mad);
      break;
    case CmAttribute::kSidrReq:
      EmitCm(transaction, view.sidr_req(), mad);
      break;
    case CmAttribute::kSidrRep:
      EmitCm(transaction, view.sidr_rep(), mad);
      break;
    case CmAttribute::kLap:
    case CmAttribute::kApr:
      break;  // not in any capture
  }
  return mad;
}

class CmCaptureTest : public testing::TestWithParam<std::string> {};

TEST_P(CmCaptureTest, EveryMessageIsRebuiltToTheSameBytes) {
  int number = 0;
  for (const Mad& mad : MadsOf(GetParam())) {
    wire::CmView view;
    ++number;
    ASSERT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk)
        << "MAD " << number;
    EXPECT_EQ(Rebuild(view), mad)
        << "MAD " << number << ": " << wire::CmAttributeName(view.attribute());
  }
}

// Our queue pair 1 accepts these messages, and a listener gets every request.
TEST_P(CmCaptureTest, QueuePairOneTakesEveryPacket) {
  class Random : public transport::cm::RandomSource {
    uint32_t Next32() override { return ++last_; }
    uint32_t last_ = 0;
  } random;
  transport::cm::ConnectionManager manager({}, &random);
  transport::cm::ListenerId listener = 0;
  manager.Listen({.mask = 0, .local = {}}, &listener);
  size_t requests = 0;
  for (const CapturedFrame& captured : ReadCapture(GetParam())) {
    wire::Frame frame;
    if (wire::DecodeFrame(captured.link_type, captured.bytes, &frame) !=
            wire::FrameKind::kUdp ||
        !frame.headers.is_rocev2() || frame.is_truncated() ||
        wire::PeekDestQpn(frame.udp_payload) != wire::kGsiQpn) {
      continue;
    }
    std::span<const uint8_t> mad;
    ASSERT_EQ(
        transport::cm::ParseMadPacket({.source = frame.headers.src,
                                       .destination = frame.headers.dst,
                                       .source_port = frame.headers.src_port},
                                      frame.udp_payload, &mad),
        transport::cm::MadPacketError::kOk)
        << captured.number;
    manager.OnMad(
        {.local = frame.headers.dst, .remote = frame.headers.src, .bytes = mad},
        captured.time_ns);
    wire::CmView view;
    ASSERT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
    requests += view.attribute() == CmAttribute::kReq ||
                view.attribute() == CmAttribute::kSidrReq;
  }
  size_t events = 0;
  transport::cm::Event event;
  while (manager.PollEvent(&event)) {
    events += event.kind == transport::cm::EventKind::kRequest ||
              event.kind == transport::cm::EventKind::kServiceRequest;
  }
  const transport::cm::MessageCounts& duplicates =
      manager.counters().rx_duplicates;
  EXPECT_EQ(events + duplicates.Of(CmAttribute::kReq) +
                duplicates.Of(CmAttribute::kSidrReq),
            requests);
  EXPECT_EQ(manager.counters().malformed, 0u);
}

// The same for the RDMA CM's header before the private data.
TEST_P(CmCaptureTest, AddressHeadersAreRebuiltToTheSameBytes) {
  for (const Mad& mad : MadsOf(GetParam())) {
    wire::CmView view;
    ASSERT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
    uint64_t service_id;
    std::vector<uint8_t> data;
    if (view.attribute() == CmAttribute::kReq) {
      const wire::CmReq req = view.req();
      service_id = req.service_id;
      data.assign(req.private_data.begin(), req.private_data.end());
    } else if (view.attribute() == CmAttribute::kSidrReq) {
      const wire::CmSidrReq req = view.sidr_req();
      service_id = req.service_id;
      data.assign(req.private_data.begin(), req.private_data.end());
    } else {
      continue;
    }
    const auto service = wire::ParseRdmaServiceId(service_id);
    ASSERT_TRUE(service);
    EXPECT_EQ(wire::RdmaServiceId(service->port_space, service->port),
              service_id);
    const auto header = wire::ParseRdmaCmHeader(data);
    ASSERT_TRUE(header);
    std::vector<uint8_t> emitted(wire::kRdmaCmHeaderSize);
    wire::EmitRdmaCmHeader(*header, emitted.data());
    EXPECT_TRUE(std::equal(emitted.begin(), emitted.end(), data.begin()));
  }
}

std::string TestName(const testing::TestParamInfo<std::string>& info) {
  return std::filesystem::path(info.param).stem();
}

INSTANTIATE_TEST_SUITE_P(KernelRxe, CmCaptureTest,
                         testing::ValuesIn(KernelRxeFiles()), TestName);
INSTANTIATE_TEST_SUITE_P(Hardware, CmCaptureTest,
                         testing::ValuesIn(HardwareFiles()), TestName);

wire::CmView View(const Mad& mad) {
  wire::CmView view;
  EXPECT_EQ(wire::CmView::Parse(mad, &view), wire::CmParseError::kOk);
  return view;
}

// The expected values are those of tshark 4.0 for the kernel's captures.
TEST(CmGoldenTest, Rping) {
  const std::vector<Mad> mads = MadsOf("tests/golden/kernel_rxe/rping.pcap");
  ASSERT_EQ(mads.size(), 5u);
  ASSERT_EQ(View(mads[0]).attribute(), CmAttribute::kReq);
  EXPECT_EQ(View(mads[0]).transaction_id(), 0x00000002cdad1b98u);
  const wire::CmReq req = View(mads[0]).req();
  EXPECT_EQ(req.local_comm_id, 0x981badcdu);
  EXPECT_EQ(wire::ParseRdmaServiceId(req.service_id),
            (wire::RdmaService{.port_space = 6, .port = 0x1c06}));
  EXPECT_EQ(req.local_ca_guid, 0x505400fffe770003u);
  EXPECT_EQ(req.local_qpn, 0x20u);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_cm_response_timeout, 20);
  EXPECT_EQ(req.service, wire::CmService::kRc);
  EXPECT_EQ(req.starting_psn, 0x0119e1u);
  EXPECT_EQ(req.local_cm_response_timeout, 20);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.pkey, 0xffff);
  EXPECT_EQ(req.path_mtu, 3);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(req.primary.local_lid, 0xffff);
  EXPECT_EQ(req.primary.local_gid.ToString(), "10.77.0.3");
  EXPECT_EQ(req.primary.remote_gid.ToString(), "10.77.0.2");
  // The UDP source port of its RC packets, 63389, is derived from this flow
  // label. (tshark reads this field from another place.)
  EXPECT_EQ(req.primary.flow_label, 0x8f7beu);
  EXPECT_EQ(req.primary.hop_limit, 0x40);
  EXPECT_EQ(req.primary.local_ack_timeout, 0x13);
  const auto header = wire::ParseRdmaCmHeader(req.private_data);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->source_port, 0xcd48);
  EXPECT_EQ(header->source.ToString(), "10.77.0.3");

  ASSERT_EQ(View(mads[1]).attribute(), CmAttribute::kRep);
  const wire::CmRep rep = View(mads[1]).rep();
  EXPECT_EQ(rep.local_comm_id, 0x91bedf83u);
  EXPECT_EQ(rep.remote_comm_id, 0x981badcdu);
  EXPECT_EQ(rep.local_qpn, 0x20u);
  EXPECT_EQ(rep.starting_psn, 0x48a354u);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.local_ca_guid, 0x505400fffe770002u);

  EXPECT_EQ(View(mads[2]).attribute(), CmAttribute::kRtu);
  EXPECT_EQ(View(mads[2]).local_comm_id(), 0x981badcdu);
  ASSERT_EQ(View(mads[3]).attribute(), CmAttribute::kDreq);
  EXPECT_EQ(View(mads[3]).dreq().remote_qpn, 0x20u);
  EXPECT_EQ(View(mads[4]).attribute(), CmAttribute::kDrep);
}

TEST(CmGoldenTest, Reject) {
  const std::vector<Mad> mads =
      MadsOf("tests/golden/kernel_rxe/cm_reject.pcap");
  ASSERT_EQ(mads.size(), 2u);
  ASSERT_EQ(View(mads[1]).attribute(), CmAttribute::kRej);
  const wire::CmRej rej = View(mads[1]).rej();
  EXPECT_EQ(rej.remote_comm_id, View(mads[0]).req().local_comm_id);
  EXPECT_EQ(rej.answered, wire::CmAnswered::kReq);
  EXPECT_EQ(rej.reason, wire::CmRejectReason::kInvalidServiceId);
}

TEST(CmGoldenTest, Udaddy) {
  const std::vector<Mad> mads = MadsOf("tests/golden/kernel_rxe/udaddy.pcap");
  ASSERT_EQ(mads.size(), 2u);
  ASSERT_EQ(View(mads[0]).attribute(), CmAttribute::kSidrReq);
  const wire::CmSidrReq req = View(mads[0]).sidr_req();
  EXPECT_EQ(wire::ParseRdmaServiceId(req.service_id)->port_space,
            static_cast<uint8_t>(wire::RdmaPortSpace::kUdp));
  ASSERT_EQ(View(mads[1]).attribute(), CmAttribute::kSidrRep);
  const wire::CmSidrRep rep = View(mads[1]).sidr_rep();
  EXPECT_EQ(rep.request_id, req.request_id);
  EXPECT_EQ(rep.service_id, req.service_id);
  EXPECT_EQ(rep.status, wire::CmSidrStatus::kOk);
  EXPECT_EQ(rep.qkey, wire::kRdmaUdpQkey);
}

// The captures must contain messages for these tests to mean anything.
TEST(CmGoldenTest, HardwareSendsThem) {
  if (HardwareFiles().empty()) {
    GTEST_SKIP() << "no captures of hardware: see tests/golden/README.md";
  }
  std::map<CmAttribute, int> seen;
  for (const std::string& path : HardwareFiles()) {
    for (const Mad& mad : MadsOf(path)) ++seen[View(mad).attribute()];
  }
  EXPECT_GT(seen[CmAttribute::kReq], 0);
  EXPECT_GT(seen[CmAttribute::kRep], 0);
  EXPECT_GT(seen[CmAttribute::kRtu], 0);
  EXPECT_GT(seen[CmAttribute::kDreq], 0);
  EXPECT_GT(seen[CmAttribute::kDrep], 0);
}

}  // namespace
}  // namespace golden
