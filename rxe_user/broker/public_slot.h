// A slot of a process whose devices may have public addresses: what it hands to
// the slot behind it, and gets from there, is about the addresses that the
// interfaces have (base/public_addresses.h).
#ifndef RXE_USER_BROKER_PUBLIC_SLOT_H_
#define RXE_USER_BROKER_PUBLIC_SLOT_H_

#include <memory>

#include "rxe_user/broker/slot.h"

namespace rxe_user::broker {

std::unique_ptr<Slot> WithPublicAddresses(std::unique_ptr<Slot> slot);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PUBLIC_SLOT_H_
