#include "rxe_user/broker/early_requests.h"

#include <gtest/gtest.h>

namespace rxe_user::broker {
namespace {

EarlyRequests::Entry From(uint16_t port) {
  EarlyRequests::Entry entry;
  entry.source_port = port;
  return entry;
}

TEST(EarlyRequests, AreRefusedInOrderAfterTheDelay) {
  EarlyRequests early;
  EXPECT_FALSE(early.NextDeadline().has_value());
  ASSERT_TRUE(early.Push(From(1), 1000));
  ASSERT_TRUE(early.Push(From(2), 2000));
  EXPECT_EQ(early.NextDeadline(), 1000 + EarlyRequests::kHoldFor);
  EXPECT_FALSE(early.PopDue(999 + EarlyRequests::kHoldFor).has_value());
  const auto first = early.PopDue(1000 + EarlyRequests::kHoldFor);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->source_port, 1);
  EXPECT_FALSE(early.PopDue(1000 + EarlyRequests::kHoldFor).has_value());
  EXPECT_EQ(early.NextDeadline(), 2000 + EarlyRequests::kHoldFor);
}

TEST(EarlyRequests, GoToANewListener) {
  EarlyRequests early;
  for (uint16_t port = 0; port < 10; ++port) {
    ASSERT_TRUE(early.Push(From(port), port));
  }
  early.Offer([](const auto& entry) { return entry.source_port % 2 == 0; });
  for (uint16_t port = 1; port < 10; port += 2) {
    const auto entry = early.PopDue(1 + 10 * EarlyRequests::kHoldFor);
    ASSERT_TRUE(entry.has_value());
    EXPECT_EQ(entry->source_port, port);
  }
  EXPECT_FALSE(early.NextDeadline().has_value());
}

TEST(EarlyRequests, AreBounded) {
  EarlyRequests early;
  for (size_t i = 0; i < EarlyRequests::kMax; ++i) {
    ASSERT_TRUE(early.Push(From(1), 0));
  }
  EXPECT_FALSE(early.Push(From(1), 0));
}

}  // namespace
}  // namespace rxe_user::broker
