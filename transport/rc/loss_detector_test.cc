#include "transport/rc/loss_detector.h"

#include <gtest/gtest.h>

namespace transport {
namespace {

using Verdict = LossDetector::Verdict;

constexpr uint32_t kQpn = 0x005001;  // of the peer that is judged
constexpr uint32_t kSameSocket = 0x005002;
constexpr uint32_t kOtherSocket = 0x006001;
constexpr Time kSent = kSecond;

// A path with a short round trip: probes come after a millisecond.
class LossDetectorTest : public ::testing::Test {
 protected:
  LossDetectorTest() {
    Shorten(0);
    loss_.OnSent(kSent);
  }
  // Another queue pair of the peer answers what was sent at `sent`. Most
  // answers come fast.
  void Answer(uint32_t qpn, Time sent, Time now) {
    path_.OnOrderedAnswer(qpn, sent, now);
    Shorten(now);
    ASSERT_EQ(path_.ProbeTimeout(), kMillisecond);
  }
  Verdict Judge(Time now) const { return loss_.Judge(path_, conditions_, now); }

  Path path_;
  LossDetector loss_;
  const LossDetector::Conditions conditions_{.dest_qpn = kQpn};

 private:
  void Shorten(Time now) {
    for (int i = 0; i < 200; ++i) path_.OnRttSample(50 * kMicrosecond, now);
  }
};

TEST_F(LossDetectorTest, SilenceIsProbed) {
  EXPECT_EQ(Judge(kSent + kMillisecond - 1), Verdict::kNothing);
  EXPECT_EQ(Judge(kSent + kMillisecond), Verdict::kProbe);
}

// A peer with many queue pairs has not been scheduled for a while. It answers
// earlier packets first, and the tested one later.
TEST_F(LossDetectorTest, AProbeWaitsForItsTurn) {
  Time now = kSent;
  for (int i = 0; i < 20; ++i) {
    now += 900 * kMicrosecond;
    Answer(kSameSocket, kSent - 20 + i, now);
    EXPECT_EQ(Judge(now), Verdict::kNothing) << i;
  }
  // It falls silent.
  EXPECT_EQ(Judge(now + kMillisecond - 1), Verdict::kNothing);
  EXPECT_EQ(Judge(now + kMillisecond), Verdict::kProbe);
  // The probe waits for its turn as well.
  loss_.OnProbe(now + kMillisecond);
  Answer(kSameSocket, kSent, now + 2 * kMillisecond);
  EXPECT_EQ(Judge(now + 4 * kMillisecond - 1), Verdict::kNothing);
  EXPECT_EQ(Judge(now + 4 * kMillisecond), Verdict::kProbe);
}

TEST_F(LossDetectorTest, AnOvertakenPacketIsProbed) {
  Answer(kSameSocket, kSent - 1, kSent + 900 * kMicrosecond);
  EXPECT_EQ(Judge(kSent + kMillisecond), Verdict::kNothing);
  Answer(kSameSocket, kSent + 1, kSent + kMillisecond);
  EXPECT_EQ(Judge(kSent + kMillisecond), Verdict::kProbe);
}

// Each socket of an address has its own thread, which may starve or have died.
TEST_F(LossDetectorTest, OtherSocketsProveNothing) {
  Answer(kOtherSocket, kSent - 1, kSent + 900 * kMicrosecond);
  EXPECT_EQ(Judge(kSent + kMillisecond), Verdict::kProbe);
}

}  // namespace
}  // namespace transport
