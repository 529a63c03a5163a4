#include "wire/describe_cm.h"

#include <string>

#include "wire/cm.h"
#include "wire/rdma_cm.h"

namespace wire {
namespace {

using Visitor = std::function<void(const Field&)>;

class CmVisitor {
 public:
  explicit CmVisitor(const Visitor& visit) : visit_(visit) {}

  void Message(const CmView& view) {
    Text("mad", CmAttributeName(view.attribute()));
    Hex("transaction", view.transaction_id(), 16);
    switch (view.attribute()) {
      case CmAttribute::kReq:
        return Req(view.req());
      case CmAttribute::kSidrReq:
        return SidrReq(view.sidr_req());
      case CmAttribute::kSidrRep:
        return SidrRep(view.sidr_rep());
      default:
        break;
    }
    Hex("local_comm_id", view.local_comm_id(), 8);
    Hex("remote_comm_id", view.remote_comm_id(), 8);
    switch (view.attribute()) {
      case CmAttribute::kMra:
        return Mra(view.mra());
      case CmAttribute::kRej:
        return Rej(view.rej());
      case CmAttribute::kRep:
        return Rep(view.rep());
      case CmAttribute::kDreq:
        return Hex("remote_qpn", view.dreq().remote_qpn, 6);
      case CmAttribute::kApr:
        return Decimal("status", static_cast<uint64_t>(view.apr().status));
      default:
        return;
    }
  }

 private:
  void Decimal(std::string_view name, uint64_t number) {
    visit_({.name = name, .number = number, .text = {}});
  }
  void Hex(std::string_view name, uint64_t number, int digits) {
    visit_({.name = name,
            .format = Field::Format::kHex,
            .number = number,
            .text = {},
            .hex_digits = digits});
  }
  void Text(std::string_view name, std::string_view text) {
    visit_({.name = name, .format = Field::Format::kText, .text = text});
  }

  void Req(const CmReq& m) {
    Hex("local_comm_id", m.local_comm_id, 8);
    Service(m.service_id, m.private_data);
    Hex("local_ca_guid", m.local_ca_guid, 16);
    Hex("local_qpn", m.local_qpn, 6);
    Decimal("starting_psn", m.starting_psn);
    Decimal("responder_resources", m.responder_resources);
    Decimal("initiator_depth", m.initiator_depth);
  }

  void Mra(const CmMra& m) {
    Answered(m.answered);
    Decimal("service_timeout", m.service_timeout);
  }

  void Rej(const CmRej& m) {
    Answered(m.answered);
    Decimal("reason_code", static_cast<uint64_t>(m.reason));
    Text("reason", CmRejectReasonName(m.reason));
  }

  void Rep(const CmRep& m) {
    Hex("local_ca_guid", m.local_ca_guid, 16);
    Hex("local_qpn", m.local_qpn, 6);
    Decimal("starting_psn", m.starting_psn);
    Decimal("responder_resources", m.responder_resources);
    Decimal("initiator_depth", m.initiator_depth);
  }

  void SidrReq(const CmSidrReq& m) {
    Hex("request_id", m.request_id, 8);
    Service(m.service_id, m.private_data);
  }

  void SidrRep(const CmSidrRep& m) {
    Hex("request_id", m.request_id, 8);
    Hex("service_id", m.service_id, 16);
    Decimal("status", static_cast<uint64_t>(m.status));
    Hex("sidr_qpn", m.qpn, 6);
    Hex("sidr_qkey", m.qkey, 8);
  }

  void Answered(CmAnswered answered) {
    static constexpr const char* kNames[] = {"REQ", "REP", "OTHER", "RESERVED"};
    Text("answered", kNames[static_cast<int>(answered) & 3]);
  }

  // The service ID, and the endpoints if it is one of the RDMA CM.
  void Service(uint64_t service_id, std::span<const uint8_t> private_data) {
    Hex("service_id", service_id, 16);
    const auto service = ParseRdmaServiceId(service_id);
    if (!service) return;
    Hex("port_space", service->port_space, 2);
    Decimal("port", service->port);
    const auto header = ParseRdmaCmHeader(private_data);
    if (!header) return;
    Text("cm_src", header->source.ToString());
    Decimal("cm_src_port", header->source_port);
    Text("cm_dst", header->destination.ToString());
  }

  const Visitor& visit_;
};

}  // namespace

void VisitCmFields(const PacketView& packet, const Visitor& visit) {
  if (packet.bth().dest_qpn != kGsiQpn || !packet.info().Has(kDeth)) return;
  CmView view;
  if (CmView::Parse(packet.payload(), &view) != CmParseError::kOk) return;
  CmVisitor(visit).Message(view);
}

}  // namespace wire
