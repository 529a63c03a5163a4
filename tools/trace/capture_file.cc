#include "tools/trace/capture_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "rxe_user/observe/trace_events.h"
#include "tools/trace/event.h"

namespace trace {
namespace {

namespace ng = wire::pcapng;

constexpr uint32_t kPcapMicroseconds = 0xa1b2c3d4;
constexpr uint32_t kPcapNanoseconds = 0xa1b23c4d;
// Larger blocks and records are damaged: no network has such packets.
constexpr size_t kMaxBlock = 16 << 20;
constexpr size_t kMaxInterfaces = 1 << 16;

uint32_t LoadLe(const uint8_t* at) {
  uint32_t value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

int64_t Clamp(__int128 ns) {
  return static_cast<int64_t>(std::clamp<__int128>(ns, 0, kLatestTime));
}

// Converts a time stamp in units of 10^-n s, or of 2^-n s if the highest bit of
// `resolution` is set.
int64_t ToNanoseconds(uint64_t units, uint8_t resolution, int64_t offset) {
  constexpr __int128 kSecond = 1'000'000'000;
  const int n = resolution & 0x7f;
  __int128 ns = units;
  if ((resolution & 0x80) != 0) {
    ns = n >= 64 ? 0 : (ns * kSecond) >> n;
  } else {
    for (int i = n; i < 9; ++i) ns *= 10;
    for (int i = 9; i < n && ns != 0; ++i) ns /= 10;
  }
  return Clamp(ns + static_cast<__int128>(offset) * kSecond);
}

}  // namespace

std::unique_ptr<CaptureFile> CaptureFile::Open(const std::string& path,
                                               std::string* why) {
  std::FILE* const file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  if (file == nullptr) {
    *why = std::strerror(errno);
    return nullptr;
  }
  return Read(file, why);
}

std::unique_ptr<CaptureFile> CaptureFile::Read(std::FILE* file,
                                               std::string* why) {
  std::unique_ptr<CaptureFile> capture(new CaptureFile(file));
  if (!capture->Begin(why)) return nullptr;
  return capture;
}

CaptureFile::~CaptureFile() {
  if (file_ != stdin) std::fclose(file_);
}

bool CaptureFile::Fail(const std::string& what) {
  error_ = what;
  return false;
}

bool CaptureFile::FailAt(uint64_t position, const std::string& what) {
  return Fail("damaged at byte " + std::to_string(position) + ": " + what);
}

bool CaptureFile::FailCutOff(const std::string& in) {
  return Fail("it ends in the middle of " + in + ", at byte " +
              std::to_string(position_) + ": it was cut off");
}

size_t CaptureFile::ReadSome(uint8_t* out, size_t size) {
  const size_t got = std::fread(out, 1, size, file_);
  position_ += got;
  return got;
}

bool CaptureFile::ReadBody(size_t size) {
  // Read in parts: a damaged length must not cause an allocation larger than
  // the file.
  body_.clear();
  constexpr size_t kPart = 1 << 18;
  while (body_.size() < size) {
    const size_t had = body_.size();
    const size_t part = std::min(size - had, kPart);
    body_.resize(had + part);
    const size_t got = ReadSome(body_.data() + had, part);
    if (got == part) continue;
    body_.resize(had + got);
    if (std::ferror(file_) != 0) return Fail(std::strerror(errno));
    return FailCutOff("a packet or block");
  }
  return true;
}

uint16_t CaptureFile::Load16(size_t at) const {
  uint16_t value;
  std::memcpy(&value, body_.data() + at, sizeof(value));
  return swapped_ ? __builtin_bswap16(value) : value;
}

uint32_t CaptureFile::Load32At(const uint8_t* at) const {
  const uint32_t value = LoadLe(at);
  return swapped_ ? __builtin_bswap32(value) : value;
}

bool CaptureFile::Begin(std::string* why) {
  uint8_t magic[4];
  const size_t got = ReadSome(magic, sizeof(magic));
  if (got == 0) {
    *why = std::ferror(file_) != 0 ? std::strerror(errno) : "it is empty";
    return false;
  }
  if (got >= 2 && magic[0] == 0x1f && magic[1] == 0x8b) {
    *why = "it is compressed by gzip: gunzip it first";
    return false;
  }
  const uint32_t number = got < sizeof(magic) ? 0 : LoadLe(magic);
  if (number == ng::kSectionHeader) {
    is_pcapng_ = true;
    // The rest of the block is read as for any other section.
    if (BeginSection()) return true;
    *why = error_;
    return false;
  }
  for (const bool swapped : {false, true}) {
    const uint32_t in_order = swapped ? __builtin_bswap32(number) : number;
    if (in_order != kPcapMicroseconds && in_order != kPcapNanoseconds) continue;
    swapped_ = swapped;
    nanoseconds_ = in_order == kPcapNanoseconds;
    if (!ReadBody(20)) {
      *why = error_;
      return false;
    }
    link_type_ = static_cast<int>(Load32(16) & 0xffff);
    return true;
  }
  *why = "it is neither a pcap nor a pcapng file";
  return false;
}

bool CaptureFile::Next(CaptureRecord* record) {
  if (!error_.empty()) return false;
  *record = CaptureRecord();
  return is_pcapng_ ? NextBlock(record) : NextPcap(record);
}

bool CaptureFile::NextPcap(CaptureRecord* record) {
  uint8_t header[16];
  const size_t got = ReadSome(header, sizeof(header));
  if (got == 0 && std::ferror(file_) == 0) return false;
  if (got < sizeof(header)) {
    return FailCutOff("a packet");
  }
  body_.assign(header, header + sizeof(header));
  const uint32_t seconds = Load32(0);
  const uint32_t fraction = Load32(4);
  const uint32_t captured = Load32(8);
  record->original_size = std::max(Load32(12), captured);
  if (captured > kMaxBlock) {
    return FailAt(position_,
                  "a packet of " + std::to_string(captured) + " bytes");
  }
  if (!ReadBody(captured)) return false;
  record->is_packet = true;
  record->frame_number = ++frames_;
  record->time = Clamp(__int128{seconds} * 1'000'000'000 +
                       __int128{fraction} * (nanoseconds_ ? 1 : 1000));
  record->link_type = link_type_;
  record->frame = body_;
  return true;
}

bool CaptureFile::BeginSection() {
  uint8_t start[8];  // what follows the type: length, byte order
  if (ReadSome(start, sizeof(start)) < sizeof(start)) {
    return FailCutOff("a block");
  }
  const uint32_t order = LoadLe(start + 4);
  if (order != ng::kByteOrderMagic &&
      order != __builtin_bswap32(ng::kByteOrderMagic)) {
    return FailAt(position_ - 4, "no byte order");
  }
  swapped_ = order != ng::kByteOrderMagic;
  const uint32_t length = Load32At(start);
  if (length < 28 || length % 4 != 0 || length > kMaxBlock) {
    return FailAt(position_ - 8,
                  "a section header of " + std::to_string(length) + " bytes");
  }
  if (!ReadBody(length - 12)) return false;
  if (Load16(0) != 1) {
    return Fail("pcapng version " + std::to_string(Load16(0)) +
                ", which this program does not know");
  }
  interfaces_.clear();
  return true;
}

bool CaptureFile::NextBlock(CaptureRecord* record) {
  for (;;) {
    uint8_t header[8];
    const size_t got = ReadSome(header, 4);
    if (got == 0 && std::ferror(file_) == 0) return false;
    if (got < 4) {
      return FailCutOff("a block");
    }
    if (LoadLe(header) == ng::kSectionHeader) {
      if (!BeginSection()) return false;
      continue;
    }
    if (ReadSome(header + 4, 4) < 4) {
      return FailCutOff("a block");
    }
    body_.assign(header, header + sizeof(header));
    const uint32_t type = Load32(0);
    const uint32_t length = Load32(4);
    if (length < 12 || length % 4 != 0 || length > kMaxBlock) {
      return FailAt(position_ - 4,
                    "a block of " + std::to_string(length) + " bytes");
    }
    if (!ReadBody(length - 8)) return false;
    if (Load32(length - 12) != length) {
      return FailAt(position_ - 4, "the two lengths of a block differ");
    }
    body_.resize(length - 12);
    switch (type) {
      case ng::kInterfaceDescription:
        if (!ParseInterface()) return false;
        break;
      case ng::kEnhancedPacket:
      case ng::kSimplePacket:
      case ng::kObsoletePacket:
        return ParsePacket(type, record);
      case ng::kCustom:
        if (body_.size() > 4 && Load32(0) == rxe_user::trace::kEnterprise) {
          record->custom = std::span(body_).subspan(4);
          return true;
        }
        break;
      default:
        break;
    }
  }
}

template <typename Visit>
void CaptureFile::VisitOptions(size_t at, const Visit& visit) const {
  while (body_.size() - at >= 4) {
    const uint16_t code = Load16(at);
    const uint16_t size = Load16(at + 2);
    at += 4;
    if (code == ng::kOptionEnd || size > body_.size() - at) return;
    visit(code, std::span(body_).subspan(at, size));
    at += std::min<size_t>((size + 3u) & ~size_t{3}, body_.size() - at);
  }
}

bool CaptureFile::ParseInterface() {
  if (body_.size() < 8) return Fail("damaged: an interface without its type");
  if (interfaces_.size() == kMaxInterfaces) return Fail("too many interfaces");
  Interface interface;
  interface.link_type = Load16(0);
  VisitOptions(8, [&](uint16_t code, std::span<const uint8_t> value) {
    if (code == ng::kInterfaceResolution && !value.empty()) {
      interface.resolution = value[0];
    } else if (code == ng::kInterfaceOffset && value.size() == 8) {
      uint64_t offset;
      std::memcpy(&offset, value.data(), sizeof(offset));
      if (swapped_) offset = __builtin_bswap64(offset);
      interface.offset = static_cast<int64_t>(offset);
    }
  });
  interfaces_.push_back(interface);
  return true;
}

bool CaptureFile::ParsePacket(uint32_t type, CaptureRecord* record) {
  const bool simple = type == ng::kSimplePacket;
  const size_t start = simple ? 4 : 20;
  if (body_.size() < start) return Fail("damaged: a packet block too short");
  uint32_t number = 0;
  if (type == ng::kEnhancedPacket) number = Load32(0);
  if (type == ng::kObsoletePacket) number = Load16(0);
  if (number >= interfaces_.size()) {
    return Fail("damaged: a packet of interface " + std::to_string(number) +
                ", which is not described");
  }
  const Interface& interface = interfaces_[number];
  const size_t room = body_.size() - start;
  const uint32_t original = Load32(simple ? 0 : 16);
  const size_t captured =
      simple ? std::min<size_t>(original, room) : Load32(12);
  if (captured > room) {
    return FailAt(position_, "a packet longer than its block");
  }
  // A simple packet has no time, so it gets that of the previous packet.
  if (!simple) {
    last_time_ = ToNanoseconds(uint64_t{Load32(4)} << 32 | Load32(8),
                               interface.resolution, interface.offset);
  }
  record->is_packet = true;
  record->frame_number = ++frames_;
  record->time = last_time_;
  record->link_type = interface.link_type;
  record->frame = std::span(body_).subspan(start, captured);
  record->original_size = std::max<size_t>(original, captured);
  if (!simple) {
    ParsePacketOptions(
        start + std::min<size_t>((captured + 3) & ~size_t{3}, room), record);
  }
  return true;
}

void CaptureFile::ParsePacketOptions(size_t at, CaptureRecord* record) {
  VisitOptions(at, [&](uint16_t code, std::span<const uint8_t> value) {
    if (code == ng::kOptionComment) {
      record->comment = {reinterpret_cast<const char*>(value.data()),
                         value.size()};
    } else if (code == ng::kPacketFlags && value.size() == 4) {
      const uint32_t flags = Load32At(value.data());
      if ((flags & 3) != 3) {
        record->direction = static_cast<ng::Direction>(flags & 3);
      }
    } else if (code == ng::kOptionCustom && value.size() > 4 &&
               Load32At(value.data()) == rxe_user::trace::kEnterprise) {
      record->custom = value.subspan(4);
    }
  });
}

}  // namespace trace
