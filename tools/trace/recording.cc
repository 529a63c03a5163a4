#include "tools/trace/recording.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>

#include "tools/trace/source_port.h"
#include "wire/bytes.h"
#include "wire/cm.h"
#include "wire/frame.h"
#include "wire/icrc.h"

namespace trace {
namespace {

using rxe_user::trace::PacketEvent;
using rxe_user::trace::PacketOutcome;
using wire::pcapng::Direction;

// Bytes of a packet that are compared, besides its size and ICRC: those that a
// recording without payloads contains (96 bytes from the link layer on, of
// which cooked header, IPv6 and UDP take 64).
constexpr size_t kComparedBytes = 32;
// Bytes that are kept: all headers, for the views; messages of connection
// management are kept as a whole.
constexpr size_t kKeptBytes = 64;
constexpr size_t kKeptOfMads = 320;

uint64_t Mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ (hash >> 29);
}

uint64_t Hash(std::span<const uint8_t> bytes, uint64_t hash) {
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    hash = Mix(hash, word);
  }
  for (; at < bytes.size(); ++at) hash = Mix(hash, bytes[at]);
  return hash;
}

}  // namespace

class RecordingReader::Decoder {
 public:
  explicit Decoder(Recording* recording) : recording_(recording) {}

  void OnRecord(const CaptureRecord& record) {
    if (record.is_packet) {
      OnFrame(record);
    } else if (auto event = Event::Parse(record.custom)) {
      OnEvent(std::move(*event));
    }
  }

 private:
  void OnEvent(Event event) {
    if (const auto about = event.As<rxe_user::trace::RecordingEvent>();
        about && !recording_->about) {
      recording_->about = about;
    }
    recording_->events.push_back(std::move(event));
  }

  void OnFrame(const CaptureRecord& record) {
    wire::Frame frame;
    const wire::FrameKind kind =
        wire::DecodeFrame(record.link_type, record.frame, &frame);
    if (kind != wire::FrameKind::kUdp || !frame.headers.is_rocev2()) {
      ++recording_->other;
      if (!recording_->unknown_link_type &&
          !wire::IsKnownLinkType(record.link_type)) {
        recording_->unknown_link_type = record.link_type;
      }
      return;
    }
    const wire::FrameHeaders& h = frame.headers;
    if (frame.is_truncated() ||
        // Some link layers do not show that a frame was truncated.
        record.frame.size() < record.original_size) {
      if (IsCutOffMerged(record, frame)) {
        ++recording_->cut_off_merged;
        recording_->cut_off_between.insert(std::minmax(h.src, h.dst));
        return;
      }
      OnPacket(record, h, frame.udp_payload, frame.udp_payload_size,
               IcrcVerdict::kUnknown);
      return;
    }
    const std::optional<size_t> size =
        wire::FindSegmentSize(h.icrc_flow(), frame.udp_payload, h.ip_id, h.df);
    bool good = size.has_value();
    if (good) {
      source_ports_.Note(h, frame.udp_payload);
    } else {
      good = source_ports_.Find(h, frame.udp_payload).has_value();
    }
    if (!size || *size == frame.udp_payload.size()) {
      OnPacket(record, h, frame.udp_payload, frame.udp_payload.size(),
               good ? IcrcVerdict::kGood : IcrcVerdict::kBad);
      return;
    }
    std::span<const uint8_t> rest = frame.udp_payload;
    for (uint16_t id = h.ip_id; !rest.empty(); ++id) {
      const auto packet = rest.first(std::min(*size, rest.size()));
      rest = rest.subspan(packet.size());
      OnPacket(record, h, packet, packet.size(),
               h.icrc_flow().Verify(packet, id, h.df) ? IcrcVerdict::kGood
                                                      : IcrcVerdict::kBad);
    }
  }

  // For a frame that was cut off. Frames of our recordings have one packet.
  static bool IsCutOffMerged(const CaptureRecord& record,
                             const wire::Frame& frame) {
    if (!record.custom.empty() || frame.udp_payload.empty()) return false;
    const uint8_t opcode = frame.udp_payload[0];
    const size_t others =
        wire::GetOpcodeInfo(opcode).header_length + wire::kIcrcSize;
    return frame.udp_payload_size >= others &&
           IsMoreThanOne(opcode, frame.udp_payload_size - others);
  }

  // `size`: that of the packet on the wire; `captured` may be shorter.
  void OnPacket(const CaptureRecord& record, const wire::FrameHeaders& h,
                std::span<const uint8_t> captured, size_t size,
                IcrcVerdict icrc) {
    if (captured.size() < wire::kBthSize) {
      ++recording_->malformed;
      return;
    }
    // Bytes that were cut off count as zeros; headers must be present.
    whole_.assign(captured.begin(), captured.end());
    whole_.resize(std::max(size, captured.size()));
    wire::PacketView view;
    if (wire::PacketView::Parse(whole_, &view) != wire::ParseError::kOk ||
        captured.size() < view.info().header_length) {
      ++recording_->malformed;
      return;
    }
    Packet p;
    p.time = record.time;
    p.frame = record.frame_number;
    p.src = h.src;
    p.dst = h.dst;
    p.src_port = h.src_port;
    p.ce = (h.tos & 3) == 3;
    p.hop_limit = h.ttl;
    p.size = static_cast<uint32_t>(size);
    p.payload = static_cast<uint32_t>(view.payload().size());
    p.opcode = view.opcode();
    p.qpn = view.bth().dest_qpn;
    p.psn = view.bth().psn;
    p.ack_req = view.bth().ack_req;
    if (view.info().Has(wire::kAeth)) {
      p.syndrome = view.aeth().syndrome;
      p.msn = view.aeth().msn;
    }
    if (view.info().Has(wire::kReth)) p.length = view.reth().length;
    p.receiver = p.qpn;
    if (p.qpn == wire::kGsiQpn) AddMessage(view, captured.size(), &p);
    p.icrc = icrc;
    p.direction = record.direction;
    // LINKTYPE_LINUX_SLL and its successor tell the direction in their headers.
    const auto type = static_cast<wire::LinkType>(record.link_type);
    if (p.direction == Direction::kUnknown &&
        (type == wire::LinkType::kLinuxSll ||
         type == wire::LinkType::kLinuxSll2)) {
      const size_t at = type == wire::LinkType::kLinuxSll ? 1 : 10;
      p.direction =
          record.frame[at] == 4 ? Direction::kSent : Direction::kReceived;
    }

    std::optional<uint32_t> checksum;
    if (icrc != IcrcVerdict::kUnknown) checksum = view.icrc();
    AddEvent(record, &p, &checksum);
    uint64_t key =
        Hash(captured.first(std::min({captured.size(), kComparedBytes,
                                      size - std::min(size, wire::kIcrcSize)})),
             size);
    // Addresses and ports may differ between the ends (NAT); the queue pair and
    // PSN do not.
    p.key_short = key;
    p.key = Mix(key, checksum.value_or(0));
    recording_->has_icrcs &= checksum.has_value();
    recording_->has_directions &= p.direction != Direction::kUnknown;

    const size_t kept = p.qpn == wire::kGsiQpn ? kKeptOfMads : kKeptBytes;
    p.head = recording_->heads.size();
    p.head_size = static_cast<uint16_t>(std::min(kept, captured.size()));
    recording_->heads.insert(recording_->heads.end(), captured.begin(),
                             captured.begin() + p.head_size);
    recording_->packets.push_back(p);
  }

  // For a packet to queue pair 1, of which `captured` bytes are known.
  static void AddMessage(const wire::PacketView& view, size_t captured,
                         Packet* p) {
    using wire::CmAttribute;
    constexpr size_t kIds = 8;
    constexpr uint64_t kOfId = uint64_t{1} << 32;
    constexpr uint64_t kOfRequest = uint64_t{1} << 63;
    wire::CmView mad;
    if (wire::CmView::Parse(view.payload(), &mad) != wire::CmParseError::kOk ||
        captured < view.info().header_length + wire::kMadHeaderSize + kIds) {
      return;
    }
    const CmAttribute attribute = mad.attribute();
    p->cm_attribute = static_cast<uint16_t>(attribute);
    const bool is_whole = captured >= p->size;
    if (is_whole && attribute == CmAttribute::kRej) {
      p->cm_reason = static_cast<uint16_t>(mad.rej().reason);
    } else if (is_whole && attribute == CmAttribute::kSidrRep) {
      p->cm_reason = static_cast<uint16_t>(mad.sidr_rep().status);
    }
    const bool is_request =
        attribute == CmAttribute::kReq || attribute == CmAttribute::kSidrReq;
    const uint32_t id = attribute == CmAttribute::kSidrRep
                            ? mad.local_comm_id()
                            : mad.remote_comm_id();
    p->receiver = is_request || id == 0 ? kOfRequest | Mix(mad.transaction_id(),
                                                           mad.local_comm_id())
                                        : kOfId | id;
  }

  void AddEvent(const CaptureRecord& record, Packet* p,
                std::optional<uint32_t>* checksum) {
    if (record.custom.empty()) return;
    const auto event = Event::Parse(record.custom);
    if (!event) return;
    const auto packet = event->As<PacketEvent>();
    if (!packet) return;
    p->event = packet->header.id;
    p->cause = packet->header.cause;
    p->own_qpn = packet->header.qpn;
    p->kernel_time = std::clamp<int64_t>(packet->kernel_time, 0, kLatestTime);
    p->reason = packet->reason;
    p->dropped = packet->what == static_cast<uint8_t>(PacketOutcome::kDropped);
    p->disposition = packet->disposition;
    if (!*checksum && packet->icrc != 0) *checksum = packet->icrc;
  }

  Recording* const recording_;
  SourcePorts source_ports_;
  std::vector<uint8_t> whole_;
};

bool IsMoreThanOne(uint8_t opcode, size_t bytes) {
  constexpr size_t kMaxMtu = 4096;
  const wire::OpcodeInfo& info = wire::GetOpcodeInfo(opcode);
  if (!info.known) return false;
  if (!info.carries_payload) return bytes >= wire::kBthSize + wire::kIcrcSize;
  const bool is_mtu = std::has_single_bit(bytes) && bytes >= 256;
  return bytes > kMaxMtu || (info.full_mtu_payload && !is_mtu);
}

const char* IcrcName(IcrcVerdict verdict) {
  constexpr const char* kNames[] = {"unknown", "good", "bad"};
  static_assert(std::size(kNames) ==
                static_cast<size_t>(IcrcVerdict::kBad) + 1);
  return kNames[static_cast<size_t>(verdict)];
}

bool Recording::View(const Packet& packet, std::vector<uint8_t>* bytes,
                     wire::PacketView* view) const {
  const auto head = HeadOf(packet);
  bytes->assign(head.begin(), head.end());
  bytes->resize(std::max<size_t>(packet.size, head.size()));
  return wire::PacketView::Parse(*bytes, view) == wire::ParseError::kOk &&
         view->info().header_length <= head.size();
}

void Recording::VisitFields(const Packet& packet,
                            const wire::FieldVisitor& visit) const {
  const auto head = HeadOf(packet);
  std::vector<uint8_t> whole;
  wire::PacketView view;
  if (!View(packet, &whole, &view)) return;
  bool behind = false;
  wire::VisitFields(view, [&](const wire::Field& field) {
    if (!behind) visit(field);
    behind |= field.name == "payload" && head.size() < packet.size;
  });
}

RecordingReader::RecordingReader(Recording* recording)
    : recording_(recording), decoder_(std::make_unique<Decoder>(recording)) {}

RecordingReader::~RecordingReader() = default;

bool RecordingReader::Open(const std::string& path) {
  recording_->path = path;
  auto file = CaptureFile::Open(path, &recording_->error);
  if (file == nullptr) return false;
  Use(std::move(file));
  return true;
}

void RecordingReader::Use(std::unique_ptr<CaptureFile> file) {
  file_ = std::move(file);
  recording_->is_whole = false;
}

void RecordingReader::ReadUntil(size_t most) {
  if (recording_->is_whole) return;
  CaptureRecord record;
  while (recording_->packets.size() + recording_->events.size() < most) {
    if (!file_->Next(&record)) {
      recording_->is_whole = true;
      recording_->error = file_->error();
      if (recording_->packets.empty() && recording_->packets_before == 0) {
        recording_->has_directions = false;
      }
      break;
    }
    decoder_->OnRecord(record);
  }
  if (recording_->about &&
      recording_->about->version > rxe_user::trace::kVersion) {
    recording_->error = "it is of version " +
                        std::to_string(recording_->about->version) +
                        " of the format: a newer rxe-user wrote it";
  }
}

void RecordingReader::Drop(size_t packets, size_t events) {
  Recording& r = *recording_;
  const uint64_t heads =
      packets < r.packets.size() ? r.packets[packets].head : r.heads.size();
  r.packets.erase(r.packets.begin(),
                  r.packets.begin() + static_cast<ptrdiff_t>(packets));
  r.events.erase(r.events.begin(),
                 r.events.begin() + static_cast<ptrdiff_t>(events));
  r.heads.erase(r.heads.begin(),
                r.heads.begin() + static_cast<ptrdiff_t>(heads));
  for (Packet& packet : r.packets) packet.head -= heads;
  r.packets_before += packets;
  r.events_before += events;
}

size_t MaxRecords(size_t files) {
  // Memory for a packet or event in the most demanding views.
  constexpr size_t kBytes = 640;
  size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                  static_cast<size_t>(sysconf(_SC_PAGESIZE));
  rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) == 0) {
    memory = std::min<size_t>(memory, limit.rlim_cur);
  }
  // The memory limit of a container, in cgroup 2 or 1. "max": no limit.
  for (const char* const name :
       {"/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream file(name);
    size_t bytes = 0;
    if (file >> bytes) memory = std::min(memory, bytes);
  }
  return memory / 2 / kBytes / std::max<size_t>(files, 1);
}

std::string LimitText(size_t most) {
  return "only its first " + std::to_string(most) +
         " packets and events are read: more do not fit into memory. Of "
         "larger files, `rxe-user trace` gives --text, --json and --sqlog";
}

bool ReadRecording(const std::string& path, Recording* recording, size_t most,
                   const std::function<void()>& watch) {
  constexpr size_t kInterval = 1 << 20;
  RecordingReader reader(recording);
  if (!reader.Open(path)) return false;
  for (size_t read = std::min(kInterval, most);;
       read = std::min(read + kInterval, most)) {
    reader.ReadUntil(read);
    if (recording->is_whole || read == most) break;
    if (watch != nullptr) watch();
  }
  if (!recording->is_whole) recording->error = LimitText(most);
  return true;
}

}  // namespace trace
