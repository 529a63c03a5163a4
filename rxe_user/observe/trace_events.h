// The events of a recording (`rxe-user trace`), and one table that describes
// them: docs/trace-format.md is made from it, and readers decode events with
// it. The device writes them, tools/trace reads them.
//
// A recording is a pcapng file. An event is the contents of a Custom Block with
// kEnterprise, or of a custom option of the packet block that it belongs to
// (kPacket). It is a struct below: integers are little-endian, texts are UTF-8
// and end at the first zero byte.
//
// Rules for changes: numbers of events are never reused. A struct only grows at
// its end; readers take members that an older file does not have as zero, and
// skip those that they do not know.
#ifndef RXE_USER_OBSERVE_TRACE_EVENTS_H_
#define RXE_USER_OBSERVE_TRACE_EVENTS_H_

#include <string.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace rxe_user::trace {

static_assert(std::endian::native == std::endian::little,
              "events are written in memory order");

// The Private Enterprise Number for documentation (RFC 5612): this project has
// none of its own. kMagic tells its blocks from others.
inline constexpr uint32_t kEnterprise = 32473;
inline constexpr uint32_t kMagic = 0x55455852;  // "RXEU"
// Version of the format as a whole; a reader refuses higher ones.
inline constexpr uint32_t kVersion = 1;
// How much of a frame a recording has without --payload, bytes from its link
// layer on.
inline constexpr size_t kFrameBytes = 96;

enum class EventType : uint16_t {
  kRecording = 1,
  kCall = 2,
  kPosted = 3,
  kBegun = 4,
  kCompleted = 5,
  kPolled = 6,
  kPacket = 7,
  kQpState = 8,
  kTimer = 9,
  kRetransmission = 10,
  kPath = 11,
  kCnp = 12,
  kAsyncEvent = 13,
  kNotification = 14,
  kCmMessage = 15,
  kOverflow = 16,
  kFault = 17,
  kMissed = 18,
  kIncident = 19,
  kFaultRule = 20,
};

// Begins every event.
struct EventHeader {
  uint32_t magic = kMagic;
  uint16_t type = 0;    // EventType
  uint16_t size = 0;    // of the struct with this header, bytes
  uint64_t id = 0;      // unique in the file, from 1
  uint64_t cause = 0;   // the id of the event that caused this one; 0: none
  int64_t time = 0;     // ns since 1970, as those of the packets
  uint32_t qpn = 0;     // the local queue pair; 0: none
  uint32_t thread = 0;  // gettid(2) of the thread that did it
};

// The contents of a text member.
template <size_t kSize>
std::string TextOf(const char (&member)[kSize]) {
  return {member, strnlen(member, kSize)};
}

// The first event of a file.
struct RecordingEvent {
  static constexpr EventType kType = EventType::kRecording;
  EventHeader header;
  uint32_t version = kVersion;
  uint32_t pid = 0;
  uint8_t boot_id[16] = {};  // /proc/sys/kernel/random/boot_id
  int64_t monotonic = 0;     // CLOCK_MONOTONIC at header.time, ns
  char host[64] = {};
  char program[64] = {};
};

struct CallEvent {
  static constexpr EventType kType = EventType::kCall;
  EventHeader header;  // time: when it began
  char function[40] = {};
  uint64_t duration = 0;
  int64_t result = 0;  // 0 or 1 for a pointer that is null or not
  uint32_t error = 0;
  uint32_t reason = 0;
  char arguments[128] = {};
};

enum class QueueKind : uint8_t { kSend = 0, kReceive = 1, kShared = 2 };

struct PostedEvent {
  static constexpr EventType kType = EventType::kPosted;
  EventHeader header;
  uint64_t wr_id = 0;
  uint64_t remote_address = 0;
  uint64_t bytes = 0;
  uint32_t rkey = 0;
  uint32_t flags = 0;
  uint32_t error = 0;
  uint32_t queue_number = 0;
  uint16_t sges = 0;
  uint8_t queue = 0;   // QueueKind
  uint8_t opcode = 0;  // transport::SendOpcode
  uint32_t reserved = 0;
};

struct BegunEvent {
  static constexpr EventType kType = EventType::kBegun;
  EventHeader header;  // cause: the kPosted event
  uint64_t wr_id = 0;
  uint32_t first_psn = 0;
  uint32_t last_psn = 0;
  uint32_t message = 0;
  uint32_t reserved = 0;
};

struct CompletedEvent {
  static constexpr EventType kType = EventType::kCompleted;
  EventHeader header;  // cause: the packet or timer that completed it
  uint64_t wr_id = 0;
  uint64_t posted = 0;
  uint32_t cq = 0;
  uint32_t bytes = 0;
  uint32_t reason = 0;
  uint8_t status = 0;  // transport::WcStatus
  uint8_t opcode = 0;  // transport::WcOpcode
  uint16_t reserved = 0;
};

struct PolledEvent {
  static constexpr EventType kType = EventType::kPolled;
  EventHeader header;  // cause: the kCompleted event
  uint64_t wr_id = 0;
  uint64_t empty_polls = 0;
  uint32_t cq = 0;
  uint32_t reserved = 0;
};

enum class PacketOutcome : uint8_t { kSent = 0, kReceived = 1, kDropped = 2 };

struct PacketEvent {
  static constexpr EventType kType = EventType::kPacket;
  EventHeader header;  // cause: what it answers, or why it was sent
  int64_t kernel_time = 0;
  uint32_t icrc = 0;
  uint32_t message = 0;
  uint16_t reason = 0;
  uint8_t what = 0;         // PacketOutcome
  uint8_t disposition = 0;  // transport::Disposition
  uint32_t reserved = 0;
};

struct QpStateEvent {
  static constexpr EventType kType = EventType::kQpState;
  EventHeader header;
  uint8_t type = 0;  // transport::QpType
  uint8_t from = 0;  // transport::QpState
  uint8_t to = 0;
  uint8_t timeout = 0;
  uint8_t retry_count = 0;
  uint8_t rnr_retry = 0;
  uint8_t min_rnr_timer = 0;
  uint8_t hop_limit = 0;
  uint32_t path_mtu = 0;
  uint32_t dest_qpn = 0;
  uint32_t send_psn = 0;
  uint32_t receive_psn = 0;
  uint32_t access = 0;
  uint32_t reason = 0;
  uint16_t max_read_atomic = 0;
  uint16_t max_dest_read_atomic = 0;
  uint16_t source_port = 0;
  uint16_t reserved = 0;
  uint8_t source[16] = {};
  uint8_t destination[16] = {};
};

enum class TimerKind : uint8_t {
  kAck = 0,
  kProbe = 1,
  kRnr = 2,
  kReorder = 3,
  kPacing = 4,
};
enum class TimerAction : uint8_t { kSet = 0, kFired = 1, kCancelled = 2 };

struct TimerEvent {
  static constexpr EventType kType = EventType::kTimer;
  EventHeader header;
  int64_t deadline = 0;
  uint32_t psn = 0;
  uint8_t kind = 0;    // TimerKind
  uint8_t action = 0;  // TimerAction
  uint16_t reserved = 0;
};

enum class RetransmissionReason : uint8_t {
  kSequenceNak = 0,
  kAckTimeout = 1,
  kRnr = 2,
  kProbe = 3,
  kGap = 4,
  kPathChange = 5,
};

struct RetransmissionEvent {
  static constexpr EventType kType = EventType::kRetransmission;
  EventHeader header;  // cause: the packet or timer
  uint32_t first_psn = 0;
  uint32_t last_psn = 0;
  uint32_t retries_left = 0;
  uint8_t why = 0;  // RetransmissionReason
  uint8_t reserved[3] = {};
};

struct PathEvent {
  static constexpr EventType kType = EventType::kPath;
  EventHeader header;
  uint64_t window = 0;
  uint64_t in_flight = 0;
  uint64_t rate = 0;
  uint64_t round_trip = 0;
  uint8_t peer[16] = {};
};

enum class WhichWay : uint8_t { kSent = 0, kReceived = 1 };

struct CnpEvent {
  static constexpr EventType kType = EventType::kCnp;
  EventHeader header;  // cause: the marked packet, or the CNP
  uint64_t rate = 0;
  uint8_t way = 0;  // WhichWay
  uint8_t ignored = 0;
  uint16_t reserved = 0;
  uint32_t reserved_too = 0;
};

struct AsyncEventEvent {
  static constexpr EventType kType = EventType::kAsyncEvent;
  EventHeader header;
  uint32_t event = 0;
  uint32_t object = 0;
};

enum class NotificationAction : uint8_t {
  kArmed = 0,
  kArmedSolicited = 1,
  kEvent = 2,
  kAcknowledged = 3,
};

struct NotificationEvent {
  static constexpr EventType kType = EventType::kNotification;
  EventHeader header;
  uint32_t cq = 0;
  uint32_t unpolled = 0;
  uint32_t count = 0;
  uint8_t action = 0;  // NotificationAction
  uint8_t reserved[3] = {};
};

struct CmMessageEvent {
  static constexpr EventType kType = EventType::kCmMessage;
  EventHeader header;
  uint32_t local_id = 0;
  uint32_t remote_id = 0;
  uint16_t attribute = 0;  // wire::CmAttribute
  uint16_t reason = 0;     // wire::CmRejectReason, wire::CmSidrStatus
  uint8_t way = 0;         // WhichWay
  uint8_t reserved[3] = {};
  uint64_t service_id = 0;
  uint32_t sender_qpn = 0;
  uint32_t reserved_too = 0;
  uint8_t peer[16] = {};
};

struct OverflowEvent {
  static constexpr EventType kType = EventType::kOverflow;
  EventHeader header;
  uint64_t packets = 0;
};

enum class FaultAction : uint8_t {
  kDrop = 0,
  kDuplicate = 1,
  kDelay = 2,
  kCorrupt = 3,
  kMark = 4,
  kReorder = 5,
  kStall = 6,
  kNoAck = 7,
  kRnr = 8,
  kNak = 9,
  // 10, a call that fails, is a CallEvent.
  kComplete = 11,
  kOverrun = 12,
  kLateCompletion = 13,
  kEvent = 14,
  kLink = 15,
  kUnmap = 16,
};

struct FaultEvent {
  static constexpr EventType kType = EventType::kFault;
  EventHeader header;  // cause: the packet that it hit; 0: it is held
  uint64_t delay = 0;
  uint32_t rule = 0;
  uint8_t action = 0;  // FaultAction
  uint8_t reserved[3] = {};
  char text[96] = {};
  uint32_t psn = 0;    // kUnmap: the number of the transfer
  uint8_t opcode = 0;  // of the BTH; queue pair 1: CM attribute
  uint8_t way = 0;     // WhichWay
  uint16_t reserved_too = 0;
};

struct FaultRuleEvent {
  static constexpr EventType kType = EventType::kFaultRule;
  EventHeader header;
  uint64_t fired = 0;
  uint64_t matched = 0;
  uint32_t rule = 0;
  uint8_t maybe = 0;
  uint8_t reserved[3] = {};
  char text[96] = {};
};

struct MissedEvent {
  static constexpr EventType kType = EventType::kMissed;
  EventHeader header;
  uint64_t events = 0;
  uint64_t packets = 0;
};

// The events of the flight recorder that have no struct of their own.
struct IncidentEvent {
  static constexpr EventType kType = EventType::kIncident;
  EventHeader header;
  uint32_t psn = 0;
  uint16_t reason = 0;
  uint16_t value = 0;  // see transport::kRareEvents
  uint8_t kind = 0;    // transport::RareEventKind
  uint8_t reserved[7] = {};
};

}  // namespace rxe_user::trace

#endif  // RXE_USER_OBSERVE_TRACE_EVENTS_H_
