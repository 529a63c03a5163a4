#include "wire/packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace wire {
namespace {

std::vector<uint8_t> KnownOpcodes() {
  std::vector<uint8_t> opcodes;
  for (int opcode = 0; opcode < 256; ++opcode) {
    if (GetOpcodeInfo(static_cast<uint8_t>(opcode)).known) {
      opcodes.push_back(static_cast<uint8_t>(opcode));
    }
  }
  return opcodes;
}

// Parses a copy that ends where its allocation ends, so that a sanitizer sees
// reads beyond it.
ParseError ParseExact(const std::vector<uint8_t>& bytes, size_t size,
                      PacketView* out, std::unique_ptr<uint8_t[]>* keep) {
  keep->reset(new uint8_t[size]);
  std::copy_n(bytes.begin(), size, keep->get());
  return PacketView::Parse({keep->get(), size}, out);
}

// Calls every accessor.
uint64_t UseAll(const PacketView& view) {
  const Headers h = view.headers();
  uint64_t sum = h.bth.psn + h.reth.va + h.deth.qkey + h.atomic.compare +
                 h.aeth.msn + h.atomic_ack.original + h.imm_be +
                 h.invalidate_rkey + h.xrc_srqn + h.feth.selectivity;
  for (const uint8_t byte : view.payload()) sum += byte;
  for (const uint8_t byte : view.bytes_covered()) sum += byte;
  return sum + view.icrc();
}

// Sets every field of the opcode to a random value of its width.
Headers RandomHeaders(uint8_t opcode, std::mt19937_64& random) {
  Headers h;
  h.bth = {.opcode = opcode,
           .solicited = random() % 2 == 0,
           .mig_req = random() % 2 == 0,
           .pad_count = static_cast<uint8_t>(random() % 4),
           .transport_version = 0,
           .pkey = static_cast<uint16_t>(random()),
           .fecn = random() % 2 == 0,
           .becn = random() % 2 == 0,
           .dest_qpn = static_cast<uint32_t>(random() & kQpnMask),
           .ack_req = random() % 2 == 0,
           .psn = static_cast<uint32_t>(random() & 0xffffff)};
  const OpcodeInfo& info = GetOpcodeInfo(opcode);
  const auto u32 = [&] { return static_cast<uint32_t>(random()); };
  if (info.Has(kXrcEth)) h.xrc_srqn = u32() & kQpnMask;
  if (info.Has(kDeth)) h.deth = {u32(), u32() & kQpnMask};
  if (info.Has(kFeth)) {
    h.feth = {static_cast<uint8_t>(random() & 0xf),
              static_cast<uint8_t>(random() & 3)};
  }
  if (info.Has(kReth)) h.reth = {random(), u32(), u32()};
  if (info.Has(kAtomicEth)) h.atomic = {random(), u32(), random(), random()};
  if (info.Has(kAeth)) {
    h.aeth = {static_cast<uint8_t>(random()), u32() & 0xffffff};
  }
  if (info.Has(kAtomicAckEth)) h.atomic_ack = {random()};
  if (info.Has(kImmDt)) h.imm_be = u32();
  if (info.Has(kIeth)) h.invalidate_rkey = u32();
  return h;
}

TEST(PacketTest, EmitsTheBytesOfTheSpecification) {
  Headers h;
  h.bth = {.opcode = 0x0b,  // RC RDMA WRITE only with immediate
           .solicited = true,
           .mig_req = true,
           .pad_count = 3,
           .pkey = 0x8001,
           .fecn = true,
           .becn = true,
           .dest_qpn = 0x123456,
           .ack_req = true,
           .psn = 0xabcdef};
  h.reth = {.va = 0x0102030405060708, .rkey = 0x11121314, .length = 0x21222324};
  const uint8_t imm[4] = {0x31, 0x32, 0x33, 0x34};
  std::memcpy(&h.imm_be, imm, sizeof(imm));

  const std::vector<uint8_t> expected = {
      0x0b, 0xf0, 0x80, 0x01, 0xc0, 0x12, 0x34, 0x56, 0x80, 0xab, 0xcd,
      0xef, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12,
      0x13, 0x14, 0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x33, 0x34};
  uint8_t out[kMaxHeaderSize];
  ASSERT_EQ(EmitHeaders(h, out), expected.size());
  EXPECT_EQ(std::vector<uint8_t>(out, out + expected.size()), expected);
}

TEST(PacketTest, ReservedFieldsAndExcessBitsBecomeZero) {
  Headers h;
  h.bth.opcode = 0xbc;  // XRC FLUSH
  h.bth.dest_qpn = 0xff000001;
  h.bth.psn = 0xff000002;
  h.xrc_srqn = 0xff000003;
  h.feth = {.placement_type = 0xf1, .selectivity = 0xf1};
  uint8_t out[kMaxHeaderSize];
  EmitHeaders(h, out);
  EXPECT_EQ(LoadBe32(out + 4), 0x00000001u);
  EXPECT_EQ(LoadBe32(out + 8), 0x00000002u);
  EXPECT_EQ(LoadBe32(out + 12), 0x00000003u);
  EXPECT_EQ(LoadBe32(out + 16), 0x00000011u);
}

TEST(PacketTest, EveryOpcodeComesBackAsItWasEmitted) {
  std::mt19937_64 random(1);
  for (const uint8_t opcode : KnownOpcodes()) {
    for (int i = 0; i < 20; ++i) {
      Headers h = RandomHeaders(opcode, random);
      const OpcodeInfo& info = GetOpcodeInfo(opcode);
      if (info.Has(kDcEth)) continue;  // dc_test
      size_t payload_size = random() % 40;
      if (info.is_response && !info.carries_payload) payload_size = 0;
      h.bth.pad_count = PadCount(payload_size);
      // A READ response cannot carry a NAK.
      if (info.Has(kAeth)) h.aeth.syndrome &= 0x9f;
      std::vector<uint8_t> packet(kMaxHeaderSize);
      packet.resize(EmitHeaders(h, packet.data()));
      const size_t header_size = packet.size();
      for (size_t j = 0; j < payload_size + h.bth.pad_count + kIcrcSize; ++j) {
        packet.push_back(static_cast<uint8_t>(random()));
      }
      PacketView view;
      std::unique_ptr<uint8_t[]> keep;
      ASSERT_EQ(ParseExact(packet, packet.size(), &view, &keep),
                ParseError::kOk)
          << view.info().name;
      EXPECT_EQ(view.headers(), h) << view.info().name;
      EXPECT_EQ(view.opcode(), opcode);
      EXPECT_EQ(view.payload().data(), keep.get() + header_size);
      EXPECT_EQ(view.payload().size(), payload_size);
      EXPECT_EQ(view.bytes_covered().size(), packet.size() - kIcrcSize);
      EXPECT_EQ(view.udp_payload().size(), packet.size());
      EXPECT_EQ(view.icrc(), LoadLe32(&packet[packet.size() - kIcrcSize]));
    }
  }
}

TEST(PacketTest, TooShortAtEveryLength) {
  for (const uint8_t opcode : KnownOpcodes()) {
    std::vector<uint8_t> packet(kMaxHeaderSize + kIcrcSize);
    packet[0] = opcode;
    const size_t min_size = GetOpcodeInfo(opcode).header_length + kIcrcSize;
    for (size_t size = 0; size < packet.size(); ++size) {
      PacketView view;
      std::unique_ptr<uint8_t[]> keep;
      const ParseError error = ParseExact(packet, size, &view, &keep);
      const OpcodeInfo& info = GetOpcodeInfo(opcode);
      const bool is_bare = info.is_response && !info.carries_payload;
      EXPECT_EQ(error, size < min_size ? ParseError::kTooShort
                       : size % 4 != 0 || (is_bare && size > min_size)
                           ? ParseError::kBadLength
                           : ParseError::kOk)
          << info.name << " of " << size;
      if (error == ParseError::kOk) UseAll(view);
    }
  }
}

// A 48-byte packet with an unknown opcode once made Linux rxe read out of
// bounds.
TEST(PacketTest, UnknownOpcodes) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    if (info.known || info.reserved) continue;
    std::vector<uint8_t> packet(48, 0xff);
    packet[0] = static_cast<uint8_t>(opcode);
    PacketView view;
    EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kUnknownOpcode);
  }
}

// Any bytes after BTH.
TEST(PacketTest, ReservedOpcodes) {
  for (const size_t size : {16, 20, 48}) {
    std::vector<uint8_t> packet(size, 0xff);
    packet[0] = 0xb8;
    packet[1] = 0;
    PacketView view;
    ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
    EXPECT_EQ(view.operation(), Operation::kReserved18);
    EXPECT_EQ(view.payload().size(), size - kBthSize - kIcrcSize);
  }
}

TEST(PacketTest, OtherTransportVersions) {
  std::vector<uint8_t> packet(20);
  packet[0] = 0x04;
  for (uint8_t version = 1; version < 16; ++version) {
    packet[1] = version;
    PacketView view;
    EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadVersion);
  }
}

TEST(PacketTest, LengthIsAMultipleOfFour) {
  for (size_t payload = 0; payload < 20; ++payload) {
    std::vector<uint8_t> packet(kBthSize + payload + kIcrcSize);
    packet[0] = 0x04;
    PacketView view;
    EXPECT_EQ(PacketView::Parse(packet, &view),
              payload % 4 == 0 ? ParseError::kOk : ParseError::kBadLength)
        << payload;
  }
}

TEST(PacketTest, AcknowledgementsHaveNoPayload) {
  for (const Operation operation :
       {Operation::kAcknowledge, Operation::kAtomicAcknowledge}) {
    for (const Transport transport : {Transport::kRc, Transport::kXrc}) {
      const uint8_t opcode = MakeOpcode(transport, operation);
      const size_t headers = GetOpcodeInfo(opcode).header_length;
      std::vector<uint8_t> packet(headers + kIcrcSize);
      packet[0] = opcode;
      PacketView view;
      EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
      for (const uint8_t pad : {0, 1, 3}) {
        packet.assign(headers + 4 + kIcrcSize, 0);
        packet[0] = opcode;
        packet[1] = static_cast<uint8_t>(pad << 4);
        EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadLength);
      }
    }
  }
}

// For every packet with an AETH. Only an ACKNOWLEDGE may carry a NAK.
TEST(PacketTest, ReservedSyndromes) {
  const std::set<uint8_t> naks = {0x60, 0x61, 0x62, 0x63, 0x64};
  for (int opcode = 0; opcode < 256; ++opcode) {
    const OpcodeInfo& info = GetOpcodeInfo(static_cast<uint8_t>(opcode));
    if (!info.Has(kAeth)) continue;
    for (int syndrome = 0; syndrome < 256; ++syndrome) {
      std::vector<uint8_t> packet(info.header_length + kIcrcSize);
      packet[0] = static_cast<uint8_t>(opcode);
      packet[info.aeth_offset] = static_cast<uint8_t>(syndrome);
      const uint8_t said = syndrome & 0x7f;  // bit 7 is ignored
      const bool is_ack = said < 0x20;
      const bool is_nak = said < 0x40 || naks.contains(said);
      const bool may_nak =
          OperationOf(static_cast<uint8_t>(opcode)) == Operation::kAcknowledge;
      PacketView view;
      EXPECT_EQ(PacketView::Parse(packet, &view),
                is_ack || (is_nak && may_nak) ? ParseError::kOk
                                              : ParseError::kBadSyndrome)
          << opcode << " " << syndrome;
    }
  }
}

TEST(PacketTest, PadLargerThanPayload) {
  for (size_t payload = 0; payload <= 8; payload += 4) {
    for (uint8_t pad = 0; pad < 4; ++pad) {
      std::vector<uint8_t> packet(kBthSize + payload + kIcrcSize);
      packet[0] = 0x04;
      packet[1] = static_cast<uint8_t>(pad << 4);
      PacketView view;
      const ParseError error = PacketView::Parse(packet, &view);
      if (pad > payload) {
        EXPECT_EQ(error, ParseError::kBadPad);
      } else {
        ASSERT_EQ(error, ParseError::kOk);
        EXPECT_EQ(view.payload().size(), payload - pad);
      }
    }
  }
}

// The order decides which counter a bad packet increments.
TEST(PacketTest, OrderOfChecks) {
  PacketView view;
  std::vector<uint8_t> packet(kBthSize + kIcrcSize, 0xff);
  EXPECT_EQ(PacketView::Parse({packet.data(), 15}, &view),
            ParseError::kTooShort);
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kUnknownOpcode);
  packet[0] = 0x0c;  // needs RETH
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kTooShort);
  packet[0] = 0x04;
  packet.push_back(0xff);
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadLength);
  packet.pop_back();
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadVersion);
  packet[1] = 0xf0;
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kBadPad);
  packet[1] = 0xc0;
  EXPECT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
}

TEST(PacketTest, CnpZerosAreItsPayload) {
  Headers h;
  h.bth = {
      .opcode = kOpcodeCnp, .mig_req = false, .becn = true, .dest_qpn = 0x11};
  std::vector<uint8_t> packet(kBthSize + kCnpPayloadSize + kIcrcSize);
  EXPECT_EQ(EmitHeaders(h, packet.data()), kBthSize);
  EXPECT_EQ(packet[0], 0x81);
  EXPECT_EQ(packet[4], 0x40);
  PacketView view;
  ASSERT_EQ(PacketView::Parse(packet, &view), ParseError::kOk);
  EXPECT_EQ(view.payload().size(), kCnpPayloadSize);
}

TEST(PacketTest, RandomBytesAreParsedOrRefused) {
  std::mt19937_64 random(2);
  int parsed = 0;
  for (int i = 0; i < 200'000; ++i) {
    size_t size = random() % 80;
    if (random() % 8 != 0) size &= ~size_t{3};
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    if (bytes.size() > 1 && i % 2 == 0) bytes[1] &= 0xf0;
    PacketView view;
    std::unique_ptr<uint8_t[]> keep;
    if (ParseExact(bytes, bytes.size(), &view, &keep) != ParseError::kOk) {
      continue;
    }
    ++parsed;
    UseAll(view);
  }
  EXPECT_GT(parsed, 10'000) << "the test lost its bite";
}

TEST(PacketTest, PadCount) {
  EXPECT_EQ(PadCount(0), 0);
  EXPECT_EQ(PadCount(1), 3);
  EXPECT_EQ(PadCount(2), 2);
  EXPECT_EQ(PadCount(3), 1);
  EXPECT_EQ(PadCount(4096), 0);
}

TEST(PacketTest, PkeysMatch) {
  EXPECT_TRUE(PkeysMatch(0xffff, 0xffff));
  EXPECT_TRUE(PkeysMatch(0x8001, 0x0001));
  EXPECT_FALSE(PkeysMatch(0x0001, 0x0001)) << "two limited members";
  EXPECT_FALSE(PkeysMatch(0x8001, 0x8002));
}

}  // namespace
}  // namespace wire
