#include "rxe_user/observe/trace_table.h"

namespace rxe_user::trace {
namespace {

using enum FieldFormat;

// --- Names of values. Those of the verbs are as in their manual pages.

constexpr ValueName kQueues[] = {{0, "send"}, {1, "receive"}, {2, "shared"}};
constexpr ValueName kSendOpcodes[] = {{0, "RDMA_WRITE"},
                                      {1, "RDMA_WRITE_WITH_IMM"},
                                      {2, "SEND"},
                                      {3, "SEND_WITH_IMM"},
                                      {4, "RDMA_READ"},
                                      {5, "ATOMIC_CMP_AND_SWP"},
                                      {6, "ATOMIC_FETCH_AND_ADD"},
                                      {7, "LOCAL_INV"},
                                      {8, "BIND_MW"},
                                      {9, "SEND_WITH_INV"},
                                      {10, "TSO"},
                                      {11, "DRIVER1"},
                                      {12, "MEMCPY"},
                                      {13, "NOP"},
                                      {14, "FLUSH"},
                                      {15, "ATOMIC_WRITE"},
                                      // transport::AsRawWqe.
                                      {16, "RAW_RDMA_WRITE"},
                                      {17, "RAW_RDMA_WRITE_WITH_IMM"},
                                      {18, "RAW_SEND"},
                                      {19, "RAW_SEND_WITH_IMM"},
                                      {20, "RAW_RDMA_READ"},
                                      {21, "RAW_ATOMIC_CMP_AND_SWP"},
                                      {22, "RAW_ATOMIC_FETCH_AND_ADD"},
                                      {23, "RAW_LOCAL_INV"},
                                      {25, "RAW_SEND_WITH_INV"},
                                      {29, "RAW_NOP"}};
constexpr ValueName kWcOpcodes[] = {
    {0, "SEND"},         {1, "RDMA_WRITE"}, {2, "RDMA_READ"},
    {3, "COMP_SWAP"},    {4, "FETCH_ADD"},  {5, "BIND_MW"},
    {6, "LOCAL_INV"},    {7, "TSO"},        {8, "FLUSH"},
    {9, "ATOMIC_WRITE"}, {128, "RECV"},     {129, "RECV_RDMA_WITH_IMM"},
    {135, "DRIVER1"},    {136, "DRIVER2"},  {137, "DRIVER3"}};
constexpr ValueName kStatus[] = {
    {0, "SUCCESS"},         {1, "LOC_LEN_ERR"},        {2, "LOC_QP_OP_ERR"},
    {3, "LOC_EEC_OP_ERR"},  {4, "LOC_PROT_ERR"},       {5, "WR_FLUSH_ERR"},
    {6, "MW_BIND_ERR"},     {7, "BAD_RESP_ERR"},       {8, "LOC_ACCESS_ERR"},
    {9, "REM_INV_REQ_ERR"}, {10, "REM_ACCESS_ERR"},    {11, "REM_OP_ERR"},
    {12, "RETRY_EXC_ERR"},  {13, "RNR_RETRY_EXC_ERR"}, {16, "REM_ABORT_ERR"},
    {19, "FATAL_ERR"},      {20, "RESP_TIMEOUT_ERR"},  {21, "GENERAL_ERR"}};
constexpr ValueName kWhats[] = {{0, "sent"}, {1, "received"}, {2, "dropped"}};
// transport::Disposition.
constexpr ValueName kDispositions[] = {
    {0, "too short"},          {1, "unknown opcode"}, {2, "wrong length"},
    {3, "wrong header"},       {4, "wrong syndrome"}, {5, "wrong ICRC"},
    {6, "unknown queue pair"}, {7, "delivered"}};
constexpr ValueName kQpTypes[] = {
    {2, "RC"},       {3, "UC"},        {4, "UD"},   {8, "RAW_PACKET"},
    {9, "XRC_SEND"}, {10, "XRC_RECV"}, {11, "DCI"}, {12, "DCT"}};
constexpr ValueName kQpStates[] = {{0, "RESET"}, {1, "INIT"}, {2, "RTR"},
                                   {3, "RTS"},   {4, "SQD"},  {5, "SQE"},
                                   {6, "ERR"}};
constexpr ValueName kTimers[] = {{0, "ACK timeout"},
                                 {1, "probe"},
                                 {2, "RNR wait"},
                                 {3, "reorder wait"},
                                 {4, "pacing"}};
constexpr ValueName kTimerActions[] = {
    {0, "set"}, {1, "fired"}, {2, "cancelled"}};
constexpr ValueName kWhys[] = {
    {0, "NAK: PSN sequence error"}, {1, "ACK timeout"},
    {2, "RNR wait over"},           {3, "probe of an unacknowledged tail"},
    {4, "a response was missing"},  {5, "the path changed"}};
constexpr ValueName kWays[] = {{0, "sent"}, {1, "received"}};
constexpr ValueName kCmAttributes[] = {
    {0x10, "REQ"},      {0x11, "MRA"},  {0x12, "REJ"},  {0x13, "REP"},
    {0x14, "RTU"},      {0x15, "DREQ"}, {0x16, "DREP"}, {0x17, "SIDR_REQ"},
    {0x18, "SIDR_REP"}, {0x19, "LAP"},  {0x1a, "APR"}};
constexpr ValueName kNotifications[] = {{0, "armed"},
                                        {1, "armed, solicited only"},
                                        {2, "event"},
                                        {3, "acknowledged"}};
constexpr ValueName kFaults[] = {{0, "drop"},
                                 {1, "duplicate"},
                                 {2, "delay"},
                                 {3, "corrupt"},
                                 {4, "mark"},
                                 {5, "reorder"},
                                 {6, "stall"},
                                 {7, "no-ack"},
                                 {8, "rnr"},
                                 {9, "nak"},
                                 {11, "complete"},
                                 {12, "overrun"},
                                 {13, "late-completion"},
                                 {14, "event"},
                                 {15, "link"},
                                 {16, "unmap"}};
// transport::RareEventKind, of those that are incidents.
constexpr ValueName kIncidents[] = {
    {4, "retries_exceeded"},  {5, "rnr_retries_exceeded"},
    {6, "sequence_nak_sent"}, {7, "sequence_nak_received"},
    {8, "fatal_nak_sent"},    {9, "fatal_nak_received"},
    {10, "rnr_nak_sent"},     {11, "rnr_nak_received"},
    {12, "destroyed"}};
// enum ibv_event_type.
constexpr ValueName kAsyncEvents[] = {{0, "CQ_ERR"},
                                      {1, "QP_FATAL"},
                                      {2, "QP_REQ_ERR"},
                                      {3, "QP_ACCESS_ERR"},
                                      {4, "COMM_EST"},
                                      {5, "SQ_DRAINED"},
                                      {6, "PATH_MIG"},
                                      {7, "PATH_MIG_ERR"},
                                      {8, "DEVICE_FATAL"},
                                      {9, "PORT_ACTIVE"},
                                      {10, "PORT_ERR"},
                                      {11, "LID_CHANGE"},
                                      {12, "PKEY_CHANGE"},
                                      {13, "SM_CHANGE"},
                                      {14, "SRQ_ERR"},
                                      {15, "SRQ_LIMIT_REACHED"},
                                      {16, "QP_LAST_WQE_REACHED"},
                                      {17, "CLIENT_REREGISTER"},
                                      {18, "GID_CHANGE"},
                                      {19, "WQ_FATAL"}};

// --- Fields.

#define FIELD(type, member, format, help, ...)                           \
  {                                                                      \
#member, format, help, offsetof(type, member), sizeof(type::member), \
        ##__VA_ARGS__                                                    \
  }

constexpr EventField kHeaderFields[] = {
    FIELD(EventHeader, magic, kHex, "0x55455852, the characters \"RXEU\""),
    FIELD(EventHeader, type, kNumber, "number of the event, below"),
    FIELD(EventHeader, size, kNumber, "bytes of the event with this header"),
    FIELD(EventHeader, id, kNumber, "unique in the file, from 1"),
    FIELD(EventHeader, cause, kNumber,
          "id of the event that caused this one; 0: none"),
    FIELD(EventHeader, time, kTime, "when; ns since 1970"),
    FIELD(EventHeader, qpn, kHex, "the local queue pair; 0: none"),
    FIELD(EventHeader, thread, kNumber, "thread that did it (gettid(2))"),
};
constexpr EventField kRecordingFields[] = {
    FIELD(RecordingEvent, version, kNumber, "of the format: 1"),
    FIELD(RecordingEvent, pid, kNumber, "process"),
    FIELD(RecordingEvent, boot_id, kBytes,
          "of the kernel: files with the same one have one clock"),
    FIELD(RecordingEvent, monotonic, kSigned,
          "CLOCK_MONOTONIC at the time of the event, ns"),
    FIELD(RecordingEvent, host, kText, "name of the host"),
    FIELD(RecordingEvent, program, kText, "name of the program"),
};
constexpr EventField kCallFields[] = {
    FIELD(CallEvent, function, kText, "name, such as ibv_modify_qp"),
    FIELD(CallEvent, duration, kNumber, "ns"),
    FIELD(CallEvent, result, kSigned,
          "return value; of a pointer, 1 or 0 for null"),
    FIELD(CallEvent, error, kNumber, "errno; 0: none"),
    FIELD(CallEvent, reason, kNumber,
          "0; the check that refused it is in the arguments"),
    FIELD(CallEvent, arguments, kText,
          "NAME=VALUE, separated by spaces; \"refused: \" and the check"),
};
constexpr EventField kPostedFields[] = {
    FIELD(PostedEvent, wr_id, kHex, ""),
    FIELD(PostedEvent, remote_address, kHex, "of RDMA and atomics"),
    FIELD(PostedEvent, bytes, kNumber, "sum of the SGEs"),
    FIELD(PostedEvent, rkey, kHex, "of RDMA and atomics"),
    FIELD(PostedEvent, flags, kHex, "IBV_SEND_..."),
    FIELD(PostedEvent, error, kNumber, "errno; 0: it is in the queue"),
    FIELD(PostedEvent, queue_number, kHex,
          "of a shared receive queue; else that of the queue pair"),
    FIELD(PostedEvent, sges, kNumber, "number of SGEs"),
    FIELD(PostedEvent, queue, kName, "", kQueues),
    FIELD(PostedEvent, opcode, kName,
          "IBV_WR_..., of a send queue; DRIVER1 to NOP and RAW_... by mlx5dv",
          kSendOpcodes),
    FIELD(PostedEvent, reserved, kReserved, ""),
};
constexpr EventField kBegunFields[] = {
    FIELD(BegunEvent, wr_id, kHex, ""),
    FIELD(BegunEvent, first_psn, kNumber, "of its request packets"),
    FIELD(BegunEvent, last_psn, kNumber,
          "of its request packets; of a READ, of its responses"),
    FIELD(BegunEvent, message, kNumber,
          "number of the message on this queue pair, from 1"),
    FIELD(BegunEvent, reserved, kReserved, ""),
};
constexpr EventField kCompletedFields[] = {
    FIELD(CompletedEvent, wr_id, kHex, ""),
    FIELD(CompletedEvent, posted, kNumber, "id of the posted event; 0: none"),
    FIELD(CompletedEvent, cq, kHex, "the completion queue"),
    FIELD(CompletedEvent, bytes, kNumber, "byte_len, of receives and READs"),
    FIELD(CompletedEvent, reason, kNumber, "vendor_err: which check failed"),
    FIELD(CompletedEvent, status, kName, "IBV_WC_...", kStatus),
    FIELD(CompletedEvent, opcode, kName,
          "IBV_WC_...; 0 also if the work request failed", kWcOpcodes),
    FIELD(CompletedEvent, reserved, kReserved, ""),
};
constexpr EventField kPolledFields[] = {
    FIELD(PolledEvent, wr_id, kHex, ""),
    FIELD(PolledEvent, empty_polls, kNumber,
          "polls of the queue since the last such event that found nothing"),
    FIELD(PolledEvent, cq, kHex, "the completion queue"),
    FIELD(PolledEvent, reserved, kReserved, ""),
};
constexpr EventField kPacketFields[] = {
    FIELD(PacketEvent, kernel_time, kTime,
          "of a received packet: when the kernel got it (SO_TIMESTAMPNS); 0: "
          "not known"),
    FIELD(PacketEvent, icrc, kHex, "as in the packet, also if that is cut off"),
    FIELD(PacketEvent, message, kNumber,
          "number of its message on this queue pair; 0: not known"),
    FIELD(PacketEvent, reason, kNumber,
          "the check of the queue pair that dropped it; 0: none"),
    FIELD(PacketEvent, what, kName, "", kWhats),
    FIELD(PacketEvent, disposition, kName, "of a received packet",
          kDispositions),
    FIELD(PacketEvent, reserved, kReserved, ""),
};
constexpr EventField kQpStateFields[] = {
    // JSON has a member `type` in each object.
    {"qp_type", kName, "", offsetof(QpStateEvent, type),
     sizeof(QpStateEvent::type), kQpTypes},
    FIELD(QpStateEvent, from, kName, "state before", kQpStates),
    FIELD(QpStateEvent, to, kName, "state now", kQpStates),
    FIELD(QpStateEvent, timeout, kNumber, "4.096 us x 2^timeout; 0: none"),
    FIELD(QpStateEvent, retry_count, kNumber, ""),
    FIELD(QpStateEvent, rnr_retry, kNumber, "7: without limit"),
    FIELD(QpStateEvent, min_rnr_timer, kNumber,
          "encoded as in ibv_modify_qp(3); 0: 655.36 ms"),
    FIELD(QpStateEvent, hop_limit, kNumber, ""),
    FIELD(QpStateEvent, path_mtu, kNumber, "bytes"),
    FIELD(QpStateEvent, dest_qpn, kHex, ""),
    FIELD(QpStateEvent, send_psn, kNumber, "next PSN of the send queue"),
    FIELD(QpStateEvent, receive_psn, kNumber, "next PSN expected"),
    FIELD(QpStateEvent, access, kHex, "IBV_ACCESS_..."),
    FIELD(QpStateEvent, reason, kNumber, "of a change to ERR; 0: the program"),
    FIELD(QpStateEvent, max_read_atomic, kNumber, "as requester"),
    FIELD(QpStateEvent, max_dest_read_atomic, kNumber, "as responder"),
    FIELD(QpStateEvent, source_port, kNumber, "UDP"),
    FIELD(QpStateEvent, reserved, kReserved, ""),
    FIELD(QpStateEvent, source, kAddress, "its own GID"),
    FIELD(QpStateEvent, destination, kAddress, "the peer's GID"),
};
constexpr EventField kTimerFields[] = {
    FIELD(TimerEvent, deadline, kTime, "when it fires, if it was set"),
    FIELD(TimerEvent, psn, kNumber, "the packet that it waits for"),
    FIELD(TimerEvent, kind, kName, "", kTimers),
    FIELD(TimerEvent, action, kName, "", kTimerActions),
    FIELD(TimerEvent, reserved, kReserved, ""),
};
constexpr EventField kRetransmissionFields[] = {
    FIELD(RetransmissionEvent, first_psn, kNumber, ""),
    FIELD(RetransmissionEvent, last_psn, kNumber, ""),
    FIELD(RetransmissionEvent, retries_left, kNumber,
          "0 also if that is not known"),
    FIELD(RetransmissionEvent, why, kName, "", kWhys),
    FIELD(RetransmissionEvent, reserved, kReserved, ""),
};
constexpr EventField kPathFields[] = {
    FIELD(PathEvent, window, kNumber, "bytes"),
    FIELD(PathEvent, in_flight, kNumber, "bytes"),
    FIELD(PathEvent, rate, kNumber,
          "of READ responses, bytes per second; 0: no limit"),
    FIELD(PathEvent, round_trip, kNumber, "smoothed, ns; 0: none measured"),
    FIELD(PathEvent, peer, kAddress, "the destination"),
};
constexpr EventField kCnpFields[] = {
    FIELD(CnpEvent, rate, kNumber,
          "of READ responses after it, bytes per second; 0: no limit"),
    FIELD(CnpEvent, way, kName, "", kWays),
    FIELD(CnpEvent, ignored, kNumber,
          "1: sooner after the last CNP than a receiver may send one"),
    FIELD(CnpEvent, reserved, kReserved, ""),
    FIELD(CnpEvent, reserved_too, kReserved, ""),
};
constexpr EventField kAsyncEventFields[] = {
    FIELD(AsyncEventEvent, event, kName, "IBV_EVENT_...", kAsyncEvents),
    FIELD(AsyncEventEvent, object, kHex,
          "number of the queue pair, queue or port"),
};
constexpr EventField kNotificationFields[] = {
    FIELD(NotificationEvent, cq, kHex, "the completion queue"),
    FIELD(NotificationEvent, unpolled, kNumber,
          "completions that are in it at that moment"),
    FIELD(NotificationEvent, count, kNumber, "events that are acknowledged"),
    FIELD(NotificationEvent, action, kName, "", kNotifications),
    FIELD(NotificationEvent, reserved, kReserved, ""),
};
constexpr EventField kCmMessageFields[] = {
    FIELD(CmMessageEvent, local_id, kHex,
          "communication ID; of SIDR, the request ID"),
    FIELD(CmMessageEvent, remote_id, kHex,
          "the peer's; 0: the message does not name it"),
    FIELD(CmMessageEvent, attribute, kName, "attribute ID of the MAD",
          kCmAttributes),
    FIELD(CmMessageEvent, reason, kNumber,
          "of a REJ (1 to 33); of a SIDR_REP, its status"),
    FIELD(CmMessageEvent, way, kName, "", kWays),
    FIELD(CmMessageEvent, reserved, kReserved, ""),
    FIELD(CmMessageEvent, service_id, kHex, "of a REQ and SIDR_REQ"),
    FIELD(CmMessageEvent, sender_qpn, kHex,
          "queue pair of the sender, of a REQ, REP and SIDR_REP"),
    FIELD(CmMessageEvent, reserved_too, kReserved, ""),
    FIELD(CmMessageEvent, peer, kAddress, "the peer's queue pair 1"),
};
constexpr EventField kOverflowFields[] = {
    FIELD(OverflowEvent, packets, kNumber,
          "that the kernel dropped since the last such event"),
};
constexpr EventField kFaultFields[] = {
    FIELD(FaultEvent, delay, kNumber, "ns"),
    FIELD(FaultEvent, rule, kNumber, "number of the rule, from 1"),
    FIELD(FaultEvent, action, kName, "", kFaults),
    FIELD(FaultEvent, reserved, kReserved, ""),
    FIELD(FaultEvent, text, kText, "the rule"),
    FIELD(FaultEvent, psn, kNumber,
          "of the packet; unmap, queue pair 1: which transfer, or CM message"),
    FIELD(FaultEvent, opcode, kHex,
          "of the packet's BTH; queue pair 1: attribute of the CM message"),
    FIELD(FaultEvent, way, kName, "", kWays),
    FIELD(FaultEvent, reserved_too, kReserved, ""),
};
constexpr EventField kFaultRuleFields[] = {
    FIELD(FaultRuleEvent, fired, kNumber, "packets that it hit"),
    FIELD(FaultRuleEvent, matched, kNumber,
          "packets that it is for, hit or not"),
    FIELD(FaultRuleEvent, rule, kNumber, "number of the rule, from 1"),
    FIELD(FaultRuleEvent, maybe, kNumber, "1: it may never fire"),
    FIELD(FaultRuleEvent, reserved, kReserved, ""),
    FIELD(FaultRuleEvent, text, kText, "the rule"),
};
constexpr EventField kMissedFields[] = {
    FIELD(MissedEvent, events, kNumber, "since the last such event"),
    FIELD(MissedEvent, packets, kNumber, "since the last such event"),
};
constexpr EventField kIncidentFields[] = {
    FIELD(IncidentEvent, psn, kNumber, "of the packet that it is about"),
    FIELD(IncidentEvent, reason, kNumber,
          "the first error of the queue pair until then, vendor_err; 0: none"),
    FIELD(IncidentEvent, value, kNumber,
          "retry_cnt, rnr_retry, code of the NAK, code of min_rnr_timer, or "
          "state that it was destroyed in"),
    FIELD(IncidentEvent, kind, kName, "", kIncidents),
    FIELD(IncidentEvent, reserved, kReserved, ""),
};

#undef FIELD

// Whether the fields are all members of a struct, in order, without gaps.
constexpr bool IsComplete(std::span<const EventField> fields, size_t from,
                          size_t bytes) {
  for (const EventField& field : fields) {
    if (field.offset != from) return false;
    from += field.size;
  }
  return from == bytes;
}
static_assert(IsComplete(kHeaderFields, 0, sizeof(EventHeader)));

template <typename Event, size_t kFields>
consteval EventDescription Describe(std::string_view name,
                                    std::string_view help,
                                    const EventField (&fields)[kFields]) {
  static_assert(offsetof(Event, header) == 0);
  if (!IsComplete(fields, sizeof(EventHeader), sizeof(Event))) {
    throw "a member of the struct has no row";
  }
  return {Event::kType, name, help, sizeof(Event), fields};
}

constexpr EventDescription kEvents[] = {
    Describe<RecordingEvent>(
        "recording",
        "The first event of a file: who wrote it, when, on which host.",
        kRecordingFields),
    Describe<CallEvent>(
        "call",
        "A verbs call, when it has returned. Posts and polls have events of "
        "their own; a post that was refused is here too.",
        kCallFields),
    Describe<PostedEvent>("posted",
                          "A work request was posted to a queue, or refused.",
                          kPostedFields),
    Describe<BegunEvent>(
        "begun",
        "A send work request got its PSNs: its first packet is sent next. Its "
        "cause is its posted event.",
        kBegunFields),
    Describe<CompletedEvent>(
        "completed",
        "A work request ended, with a completion or, if it was not signaled, "
        "without. Its cause is the packet or timer that ended it.",
        kCompletedFields),
    Describe<PolledEvent>(
        "polled",
        "The program polled a completion. Its cause is the completed event.",
        kPolledFields),
    Describe<PacketEvent>(
        "packet",
        "What the device did with a packet. It is the custom option of the "
        "packet's block. Its cause is what the packet answers or repeats, or "
        "the fault that held it.",
        kPacketFields),
    Describe<QpStateEvent>(
        "qp_state", "A queue pair changed its state: its attributes then.",
        kQpStateFields),
    Describe<TimerEvent>("timer", "A timer was set, fired or was cancelled.",
                         kTimerFields),
    Describe<RetransmissionEvent>(
        "retransmission",
        "The requester sends packets again. Its cause is the packet or timer "
        "that made it do so.",
        kRetransmissionFields),
    Describe<PathEvent>(
        "path",
        "The window or rate of a path changed by more than an eighth, or the "
        "round trip time by more than a half, since its last such event. Its "
        "cause is the packet or timer after which that was seen.",
        kPathFields),
    Describe<CnpEvent>("cnp",
                       "A congestion notification was sent or received. Its "
                       "cause is the marked packet, or the CNP.",
                       kCnpFields),
    Describe<AsyncEventEvent>("async_event",
                              "An asynchronous event for the program.",
                              kAsyncEventFields),
    Describe<NotificationEvent>(
        "notification",
        "A completion queue was armed, or its event was created, or "
        "acknowledged.",
        kNotificationFields),
    Describe<CmMessageEvent>(
        "cm_message",
        "The connection manager sent or received a message, of the local queue "
        "pair if that is known. Its cause is the packet that brought it, or "
        "the message that it answers or repeats.",
        kCmMessageFields),
    Describe<OverflowEvent>(
        "overflow", "The kernel dropped packets: the receive buffer was full.",
        kOverflowFields),
    Describe<FaultEvent>(
        "fault",
        "A fault was injected on purpose. Its cause is the packet that it hit; "
        "0: it hit a completion, or holds a received packet. That one is in "
        "the "
        "file when it is delivered, with the fault as its cause.",
        kFaultFields),
    Describe<MissedEvent>(
        "missed",
        "Events and packets that are not in the file, for lack of room.",
        kMissedFields),
    Describe<IncidentEvent>(
        "incident",
        "A rare decision of a queue pair: a NAK was sent or received, retries "
        "were used up, it was destroyed. Its cause is the packet or timer.",
        kIncidentFields),
    Describe<FaultRuleEvent>(
        "fault_rule",
        "A rule for faults, at the end of the program: how often it fired.",
        kFaultRuleFields),
};

constexpr bool NumbersAreIndices() {
  uint16_t number = 0;
  for (const EventDescription& event : kEvents) {
    if (static_cast<uint16_t>(event.type) != ++number) return false;
  }
  return true;
}
static_assert(NumbersAreIndices());

}  // namespace

std::span<const EventField> HeaderFields() { return kHeaderFields; }
std::span<const EventDescription> Events() { return kEvents; }

const EventDescription* FindEvent(uint16_t type) {
  return type == 0 || type > std::size(kEvents) ? nullptr : &kEvents[type - 1];
}

std::string_view NameOf(std::span<const ValueName> names, uint64_t value) {
  for (const ValueName& name : names) {
    if (name.value == value) return name.name;
  }
  return {};
}

std::span<const ValueName> StatusNames() { return kStatus; }
std::span<const ValueName> DispositionNames() { return kDispositions; }

}  // namespace rxe_user::trace
