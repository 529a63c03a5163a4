// A slot without a broker: this process owns the port exclusively.
#ifndef RXE_USER_BROKER_EXCLUSIVE_SLOT_H_
#define RXE_USER_BROKER_EXCLUSIVE_SLOT_H_

#include <memory>
#include <string>

#include "rxe_user/broker/slot.h"

namespace rxe_user::broker {

// Its sockets are bound exclusively. Nothing is steered, and a second process
// gets a clear error instead of half of the datagrams. Queue pair 1 belongs to
// this process alone. `reason`: why there is no broker. It is printed once on
// stderr when the slot has opened an address, and is part of the error if an
// address is taken.
std::unique_ptr<Slot> MakeExclusiveSlot(std::string reason);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_EXCLUSIVE_SLOT_H_
