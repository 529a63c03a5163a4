// A slot without a broker: this process owns the port exclusively.
#ifndef RXE_USER_BROKER_EXCLUSIVE_SLOT_H_
#define RXE_USER_BROKER_EXCLUSIVE_SLOT_H_

#include <memory>
#include <string>

#include "rxe_user/broker/slot.h"

namespace rxe_user::broker {

// Its sockets are bound exclusively, so nothing has to be steered, and a second
// process gets a clear error instead of half of the datagrams. What comes to
// queue pair 1 is for this process alone.
// `reason`: why there is none, for one line on stderr when the slot has opened
// an address, and for the error of one that is taken.
std::unique_ptr<Slot> MakeExclusiveSlot(std::string reason);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_EXCLUSIVE_SLOT_H_
