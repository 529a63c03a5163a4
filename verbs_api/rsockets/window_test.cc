// Tests of the two windows alone, and connected by memory that both use.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "verbs_api/rsockets/receive_window.h"
#include "verbs_api/rsockets/send_window.h"

namespace rsockets {
namespace {

TEST(SendWindowTest, WithoutCreditsThereIsNoRoom) {
  SendWindow window(1 << 16, 16);
  EXPECT_EQ(window.Room(), 0u);
  window.Begin({0x1000, 7, 5000}, 1);
  EXPECT_EQ(window.Room(), 5000u);
  const Buffer to = window.TakeTarget(100);
  EXPECT_EQ(to, (Buffer{0x1000, 7, 100}));
  EXPECT_EQ(window.Room(), 0u);
  window.OnCredits(2);
  EXPECT_EQ(window.Room(), 4900u);
  EXPECT_EQ(window.TakeTarget(4900), (Buffer{0x1064, 7, 4900}));
  EXPECT_TRUE(window.wants_target());
}

TEST(SendWindowTest, CreditsWrapAt16Bits) {
  SendWindow window(1 << 16, 16);
  window.Begin({0, 0, 1 << 20}, 0xffff);
  for (int i = 0; i < 0xffff; ++i) {
    ASSERT_GT(window.Room(), 0u);
    window.TakeTarget(1);
    window.OnSent(0);
  }
  EXPECT_EQ(window.Room(), 0u);
  window.OnCredits(0x10001);
  for (int i = 0; i < 2; ++i) {
    ASSERT_GT(window.Room(), 0u);
    window.TakeTarget(1);
    window.OnSent(0);
  }
  EXPECT_EQ(window.Room(), 0u);
}

TEST(SendWindowTest, SlotsAndRingComeBackWithCompletions) {
  SendWindow window(4096, 6);
  window.Begin({0, 0, 1 << 20}, 100);
  for (int i = 0; i < 2; ++i) {
    window.TakeRing(100);
    window.TakeTarget(100);
  }
  EXPECT_EQ(window.Room(), 0u);
  EXPECT_TRUE(window.CanSendControl());
  EXPECT_FALSE(window.all_sent());
  window.OnSent(100);
  EXPECT_EQ(window.Room(), 3996u);
  window.OnSent(100);
  EXPECT_TRUE(window.all_sent());
}

TEST(SendWindowTest, BelowTheLowWaterMarkOneWaits) {
  SendWindow window(4096, 16);
  window.Begin({0, 0, 1 << 20}, 100);
  window.TakeRing(2049);
  window.TakeTarget(2049);
  EXPECT_EQ(window.Room(), 0u);
  window.OnSent(2049);
  EXPECT_EQ(window.Room(), 4096u);
}

TEST(SendWindowTest, APieceBeyondTheEndHasTwoParts) {
  SendWindow window(4096, 16);
  EXPECT_EQ(window.TakeRing(4000).length(), 4000u);
  window.OnSent(4000);
  const RingPiece piece = window.TakeRing(200);
  EXPECT_EQ(piece.offset, 4000u);
  EXPECT_EQ(piece.first, 96u);
  EXPECT_EQ(piece.second, 104u);
  EXPECT_EQ(window.TakeRing(1).offset, 104u);
}

TEST(SendWindowTest, ControlMessagesHaveSlotsOfTheirOwn) {
  SendWindow window(4096, 6);
  for (int i = 0; i < SendWindow::kControlSlots; ++i) {
    ASSERT_TRUE(window.CanSendControl());
    window.TakeControlSlot();
  }
  EXPECT_FALSE(window.CanSendControl());
  window.OnControlSent();
  EXPECT_TRUE(window.CanSendControl());
}

TEST(TargetListTest, EntriesAreTakenInTurn) {
  alignas(16) std::array<Buffer, 2> memory = {};
  TargetList list(memory.data());
  memory[0] = {1, 2, 3};
  // The first buffer is in the connection data.
  EXPECT_EQ(list.Take().length, 0u);
  memory[1] = {4, 5, 6};
  EXPECT_EQ(list.Take(), (Buffer{4, 5, 6}));
  EXPECT_EQ(list.Take(), (Buffer{1, 2, 3}));
  EXPECT_EQ(list.Take().length, 0u);
}

TEST(ReceiveWindowTest, TheHalfThatWasReadIsGranted) {
  ReceiveWindow window(100, 10);
  // Initially the second half is free.
  ASSERT_TRUE(window.CreditsDue());
  ReceiveWindow::Grant grant = window.TakeGrant();
  EXPECT_EQ(grant.credits, 10u);
  EXPECT_EQ(grant.half, 50u);
  EXPECT_FALSE(window.CreditsDue());

  ASSERT_TRUE(window.OnData(50));
  window.Consume(49);
  EXPECT_FALSE(window.CreditsDue());
  window.Consume(1);
  ASSERT_TRUE(window.CreditsDue());
  grant = window.TakeGrant();
  EXPECT_EQ(grant.credits, 11u);
  EXPECT_EQ(grant.half, 0u);
}

TEST(ReceiveWindowTest, MessagesAreGrantedWhenHalfOfThemWereRead) {
  ReceiveWindow window(1000, 4);
  window.TakeGrant();
  ASSERT_TRUE(window.OnData(1));
  ASSERT_TRUE(window.OnData(1));
  window.Consume(1);
  EXPECT_FALSE(window.CreditsDue());
  window.Consume(1);
  ASSERT_TRUE(window.CreditsDue());
  const ReceiveWindow::Grant grant = window.TakeGrant();
  EXPECT_EQ(grant.credits, 6u);
  EXPECT_FALSE(grant.half.has_value());
}

TEST(ReceiveWindowTest, APeerThatWritesMoreThanItMayIsFound) {
  ReceiveWindow window(100, 2);
  EXPECT_FALSE(window.OnData(51));
  EXPECT_TRUE(window.OnData(10));
  EXPECT_TRUE(window.OnData(10));
  EXPECT_FALSE(window.OnData(10));  // a third message
}

TEST(ReceiveWindowTest, AnEmptyMessageIsOneThatWasRead) {
  ReceiveWindow window(100, 2);
  window.TakeGrant();
  ASSERT_TRUE(window.OnData(0));
  EXPECT_EQ(window.available(), 0u);
  EXPECT_TRUE(window.CreditsDue());
  EXPECT_EQ(window.TakeGrant().credits, 3u);
}

// Two windows, and the messages in flight between them.
class Pair {
 public:
  Pair(uint32_t send_ring, uint32_t receive_ring, uint16_t credits)
      : sender_(send_ring, 12),
        receiver_(receive_ring, credits),
        memory_(receive_ring),
        targets_(list_.data()) {
    sender_.Begin({0, 0, receiver_.half()}, credits);
  }

  // Sends at most `max` bytes of an increasing counter.
  void Send(uint32_t max) {
    if (sender_.wants_target()) sender_.SetTarget(targets_.Take());
    const uint32_t length = std::min(max, sender_.Room());
    if (length == 0) return;
    sender_.TakeRing(length);
    const Buffer to = sender_.TakeTarget(length);
    ASSERT_LE(to.address + length, memory_.size());
    for (uint32_t i = 0; i < length; ++i) {
      memory_[to.address + i] = static_cast<uint8_t>(sent_++ * 7);
    }
    on_their_way_.push_back(length);
  }

  void Deliver() {
    if (on_their_way_.empty()) return;
    const uint32_t length = on_their_way_.front();
    on_their_way_.pop_front();
    ASSERT_TRUE(receiver_.OnData(length));
    sender_.OnSent(length);
  }

  void Receive(uint32_t max) {
    uint32_t left = std::min(max, receiver_.available());
    while (left > 0) {
      const ReceiveWindow::Piece piece = receiver_.At(0);
      const uint32_t part = std::min(left, piece.length);
      for (uint32_t i = 0; i < part; ++i) {
        ASSERT_EQ(memory_[piece.offset + i],
                  static_cast<uint8_t>(received_++ * 7));
      }
      receiver_.Consume(part);
      left -= part;
    }
    if (!receiver_.CreditsDue()) return;
    const ReceiveWindow::Grant grant = receiver_.TakeGrant();
    if (grant.half.has_value()) {
      ASSERT_EQ(list_[entry_].length, 0u);
      list_[entry_] = {*grant.half, 0, receiver_.half()};
      entry_ = (entry_ + 1) % TargetList::kEntries;
    }
    sender_.OnCredits(Decode(Encode({Op::kCredits, grant.credits})).data);
  }

  uint64_t sent() const { return sent_; }
  uint64_t received() const { return received_; }

 private:
  SendWindow sender_;
  ReceiveWindow receiver_;
  std::vector<uint8_t> memory_;
  alignas(16) std::array<Buffer, TargetList::kEntries> list_ = {};
  TargetList targets_;
  uint32_t entry_ = 1;
  std::deque<uint32_t> on_their_way_;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
};

TEST(WindowPairTest, EveryByteArrivesInOrderWhateverTheSizes) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const uint32_t receive_ring = 2 * (1 + random() % 3000);
    Pair pair(1 + random() % 6000, receive_ring,
              static_cast<uint16_t>(1 + random() % 20));
    for (int i = 0; i < 3000; ++i) {
      switch (random() % 3) {
        case 0:
          pair.Send(1 + random() % 2000);
          break;
        case 1:
          pair.Deliver();
          break;
        default:
          pair.Receive(1 + random() % 2000);
      }
      if (testing::Test::HasFatalFailure()) return;
    }
    const uint64_t before = pair.sent();
    // The stream does not stall.
    for (int i = 0; i < 50; ++i) {
      pair.Deliver();
      pair.Receive(1 << 20);
    }
    EXPECT_EQ(pair.sent(), pair.received());
    pair.Send(1);
    EXPECT_EQ(pair.sent(), before + 1);
  }
}

}  // namespace
}  // namespace rsockets
