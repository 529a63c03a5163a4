// Reads pcap and pcapng files of any program and either byte order, record by
// record: memory does not grow with the file. Besides packets it finds the
// events of our recordings; other blocks are skipped.
//
// libpcap reads packets only, without options and Custom Blocks.
#ifndef TOOLS_TRACE_CAPTURE_FILE_H_
#define TOOLS_TRACE_CAPTURE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/pcapng.h"

namespace trace {

// A packet or an event. Points into the reader's buffer: valid until the next
// call of Next.
struct CaptureRecord {
  bool is_packet = false;
  // --- For packets.
  uint64_t frame_number = 0;  // in the file, counted from 1 as in Wireshark
  int64_t time = 0;           // ns since 1970
  int link_type = 0;
  std::span<const uint8_t> frame = {};
  size_t original_size = 0;  // of the frame, bytes; at least frame.size()
  wire::pcapng::Direction direction = wire::pcapng::Direction::kUnknown;
  std::string_view comment = {};  // any bytes
  // The contents of a Custom Block, or of a packet's custom option, with the
  // enterprise number of our events; empty if there are none.
  std::span<const uint8_t> custom = {};
};

class CaptureFile {
 public:
  // "-" is standard input. Null if the file cannot be opened or is of another
  // format; `*why` gets the reason.
  static std::unique_ptr<CaptureFile> Open(const std::string& path,
                                           std::string* why);
  // Takes ownership of `file`. Null as above.
  static std::unique_ptr<CaptureFile> Read(std::FILE* file, std::string* why);
  ~CaptureFile();
  CaptureFile(const CaptureFile&) = delete;
  CaptureFile& operator=(const CaptureFile&) = delete;

  // False at the end of the file, and where it is damaged; error() then
  // describes the damage.
  bool Next(CaptureRecord* record);
  const std::string& error() const { return error_; }

 private:
  struct Interface {
    int link_type = 0;
    uint8_t resolution = 6;  // as the option if_tsresol: 10^-6 s
    int64_t offset = 0;      // s
  };

  explicit CaptureFile(std::FILE* file) : file_(file) {}
  bool Begin(std::string* why);
  bool NextPcap(CaptureRecord* record);
  bool NextBlock(CaptureRecord* record);
  bool BeginSection();
  // Reads `size` bytes into body_. False at the end of the file, or on failure.
  bool ReadBody(size_t size);
  // Reads up to `size` bytes; returns the number of bytes read.
  size_t ReadSome(uint8_t* out, size_t size);
  // Each returns false.
  bool Fail(const std::string& what);
  bool FailAt(uint64_t position, const std::string& what);
  bool FailCutOff(const std::string& in);

  // The number at `at` in body_, in the byte order of the file.
  uint16_t Load16(size_t at) const;
  uint32_t Load32(size_t at) const { return Load32At(body_.data() + at); }
  // Likewise, anywhere.
  uint32_t Load32At(const uint8_t* at) const;
  bool ParseInterface();
  bool ParsePacket(uint32_t type, CaptureRecord* record);
  void ParsePacketOptions(size_t at, CaptureRecord* record);
  // Calls `visit(code, value)` for each option in body_, starting at `at`.
  // Stops at a damaged option.
  template <typename Visit>
  void VisitOptions(size_t at, const Visit& visit) const;

  std::FILE* const file_;
  bool is_pcapng_ = false;
  bool swapped_ = false;
  std::vector<uint8_t> body_;
  uint64_t position_ = 0;  // in the file, bytes
  uint64_t frames_ = 0;
  int64_t last_time_ = 0;
  // pcap
  int link_type_ = 0;
  bool nanoseconds_ = false;
  // pcapng: the interfaces of the current section.
  std::vector<Interface> interfaces_;
  std::string error_;
};

}  // namespace trace

#endif  // TOOLS_TRACE_CAPTURE_FILE_H_
