// An event of a recording, decoded by its table (docs/trace-format.md).
#ifndef TOOLS_TRACE_EVENT_H_
#define TOOLS_TRACE_EVENT_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rxe_user/observe/trace_events.h"
#include "rxe_user/observe/trace_table.h"

namespace trace {

// The latest time of a recording, ns since 1970: the year 2043. Times of files
// are clamped between 0 and this, so that their differences fit in an int64_t.
inline constexpr int64_t kLatestTime = int64_t{1} << 61;

// Holds the event's bytes, so files of any version and content work.
class Event {
 public:
  // `contents`: those of a Custom Block or option with the right enterprise
  // number. nullopt if they are not an event of ours.
  static std::optional<Event> Parse(std::span<const uint8_t> contents);

  const rxe_user::trace::EventHeader& header() const { return header_; }
  // Null for an event that this program does not know.
  const rxe_user::trace::EventDescription* description() const {
    return rxe_user::trace::FindEvent(header_.type);
  }
  // "posted"; "event 99" for one that this program does not know.
  std::string name() const;

  // The event as a struct of its type. Members that the file does not have are
  // zero.
  template <typename Struct>
  std::optional<Struct> As() const {
    if (header_.type != static_cast<uint16_t>(Struct::kType)) {
      return std::nullopt;
    }
    Struct event;
    Copy(&event, sizeof(event));
    return event;
  }

  struct Value {
    const rxe_user::trace::EventField* field;
    // Integers, sign-extended; kName, kHex, kTime included.
    uint64_t number = 0;
    // The value as text: "RETRY_EXC_ERR", "0x000011", "10.0.0.1". May contain
    // any bytes that a file contains.
    std::string text;
  };
  // The fields after the header, without reserved ones.
  std::vector<Value> Values() const;

 private:
  void Copy(void* out, size_t size) const;

  rxe_user::trace::EventHeader header_;
  std::vector<uint8_t> bytes_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_EVENT_H_
