// Several recordings on one time line: whose ends they are, how their clocks
// differ, and which sent packet is which received one.
#ifndef TOOLS_TRACE_TIMELINE_H_
#define TOOLS_TRACE_TIMELINE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tools/trace/recording.h"
#include "wire/address.h"

namespace trace {

inline constexpr size_t kNone = SIZE_MAX;
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// A line of the ladder: a host or process whose packets are in a file, or the
// address of a peer without a file.
struct End {
  size_t file = kNone;
  wire::IpAddress address;
  // Of a process that sends to itself, each queue pair is an end; else 0.
  uint32_t qpn = 0;
  std::string name;   // "A", "B", ...
  std::string label;  // "A 10.0.0.1", with program and process if known
};

// What became of a packet.
enum class Fate : uint8_t {
  kArrived,
  kLost,       // sent, and the peer's file does not have it
  kDropped,    // arrived, and the peer's device dropped it
  kDuplicate,  // a second copy, made on the way
  kAfterEnd,   // sent when the peer's file ended, or its queue pair was
               // destroyed
  kUnseen,     // sent; there is no file of the peer
  kReceived,   // received; there is no file of the sender
  kStranger,   // received; the sender's file does not have it
};
// "lost" and so on; the name in JSON and in `data-` attributes.
const char* FateName(Fate fate);

// A packet on its way.
struct Arrow {
  size_t from = kNone;  // indices of ends
  size_t to = kNone;
  const Packet* sent = nullptr;
  const Packet* received = nullptr;
  size_t sent_file = kNone;
  size_t received_file = kNone;
  int64_t t0 = kNoTime;  // ns since 1970, on the clock of the first file
  int64_t t1 = kNoTime;
  Fate fate = Fate::kArrived;
  // An equal packet could have had this fate in its place.
  bool ambiguous = false;
  bool overtaken = false;
  // Of the sender; 0: not known. Without its recording, from Conversation.
  uint32_t local_qpn = 0;

  // --- From Conversation.
  uint32_t repeat = 0;        // 1: sent for the second time
  uint32_t message = 0;       // number in its direction; 0: none
  size_t answers = kNone;     // the arrow that it acknowledges or answers
  size_t connection = kNone;  // index of the connection

  const Packet& packet() const { return sent != nullptr ? *sent : *received; }
  int64_t start() const { return t0 != kNoTime ? t0 : t1; }
  int64_t end() const { return t1 != kNoTime ? t1 : t0; }
  bool went_wrong() const {
    return fate == Fate::kLost || fate == Fate::kDropped ||
           fate == Fate::kDuplicate || fate == Fate::kStranger || repeat != 0 ||
           overtaken || packet().icrc == IcrcVerdict::kBad;
  }
};

struct TimedEvent {
  size_t file = 0;
  const Event* event = nullptr;
  int64_t time = 0;   // on the clock of the first file
  bool shown = true;  // as in Packet
  bool is_kept = false;
};

struct Timeline {
  // The recordings must outlive this and not change.
  std::vector<const Recording*> recordings;
  // Clock of each file minus that of the first, ns, and its uncertainty.
  std::vector<int64_t> offsets;
  std::vector<int64_t> uncertainties;
  std::vector<End> ends;
  std::vector<Arrow> arrows;       // by start()
  std::vector<TimedEvent> events;  // by time
  // What a reader must know: clocks, missing ends. One line each.
  std::vector<std::string> notes;
  int64_t first = 0;  // time of the first packet or event

  const Recording& recording_of(const Arrow& arrow) const {
    return *recordings[arrow.sent != nullptr ? arrow.sent_file
                                             : arrow.received_file];
  }
};

// Joins files. Thread: one.
class Joiner {
 public:
  // `locals`: of a file without directions, the address of the host that wrote
  // it, if the caller knows it; in the order of the files.
  explicit Joiner(const std::vector<wire::IpAddress>& locals);
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // If it is called again, with later parts of the same files: clocks are those
  // of the first part; ends keep their names and indices.
  Timeline Join(const std::vector<const Recording*>& recordings);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

Timeline MakeTimeline(const std::vector<const Recording*>& recordings,
                      const std::vector<wire::IpAddress>& locals);

}  // namespace trace

#endif  // TOOLS_TRACE_TIMELINE_H_
