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

template <typename T>
void Put(T value, Bytes* out) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(&value);
  out->insert(out->end(), bytes, bytes + sizeof(value));
}

void PutBytes(std::span<const uint8_t> bytes, Bytes* out) {
  out->insert(out->end(), bytes.begin(), bytes.end());
}

void Pad(size_t bytes, Bytes* out) { out->insert(out->end(), -bytes & 3, 0); }

std::span<const uint8_t> AsBytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

void PutOption(uint16_t code, std::span<const uint8_t> value, Bytes* out) {
  Put<uint16_t>(code, out);
  Put<uint16_t>(static_cast<uint16_t>(value.size()), out);
  PutBytes(value, out);
  Pad(value.size(), out);
}

// A block: type and length before its body, and the length again behind it.
class Block {
 public:
  Block(uint32_t type, Bytes* out) : start_(out->size()), out_(out) {
    Put<uint32_t>(type, out);
    Put<uint32_t>(0, out);
  }
  ~Block() {
    const uint32_t size = static_cast<uint32_t>(out_->size() - start_ + 4);
    std::memcpy(out_->data() + start_ + 4, &size, sizeof(size));
    Put<uint32_t>(size, out_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

 private:
  const size_t start_;
  Bytes* const out_;
};

}  // namespace

void AppendSection(std::string_view application, Bytes* out) {
  const Block block(kSectionHeader, out);
  Put<uint32_t>(kByteOrderMagic, out);
  Put<uint16_t>(1, out);  // version 1.0
  Put<uint16_t>(0, out);
  Put<int64_t>(-1, out);  // length of the section: not known
  PutOption(kSectionApplication, AsBytes(application), out);
  PutOption(kOptionEnd, {}, out);
}

void AppendInterface(LinkType link_type, std::string_view name, Bytes* out) {
  const Block block(kInterfaceDescription, out);
  Put<uint16_t>(static_cast<uint16_t>(link_type), out);
  Put<uint16_t>(0, out);
  Put<uint32_t>(0, out);  // no limit
  if (!name.empty()) PutOption(kInterfaceName, AsBytes(name), out);
  constexpr uint8_t kNanoseconds[] = {9};  // a power of ten
  PutOption(kInterfaceResolution, kNanoseconds, out);
  PutOption(kOptionEnd, {}, out);
}

void AppendCustom(uint32_t enterprise, std::span<const uint8_t> contents,
                  Bytes* out) {
  const Block block(kCustom, out);
  Put<uint32_t>(enterprise, out);
  PutBytes(contents, out);
  Pad(contents.size(), out);
}

void AppendPacket(const Packet& packet, Bytes* out) {
  const Block block(kEnhancedPacket, out);
  const size_t captured = packet.headers.size() + packet.rest.size();
  Put<uint32_t>(packet.interface, out);
  Put<uint32_t>(static_cast<uint32_t>(packet.time >> 32), out);
  Put<uint32_t>(static_cast<uint32_t>(packet.time), out);
  Put<uint32_t>(static_cast<uint32_t>(captured), out);
  Put<uint32_t>(static_cast<uint32_t>(packet.original_size), out);
  PutBytes(packet.headers, out);
  PutBytes(packet.rest, out);
  Pad(captured, out);

  const size_t options = out->size();
  if (!packet.comment.empty()) {
    const std::span<const uint8_t> text = AsBytes(packet.comment);
    PutOption(kOptionComment, text.first(std::min(text.size(), kMaxComment)),
              out);
  }
  if (packet.direction != Direction::kUnknown) {
    const uint8_t flags[4] = {static_cast<uint8_t>(packet.direction)};
    PutOption(kPacketFlags, flags, out);
  }
  if (!packet.custom.empty() && packet.custom.size() <= kMaxCustom) {
    Put<uint16_t>(kOptionCustom, out);
    Put<uint16_t>(static_cast<uint16_t>(4 + packet.custom.size()), out);
    Put<uint32_t>(packet.enterprise, out);
    PutBytes(packet.custom, out);
    Pad(packet.custom.size(), out);
  }
  if (out->size() != options) PutOption(kOptionEnd, {}, out);
}

}  // namespace wire::pcapng
