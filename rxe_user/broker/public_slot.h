// A slot of a process whose devices may have public addresses
// (base/public_addresses.h). It translates between the public addresses and
// those of the interfaces, which the inner slot uses.
#ifndef RXE_USER_BROKER_PUBLIC_SLOT_H_
#define RXE_USER_BROKER_PUBLIC_SLOT_H_

#include <memory>

#include "rxe_user/broker/slot.h"

namespace rxe_user::broker {

std::unique_ptr<Slot> WithPublicAddresses(std::unique_ptr<Slot> slot);

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_PUBLIC_SLOT_H_
