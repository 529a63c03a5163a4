// Fields of CM messages that identify the connection and describe the request.
// See describe.h.

#ifndef WIRE_DESCRIBE_CM_H_
#define WIRE_DESCRIBE_CM_H_

#include <functional>

#include "wire/describe.h"
#include "wire/packet.h"

namespace wire {

// Calls `visit` for the fields of a CM message to queue pair 1. Other packets
// have none.
void VisitCmFields(const PacketView& packet,
                   const std::function<void(const Field&)>& visit);

}  // namespace wire

#endif  // WIRE_DESCRIBE_CM_H_
