// A file that was read: its packets, decoded as far as views need them, and its
// events.
#ifndef TOOLS_TRACE_RECORDING_H_
#define TOOLS_TRACE_RECORDING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tools/trace/capture_file.h"
#include "tools/trace/event.h"
#include "wire/address.h"
#include "wire/describe.h"
#include "wire/opcode.h"
#include "wire/packet.h"
#include "wire/pcapng.h"

namespace trace {

// kGood includes packets whose ICRC is good for another source port, which the
// capturing device has overwritten (source_port.h).
enum class IcrcVerdict : uint8_t { kUnknown, kGood, kBad };
const char* IcrcName(IcrcVerdict verdict);  // "good"

// One RoCEv2 packet. Several of them may come from one frame (segmentation).
struct Packet {
  int64_t time = 0;  // ns since 1970, on the clock of its file
  uint64_t frame = 0;
  uint64_t event = 0;  // id of its packet event; 0: none
  uint64_t cause = 0;  // id of the event that caused it; 0: none
  wire::IpAddress src;
  wire::IpAddress dst;
  uint64_t key = 0;  // equal for equal contents, including the ICRC if known
  uint64_t key_short = 0;  // the same without the ICRC
  uint64_t head = 0;       // offset of its first bytes in Recording::heads
  uint32_t size = 0;       // UDP payload on the wire, bytes
  uint32_t payload = 0;    // bytes after the headers
  uint32_t qpn = 0;        // destination
  uint32_t own_qpn = 0;    // local queue pair, from its event; 0: unknown
  // Identifies the receiver at the destination's address: the queue pair
  // number. Queue pair 1, which all processes of an address share, is replaced
  // by the communication ID of the receiver or, in a REQ, by what identifies
  // the request.
  uint64_t receiver = 0;
  uint32_t psn = 0;
  uint32_t msn = 0;     // that of an AETH
  uint32_t length = 0;  // that of a RETH
  uint16_t src_port = 0;
  uint16_t head_size = 0;
  uint16_t reason = 0;  // that of the packet event
  // For connection management; 0: it is another packet.
  uint16_t cm_attribute = 0;  // wire::CmAttribute
  uint16_t cm_reason = 0;  // of a REJ; of a SIDR_REP, its status; 0: not known
  uint8_t opcode = 0;
  uint8_t syndrome = 0;
  uint8_t hop_limit = 0;
  bool ack_req = false;
  bool ce = false;          // ECN: congestion experienced
  bool dropped = false;     // by the device that received it
  uint8_t disposition = 0;  // transport::Disposition, if it was dropped
  IcrcVerdict icrc = IcrcVerdict::kUnknown;
  wire::pcapng::Direction direction = wire::pcapng::Direction::kUnknown;
  int64_t kernel_time = 0;  // when the kernel received it; 0: unknown
  // --- For a file that is read in parts (parts.h).
  bool shown = true;     // false: context, which another part shows
  bool is_kept = false;  // the next part contains it as well

  const wire::OpcodeInfo& info() const { return wire::GetOpcodeInfo(opcode); }
  bool is_cnp() const { return opcode == wire::kOpcodeCnp; }
  bool is_cm() const { return cm_attribute != 0; }
  // For a received packet: how long it waited in the socket until the process
  // read it, ns; 0: unknown.
  int64_t waited() const {
    return kernel_time != 0 && kernel_time < time ? time - kernel_time : 0;
  }
  // When it reached the host, as far as known.
  int64_t arrival() const { return time - waited(); }
  // ACK, NAK or RNR NAK, without data.
  bool is_acknowledge() const {
    return wire::OperationOf(opcode) == wire::Operation::kAcknowledge;
  }
};

// Whether `bytes` between headers and ICRC are too many for one packet with
// this opcode. Then segmentation offload has left several packets in one frame.
bool IsMoreThanOne(uint8_t opcode, size_t bytes);

struct Recording {
  std::string path;
  // Empty, or the reason why the file could not be read to its end: one line.
  std::string error;
  std::optional<rxe_user::trace::RecordingEvent> about;  // its first event
  std::vector<Packet> packets;  // in the order of the file
  std::vector<Event> events;    // in the order of the file, without packets'
  std::vector<uint8_t> heads;
  // Packets and events of earlier parts that are no longer here.
  uint64_t packets_before = 0;
  uint64_t events_before = 0;
  bool is_whole = true;  // false: more follows in the file
  uint64_t read() const {
    return packets_before + packets.size() + events_before + events.size();
  }
  // Frames that are not shown:
  uint64_t malformed = 0;  // sent to port 4791, but no RoCEv2 packet
  uint64_t other = 0;
  // That of the first frame whose link type is not supported.
  std::optional<int> unknown_link_type;
  // Frames of several packets (segmentation) that were cut off: where one ends
  // is unknown.
  uint64_t cut_off_merged = 0;
  // Between which addresses, the lower one first.
  std::set<std::pair<wire::IpAddress, wire::IpAddress>> cut_off_between;
  bool has_icrcs = true;  // of every packet
  bool has_directions = true;

  // Whether packets between the addresses of this one are missing.
  bool LacksPacketsLike(const Packet& packet) const {
    return !cut_off_between.empty() &&
           cut_off_between.contains(std::minmax(packet.src, packet.dst));
  }
  std::span<const uint8_t> HeadOf(const Packet& packet) const {
    return std::span(heads).subspan(packet.head, packet.head_size);
  }
  // A view of the packet, in which the bytes after its head are zeros. Points
  // into `*bytes`. False: the head is too short.
  bool View(const Packet& packet, std::vector<uint8_t>* bytes,
            wire::PacketView* view) const;
  // Visits the fields as `rxe-user decode` shows them. For a packet that was
  // truncated, those up to the payload's length.
  void VisitFields(const Packet& packet, const wire::FieldVisitor& visit) const;
};

// Reads a file in steps.
class RecordingReader {
 public:
  // `recording` must outlive this object. Sets its error, path and `is_whole`.
  explicit RecordingReader(Recording* recording);
  ~RecordingReader();
  RecordingReader(const RecordingReader&) = delete;
  RecordingReader& operator=(const RecordingReader&) = delete;

  // False: the file could not be opened or is of another format.
  bool Open(const std::string& path);
  void Use(std::unique_ptr<CaptureFile> file);
  // Reads until `recording` has `most` packets and events, or the whole file.
  void ReadUntil(size_t most);
  // Removes the first packets and events from `recording`.
  void Drop(size_t packets, size_t events);

 private:
  class Decoder;

  Recording* const recording_;
  std::unique_ptr<CaptureFile> file_;
  std::unique_ptr<Decoder> decoder_;
};

// The number of packets and events of each of `files` files that fit in half of
// the memory that the process may use: that of the machine, its cgroup, or
// RLIMIT_AS.
size_t MaxRecords(size_t files);

// The line for a file of which no more was read.
std::string LimitText(size_t most);

// Reads the file. If the file is damaged or truncated, or has more than `most`
// packets and events, the result is what precedes that. False: it could not be
// opened or is of another format. Calls `watch` now and then while it reads a
// large file, unless `watch` is null.
bool ReadRecording(const std::string& path, Recording* recording,
                   size_t most = MaxRecords(1),
                   const std::function<void()>& watch = nullptr);

}  // namespace trace

#endif  // TOOLS_TRACE_RECORDING_H_
