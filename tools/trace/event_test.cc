#include "tools/trace/event.h"

#include <gtest/gtest.h>

#include <cstring>

#include "rxe_user/observe/trace_blocks.h"
#include "wire/address.h"

namespace trace {
namespace {

using rxe_user::trace::BytesOf;
using rxe_user::trace::CompletedEvent;
using rxe_user::trace::QpStateEvent;
using rxe_user::trace::RecordingEvent;

template <typename Struct>
std::vector<uint8_t> Bytes(Struct event) {
  Complete(&event);
  const auto bytes = BytesOf(event);
  return {bytes.begin(), bytes.end()};
}

std::string TextOf(const Event& event, std::string_view name) {
  for (const Event::Value& value : event.Values()) {
    if (value.field->name == name) return value.text;
  }
  return "no such field";
}

TEST(EventTest, FieldsOfACompletion) {
  CompletedEvent completed;
  completed.header.id = 9;
  completed.wr_id = 0xffffffffffffffff;
  completed.status = 12;
  completed.bytes = 77;
  const auto event = Event::Parse(Bytes(completed));
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->name(), "completed");
  EXPECT_EQ(event->header().id, 9u);
  EXPECT_EQ(TextOf(*event, "wr_id"), "0xffffffffffffffff");
  EXPECT_EQ(TextOf(*event, "status"), "RETRY_EXC_ERR");
  EXPECT_EQ(TextOf(*event, "bytes"), "77");
  EXPECT_EQ(TextOf(*event, "reserved"), "no such field");
  EXPECT_EQ(event->As<CompletedEvent>()->status, 12);
  EXPECT_FALSE(event->As<QpStateEvent>().has_value());
}

TEST(EventTest, AddressesAndTexts) {
  QpStateEvent state;
  const auto address = *wire::IpAddress::Parse("192.0.2.1");
  std::memcpy(state.source, address.bytes.data(), 16);
  EXPECT_EQ(TextOf(*Event::Parse(Bytes(state)), "source"), "192.0.2.1");

  RecordingEvent recording;
  std::memset(recording.host, 'h', sizeof(recording.host));  // no zero byte
  EXPECT_EQ(TextOf(*Event::Parse(Bytes(recording)), "host"),
            std::string(sizeof(recording.host), 'h'));
}

TEST(EventTest, AShorterStructOfAnOlderFile) {
  CompletedEvent completed;
  completed.wr_id = 5;
  completed.status = 12;
  std::vector<uint8_t> bytes = Bytes(completed);
  const uint16_t size = sizeof(rxe_user::trace::EventHeader) + 8;
  std::memcpy(bytes.data() + 6, &size, sizeof(size));
  const auto event = Event::Parse(bytes);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(TextOf(*event, "wr_id"), "0x5");
  EXPECT_EQ(TextOf(*event, "status"), "SUCCESS");
  EXPECT_EQ(event->As<CompletedEvent>()->status, 0);
}

TEST(EventTest, ANewEventHasANumberOnly) {
  std::vector<uint8_t> bytes = Bytes(CompletedEvent());
  bytes[4] = 200;
  const auto event = Event::Parse(bytes);
  ASSERT_TRUE(event.has_value());
  EXPECT_EQ(event->name(), "event 200");
  EXPECT_TRUE(event->Values().empty());
}

TEST(EventTest, BytesThatAreNoEvent) {
  const std::vector<uint8_t> good = Bytes(CompletedEvent());
  EXPECT_FALSE(Event::Parse({}).has_value());
  EXPECT_FALSE(Event::Parse(std::span(good).first(39)).has_value());
  // The header's size is larger.
  EXPECT_FALSE(Event::Parse(std::span(good).first(60)).has_value());
  std::vector<uint8_t> bad = good;
  bad[0] ^= 1;
  EXPECT_FALSE(Event::Parse(bad).has_value());
  bad = good;
  bad[6] = 39;  // a size below that of the header
  EXPECT_FALSE(Event::Parse(bad).has_value());
}

}  // namespace
}  // namespace trace
