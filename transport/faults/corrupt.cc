#include "transport/faults/corrupt.h"

#include <iterator>

#include "transport/faults/rule_values.h"
#include "wire/opcode.h"

namespace transport::faults {
namespace {

using wire::PacketView;

// The offset of the last byte of a field in an extended header that begins at
// `header`; absent if the packet does not have that header.
std::optional<size_t> In(uint8_t header, size_t last) {
  if (header == 0) return std::nullopt;
  return header + last;
}

struct Field {
  std::string_view name;
  std::optional<size_t> (*offset)(const PacketView&);
  uint8_t mask = 1;
};

// Multi-byte fields are big-endian: the lowest bit is in the last byte.
constexpr Field kFields[] = {
    {"opcode", [](const PacketView&) { return std::optional<size_t>(0); }},
    {"pkey", [](const PacketView&) { return std::optional<size_t>(3); }},
    {"qp", [](const PacketView&) { return std::optional<size_t>(7); }},
    {"ackreq",
     [](const PacketView&) {
       return std::optional<size_t>(wire::kBthAckReqOffset);
     },
     wire::kAckReqBit},
    {"psn", [](const PacketView&) { return std::optional<size_t>(11); }},
    {"va",
     [](const PacketView& p) {
       const auto in_reth = In(p.info().reth_offset, 7);
       return in_reth ? in_reth : In(p.info().atomiceth_offset, 7);
     }},
    {"rkey",
     [](const PacketView& p) {
       const auto in_reth = In(p.info().reth_offset, 11);
       return in_reth ? in_reth : In(p.info().atomiceth_offset, 11);
     }},
    {"length",
     [](const PacketView& p) { return In(p.info().reth_offset, 15); }},
    {"msn", [](const PacketView& p) { return In(p.info().aeth_offset, 3); }},
    {"qkey", [](const PacketView& p) { return In(p.info().deth_offset, 3); }},
    {"imm", [](const PacketView& p) { return In(p.info().immdt_offset, 3); }},
    {"payload",
     [](const PacketView& p) {
       return p.payload().empty()
                  ? std::nullopt
                  : std::optional<size_t>(p.info().header_length);
     }},
    {"icrc",
     [](const PacketView& p) {
       return std::optional<size_t>(p.udp_payload().size() - wire::kIcrcSize);
     }},
};

}  // namespace

std::optional<size_t> FindField(std::string_view name) {
  const Field* const field = FindRow(kFields, name);
  if (field == nullptr) return std::nullopt;
  return field - kFields;
}

std::string FieldNames() { return NamesOf(kFields); }

std::string_view FieldName(const Corruption& corruption) {
  return corruption.field < std::size(kFields) ? kFields[corruption.field].name
                                               : std::string_view();
}

std::optional<PacketBit> CorruptedBit(const Corruption& corruption,
                                      const wire::PacketView& packet) {
  const size_t size = packet.udp_payload().size();
  PacketBit bit;
  if (corruption.field == Corruption::kByte) {
    bit.offset = corruption.byte;
  } else {
    const Field& field = kFields[corruption.field];
    const std::optional<size_t> offset = field.offset(packet);
    if (!offset) return std::nullopt;
    bit = {.offset = *offset, .mask = field.mask};
  }
  if (bit.offset >= size) return std::nullopt;
  return bit;
}

}  // namespace transport::faults
