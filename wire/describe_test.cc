#include "wire/describe.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "wire/aeth.h"

namespace wire {
namespace {

// Emits `headers`, adds `payload_size` bytes and an ICRC of zeros, describes.
std::string Describe(const Headers& headers, size_t payload_size = 0) {
  std::vector<uint8_t> packet(kMaxHeaderSize);
  packet.resize(EmitHeaders(headers, packet.data()) + payload_size +
                headers.bth.pad_count + kIcrcSize);
  PacketView view;
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
  return DescribePacket(view);
}

TEST(DescribeTest, Write) {
  Headers h;
  h.bth.opcode = 0x0b;
  h.bth.dest_qpn = 0x11;
  h.bth.psn = 42;
  h.bth.ack_req = true;
  h.bth.solicited = true;
  h.reth = {.va = 0x7f0000001000, .rkey = 0x204, .length = 64};
  h.imm_be = __builtin_bswap32(0x01020304);
  EXPECT_EQ(Describe(h, 64),
            "RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE qp=0x000011 solicited ack_req "
            "psn=42 va=0x00007f0000001000 rkey=0x00000204 dma_length=64 "
            "imm=0x01020304 payload=64");
}

TEST(DescribeTest, Acknowledgements) {
  Headers h;
  h.bth.opcode = 0x11;
  h.bth.psn = 5;
  h.aeth = {.syndrome = MakeAckSyndrome(kCreditNone), .msn = 6};
  EXPECT_EQ(Describe(h),
            "RC_ACKNOWLEDGE qp=0x000000 psn=5 aeth=ACK msn=6 payload=0");
  h.aeth.syndrome = MakeAckSyndrome(5);
  EXPECT_EQ(
      Describe(h),
      "RC_ACKNOWLEDGE qp=0x000000 psn=5 aeth=ACK credits=6 msn=6 payload=0");
  h.aeth.syndrome = MakeRnrSyndrome(12);
  EXPECT_EQ(Describe(h),
            "RC_ACKNOWLEDGE qp=0x000000 psn=5 aeth=RNR_NAK rnr_timer_us=640 "
            "msn=6 payload=0");
  h.aeth.syndrome = MakeNakSyndrome(NakCode::kRemoteAccess);
  EXPECT_EQ(Describe(h),
            "RC_ACKNOWLEDGE qp=0x000000 psn=5 aeth=NAK "
            "nak=REMOTE_ACCESS_ERROR msn=6 payload=0");
}

// Our UC extension (opcode.h): requests for a report, and reports.
TEST(DescribeTest, UcReports) {
  Headers h;
  h.bth.opcode = 0x31;
  h.bth.dest_qpn = 0x12;
  h.bth.psn = 5;
  h.aeth = {.syndrome = MakeAckSyndrome(10), .msn = 3};
  EXPECT_EQ(Describe(h),
            "UC_ACKNOWLEDGE qp=0x000012 psn=5 aeth=ACK "
            "receive_buffer_kib=1024 missed=3 payload=0");
  h.aeth = {.syndrome = MakeAckSyndrome(kCreditNone), .msn = 0};
  EXPECT_EQ(Describe(h),
            "UC_ACKNOWLEDGE qp=0x000012 psn=5 aeth=ACK missed=0 payload=0");
  h.aeth.syndrome = MakeNakSyndrome(NakCode::kRemoteAccess);
  EXPECT_EQ(Describe(h),
            "UC_ACKNOWLEDGE qp=0x000012 psn=5 aeth=NAK "
            "nak=REMOTE_ACCESS_ERROR missed=0 payload=0");
}

TEST(DescribeTest, UcRequestForAReport) {
  Headers h;
  h.bth.opcode = 0x24;
  h.bth.psn = 5;
  const auto describe = [&h](uint8_t byte) {
    std::vector<uint8_t> packet(kBthSize + 8 + kIcrcSize);
    EmitHeaders(h, packet.data());
    packet[kBthAckReqOffset] = byte;
    PacketView view;
    EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
    return DescribePacket(view);
  };
  EXPECT_EQ(describe(0x81),
            "UC_SEND_ONLY qp=0x000000 ack_req uc_asks psn=5 payload=8");
  EXPECT_EQ(describe(0x80), "UC_SEND_ONLY qp=0x000000 ack_req psn=5 payload=8");
  EXPECT_EQ(describe(0x01), "UC_SEND_ONLY qp=0x000000 psn=5 payload=8");
  // The bit has no meaning in other services.
  h.bth.opcode = 0x04;
  EXPECT_EQ(describe(0x81), "RC_SEND_ONLY qp=0x000000 ack_req psn=5 payload=8");
}

TEST(DescribeTest, UncommonBthFieldsAreShown) {
  Headers h;
  h.bth.opcode = 0x64;
  h.bth.pkey = 0x8001;
  h.bth.fecn = true;
  h.deth = {.qkey = 0x80010000, .src_qpn = 1};
  EXPECT_EQ(Describe(h, 256),
            "UD_SEND_ONLY qp=0x000000 pkey=0x8001 fecn psn=0 "
            "qkey=0x80010000 src_qp=0x000001 payload=256");
}

TEST(DescribeTest, EveryOpcodeHasItsFieldsOnce) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    if (!info.known) continue;
    std::vector<uint8_t> packet(info.header_length + kIcrcSize);
    packet[0] = static_cast<uint8_t>(opcode);
    PacketView view;
    ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
    std::map<std::string, int> names;
    VisitFields(view, [&](const Field& f) { ++names[std::string(f.name)]; });
    for (const auto& [name, count] : names) {
      EXPECT_EQ(count, 1) << info.name << " " << name;
    }
    EXPECT_EQ(names.count("va"), info.Has(kReth) || info.Has(kAtomicEth));
    EXPECT_EQ(names.count("qkey"), info.Has(kDeth));
    const bool uc_answer =
        view.transport() == Transport::kUc && info.Has(kAeth);
    EXPECT_EQ(names.count("msn"), info.Has(kAeth) && !uc_answer);
    EXPECT_EQ(names.count("missed"), uc_answer);
    EXPECT_EQ(names.count("original"), info.Has(kAtomicAckEth));
    EXPECT_EQ(names.count("imm"), info.Has(kImmDt));
    EXPECT_EQ(names.count("invalidate_rkey"), info.Has(kIeth));
    EXPECT_EQ(names.count("xrc_srq"), info.Has(kXrcEth));
    EXPECT_EQ(names.count("placement_type"), info.Has(kFeth));
    EXPECT_EQ(names.count("payload"), 1u);
  }
}

TEST(DescribeTest, NakNames) {
  EXPECT_STREQ(NakCodeName(0), "PSN_SEQUENCE_ERROR");
  EXPECT_STREQ(NakCodeName(4), "INVALID_RD_REQUEST");
  EXPECT_STREQ(NakCodeName(5), "RESERVED");
}

}  // namespace
}  // namespace wire
