#include "wire/opcode.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace wire {
namespace {

TEST(OpcodeTest, NumbersAreTheSpecifications) {
  EXPECT_EQ(MakeOpcode(Transport::kRc, Operation::kSendOnly), 0x04);
  EXPECT_EQ(MakeOpcode(Transport::kRc, Operation::kAtomicWrite), 0x1d);
  EXPECT_EQ(MakeOpcode(Transport::kUc, Operation::kWriteOnlyImm), 0x2b);
  EXPECT_EQ(MakeOpcode(Transport::kUd, Operation::kSendOnlyImm), 0x65);
  EXPECT_EQ(MakeOpcode(Transport::kXrc, Operation::kFetchAdd), 0xb4);
  EXPECT_EQ(TransportOf(0xb4), Transport::kXrc);
  EXPECT_EQ(OperationOf(0xb4), Operation::kFetchAdd);
  EXPECT_EQ(TransportOf(kOpcodeCnp), Transport::kCnp);
}

TEST(OpcodeTest, KnowsExactlyTheOpcodesOfRoceV2) {
  std::set<int> expected = {0x64, 0x65, kOpcodeCnp};
  for (int transport : {0x00, 0xa0}) {
    for (int operation = 0; operation <= 0x14; ++operation) {
      expected.insert(transport | operation);
    }
    for (int operation : {0x16, 0x17, 0x1c, 0x1d}) {
      expected.insert(transport | operation);
    }
  }
  for (int operation = 0; operation <= 0x0b; ++operation) {
    expected.insert(0x20 | operation);
  }
  expected.insert({0x31, 0x36, 0x37});
  for (int operation = 0; operation <= 0x17; ++operation) {
    expected.insert(0x40 | operation);  // DC
  }

  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    EXPECT_EQ(info.known, expected.count(opcode) == 1) << opcode;
    if (!info.known && !info.reserved) {
      EXPECT_STREQ(info.name, "UNKNOWN");
      EXPECT_EQ(info.extended, 0);
      EXPECT_EQ(info.header_length, 0);
    }
  }
}

// The reserved opcodes of RC and XRC, and no others.
TEST(OpcodeTest, ReservedOnesOfReliableServicesAreRequests) {
  const std::set<int> reserved = {0x15, 0x18, 0x19, 0x1a, 0x1b, 0x1e, 0x1f,
                                  0xb5, 0xb8, 0xb9, 0xba, 0xbb, 0xbe, 0xbf};
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    EXPECT_EQ(info.reserved, reserved.count(opcode) == 1) << opcode;
    if (!info.reserved) continue;
    EXPECT_FALSE(info.known);
    EXPECT_TRUE(info.is_request && !info.is_response);
    EXPECT_EQ(info.extended, 0) << "XRCETH neither: nobody knows its place";
    EXPECT_EQ(info.header_length, kBthSize);
  }
  EXPECT_STREQ(GetOpcodeInfo(0x15).name, "RC_RESERVED_15");
  EXPECT_STREQ(GetOpcodeInfo(0xbf).name, "XRC_RESERVED_1F");
}

TEST(OpcodeTest, NamesAreUnique) {
  std::set<std::string> names;
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    if (!info.known) continue;
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
  }
  EXPECT_STREQ(GetOpcodeInfo(0x06).name, "RC_RDMA_WRITE_FIRST");
  EXPECT_STREQ(GetOpcodeInfo(0xab).name, "XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE");
  EXPECT_STREQ(GetOpcodeInfo(0x64).name, "UD_SEND_ONLY");
  EXPECT_STREQ(GetOpcodeInfo(kOpcodeCnp).name, "CNP");
}

TEST(OpcodeTest, HeaderLengths) {
  struct Case {
    uint8_t opcode;
    uint16_t extended;
    size_t length;
  };
  const Case cases[] = {
      {0x00, 0, 12},
      {0x03, kImmDt, 16},
      {0x06, kReth, 28},
      {0x0b, kReth | kImmDt, 32},
      {0x0c, kReth, 28},
      {0x0d, kAeth, 16},
      {0x0e, 0, 12},
      {0x11, kAeth, 16},
      {0x12, kAeth | kAtomicAckEth, 24},
      {0x13, kAtomicEth, 40},
      {0x17, kIeth, 16},
      {0x1c, kFeth | kReth, 32},
      {0x1d, kReth, 28},
      {0x2b, kReth | kImmDt, 32},
      {0x64, kDeth, 20},
      {0x65, kDeth | kImmDt, 24},
      {0xa0, kXrcEth, 16},
      {0xa1, kXrcEth, 16},
      {0xab, kXrcEth | kReth | kImmDt, 36},
      {0xae, 0, 12},
      {0xb1, kAeth, 16},
      {0xb3, kXrcEth | kAtomicEth, 44},
      {0xbc, kXrcEth | kFeth | kReth, 36},
      {0x46, kDcEth | kReth, 48},
      {0x47, kDcEth, 32},
      {0x4e, kDcEth, 32},
      {0x51, kDcEth | kAeth, 36},
      {0x53, kDcEth | kAtomicEth, kMaxHeaderSize},
      {0x55, kDcEth | kDccEth, 48},
      {0x57, kDcEth | kIeth, 36},
      {kOpcodeCnp, 0, 12},
  };
  for (const Case& c : cases) {
    const OpcodeInfo& info = GetOpcodeInfo(c.opcode);
    EXPECT_EQ(info.extended, c.extended) << info.name;
    EXPECT_EQ(info.header_length, c.length) << info.name;
  }
  for (int opcode = 0; opcode < 256; ++opcode) {
    EXPECT_LE(GetOpcodeInfo(static_cast<uint8_t>(opcode)).header_length,
              kMaxHeaderSize);
  }
}

TEST(OpcodeTest, WireOrderOfHeaders) {
  const OpcodeInfo& flush = GetOpcodeInfo(0xbc);
  EXPECT_EQ(flush.xrceth_offset, 12);
  EXPECT_EQ(flush.feth_offset, 16) << "FETH before RETH";
  EXPECT_EQ(flush.reth_offset, 20);
  const OpcodeInfo& ud = GetOpcodeInfo(0x65);
  EXPECT_EQ(ud.deth_offset, 12);
  EXPECT_EQ(ud.immdt_offset, 20);
  EXPECT_EQ(ud.reth_offset, 0) << "not there";
  const OpcodeInfo& atomic_ack = GetOpcodeInfo(0x12);
  EXPECT_EQ(atomic_ack.aeth_offset, 12);
  EXPECT_EQ(atomic_ack.atomicacketh_offset, 16);
}

TEST(OpcodeTest, PositionAndRole) {
  const OpcodeInfo& first = GetOpcodeInfo(0x06);
  EXPECT_TRUE(first.starts_message && !first.ends_message);
  EXPECT_TRUE(first.is_request && !first.is_response);
  EXPECT_TRUE(first.carries_payload && first.full_mtu_payload);

  const OpcodeInfo& middle = GetOpcodeInfo(0x01);
  EXPECT_TRUE(!middle.starts_message && !middle.ends_message);
  EXPECT_TRUE(middle.full_mtu_payload);

  const OpcodeInfo& last = GetOpcodeInfo(0x16);
  EXPECT_TRUE(!last.starts_message && last.ends_message);
  EXPECT_TRUE(last.carries_payload && !last.full_mtu_payload);

  const OpcodeInfo& read = GetOpcodeInfo(0x0c);
  EXPECT_TRUE(read.starts_message && read.ends_message && read.is_request);
  EXPECT_FALSE(read.carries_payload);

  const OpcodeInfo& response = GetOpcodeInfo(0x0d);
  EXPECT_TRUE(response.is_response && !response.is_request);
  EXPECT_TRUE(response.carries_payload && response.full_mtu_payload);

  const OpcodeInfo& ack = GetOpcodeInfo(0x11);
  EXPECT_TRUE(ack.is_response && !ack.carries_payload);

  const OpcodeInfo& cnp = GetOpcodeInfo(kOpcodeCnp);
  EXPECT_TRUE(!cnp.is_request && !cnp.is_response && cnp.carries_payload);

  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    if (!info.known || opcode == kOpcodeCnp) continue;
    EXPECT_NE(info.is_request, info.is_response) << info.name;
    EXPECT_FALSE(info.full_mtu_payload && info.ends_message) << info.name;
  }
}

}  // namespace
}  // namespace wire
