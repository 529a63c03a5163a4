#include "wire/aeth.h"

#include <gtest/gtest.h>

namespace wire {
namespace {

TEST(AethTest, SyndromesAsCaptured) {
  // Seen from Linux rxe: golden/kernel_rxe.
  EXPECT_EQ(MakeAckSyndrome(kCreditNone), 0x1f);
  EXPECT_EQ(MakeRnrSyndrome(12), 0x2c);
  EXPECT_EQ(MakeNakSyndrome(NakCode::kRemoteAccess), 0x62);
  EXPECT_EQ(MakeNakSyndrome(NakCode::kRemoteOperational), 0x63);
  EXPECT_EQ(MakeNakSyndrome(NakCode::kPsnSequence), 0x60);
}

TEST(AethTest, KindAndValueOfEverySyndrome) {
  for (int s = 0; s < 256; ++s) {
    const uint8_t syndrome = static_cast<uint8_t>(s);
    EXPECT_EQ(AethValueOf(syndrome), s % 32);
    EXPECT_EQ(AethKindOf(syndrome), static_cast<AethKind>(s % 128 / 32))
        << "bit 7 is ignored";
  }
  EXPECT_EQ(AethKindOf(0x1f), AethKind::kAck);
  EXPECT_EQ(AethKindOf(0x2c), AethKind::kRnrNak);
  EXPECT_EQ(AethKindOf(0x40), AethKind::kReserved);
  EXPECT_EQ(AethKindOf(0x62), AethKind::kNak);
  EXPECT_EQ(NakCodeOf(0x62), NakCode::kRemoteAccess);
}

TEST(AethTest, RnrTimers) {
  EXPECT_EQ(RnrTimerNanos(0), 655'360'000);
  EXPECT_EQ(RnrTimerNanos(1), 10'000);
  EXPECT_EQ(RnrTimerNanos(12), 640'000);
  EXPECT_EQ(RnrTimerNanos(31), 491'520'000);
  EXPECT_EQ(RnrTimerNanos(32), RnrTimerNanos(0));
  for (uint8_t code = 2; code < 32; ++code) {
    EXPECT_GT(RnrTimerNanos(code), RnrTimerNanos(code - 1));
  }
  // From code 8 on, the timer doubles every two codes.
  for (uint8_t code = 8; code < 30; ++code) {
    EXPECT_EQ(RnrTimerNanos(code + 2), 2 * RnrTimerNanos(code)) << int{code};
  }
}

TEST(AethTest, Credits) {
  EXPECT_EQ(CreditCount(0), 0u);
  EXPECT_EQ(CreditCount(5), 6u);
  EXPECT_EQ(CreditCount(30), 32768u);
  EXPECT_EQ(CreditCount(kCreditNone), UINT32_MAX);
  for (uint8_t code = 1; code < 31; ++code) {
    EXPECT_GT(CreditCount(code), CreditCount(code - 1)) << int{code};
  }
}

TEST(AethTest, AckTimeouts) {
  EXPECT_EQ(AckTimeoutNanos(0), 0) << "for ever";
  EXPECT_EQ(AckTimeoutNanos(1), 8'192);
  EXPECT_EQ(AckTimeoutNanos(14), 67'108'864);
  EXPECT_EQ(AckTimeoutNanos(31), int64_t{4096} << 31);
}

}  // namespace
}  // namespace wire
