#include "wire/pcapng.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace wire::pcapng {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are stored in memory order");

constexpr size_t kMaxComment = 4096;
// An option's length has 16 bits.
constexpr size_t kMaxCustom = 65528;

using Bytes = std::vector<uint8_t>;

constexpr size_t Padded(size_t bytes) { return (bytes + 3) & ~size_t{3}; }
// Bytes of an option without its value, and of the end of a list of options.
constexpr size_t kOptionBytes = 4;

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// A block: type and length before its body, and the length again behind it.
// Grows the buffer once, since a recording has a block for each packet.
class Block {
 public:
  // `max_body`: the maximum size of the body, in bytes.
  Block(uint32_t type, size_t max_body, Bytes* out)
      : start_(out->size()), out_(out) {
    out->resize(start_ + max_body + 3 * sizeof(uint32_t));
    at_ = out->data() + start_;
    Put<uint32_t>(type);
    Put<uint32_t>(0);
  }
  ~Block() {
    uint8_t* const start = out_->data() + start_;
    const auto size = static_cast<uint32_t>(at_ - start + 4);
    std::memcpy(start + 4, &size, sizeof(size));
    Put<uint32_t>(size);
    out_->resize(start_ + size);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  template <typename T>
  void Put(T value) {
    std::memcpy(at_, &value, sizeof(value));
    at_ += sizeof(value);
  }
  void PutBytes(std::span<const uint8_t> bytes) {
    if (bytes.empty()) return;  // memcpy takes no null pointer
    std::memcpy(at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  // Pads after `bytes` bytes. The bytes that are skipped are zeros.
  void Pad(size_t bytes) { at_ += -bytes & 3; }
  void PutOption(uint16_t code, std::span<const uint8_t> value) {
    Put<uint16_t>(code);
    Put<uint16_t>(static_cast<uint16_t>(value.size()));
    PutBytes(value);
    Pad(value.size());
  }

 private:
  const size_t start_;
  Bytes* const out_;
  uint8_t* at_;
};

}  // namespace

void AppendSection(std::string_view application, Bytes* out) {
  Block block(kSectionHeader,
              16 + 2 * kOptionBytes + Padded(application.size()), out);
  block.Put<uint32_t>(kByteOrderMagic);
  block.Put<uint16_t>(1);  // version 1.0
  block.Put<uint16_t>(0);
  block.Put<int64_t>(-1);  // length of the section: not known
  block.PutOption(kSectionApplication, AsBytes(application));
  block.PutOption(kOptionEnd, {});
}

void AppendInterface(LinkType link_type, std::string_view name, Bytes* out) {
  Block block(kInterfaceDescription,
              12 + 3 * kOptionBytes + Padded(name.size()), out);
  block.Put<uint16_t>(static_cast<uint16_t>(link_type));
  block.Put<uint16_t>(0);
  block.Put<uint32_t>(0);  // no limit
  if (!name.empty()) block.PutOption(kInterfaceName, AsBytes(name));
  constexpr uint8_t kNanoseconds[] = {9};  // a power of ten
  block.PutOption(kInterfaceResolution, kNanoseconds);
  block.PutOption(kOptionEnd, {});
}

void AppendCustom(uint32_t enterprise, std::span<const uint8_t> contents,
                  Bytes* out) {
  Block block(kCustom, 4 + Padded(contents.size()), out);
  block.Put<uint32_t>(enterprise);
  block.PutBytes(contents);
  block.Pad(contents.size());
}

void AppendPacket(const Packet& packet, Bytes* out) {
  const size_t captured = packet.headers.size() + packet.rest.size();
  const std::string_view comment = packet.comment.substr(0, kMaxComment);
  Block block(kEnhancedPacket,
              28 + 4 * kOptionBytes + Padded(captured) +
                  Padded(comment.size()) + Padded(packet.custom.size()),
              out);
  block.Put<uint32_t>(packet.interface);
  block.Put<uint32_t>(static_cast<uint32_t>(packet.time >> 32));
  block.Put<uint32_t>(static_cast<uint32_t>(packet.time));
  block.Put<uint32_t>(static_cast<uint32_t>(captured));
  block.Put<uint32_t>(static_cast<uint32_t>(packet.original_size));
  block.PutBytes(packet.headers);
  block.PutBytes(packet.rest);
  block.Pad(captured);

  bool has_options = false;
  if (!comment.empty()) {
    block.PutOption(kOptionComment, AsBytes(comment));
    has_options = true;
  }
  if (packet.direction != Direction::kUnknown) {
    const uint8_t flags[4] = {static_cast<uint8_t>(packet.direction)};
    block.PutOption(kPacketFlags, flags);
    has_options = true;
  }
  if (!packet.custom.empty() && packet.custom.size() <= kMaxCustom) {
    block.Put<uint16_t>(kOptionCustom);
    block.Put<uint16_t>(static_cast<uint16_t>(4 + packet.custom.size()));
    block.Put<uint32_t>(packet.enterprise);
    block.PutBytes(packet.custom);
    block.Pad(packet.custom.size());
    has_options = true;
  }
  if (has_options) block.PutOption(kOptionEnd, {});
}

}  // namespace wire::pcapng
