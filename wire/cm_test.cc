#include "wire/cm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <random>
#include <vector>

namespace wire {
namespace {

using Mad = std::array<uint8_t, kMadSize>;

// Emits over garbage, so that a byte that is not written shows.
template <typename M>
Mad Emit(const M& message, const CmTransaction& transaction = {}) {
  Mad mad;
  mad.fill(0xa5);
  EmitCm(transaction, message, mad);
  return mad;
}

CmView View(const Mad& mad) {
  CmView view;
  EXPECT_EQ(CmView::Parse(mad, &view), CmParseError::kOk);
  return view;
}

// `size` bytes at `offset` after the MAD header.
std::vector<uint8_t> At(const Mad& mad, int offset, int size) {
  const auto begin = mad.begin() + kMadHeaderSize + offset;
  return {begin, begin + size};
}

using Bytes = std::vector<uint8_t>;

TEST(CmTest, EmitsTheMadHeaderOfTheSpecification) {
  const Mad mad = Emit(
      CmRtu{}, {.id = 0x0102030405060708, .attribute_modifier = 0x11121314});
  const Bytes header(mad.begin(), mad.begin() + kMadHeaderSize);
  EXPECT_EQ(header, (Bytes{1, 7, 2, 3, 0, 0,    0, 0, 1,    2,    3,    4,
                           5, 6, 7, 8, 0, 0x14, 0, 0, 0x11, 0x12, 0x13, 0x14}));
}

// Offsets, bit positions and widths of tables in 12.6 and 12.11.
TEST(CmTest, ReqLayoutFollowsTheSpecification) {
  CmReq m;
  m.local_comm_id = 0x01020304;
  m.service_id = 0x1112131415161718;
  m.local_ca_guid = 0x2122232425262728;
  m.local_qkey = 0x31323334;
  m.local_qpn = 0x414243;
  m.responder_resources = 0x44;
  m.initiator_depth = 0x45;
  m.local_eecn = 0x464748;
  m.remote_eecn = 0x494a4b;
  m.remote_cm_response_timeout = 20;
  m.service = CmService::kExtended;
  m.end_to_end_flow_control = true;
  m.starting_psn = 0x515253;
  m.local_cm_response_timeout = 19;
  m.retry_count = 5;
  m.pkey = 0x8001;
  m.path_mtu = 3;
  m.rdc_exists = true;
  m.rnr_retry_count = 6;
  m.max_cm_retries = 15;
  m.srq = true;
  m.extended_transport = 1;
  m.primary.local_lid = 0x6162;
  m.primary.remote_lid = 0x6364;
  m.primary.local_gid = *IpAddress::Parse("192.0.2.1");
  m.primary.remote_gid = *IpAddress::Parse("2001:db8::2");
  m.primary.flow_label = 0xabcde;
  m.primary.packet_rate = 18;
  m.primary.traffic_class = 0x71;
  m.primary.hop_limit = 0x72;
  m.primary.sl = 7;
  m.primary.subnet_local = true;
  m.primary.local_ack_timeout = 17;
  m.alternate.local_ack_timeout = 16;
  m.private_data.fill(0x99);
  const Mad mad = Emit(m);
  EXPECT_EQ(At(mad, 0, 8), (Bytes{1, 2, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(At(mad, 8, 4), (Bytes{0x11, 0x12, 0x13, 0x14}));
  EXPECT_EQ(At(mad, 16, 4), (Bytes{0x21, 0x22, 0x23, 0x24}));
  EXPECT_EQ(At(mad, 24, 8), (Bytes{0, 0, 0, 0, 0x31, 0x32, 0x33, 0x34}));
  EXPECT_EQ(At(mad, 32, 8),
            (Bytes{0x41, 0x42, 0x43, 0x44, 0x46, 0x47, 0x48, 0x45}));
  EXPECT_EQ(At(mad, 40, 8), (Bytes{0x49, 0x4a, 0x4b, 20 << 3 | 3 << 1 | 1, 0x51,
                                   0x52, 0x53, 19 << 3 | 5}));
  EXPECT_EQ(At(mad, 48, 4),
            (Bytes{0x80, 1, 3 << 4 | 1 << 3 | 6, 15 << 4 | 1 << 3 | 1}));
  EXPECT_EQ(At(mad, 52, 4), (Bytes{0x61, 0x62, 0x63, 0x64}));
  EXPECT_EQ(At(mad, 66, 6), (Bytes{0xff, 0xff, 192, 0, 2, 1}));
  EXPECT_EQ(At(mad, 72, 4), (Bytes{0x20, 0x01, 0x0d, 0xb8}));
  EXPECT_EQ(At(mad, 88, 8),
            (Bytes{0xab, 0xcd, 0xe0, 18, 0x71, 0x72, 7 << 4 | 8, 17 << 3}));
  EXPECT_EQ(At(mad, 139, 2), (Bytes{16 << 3, 0x99}));
  EXPECT_EQ(View(mad).req(), m);
}

TEST(CmTest, RejLayoutFollowsTheSpecification) {
  CmRej m;
  m.local_comm_id = 0x01020304;
  m.remote_comm_id = 0x05060708;
  m.answered = CmAnswered::kRep;
  m.info_length = 8;
  m.reason = CmRejectReason::kDuplicateLocalCommId;
  m.additional_info.fill(0x11);
  m.private_data.fill(0x22);
  const Mad mad = Emit(m);
  EXPECT_EQ(At(mad, 0, 13),
            (Bytes{1, 2, 3, 4, 5, 6, 7, 8, 0x40, 8 << 1, 0, 30, 0x11}));
  EXPECT_EQ(At(mad, 83, 2), (Bytes{0x11, 0x22}));
  EXPECT_EQ(View(mad).rej(), m);
}

TEST(CmTest, RepLayoutFollowsTheSpecification) {
  CmRep m;
  m.local_qkey = 0x11121314;
  m.local_qpn = 0x212223;
  m.local_eecn = 0x242526;
  m.starting_psn = 0x313233;
  m.vendor_id = 0xa1a2a3;
  m.responder_resources = 0x41;
  m.initiator_depth = 0x42;
  m.target_ack_delay = 15;
  m.failover_accepted = 1;
  m.end_to_end_flow_control = true;
  m.rnr_retry_count = 7;
  m.srq = true;
  m.local_ca_guid = 0x5152535455565758;
  m.private_data.fill(0x61);
  const Mad mad = Emit(m);
  EXPECT_EQ(At(mad, 8, 16),
            (Bytes{0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0xa1, 0x24, 0x25,
                   0x26, 0xa2, 0x31, 0x32, 0x33, 0xa3}));
  EXPECT_EQ(At(mad, 24, 5),
            (Bytes{0x41, 0x42, 15 << 3 | 1 << 1 | 1, 7 << 5 | 1 << 4, 0x51}));
  EXPECT_EQ(At(mad, 35, 2), (Bytes{0x58, 0x61}));
  EXPECT_EQ(View(mad).rep(), m);
}

TEST(CmTest, LayoutOfSmallMessagesFollowsTheSpecification) {
  CmMra mra;
  mra.answered = CmAnswered::kRep;
  mra.service_timeout = 24;
  mra.private_data.fill(0x11);
  EXPECT_EQ(At(Emit(mra), 8, 3), (Bytes{0x40, 24 << 3, 0x11}));

  CmDreq dreq;
  dreq.remote_qpn = 0x212223;
  dreq.private_data.fill(0x24);
  EXPECT_EQ(At(Emit(dreq), 8, 5), (Bytes{0x21, 0x22, 0x23, 0, 0x24}));

  CmApr apr;
  apr.info_length = 3;
  apr.status = CmAprStatus::kUnsupported;
  apr.additional_info.fill(0x31);
  apr.private_data.fill(0x32);
  EXPECT_EQ(At(Emit(apr), 8, 5), (Bytes{3, 2, 0, 0, 0x31}));
  EXPECT_EQ(At(Emit(apr), 83, 2), (Bytes{0x31, 0x32}));

  CmSidrReq sidr_req;
  sidr_req.request_id = 0x01020304;
  sidr_req.pkey = 0xffff;
  sidr_req.service_id = 0x1112131415161718;
  sidr_req.private_data.fill(0x41);
  EXPECT_EQ(At(Emit(sidr_req), 0, 9),
            (Bytes{1, 2, 3, 4, 0xff, 0xff, 0, 0, 0x11}));
  EXPECT_EQ(At(Emit(sidr_req), 15, 2), (Bytes{0x18, 0x41}));

  CmSidrRep sidr_rep;
  sidr_rep.request_id = 0x01020304;
  sidr_rep.status = CmSidrStatus::kNoQp;
  sidr_rep.info_length = 5;
  sidr_rep.qpn = 0x212223;
  sidr_rep.service_id = 0x3132333435363738;
  sidr_rep.qkey = 0x41424344;
  sidr_rep.vendor_id = 0xa1a2a3;
  sidr_rep.additional_info.fill(0x51);
  sidr_rep.private_data.fill(0x52);
  EXPECT_EQ(At(Emit(sidr_rep), 0, 13), (Bytes{1, 2, 3, 4, 3, 5, 0xa1, 0xa2,
                                              0x21, 0x22, 0x23, 0xa3, 0x31}));
  EXPECT_EQ(At(Emit(sidr_rep), 19, 6),
            (Bytes{0x38, 0x41, 0x42, 0x43, 0x44, 0x51}));
  EXPECT_EQ(At(Emit(sidr_rep), 95, 2), (Bytes{0x51, 0x52}));
}

// Reads a message of type `M` from random bytes, emits it and reads it again.
template <typename M>
void RoundTrip(const Mad& garbage, M (CmView::*read)() const) {
  Mad mad = garbage;
  EmitMadHeader({.management_class = kMadClassCm,
                 .class_version = kCmClassVersion,
                 .method = kMadMethodSend,
                 .attribute_id = static_cast<uint16_t>(M::kAttribute)},
                mad.data());
  const M message = (View(mad).*read)();
  const Mad again = Emit(message);
  EXPECT_EQ(View(again).attribute(), M::kAttribute);
  EXPECT_EQ((View(again).*read)(), message);
  // Only reserved bits are lost.
  for (size_t i = kMadHeaderSize; i < kMadSize; ++i) {
    EXPECT_EQ(again[i] & ~mad[i], 0) << i;
  }
  EXPECT_EQ(LoadMadHeader(again.data()), LoadMadHeader(mad.data()));
}

TEST(CmTest, RandomMessagesRoundTrip) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    Mad mad;
    for (uint8_t& byte : mad) byte = static_cast<uint8_t>(random());
    // Too large lengths are cut: see the next test.
    mad[kMadHeaderSize + 9] &= 0x7f;
    Mad rej = mad;
    RoundTrip<CmReq>(mad, &CmView::req);
    RoundTrip<CmMra>(mad, &CmView::mra);
    RoundTrip<CmRep>(mad, &CmView::rep);
    RoundTrip<CmRtu>(mad, &CmView::rtu);
    RoundTrip<CmDreq>(mad, &CmView::dreq);
    RoundTrip<CmDrep>(mad, &CmView::drep);
    RoundTrip<CmSidrReq>(mad, &CmView::sidr_req);
    rej[kMadHeaderSize + 5] = rej[kMadHeaderSize + 8] = random() % 73;
    RoundTrip<CmRej>(rej, &CmView::rej);
    RoundTrip<CmApr>(rej, &CmView::apr);
    RoundTrip<CmSidrRep>(rej, &CmView::sidr_rep);
  }
}

TEST(CmTest, LengthsOfAdditionalInformationAreLimited) {
  Mad mad = Emit(CmRej{});
  mad[kMadHeaderSize + 9] = 0xff;
  EXPECT_EQ(View(mad).rej().info_length, kCmAdditionalInfoSize);
  mad = Emit(CmApr{});
  mad[kMadHeaderSize + 8] = 0xff;
  EXPECT_EQ(View(mad).apr().info_length, kCmAdditionalInfoSize);
  mad = Emit(CmSidrRep{});
  mad[kMadHeaderSize + 5] = 0xff;
  EXPECT_EQ(View(mad).sidr_rep().info_length, kCmAdditionalInfoSize);
  CmRej rej;
  rej.info_length = 200;
  EXPECT_EQ(View(Emit(rej)).rej().info_length, kCmAdditionalInfoSize);
}

TEST(CmTest, ExcessBitsAreDropped) {
  CmReq m;
  m.local_qpn = 0xff000001;
  m.starting_psn = 0xff000002;
  m.retry_count = 0xf8;
  m.max_cm_retries = 0xf0;
  m.primary.flow_label = 0xfff00000;
  m.primary.local_ack_timeout = 0xe0;
  const CmReq read = View(Emit(m)).req();
  CmReq expected;
  expected.local_qpn = 1;
  expected.starting_psn = 2;
  EXPECT_EQ(read, expected);
}

TEST(CmTest, OtherMessagesAreRejected) {
  CmView view;
  const Mad good = Emit(CmReq{});
  for (size_t size = 0; size < kMadSize; ++size) {
    // Ends where its allocation ends, so that a sanitizer sees reads beyond it.
    const auto bytes = std::make_unique<uint8_t[]>(size);
    std::copy_n(good.begin(), size, bytes.get());
    EXPECT_EQ(CmView::Parse({bytes.get(), size}, &view),
              CmParseError::kBadSize);
  }
  Bytes longer(good.begin(), good.end());
  longer.push_back(0);
  EXPECT_EQ(CmView::Parse(longer, &view), CmParseError::kBadSize);

  const auto with = [&good](int at, uint8_t value) {
    Mad mad = good;
    mad[at] = value;
    CmView unused;
    return CmView::Parse(mad, &unused);
  };
  EXPECT_EQ(with(0, 2), CmParseError::kOtherClass);
  EXPECT_EQ(with(1, 3), CmParseError::kOtherClass);
  EXPECT_EQ(with(2, 1), CmParseError::kBadVersion);
  EXPECT_EQ(with(3, 1), CmParseError::kOtherMethod);
  EXPECT_EQ(with(3, 0x83), CmParseError::kOtherMethod);
  EXPECT_EQ(with(16, 1), CmParseError::kUnknownAttribute);
  EXPECT_EQ(with(17, 0x0f), CmParseError::kUnknownAttribute);
  EXPECT_EQ(with(17, 0x1b), CmParseError::kUnknownAttribute);
  EXPECT_EQ(with(17, 0x19), CmParseError::kOk);  // LAP is known
}

TEST(CmTest, TimesAreExponents) {
  EXPECT_EQ(CmTimeNanos(0), 4096);
  EXPECT_EQ(CmTimeNanos(20), 4'294'967'296);
  EXPECT_EQ(CmTimeNanos(31), int64_t{4096} << 31);
  EXPECT_EQ(CmTimeNanos(32), 4096);
}

TEST(CmTest, Names) {
  EXPECT_STREQ(CmAttributeName(CmAttribute::kSidrRep), "CM_SIDR_REP");
  EXPECT_STREQ(CmRejectReasonName(CmRejectReason::kConsumer),
               "CONSUMER_REJECT");
  EXPECT_STREQ(CmRejectReasonName(static_cast<CmRejectReason>(33)),
               "INVALID_ALTERNATE_FLOW_LABEL");
  EXPECT_STREQ(CmRejectReasonName(static_cast<CmRejectReason>(34)), "RESERVED");
}

}  // namespace
}  // namespace wire
