// Names of CM attributes and reject reasons.

#include <iterator>

#include "wire/cm.h"

namespace wire {

const char* CmAttributeName(CmAttribute attribute) {
  switch (attribute) {
    case CmAttribute::kReq:
      return "CM_REQ";
    case CmAttribute::kMra:
      return "CM_MRA";
    case CmAttribute::kRej:
      return "CM_REJ";
    case CmAttribute::kRep:
      return "CM_REP";
    case CmAttribute::kRtu:
      return "CM_RTU";
    case CmAttribute::kDreq:
      return "CM_DREQ";
    case CmAttribute::kDrep:
      return "CM_DREP";
    case CmAttribute::kSidrReq:
      return "CM_SIDR_REQ";
    case CmAttribute::kSidrRep:
      return "CM_SIDR_REP";
    case CmAttribute::kLap:
      return "CM_LAP";
    case CmAttribute::kApr:
      return "CM_APR";
  }
  return "?";
}

const char* CmRejectReasonName(CmRejectReason reason) {
  static constexpr const char* kNames[] = {
      "RESERVED",
      "NO_QP",
      "NO_EEC",
      "NO_RESOURCES",
      "TIMEOUT",
      "UNSUPPORTED_REQUEST",
      "INVALID_COMM_ID",
      "INVALID_COMM_INSTANCE",
      "INVALID_SERVICE_ID",
      "INVALID_TRANSPORT_SERVICE_TYPE",
      "STALE_CONNECTION",
      "RDC_DOES_NOT_EXIST",
      "PRIMARY_REMOTE_PORT_GID",
      "PRIMARY_REMOTE_PORT_LID",
      "INVALID_PRIMARY_SL",
      "INVALID_PRIMARY_TRAFFIC_CLASS",
      "INVALID_PRIMARY_HOP_LIMIT",
      "INVALID_PRIMARY_PACKET_RATE",
      "ALTERNATE_REMOTE_PORT_GID",
      "ALTERNATE_REMOTE_PORT_LID",
      "INVALID_ALTERNATE_SL",
      "INVALID_ALTERNATE_TRAFFIC_CLASS",
      "INVALID_ALTERNATE_HOP_LIMIT",
      "INVALID_ALTERNATE_PACKET_RATE",
      "PORT_AND_CM_REDIRECTION",
      "PORT_REDIRECTION",
      "INVALID_PATH_MTU",
      "INSUFFICIENT_RESPONDER_RESOURCES",
      "CONSUMER_REJECT",
      "RNR_RETRY_COUNT",
      "DUPLICATE_LOCAL_COMM_ID",
      "INVALID_CLASS_VERSION",
      "INVALID_PRIMARY_FLOW_LABEL",
      "INVALID_ALTERNATE_FLOW_LABEL",
  };
  const auto number = static_cast<uint16_t>(reason);
  return number < std::size(kNames) ? kNames[number] : kNames[0];
}

}  // namespace wire
