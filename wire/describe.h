// Packets in words, for people (one line) and for programs (fields), from one
// source.

#ifndef WIRE_DESCRIBE_H_
#define WIRE_DESCRIBE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "wire/packet.h"

namespace wire {

// A named value of a packet.
struct Field {
  enum class Format : uint8_t {
    kDecimal,
    kHex,   // an identifier or address
    kFlag,  // `number` is 0 or 1
    kText,  // `text` and not `number`
  };

  std::string_view name;
  Format format = Format::kDecimal;
  uint64_t number = 0;
  std::string_view text;
  // For kHex: how many digits the field has on the wire.
  int hex_digits = 0;
  // The value that nearly all packets have: the one-line text leaves it out.
  bool ordinary = false;
};

using FieldVisitor = std::function<void(const Field&)>;

// Calls `visit` for each field in the order of the wire: opcode name first,
// then BTH, extended headers, payload length, and what a MAD of communication
// management says.
void VisitFields(const PacketView& packet, const FieldVisitor& visit);

// "name=0x000011", "name=4", "name=word", or "name" alone for a flag.
std::string FieldText(const Field& field);

// One line, for instance "RC_RDMA_WRITE_ONLY qp=0x000011 ack_req psn=42
// va=0x00007f0000001000 rkey=0x00000204 dma_length=64 payload=64".
std::string DescribePacket(const PacketView& packet);

// The same of any fields: `visit_all` shows them to the visitor that it gets.
using FieldSource = std::function<void(const FieldVisitor&)>;
std::string DescribeFields(const FieldSource& visit_all);

// "PSN_SEQUENCE_ERROR" and so on; "RESERVED" for codes without a meaning.
const char* NakCodeName(uint8_t code);

}  // namespace wire

#endif  // WIRE_DESCRIBE_H_
