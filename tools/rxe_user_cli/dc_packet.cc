#include "tools/rxe_user_cli/dc_packet.h"

#include "wire/bytes.h"

namespace rxe_user_cli {
namespace {

constexpr size_t kDcHeaderSize = 20;
constexpr size_t kConnectHeaderSize = 16;
constexpr size_t kAccessKeyOffset = 8;  // in the header
// The response to a connect: an acknowledgement with 8 more bytes and a
// syndrome that RC does not define.
constexpr uint8_t kAnswerSyndrome = 0x64;
constexpr size_t kAnswerSize = 8;

constexpr uint8_t kOperationBits = 0x1f;
constexpr uint8_t kConnect = 0x15;

wire::Field Hex(const char* name, uint64_t number, int digits) {
  return {.name = name,
          .format = wire::Field::Format::kHex,
          .number = number,
          .text = {},
          .hex_digits = digits};
}

}  // namespace

size_t DcPacket::HeadersSize(uint8_t opcode) {
  const uint8_t operation = opcode & kOperationBits;
  if (operation == kConnect) {
    return wire::kBthSize + kDcHeaderSize + kConnectHeaderSize;
  }
  return kDcHeaderSize + wire::GetOpcodeInfo(operation).header_length;
}

std::string DcPacket::Parse(std::span<const uint8_t> bytes) {
  constexpr size_t kHeaders = wire::kBthSize + kDcHeaderSize;
  if (bytes.size() < kHeaders + wire::kIcrcSize) return "too short";
  const uint8_t* const dc = bytes.data() + wire::kBthSize;
  from_initiator_ = (dc[0] & 0xf) != 0;
  source_qpn_ = wire::LoadBe24(dc + 1);
  initiator_session_ = wire::LoadBe24(dc + 5);
  responder_session_ = wire::LoadBe24(dc + 9);
  dct_ = wire::LoadBe24(dc + 13);

  std::span<const uint8_t> behind = bytes.subspan(kHeaders);
  const uint8_t operation = bytes[0] & kOperationBits;
  connects_ = operation == kConnect;
  as_rc_.assign(bytes.begin(), bytes.begin() + wire::kBthSize);
  as_rc_[0] = operation;
  if (connects_) {
    if (behind.size() < kConnectHeaderSize + wire::kIcrcSize) {
      return "too short";
    }
    access_key_ = wire::LoadBe64(behind.data() + kAccessKeyOffset);
    behind = behind.subspan(kConnectHeaderSize);
    // Shows the BTH like that of a packet without further headers.
    as_rc_[0] = static_cast<uint8_t>(wire::Operation::kSendOnly);
    name_ = "DC_CONNECT";
  }
  const bool answers =
      operation == static_cast<uint8_t>(wire::Operation::kAcknowledge) &&
      behind[0] == kAnswerSyndrome &&
      behind.size() == wire::kAethSize + kAnswerSize + wire::kIcrcSize;
  as_rc_.insert(as_rc_.end(), behind.begin(), behind.end());
  if (answers) as_rc_.resize(as_rc_.size() - kAnswerSize);
  const wire::ParseError error = wire::PacketView::Parse(as_rc_, &packet_);
  if (error != wire::ParseError::kOk) return wire::ParseErrorName(error);
  if (answers) {
    name_ = "DC_CONNECT_ANSWER";
  } else if (!connects_) {
    name_ = packet_.info().name;
    name_[0] = 'D';  // RC_
  }
  return "";
}

void DcPacket::VisitDcHeader(const wire::FieldVisitor& visit) const {
  wire::Field initiator;
  initiator.name = "initiator";
  initiator.format = wire::Field::Format::kFlag;
  initiator.number = from_initiator_ ? 1 : 0;
  initiator.ordinary = !from_initiator_;
  visit(initiator);
  visit(Hex("src_qp", source_qpn_, 6));
  visit(Hex("initiator_session", initiator_session_, 6));
  visit(Hex("responder_session", responder_session_, 6));
  visit(Hex("dct", dct_, 6));
  if (connects_) visit(Hex("dc_key", access_key_, 16));
}

void DcPacket::VisitFields(const wire::FieldVisitor& visit) const {
  wire::VisitFields(packet_, [&](const wire::Field& field) {
    if (field.name == "opcode") {
      wire::Field named = field;
      named.text = name_;
      visit(named);
      return;
    }
    visit(field);
    // After the last field of BTH.
    if (field.name == "psn") VisitDcHeader(visit);
  });
}

}  // namespace rxe_user_cli
