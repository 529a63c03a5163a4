#include "rxe_user/observe/trace_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "rxe_user/observe/trace_blocks.h"
#include "transport/base/counters.h"
#include "transport/base/rare_event.h"
#include "transport/base/types.h"

namespace rxe_user::trace {
namespace {

template <typename Enum>
uint64_t Value(Enum e) {
  return static_cast<uint64_t>(e);
}

// The names of the values of a field; empty if there is no such field.
std::span<const ValueName> NamesOf(EventType type, std::string_view name) {
  for (const EventField& field : FindEvent(Value(type))->fields) {
    if (field.name == name) return field.names;
  }
  return {};
}

TEST(TraceTableTest, EveryEventHasAUniqueNameAndHelp) {
  std::set<std::string_view> names;
  for (const EventDescription& event : Events()) {
    EXPECT_TRUE(names.insert(event.name).second) << event.name;
    EXPECT_FALSE(event.help.empty()) << event.name;
    EXPECT_EQ(FindEvent(static_cast<uint16_t>(event.type)), &event);
  }
  EXPECT_EQ(FindEvent(0), nullptr);
  EXPECT_EQ(FindEvent(static_cast<uint16_t>(Events().size() + 1)), nullptr);
}

TEST(TraceTableTest, FieldsHaveNamesAndSizesOfTheirFormats) {
  for (const EventDescription& event : Events()) {
    std::set<std::string_view> names;
    for (const EventField& field : event.fields) {
      const std::string where =
          std::string(event.name) + "." + std::string(field.name);
      EXPECT_TRUE(names.insert(field.name).second) << where;
      EXPECT_EQ(field.format == FieldFormat::kName, !field.names.empty())
          << where;
      switch (field.format) {
        case FieldFormat::kAddress:
          EXPECT_EQ(field.size, 16u) << where;
          break;
        case FieldFormat::kText:
        case FieldFormat::kBytes:
        case FieldFormat::kReserved:
          break;
        case FieldFormat::kTime:
          EXPECT_EQ(field.size, 8u) << where;
          break;
        default:
          EXPECT_TRUE(field.size == 1 || field.size == 2 || field.size == 4 ||
                      field.size == 8)
              << where;
      }
    }
  }
}

// Existing files have this layout. It only grows, at the end (path by 16 bytes,
// fault by 8).
TEST(TraceTableTest, SizesOfVersionOne) {
  EXPECT_EQ(sizeof(EventHeader), 40u);
  const size_t sizes[] = {200, 232, 88, 64, 72, 64, 64,  112, 56, 56,
                          88,  56,  48, 56, 88, 48, 160, 56,  56, 160};
  ASSERT_EQ(std::size(sizes), Events().size());
  for (size_t i = 0; i < std::size(sizes); ++i) {
    EXPECT_EQ(Events()[i].size, sizes[i]) << Events()[i].name;
  }
}

TEST(TraceTableTest, NamesAreThoseOfTheTransport) {
  EXPECT_EQ(NameOf(StatusNames(), Value(transport::WcStatus::kRetryExceeded)),
            "RETRY_EXC_ERR");
  EXPECT_EQ(
      NameOf(StatusNames(), Value(transport::WcStatus::kRemoteAccessError)),
      "REM_ACCESS_ERR");
  EXPECT_EQ(NameOf(StatusNames(), 77), "");
  EXPECT_EQ(NameOf(NamesOf(EventType::kQpState, "to"),
                   Value(transport::QpState::kErr)),
            "ERR");
  const auto dispositions = NamesOf(EventType::kPacket, "disposition");
  EXPECT_EQ(dispositions.data(), DispositionNames().data());
  EXPECT_EQ(NameOf(dispositions, Value(transport::Disposition::kBadIcrc)),
            "wrong ICRC");
  EXPECT_EQ(NameOf(dispositions, Value(transport::Disposition::kDelivered)),
            "delivered");
  EXPECT_EQ(dispositions.size(), Value(transport::Disposition::kDelivered) + 1);
}

// States, timers, retransmissions and faults have their own events.
TEST(TraceTableTest, IncidentsAreThoseOfTheFlightRecorder) {
  for (const transport::RareEventText& rare : transport::kRareEvents) {
    const bool is_incident =
        rare.kind > transport::RareEventKind::kRetransmission &&
        rare.kind != transport::RareEventKind::kFault;
    EXPECT_EQ(NameOf(NamesOf(EventType::kIncident, "kind"), Value(rare.kind)),
              is_incident ? rare.name : "");
  }
}

TEST(TraceBlocksTest, AnEventIsACustomBlock) {
  std::vector<uint8_t> bytes;
  TimerEvent timer;
  timer.header.id = 5;
  AppendEvent(timer, &bytes);
  ASSERT_EQ(bytes.size(), 12 + 4 + sizeof(TimerEvent));
  EventHeader header;
  std::memcpy(&header, bytes.data() + 12, sizeof(header));
  EXPECT_EQ(header.magic, kMagic);
  EXPECT_EQ(header.type, Value(EventType::kTimer));
  EXPECT_EQ(header.size, sizeof(TimerEvent));
  EXPECT_EQ(header.id, 5u);
}

TEST(TraceBlocksTest, TextsAreCut) {
  RecordingEvent recording;
  SetText("a", recording.host);
  EXPECT_STREQ(recording.host, "a");
  SetText(std::string(100, 'x'), recording.host);
  EXPECT_EQ(std::string(recording.host), std::string(60, 'x') + "...");
  SetText(std::string(63, 'x'), recording.host);
  EXPECT_EQ(std::string(recording.host), std::string(63, 'x'));
  // The cut is not within a character.
  SetText(std::string(59, 'x') + "\u20ac\u20ac", recording.host);
  EXPECT_EQ(std::string(recording.host), std::string(59, 'x') + "...");
}

}  // namespace
}  // namespace rxe_user::trace
