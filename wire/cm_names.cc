// Names of CM attributes and reject reasons.

#include <iterator>

#include "wire/cm.h"

namespace wire {

const char* CmAttributeName(CmAttribute attribute) {
  static constexpr const char* kNames[] = {
      "CM_REQ",  "CM_MRA",      "CM_REJ",      "CM_REP", "CM_RTU", "CM_DREQ",
      "CM_DREP", "CM_SIDR_REQ", "CM_SIDR_REP", "CM_LAP", "CM_APR"};
  static_assert(std::size(kNames) ==
                static_cast<size_t>(CmAttribute::kApr) -
                    static_cast<size_t>(CmAttribute::kReq) + 1);
  const size_t number =
      static_cast<size_t>(attribute) - static_cast<size_t>(CmAttribute::kReq);
  return number < std::size(kNames) ? kNames[number] : "?";
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
