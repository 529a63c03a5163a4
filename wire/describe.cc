#include "wire/describe.h"

#include <cinttypes>
#include <cstdio>

#include "wire/aeth.h"
#include "wire/describe_cm.h"

namespace wire {
namespace {

using Visitor = FieldVisitor;

Field Decimal(std::string_view name, uint64_t number) {
  return {.name = name, .number = number, .text = {}};
}

Field Hex(std::string_view name, uint64_t number, int digits) {
  return {.name = name,
          .format = Field::Format::kHex,
          .number = number,
          .text = {},
          .hex_digits = digits};
}

Field Flag(std::string_view name, bool value) {
  return {.name = name,
          .format = Field::Format::kFlag,
          .number = value ? 1u : 0u,
          .text = {},
          .ordinary = !value};
}

Field Text(std::string_view name, std::string_view text) {
  return {.name = name, .format = Field::Format::kText, .text = text};
}

Field OrdinaryIf(bool ordinary, Field field) {
  field.ordinary = ordinary;
  return field;
}

void VisitBth(const PacketView& packet, const Visitor& visit) {
  const Bth& bth = packet.bth();
  visit(Text("opcode", packet.info().name));
  visit(Hex("qp", bth.dest_qpn, 6));
  visit(Flag("solicited", bth.solicited));
  visit(OrdinaryIf(true, Flag("mig_req", bth.mig_req)));
  visit(OrdinaryIf(true, Decimal("pad", bth.pad_count)));
  visit(OrdinaryIf(bth.pkey == kDefaultPkey, Hex("pkey", bth.pkey, 4)));
  visit(Flag("fecn", bth.fecn));
  visit(Flag("becn", bth.becn));
  visit(Flag("ack_req", bth.ack_req));
  if (packet.transport() == Transport::kUc) {
    visit(Flag("uc_asks", packet.requests_uc_report()));
  }
  visit(Decimal("psn", bth.psn));
}

// `uc`: a report of our UC extension (kUcReportRequest), whose credit and MSN
// fields have other meanings.
void VisitAeth(const Aeth& aeth, bool uc, const Visitor& visit) {
  const uint8_t value = AethValueOf(aeth.syndrome);
  visit(OrdinaryIf(true, Hex("syndrome", aeth.syndrome, 2)));
  switch (AethKindOf(aeth.syndrome)) {
    case AethKind::kAck:
      visit(Text("aeth", "ACK"));
      if (value == kCreditNone) break;
      visit(uc ? Decimal("receive_buffer_kib", uint64_t{1} << value)
               : Decimal("credits", CreditCount(value)));
      break;
    case AethKind::kRnrNak:
      visit(Text("aeth", "RNR_NAK"));
      visit(Decimal("rnr_timer_us",
                    static_cast<uint64_t>(RnrTimerNanos(value) / 1000)));
      break;
    case AethKind::kNak:
      visit(Text("aeth", "NAK"));
      visit(Text("nak", NakCodeName(value)));
      break;
    case AethKind::kReserved:
      visit(Text("aeth", "RESERVED"));
      break;
  }
  visit(Decimal(uc ? "missed" : "msn", aeth.msn));
}

void VisitFeth(const Feth& feth, const Visitor& visit) {
  visit(Hex("placement_type", feth.placement_type, 1));
  visit(Decimal("selectivity", feth.selectivity));
}

void VisitDc(const PacketView& packet, const Visitor& visit) {
  const DcEth dc = packet.dceth();
  visit(Flag("initiator", dc.from_initiator));
  visit(Hex("src_qp", dc.src_qpn, 6));
  visit(Hex("initiator_session", dc.initiator_session, 6));
  visit(Hex("responder_session", dc.responder_session, 6));
  visit(Hex("dct", dc.dct, 6));
  if (packet.info().Has(kDccEth)) {
    visit(Hex("dc_key", packet.dcceth().access_key, 16));
  }
}

void VisitExtended(const PacketView& packet, const Visitor& visit) {
  const OpcodeInfo& info = packet.info();
  if (info.Has(kDcEth)) VisitDc(packet, visit);
  if (info.Has(kXrcEth)) visit(Hex("xrc_srq", packet.xrc_srqn(), 6));
  if (info.Has(kDeth)) {
    visit(Hex("qkey", packet.deth().qkey, 8));
    visit(Hex("src_qp", packet.deth().src_qpn, 6));
  }
  if (info.Has(kFeth)) VisitFeth(packet.feth(), visit);
  if (info.Has(kReth)) {
    visit(Hex("va", packet.reth().va, 16));
    visit(Hex("rkey", packet.reth().rkey, 8));
    visit(Decimal("dma_length", packet.reth().length));
  }
  if (info.Has(kAtomicEth)) {
    const AtomicEth atomic = packet.atomic();
    visit(Hex("va", atomic.va, 16));
    visit(Hex("rkey", atomic.rkey, 8));
    visit(Hex("swap_or_add", atomic.swap_or_add, 16));
    visit(Hex("compare", atomic.compare, 16));
  }
  if (info.Has(kAeth)) {
    VisitAeth(packet.aeth(), packet.transport() == Transport::kUc, visit);
  }
  if (info.Has(kAtomicAckEth)) {
    visit(Hex("original", packet.atomic_ack().original, 16));
  }
  if (info.Has(kImmDt)) {
    visit(Hex("imm", __builtin_bswap32(packet.imm_be()), 8));
  }
  if (info.Has(kIeth)) {
    visit(Hex("invalidate_rkey", packet.invalidate_rkey(), 8));
  }
}

}  // namespace

const char* NakCodeName(uint8_t code) {
  switch (static_cast<NakCode>(code)) {
    case NakCode::kPsnSequence:
      return "PSN_SEQUENCE_ERROR";
    case NakCode::kInvalidRequest:
      return "INVALID_REQUEST";
    case NakCode::kRemoteAccess:
      return "REMOTE_ACCESS_ERROR";
    case NakCode::kRemoteOperational:
      return "REMOTE_OPERATIONAL_ERROR";
    case NakCode::kInvalidRd:
      return "INVALID_RD_REQUEST";
  }
  return "RESERVED";
}

void VisitFields(const PacketView& packet, const Visitor& visit) {
  VisitBth(packet, visit);
  VisitExtended(packet, visit);
  visit(Decimal("payload", packet.payload().size()));
  VisitCmFields(packet, visit);
}

std::string FieldText(const Field& field) {
  std::string text(field.name);
  char number[32];
  switch (field.format) {
    case Field::Format::kFlag:
      return text;
    case Field::Format::kText:
      return text.append("=").append(field.text);
    case Field::Format::kDecimal:
      std::snprintf(number, sizeof(number), "=%" PRIu64, field.number);
      break;
    case Field::Format::kHex:
      std::snprintf(number, sizeof(number), "=0x%0*" PRIx64, field.hex_digits,
                    field.number);
      break;
  }
  return text.append(number);
}

std::string DescribePacket(const PacketView& packet) {
  return DescribeFields(
      [&packet](const FieldVisitor& visit) { VisitFields(packet, visit); });
}

std::string DescribeFields(const FieldSource& visit_all) {
  std::string line;
  visit_all([&line](const Field& field) {
    if (field.name == "opcode") {
      line.append(field.text);
    } else if (!field.ordinary) {
      line.append(" ").append(FieldText(field));
    }
  });
  return line;
}

}  // namespace wire
