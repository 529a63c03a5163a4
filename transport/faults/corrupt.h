// Where `corrupt` changes a packet.
#ifndef TRANSPORT_FAULTS_CORRUPT_H_
#define TRANSPORT_FAULTS_CORRUPT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/faults/rule.h"
#include "wire/packet.h"

namespace transport::faults {

// The index of the field of this name; absent if there is none.
std::optional<size_t> FindField(std::string_view name);
// "opcode, pkey, ...".
std::string FieldNames();
// The name of the field; empty for kByte.
std::string_view FieldName(const Corruption& corruption);

// A bit of a packet.
struct PacketBit {
  size_t offset = 0;  // from the first byte of BTH on
  uint8_t mask = 1;
};

// The bit that the corruption changes in `packet`: the lowest one of the field
// or of the byte. Always within the packet. Absent if the packet has no such
// field or byte.
std::optional<PacketBit> CorruptedBit(const Corruption& corruption,
                                      const wire::PacketView& packet);

}  // namespace transport::faults

#endif  // TRANSPORT_FAULTS_CORRUPT_H_
