#include "tools/rxe_user_cli/decode.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tools/rxe_user_cli/libpcap.h"
#include "tools/rxe_user_cli/output.h"
#include "tools/trace/field_json.h"
#include "tools/trace/recording.h"
#include "tools/trace/source_port.h"
#include "tools/trace/time_text.h"
#include "wire/describe.h"
#include "wire/frame.h"
#include "wire/packet.h"

namespace rxe_user_cli {
namespace {

using Json = nlohmann::ordered_json;
using trace::IcrcVerdict;
using PcapPtr = std::unique_ptr<pcap_t, decltype(Libpcap::close)>;

struct Counts {
  uint64_t packets = 0;
  // By ICRC.
  uint64_t good = 0;
  uint64_t bad = 0;
  uint64_t unknown = 0;
  uint64_t malformed = 0;
  uint64_t rocev1_frames = 0;
  uint64_t cut_off_frames = 0;  // cut off within their headers
  uint64_t ip_fragments = 0;
  uint64_t other_frames = 0;
};

// A packet, or data that is not a valid packet, and where it was found.
struct Item {
  uint64_t frame_number;
  timespec time;
  const wire::FrameHeaders* headers;
  // The index and the number of the packets that were captured in one frame.
  // Absent: several packets, but the frame was cut off.
  size_t segment = 0;
  std::optional<size_t> segments = 1;
};

// The result of checking a packet's ICRC.
struct Icrc {
  IcrcVerdict verdict = IcrcVerdict::kUnknown;
  // The source port that it was sent from, if the capture shows another one.
  std::optional<uint16_t> source_port;
};

// Consumes items. Returns false if no more can be written.
class Output {
 public:
  virtual ~Output() = default;
  virtual bool Packet(const Item& item, const wire::FieldSource& fields,
                      const Icrc& icrc) = 0;
  virtual bool Malformed(const Item& item, const std::string& error) = 0;
  virtual bool Summary(const Counts& counts) = 0;
};

bool WriteLine(std::FILE* out, const std::string& line) {
  return std::fputs((line + "\n").c_str(), out) >= 0;
}

class TextOutput : public Output {
 public:
  explicit TextOutput(std::FILE* out) : out_(out) {}

  bool Packet(const Item& item, const wire::FieldSource& fields,
              const Icrc& icrc) override {
    std::string line = Start(item) + wire::DescribeFields(fields);
    if ((item.headers->tos & 3) == 3) line += " ecn=CE";
    line += std::string(" icrc=") + trace::IcrcName(icrc.verdict);
    if (icrc.source_port) {
      absl::StrAppendFormat(&line, " with source port 0x%04x in place of %d",
                            *icrc.source_port, item.headers->src_port);
    }
    if (item.segments != 1) {
      line += " segment=" + std::to_string(item.segment) + "/" +
              (item.segments ? std::to_string(*item.segments) : "?");
    }
    return WriteLine(out_, line);
  }

  bool Malformed(const Item& item, const std::string& error) override {
    return WriteLine(out_, Start(item) + "malformed: " + error);
  }

  bool Summary(const Counts& c) override {
    const std::string line = absl::StrFormat(
        "%d RoCEv2 packets: ICRC %d good, %d bad, %d unknown; %d malformed; "
        "%d RoCEv1 frames, %d other frames",
        c.packets, c.good, c.bad, c.unknown, c.malformed, c.rocev1_frames,
        c.other_frames);
    if (!WriteLine(out_, line)) return false;
    if (c.cut_off_frames != 0 &&
        !WriteLine(out_, std::to_string(c.cut_off_frames) +
                             " frames cut off within their headers: "
                             "capture more of each (tcpdump -s 0)")) {
      return false;
    }
    return c.ip_fragments == 0 ||
           WriteLine(out_, std::to_string(c.ip_fragments) +
                               " IP fragments, which are not reassembled: "
                               "RoCE devices send none");
  }

 private:
  static std::string AddressText(const wire::IpAddress& address) {
    return address.is_v4() ? address.ToString()
                           : "[" + address.ToString() + "]";
  }

  static std::string Start(const Item& item) {
    return trace::TimeText(item.time, "%H:%M:%S", 6) + " " +
           AddressText(item.headers->src) + ":" +
           std::to_string(item.headers->src_port) + " > " +
           AddressText(item.headers->dst) + " ";
  }

  std::FILE* const out_;
};

class JsonOutput : public Output {
 public:
  explicit JsonOutput(std::FILE* out) : out_(out) {}

  bool Packet(const Item& item, const wire::FieldSource& fields,
              const Icrc& icrc) override {
    Json object = Start("packet", item);
    fields([&object](const wire::Field& field) {
      object[std::string(field.name)] = trace::FieldValue(field);
    });
    object["icrc"] = trace::IcrcName(icrc.verdict);
    if (icrc.source_port) object["icrc_src_port"] = *icrc.source_port;
    return WriteLine(out_, object.dump());
  }

  bool Malformed(const Item& item, const std::string& error) override {
    Json object = Start("malformed", item);
    object["error"] = error;
    return WriteLine(out_, object.dump());
  }

  bool Summary(const Counts& c) override {
    return WriteLine(out_, Json{{"type", "summary"},
                                {"packets", c.packets},
                                {"icrc_good", c.good},
                                {"icrc_bad", c.bad},
                                {"icrc_unknown", c.unknown},
                                {"malformed", c.malformed},
                                {"rocev1_frames", c.rocev1_frames},
                                {"cut_off_frames", c.cut_off_frames},
                                {"ip_fragments", c.ip_fragments},
                                {"other_frames", c.other_frames}}
                               .dump());
  }

 private:
  static Json Start(const char* type, const Item& item) {
    const wire::FrameHeaders& h = *item.headers;
    Json object = {
        {"type", type},
        {"frame", item.frame_number},
        {"time", trace::TimeText(item.time, "%Y-%m-%dT%H:%M:%S", 9) + "Z"},
        {"src", h.src.ToString()},
        {"src_port", h.src_port},
        {"dst", h.dst.ToString()},
        {"tos", h.tos},
        {"ttl", h.ttl}};
    if (h.vlan) object["vlan"] = *h.vlan;
    if (h.src.is_v4()) {
      object["ip_id"] = h.ip_id;
    } else {
      object["flow_label"] = h.flow_label;
    }
    if (item.segments != 1) {
      object["segment"] = item.segment;
      object["segments"] = item.segments ? Json(*item.segments) : Json();
    }
    return object;
  }

  std::FILE* const out_;
};

// Bytes from the start of BTH to the start of the payload.
size_t HeadersSize(std::span<const uint8_t> packet) {
  if (packet.empty()) return wire::kBthSize;
  return wire::GetOpcodeInfo(packet[0]).header_length;
}

// Parses frames and passes the result to an Output.
class Decoder {
 public:
  Decoder(int link_type, Output* output)
      : link_type_(link_type), output_(output) {}

  // Returns false if no more can be written.
  bool OnFrame(const timespec& time, std::span<const uint8_t> captured) {
    ++frame_number_;
    wire::Frame frame;
    switch (wire::DecodeFrame(link_type_, captured, &frame)) {
      case wire::FrameKind::kUdp:
        if (frame.headers.is_rocev2()) {
          return OnRoce({frame_number_, time, &frame.headers}, frame);
        }
        break;
      case wire::FrameKind::kRoceV1:
        ++counts_.rocev1_frames;
        return true;
      case wire::FrameKind::kTruncated:
        ++counts_.cut_off_frames;
        return true;
      case wire::FrameKind::kFragment:
        ++counts_.ip_fragments;
        return true;
      default:
        break;
    }
    ++counts_.other_frames;
    return true;
  }

  const Counts& counts() const { return counts_; }

 private:
  static IcrcVerdict IsGood(bool good) {
    return good ? IcrcVerdict::kGood : IcrcVerdict::kBad;
  }

  bool OnRoce(const Item& item, const wire::Frame& frame) {
    if (frame.is_truncated()) return OnTruncated(item, frame);
    const wire::FrameHeaders& h = frame.headers;
    const std::optional<size_t> size =
        wire::FindSegmentSize(h.icrc_flow(), frame.udp_payload, h.ip_id, h.df);
    if (!size) {
      const std::optional<uint16_t> port =
          source_ports_.Find(h, frame.udp_payload);
      return OnPacket(item, frame.udp_payload,
                      {IsGood(port.has_value()), port});
    }
    source_ports_.Note(h, frame.udp_payload);
    if (*size == frame.udp_payload.size()) {
      return OnPacket(item, frame.udp_payload, {IcrcVerdict::kGood, {}});
    }
    return OnSegments(item, frame, *size);
  }

  bool OnSegments(Item item, const wire::Frame& frame, size_t size) {
    const wire::FrameHeaders& h = frame.headers;
    const wire::IcrcFlow flow = h.icrc_flow();
    std::span<const uint8_t> rest = frame.udp_payload;
    item.segments = (rest.size() + size - 1) / size;
    for (; !rest.empty(); ++item.segment) {
      const std::span<const uint8_t> packet =
          rest.first(std::min(size, rest.size()));
      rest = rest.subspan(packet.size());
      const uint16_t id = static_cast<uint16_t>(h.ip_id + item.segment);
      if (!OnPacket(item, packet,
                    {IsGood(flow.Verify(packet, id, h.df)), {}})) {
        return false;
      }
    }
    return true;
  }

  // Shows the headers if they were captured, and nothing after them.
  bool OnTruncated(Item item, const wire::Frame& frame) {
    std::vector<uint8_t> packet(frame.udp_payload.begin(),
                                frame.udp_payload.end());
    const size_t headers = HeadersSize(packet);
    if (packet.size() < std::max(headers, wire::kBthSize)) {
      return Malformed(item, "headers cut off by the capture");
    }
    size_t size = frame.udp_payload_size;
    if (size >= headers + wire::kIcrcSize &&
        trace::IsMoreThanOne(packet[0], size - headers - wire::kIcrcSize)) {
      item.segments.reset();
      const bool padded = (packet[1] & 0x30) != 0;
      size = headers + (padded ? 4 : 0) + wire::kIcrcSize;
    }
    packet.resize(size);
    return OnPacket(item, packet, {}, true);
  }

  // `truncated`: the bytes after the headers are zeros that we added.
  bool OnPacket(const Item& item, std::span<const uint8_t> bytes,
                const Icrc& icrc, bool truncated = false) {
    wire::PacketView packet;
    const wire::ParseError error = wire::PacketView::Parse(bytes, &packet);
    if (error != wire::ParseError::kOk) {
      std::string text = wire::ParseErrorName(error);
      if (error == wire::ParseError::kUnknownOpcode) {
        absl::StrAppendFormat(&text, " 0x%02x", bytes[0]);
      }
      return Malformed(item, absl::StrCat(text, ", ", bytes.size(), " bytes"));
    }
    ++counts_.packets;
    counts_.good += icrc.verdict == IcrcVerdict::kGood;
    counts_.bad += icrc.verdict == IcrcVerdict::kBad;
    counts_.unknown += icrc.verdict == IcrcVerdict::kUnknown;
    return output_->Packet(
        item,
        [&](const auto& visit) {
          if (truncated) {
            VisitHeaders(packet, item, visit);
          } else {
            wire::VisitFields(packet, visit);
          }
        },
        icrc);
  }

  // The fields up to the payload's length, which is omitted if it is unknown.
  static void VisitHeaders(const wire::PacketView& packet, const Item& item,
                           const wire::FieldVisitor& visit) {
    bool behind = false;
    wire::VisitFields(packet, [&](const wire::Field& field) {
      const bool is_payload = field.name == "payload";
      if (!behind && !(is_payload && !item.segments)) visit(field);
      behind |= is_payload;
    });
  }

  bool Malformed(const Item& item, const std::string& error) {
    ++counts_.malformed;
    return output_->Malformed(item, error);
  }

  const int link_type_;
  Output* const output_;
  uint64_t frame_number_ = 0;
  Counts counts_;
  trace::SourcePorts source_ports_;
};

bool IsGzip(std::FILE* file) {
  std::rewind(file);
  return std::fgetc(file) == 0x1f && std::fgetc(file) == 0x8b;
}

// Opens the capture, or stores the reason why that failed.
PcapPtr Open(const Libpcap& libpcap, const std::string& path,
             std::string* why) {
  const auto none = [&] { return PcapPtr(nullptr, libpcap.close); };
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    *why = std::strerror(errno);
    return none();
  }
  char error[PCAP_ERRBUF_SIZE] = "";
  pcap_t* const pcap = libpcap.fopen_offline_with_tstamp_precision(
      file, PCAP_TSTAMP_PRECISION_NANO, error);
  if (pcap == nullptr) {
    *why = error;
    if (file != stdin) {
      if (IsGzip(file)) {
        *why = "compressed by gzip: zcat " + path + " | rxe-user decode -";
      }
      std::fclose(file);
    }
    return none();
  }
  const int link_type = libpcap.datalink(pcap);
  if (!wire::IsKnownLinkType(link_type)) {
    const char* name = libpcap.datalink_val_to_name(link_type);
    *why = "link type " +
           (name != nullptr ? std::string(name) : std::to_string(link_type)) +
           " is not supported";
    libpcap.close(pcap);
    return none();
  }
  return PcapPtr(pcap, libpcap.close);
}

int Fail(std::FILE* err, const std::string& path, const std::string& why) {
  std::fprintf(err, "rxe-user decode: %s: %s\n",
               path == "-" ? "standard input" : path.c_str(), why.c_str());
  return 1;
}

}  // namespace

int RunDecode(const DecodeOptions& options, std::FILE* out, std::FILE* err) {
  std::string why;
  const Libpcap* const libpcap = LoadLibpcap(&why);
  if (libpcap == nullptr) return Fail(err, options.path, why);
  const PcapPtr pcap = Open(*libpcap, options.path, &why);
  if (pcap == nullptr) return Fail(err, options.path, why);

  TextOutput text(out);
  JsonOutput json(out);
  Output* output = &text;
  if (options.json) output = &json;
  // A capture from a pipe may be live.
  const bool live = options.path == "-";

  Decoder decoder(libpcap->datalink(pcap.get()), output);
  pcap_pkthdr* header;
  const u_char* data;
  int result;
  while ((result = libpcap->next_ex(pcap.get(), &header, &data)) == 1) {
    // The pcap file is opened for nanoseconds, so tv_usec holds nanoseconds. In
    // a malformed file it may be more than a second, or negative.
    const timespec time = {.tv_sec = header->ts.tv_sec,
                           .tv_nsec = header->ts.tv_usec};
    if (!decoder.OnFrame(time, {data, header->caplen}) ||
        (live && std::fflush(out) != 0)) {
      return OutputFailed("rxe-user decode", err);
    }
  }
  if (!output->Summary(decoder.counts()) || std::fflush(out) != 0) {
    return OutputFailed("rxe-user decode", err);
  }
  if (result != PCAP_ERROR_BREAK) {
    std::string why = libpcap->geterr(pcap.get());
    // libpcap's message about interfaces of two link types.
    if (why.find("different from the type of the first") != std::string::npos) {
      why += "; capture each interface to a file of its own";
    }
    return Fail(err, options.path, why);
  }
  return 0;
}

}  // namespace rxe_user_cli
