#include "transport/qp/qp_type.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/qp/send_operation.h"

namespace transport {
namespace {

constexpr QpType kTypes[] = {
    QpType::kRc,           QpType::kUc,        QpType::kUd,  QpType::kRawPacket,
    QpType::kXrcInitiator, QpType::kXrcTarget, QpType::kDci, QpType::kDct};

TEST(QpTypeTest, OnlyTypesThatExistHaveTraits) {
  std::set<std::string> names;
  for (const QpType type : kTypes) {
    const QpTypeTraits* const traits = FindTraits(type);
    ASSERT_EQ(traits, &TraitsOf(type));
    EXPECT_FALSE(traits->transitions->empty());
    names.insert(traits->name);
  }
  EXPECT_EQ(names.size(), std::size(kTypes));
  size_t found = 0;
  for (uint32_t number = 0; number < 256; ++number) {
    if (FindTraits(static_cast<QpType>(number)) != nullptr) ++found;
  }
  EXPECT_EQ(found, std::size(kTypes));
}

TEST(QpTypeTest, VerbsHaveNoNumberForDc) {
  size_t found = 0;
  for (uint32_t number = 0; number < 256; ++number) {
    if (FindVerbsTraits(number) != nullptr) ++found;
  }
  EXPECT_EQ(found, std::size(kTypes) - 2);
  EXPECT_EQ(FindVerbsTraits(static_cast<uint32_t>(QpType::kDci)), nullptr);
  EXPECT_EQ(FindVerbsTraits(static_cast<uint32_t>(QpType::kDct)), nullptr);
  EXPECT_EQ(FindVerbsTraits(0xff), nullptr);  // IBV_QPT_DRIVER
  EXPECT_EQ(FindVerbsTraits(~0u), nullptr);
  EXPECT_EQ(FindVerbsTraits(256 + 2), nullptr);
}

// The table of ibv_post_send(3): which types have an opcode.
TEST(QpTypeTest, OffersWhatTheManualPageSays) {
  using enum SendOpcode;
  struct Row {
    SendOpcode opcode;
    // R: RC and XRC, U: UC, D: UD, F: raw packets, I: DCI
    std::string types;
  };
  const std::vector<Row> rows = {
      {kSend, "RUDFI"},    {kSendWithImm, "RUDI"},
      {kRdmaWrite, "RUI"}, {kRdmaWriteWithImm, "RUI"},
      {kRdmaRead, "RI"},   {kCompareSwap, "RI"},
      {kFetchAdd, "RI"},   {kLocalInvalidate, "RUI"},
      {kBindMw, "RUI"},    {kSendWithInvalidate, "RUI"},
      {kTso, "DF"},        {kFlush, "R"},
      {kAtomicWrite, "R"},
  };
  const std::vector<std::pair<QpType, char>> letters = {
      {QpType::kRc, 'R'},  {QpType::kXrcInitiator, 'R'},
      {QpType::kUc, 'U'},  {QpType::kUd, 'D'},
      {QpType::kDci, 'I'}, {QpType::kRawPacket, 'F'}};
  for (const Row& row : rows) {
    EXPECT_NE(GetSendOperation(row.opcode).kind, SendKind::kUnsupported);
    for (const auto& [type, letter] : letters) {
      EXPECT_EQ(TraitsOf(type).Offers(row.opcode),
                row.types.find(letter) != std::string::npos)
          << static_cast<int>(row.opcode) << ' ' << letter;
    }
    EXPECT_FALSE(TraitsOf(QpType::kXrcTarget).Offers(row.opcode));
    EXPECT_FALSE(TraitsOf(QpType::kDct).Offers(row.opcode));
  }
  // mlx5dv_wr_post(3).
  for (const auto& [type, letter] : letters) {
    EXPECT_EQ(TraitsOf(type).Offers(kConfigureMkey), type == QpType::kRc);
    const bool has_more = type == QpType::kRc || type == QpType::kDci;
    EXPECT_EQ(TraitsOf(type).Offers(kMemcpy), has_more);
    EXPECT_FALSE(TraitsOf(type).Offers(kNop));
    EXPECT_EQ(TraitsOf(type).Offers(AsRawWqe(kNop)), has_more);
    for (const Row& row : rows) {
      const bool has_raw = row.opcode != kBindMw && row.opcode != kTso &&
                           row.opcode != kFlush && row.opcode != kAtomicWrite;
      EXPECT_EQ(TraitsOf(type).Offers(AsRawWqe(row.opcode)),
                has_more && has_raw)
          << static_cast<int>(row.opcode) << ' ' << letter;
    }
  }
  for (const int unknown : {13, 32, 255}) {
    EXPECT_FALSE(TraitsOf(QpType::kRc)
                     .Offers(SendOpcode{static_cast<uint8_t>(unknown)}));
  }
}

}  // namespace
}  // namespace transport
