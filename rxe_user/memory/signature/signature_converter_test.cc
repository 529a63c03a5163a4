// Both forms of the data, with all combinations of signatures and blocks,
// against forms that the test builds from the data as a whole.
#include "rxe_user/memory/signature/signature_converter.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "rxe_user/memory/signature/form_for_tests.h"

namespace rxe_user {
namespace {

using enum GuardKind;
using testing_form::Append;
using testing_form::Bytes;
using testing_form::Form;
using Kind = SignatureError::Kind;

constexpr std::array<uint16_t, 5> kSizes = {512, 520, 4048, 4096, 4160};

class Vector final : public MemoryForm {
 public:
  explicit Vector(Bytes bytes) : bytes(std::move(bytes)) {}
  bool Read(uint64_t place, std::span<uint8_t> out) override {
    if (!Covers(place, out.size())) return false;
    std::memcpy(out.data(), bytes.data() + place, out.size());
    return true;
  }
  bool Write(uint64_t place, std::span<const uint8_t> in) override {
    if (!Covers(place, in.size())) return false;
    std::memcpy(bytes.data() + place, in.data(), in.size());
    return true;
  }
  // Accesses outside of `range` fail the test.
  void Permit(SignatureConverter::Range range) { permitted_ = range; }

  Bytes bytes;

 private:
  bool Covers(uint64_t place, size_t size) const {
    EXPECT_GE(place, permitted_.begin);
    EXPECT_LE(place + size, permitted_.end);
    return place + size <= bytes.size();
  }
  SignatureConverter::Range permitted_{0, ~uint64_t{0}};
};

class SignatureConverterTest : public testing::Test {
 protected:
  uint64_t Below(uint64_t end) { return random_() % end; }
  Bytes Data(size_t size) {
    Bytes data(size);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random_());
    return data;
  }
  SignatureDomain Domain(GuardKind kind) {
    SignatureDomain domain;
    if (kind == kNone) return domain;
    domain.guard = kind;
    domain.block_size = kSizes[Below(kSizes.size())];
    domain.ones_seed = Below(2) != 0;
    domain.counts_up = Below(2) != 0;
    domain.app_tag = static_cast<uint16_t>(Below(0xffff));
    domain.ref_tag = 0xfffffffe;  // it wraps
    return domain;
  }
  // Gathers the wire form in order, in pieces of 1 to `most` bytes.
  Bytes GatherAll(const SignatureConverter& converter, Vector& memory,
                  bool keeps_cursor, size_t most = 1500) {
    Bytes wire(converter.wire_length());
    SignatureCursor cursor;
    for (size_t at = 0; at < wire.size();) {
      const size_t size = std::min<size_t>(wire.size() - at, 1 + Below(most));
      if (!keeps_cursor) cursor = {};
      memory.Permit(converter.MemoryRange(at, at + size, cursor.place == at));
      EXPECT_TRUE(converter.Gather(at, std::span(wire).subspan(at, size),
                                   memory, &cursor, &error_));
      at += size;
      if (!converter.UsesCursor(at)) cursor = {};
    }
    return wire;
  }
  void ScatterAll(const SignatureConverter& converter, const Bytes& wire,
                  Vector& memory, bool keeps_cursor, size_t most = 1500) {
    SignatureCursor cursor;
    for (size_t at = 0; at < wire.size();) {
      const size_t size = std::min<size_t>(wire.size() - at, 1 + Below(most));
      if (!keeps_cursor) cursor = {};
      memory.Permit(converter.MemoryRange(at, at + size, cursor.place == at));
      EXPECT_TRUE(converter.Scatter(at, std::span(wire).subspan(at, size),
                                    memory, &cursor, &error_));
      at += size;
      if (!converter.UsesCursor(at)) cursor = {};
    }
  }

  std::mt19937_64 random_{7};
  SignatureError error_;
};

constexpr std::array<GuardKind, 6> kKinds = {kNone,  kT10Crc, kT10Checksum,
                                             kCrc32, kCrc32c, kCrc64};

TEST_F(SignatureConverterTest, BothWaysWithAllKinds) {
  for (int round = 0; round < 20; ++round) {
    for (const GuardKind of_memory : kKinds) {
      for (const GuardKind of_wire : kKinds) {
        SignatureConfig config = {.memory = Domain(of_memory),
                                  .wire = Domain(of_wire),
                                  .check_mask = 0xff};
        // Nothing is copied, even if both forms have bytes in common.
        const Bytes data = Data(Below(13000));
        const Bytes memory_form = Form(config.memory, data);
        const Bytes wire_form = Form(config.wire, data);
        const SignatureConverter converter(config, memory_form.size());
        ASSERT_EQ(converter.wire_length(), wire_form.size());
        for (const bool keeps_cursor : {true, false}) {
          Vector memory(memory_form);
          ASSERT_EQ(GatherAll(converter, memory, keeps_cursor), wire_form);
          EXPECT_EQ(error_.kind, Kind::kNone);
          Vector target(Bytes(memory_form.size(), 0x55));
          ScatterAll(converter, wire_form, target, keeps_cursor);
          EXPECT_EQ(error_.kind, Kind::kNone);
          ASSERT_EQ(target.bytes, memory_form);
        }
      }
    }
  }
}

TEST_F(SignatureConverterTest, AWrongBitIsFoundInItsBlock) {
  for (int round = 0; round < 60; ++round) {
    for (const GuardKind kind : kKinds) {
      if (kind == kNone) continue;
      const SignatureConfig in_memory = {.memory = Domain(kind),
                                         .check_mask = 0xff};
      const SignatureConfig on_wire = {.wire = Domain(kind),
                                       .check_mask = 0xff};
      for (const SignatureConfig& config : {in_memory, on_wire}) {
        const bool gathers = config.memory.guard != kNone;
        const SignatureDomain& domain = gathers ? config.memory : config.wire;
        const BlockForm form(domain);
        const Bytes data = Data(form.data() * (1 + Below(4)) + Below(100));
        const Bytes plain = Form(config.memory, data);
        Bytes bytes = Form(domain, data);
        const uint64_t blocks = data.size() / form.data();
        const uint64_t wrong = Below(blocks * form.size());
        bytes[wrong] ^= static_cast<uint8_t>(1 << Below(8));
        const SignatureConverter converter(config, plain.size());
        error_ = {};
        // Without a cursor, the parts of a signature are not seen together.
        Vector memory(gathers ? bytes : Bytes(plain.size()));
        if (gathers) {
          GatherAll(converter, memory, Below(2) != 0);
        } else {
          ScatterAll(converter, bytes, memory, true);
        }
        ASSERT_NE(error_.kind, Kind::kNone);
        EXPECT_EQ(error_.offset, wrong / form.size() * form.size());
        const uint64_t within = wrong % form.size();
        if (within >= form.data() && SignatureSize(kind) == 8 &&
            kind != kCrc64) {
          const uint64_t field = within - form.data();
          EXPECT_EQ(error_.kind, field < 2   ? Kind::kGuard
                                 : field < 4 ? Kind::kAppTag
                                             : Kind::kRefTag);
        } else {
          EXPECT_EQ(error_.kind, Kind::kGuard);
        }
        EXPECT_NE(error_.actual, error_.expected);
      }
    }
  }
}

TEST_F(SignatureConverterTest, ReportsWhatWasComputedAndWhatWasFound) {
  const SignatureConfig config = {.wire = {.guard = kT10Crc,
                                           .counts_up = true,
                                           .block_size = 512,
                                           .app_tag = 0x1234,
                                           .ref_tag = 100},
                                  .check_mask = 0xff};
  const Bytes data = Data(1536);
  const Bytes right = Form(config.wire, data);
  const SignatureConverter converter(config, data.size());
  const auto check = [&](const Bytes& wire) {
    Vector memory(Bytes(data.size()));
    error_ = {};
    ScatterAll(converter, wire, memory, true);
    return error_;
  };
  Bytes wire = right;
  wire[520 + 512 + 7] = 77;
  SignatureError error = check(wire);
  EXPECT_EQ(error.kind, Kind::kRefTag);
  EXPECT_EQ(error.actual, 101u);
  EXPECT_EQ(error.expected, 77u);
  EXPECT_EQ(error.offset, 520u);
  // The application tag comes before the reference tag,
  wire[520 + 512 + 2] = 0x99;
  error = check(wire);
  EXPECT_EQ(error.kind, Kind::kAppTag);
  EXPECT_EQ(error.actual, 0x1234u);
  EXPECT_EQ(error.expected, 0x9934u);
  // the guard before both, and the first block before all.
  wire[520 + 512] ^= 0x80;
  error = check(wire);
  EXPECT_EQ(error.kind, Kind::kGuard);
  EXPECT_EQ(error.actual ^ error.expected, 0x8000u);
  wire[512 + 6] = 1;
  error = check(wire);
  EXPECT_EQ(error.kind, Kind::kRefTag);
  EXPECT_EQ(error.offset, 0u);
}

TEST_F(SignatureConverterTest, ChecksOnlyWhatTheMaskNames) {
  const Bytes data = Data(512);
  for (unsigned mask = 0; mask < 256; ++mask) {
    for (const GuardKind kind : {kT10Crc, kCrc64, kCrc32}) {
      const SignatureConfig config = {
          .memory = {.guard = kind, .block_size = 512, .app_tag = 5},
          .check_mask = static_cast<uint8_t>(mask)};
      const Bytes right = Form(config.memory, data);
      for (size_t byte = 0; byte < SignatureSize(kind); ++byte) {
        Vector memory(right);
        memory.bytes[512 + byte] ^= 1;
        error_ = {};
        GatherAll(SignatureConverter(config, right.size()), memory, true);
        // Bit 7 is the most significant byte: of T10-DIF the first one, of a
        // CRC the last one.
        const unsigned bit = kind == kT10Crc  ? 7 - byte
                             : kind == kCrc64 ? byte
                                              : byte + 4;
        EXPECT_EQ(error_.kind != Kind::kNone, (mask >> bit & 1) != 0)
            << mask << " " << byte;
      }
    }
  }
}

TEST_F(SignatureConverterTest, EscapesAreNotChecked) {
  const Bytes data = Data(512);
  const auto finds = [&](GuardEscape escape, uint16_t app, uint32_t ref) {
    const SignatureConfig config = {
        .memory = {.guard = kT10Crc, .escape = escape, .block_size = 512},
        .check_mask = 0xff};
    Bytes bytes = data;
    Append(0, 2, true, &bytes);
    Append(app, 2, true, &bytes);
    Append(ref, 4, true, &bytes);
    Vector memory(bytes);
    error_ = {};
    GatherAll(SignatureConverter(config, bytes.size()), memory, true);
    return error_.kind != Kind::kNone;
  };
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_TRUE(finds(GuardEscape::kNone, 0xffff, kOnes));
  EXPECT_FALSE(finds(GuardEscape::kAppTag, 0xffff, 1));
  EXPECT_TRUE(finds(GuardEscape::kAppTag, 0xfffe, kOnes));
  EXPECT_TRUE(finds(GuardEscape::kAppAndRefTag, 0xffff, 1));
  EXPECT_FALSE(finds(GuardEscape::kAppAndRefTag, 0xffff, kOnes));
}

// Bytes that the mask selects are copied; the others are computed.
TEST_F(SignatureConverterTest, CopiesWhatTheMaskNames) {
  for (int round = 0; round < 300; ++round) {
    const GuardKind kind = kKinds[1 + Below(5)];
    SignatureConfig config = {.memory = Domain(kind), .wire = Domain(kind)};
    config.wire.block_size = config.memory.block_size;
    config.copy_mask = static_cast<uint8_t>(random_());
    const uint64_t block = config.memory.block_size;
    const Bytes data = Data(block * (1 + Below(3)) + Below(block));
    const size_t size = SignatureSize(kind);
    // The signatures may be any bytes, since nothing is checked.
    const auto with_any = [&](Bytes form) {
      for (size_t i = 0; i < form.size(); ++i) {
        if (i % (block + size) >= block) {
          form[i] = static_cast<uint8_t>(random_());
        }
      }
      return form;
    };
    const auto expected = [&](const Bytes& from, Bytes made) {
      for (size_t i = 0; i < made.size(); ++i) {
        const size_t within = i % (block + size);
        if (within < block) continue;
        const size_t byte = within - block;
        const size_t bit = IsT10(kind) ? 7 - byte : byte + (8 - size);
        if ((config.copy_mask >> bit & 1) != 0) made[i] = from[i];
      }
      return made;
    };
    const Bytes memory_form = with_any(Form(config.memory, data));
    const Bytes wire_form = with_any(Form(config.wire, data));
    const SignatureConverter converter(config, memory_form.size());
    Vector memory(memory_form);
    ASSERT_EQ(GatherAll(converter, memory, Below(2) != 0),
              expected(memory_form, Form(config.wire, data)));
    Vector target(Bytes(memory_form.size()));
    ScatterAll(converter, wire_form, target, true);
    ASSERT_EQ(target.bytes, expected(wire_form, Form(config.memory, data)));
  }
}

TEST_F(SignatureConverterTest, UsualCopyMask) {
  SignatureDomain a = {.guard = kT10Crc, .block_size = 512, .app_tag = 1};
  SignatureDomain b = a;
  EXPECT_EQ(UsualCopyMask(a, b), 0xff);
  b.app_tag = 2;
  EXPECT_EQ(UsualCopyMask(a, b), 0xcf);
  b.ref_tag = 2;
  EXPECT_EQ(UsualCopyMask(a, b), 0xc0);
  b.guard = kT10Checksum;
  EXPECT_EQ(UsualCopyMask(a, b), 0);
  b = a;
  b.block_size = 520;
  EXPECT_EQ(UsualCopyMask(a, b), 0);
  EXPECT_EQ(UsualCopyMask(a, {}), 0);
  a.guard = b.guard = kCrc32;
  b.block_size = 512;
  EXPECT_EQ(UsualCopyMask(a, b), 0xff);
  b.guard = kCrc32c;
  EXPECT_EQ(UsualCopyMask(a, b), 0);
}

// A layout that ends inside a signature: that block has no signature.
TEST_F(SignatureConverterTest, ASignatureThatIsCutOff) {
  const SignatureConfig config = {
      .memory = {.guard = kCrc32c, .block_size = 512}, .check_mask = 0xff};
  const Bytes data = Data(1024);
  Bytes form = Form(config.memory, data);
  form.resize(form.size() - 1);
  const SignatureConverter converter(config, form.size());
  EXPECT_EQ(converter.wire_length(), 1024u);
  Vector memory(form);
  EXPECT_EQ(GatherAll(converter, memory, true), data);
  EXPECT_EQ(error_.kind, Kind::kNone);
  ScatterAll(converter, data, memory, true);
}

TEST_F(SignatureConverterTest, PackedConfigurations) {
  std::array<uint8_t, kPackedSignatureConfig> bytes;
  const SignatureConfig good = {
      .memory = Domain(kT10Crc), .wire = Domain(kCrc64), .check_mask = 0x5a};
  Pack(good, bytes);
  SignatureConfig out;
  ASSERT_TRUE(Unpack(bytes, &out));
  EXPECT_EQ(out, good);
  EXPECT_FALSE(Unpack(std::span(bytes).first(31), &out));
  const auto refused = [&](auto change) {
    SignatureConfig bad = good;
    change(&bad);
    Pack(bad, bytes);
    return !Unpack(bytes, &out);
  };
  EXPECT_TRUE(refused([](auto* c) { c->memory = c->wire = {}; }));
  EXPECT_TRUE(refused([](auto* c) { c->wire.block_size = 513; }));
  EXPECT_TRUE(refused([](auto* c) { c->wire.block_size = 0; }));
  EXPECT_TRUE(
      refused([](auto* c) { c->wire.guard = static_cast<GuardKind>(6); }));
  EXPECT_TRUE(
      refused([](auto* c) { c->wire.escape = static_cast<GuardEscape>(3); }));
  EXPECT_TRUE(refused([](auto* c) { c->copy_mask = 1; }));
  // Random bytes are refused, unless they are a valid configuration.
  for (int i = 0; i < 10000; ++i) {
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(Below(7));
    if (Unpack(bytes, &out)) {
      EXPECT_TRUE(IsValid(out));
    }
  }
}

}  // namespace
}  // namespace rxe_user
