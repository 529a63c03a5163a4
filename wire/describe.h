// Decodes packets into named fields for programs, and into one line of text for
// people.

#ifndef WIRE_DESCRIBE_H_
#define WIRE_DESCRIBE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "wire/packet.h"

namespace wire {

// A named value in a packet.
struct Field {
  enum class Format : uint8_t {
    kDecimal,
    kHex,   // an identifier or address
    kFlag,  // `number` is 0 or 1
    kText,  // `text` holds the value
  };

  std::string_view name;
  Format format = Format::kDecimal;
  uint64_t number = 0;
  std::string_view text;
  // For kHex: the field's width on the wire, in digits.
  int hex_digits = 0;
  // The usual value of this field: omitted from the one-line text.
  bool ordinary = false;
};

using FieldVisitor = std::function<void(const Field&)>;

// Calls `visit` for each field in wire order: opcode name, BTH, extended
// headers, payload length, then the fields of a CM MAD.
void VisitFields(const PacketView& packet, const FieldVisitor& visit);

// "name=0x000011", "name=4", "name=word", or "name" alone for a flag.
std::string FieldText(const Field& field);

// One line, for instance "RC_RDMA_WRITE_ONLY qp=0x000011 ack_req psn=42
// va=0x00007f0000001000 rkey=0x00000204 dma_length=64 payload=64".
std::string DescribePacket(const PacketView& packet);

// The same for arbitrary fields: `visit_all` passes them to the visitor it
// gets.
using FieldSource = std::function<void(const FieldVisitor&)>;
std::string DescribeFields(const FieldSource& visit_all);

// "PSN_SEQUENCE_ERROR" and so on; "RESERVED" for undefined codes.
const char* NakCodeName(uint8_t code);

}  // namespace wire

#endif  // WIRE_DESCRIBE_H_
