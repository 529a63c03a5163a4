// CM messages in words: the fields that tell which connection a message is of
// and what it wants. See describe.h.

#ifndef WIRE_DESCRIBE_CM_H_
#define WIRE_DESCRIBE_CM_H_

#include <functional>

#include "wire/describe.h"
#include "wire/packet.h"

namespace wire {

// Calls `visit` for the fields of the CM message that `packet` carries to queue
// pair 1; not at all for any other packet.
void VisitCmFields(const PacketView& packet,
                   const std::function<void(const Field&)>& visit);

}  // namespace wire

#endif  // WIRE_DESCRIBE_CM_H_
