// Puts several recordings on one time line: whose ends they are, how their
// clocks differ, and which sent packet is which received one.
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
  // If a process sends to itself, each of its queue pairs is an end; otherwise
  // 0.
  uint32_t qpn = 0;
  std::string name;   // "A", "B", ...
  std::string label;  // "A 10.0.0.1", with program and process if known
};

// The fate of a packet.
enum class Fate : uint8_t {
  kArrived,
  kLost,       // sent, and not in the peer's file
  kDropped,    // arrived, and dropped by the peer's device
  kDuplicate,  // a second copy, made on the way
  kAfterEnd,   // sent when the peer's file ended, or its queue pair was
               // destroyed
  kUnseen,     // sent; the peer has no file
  kReceived,   // received; the sender has no file
  kStranger,   // received; not in the sender's file
};
// "lost" and so on; used in JSON and in `data-` attributes.
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
  // An equal packet may have had this fate instead.
  bool ambiguous = false;
  bool overtaken = false;
  // The sender's queue pair; 0: unknown. Without the sender's recording, it is
  // set by Conversation.
  uint32_t local_qpn = 0;

  // --- Set by Conversation.
  uint32_t repeat = 0;        // 1: sent for the second time
  uint32_t message = 0;       // number in its direction; 0: none
  size_t answers = kNone;     // the arrow that it acknowledges or answers
  size_t connection = kNone;  // index of the connection

  const Packet& packet() const { return sent != nullptr ? *sent : *received; }
  int64_t start() const { return t0 != kNoTime ? t0 : t1; }
  int64_t end() const { return t1 != kNoTime ? t1 : t0; }
  // By the receiver, also if it is not known who sent the packet.
  bool was_dropped() const { return received != nullptr && received->dropped; }
  bool went_wrong() const {
    return fate == Fate::kLost || was_dropped() || fate == Fate::kDuplicate ||
           fate == Fate::kStranger || repeat != 0 || overtaken ||
           packet().icrc == IcrcVerdict::kBad;
  }
};

// Likewise. What was received, and dropped, is "dropped".
const char* FateName(const Arrow& arrow);

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
  // Each file's clock minus that of the first file, ns, and the uncertainty.
  std::vector<int64_t> offsets;
  std::vector<int64_t> uncertainties;
  std::vector<End> ends;
  std::vector<Arrow> arrows;       // by start()
  std::vector<TimedEvent> events;  // by time
  // What a reader needs to know: clocks, missing ends. One line each.
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
  // `locals`, in the order of the files: for a file without directions, the
  // address of the host that wrote it, if the caller knows it.
  explicit Joiner(const std::vector<wire::IpAddress>& locals);
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // May be called again with later parts of the same files: clock offsets stay
  // those of the first part, and ends keep their names and indices.
  Timeline Join(const std::vector<const Recording*>& recordings);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

Timeline MakeTimeline(const std::vector<const Recording*>& recordings,
                      const std::vector<wire::IpAddress>& locals);

}  // namespace trace

#endif  // TOOLS_TRACE_TIMELINE_H_
