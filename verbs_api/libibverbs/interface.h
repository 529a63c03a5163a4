// What our librdmacm asks of our libibverbs beside the functions of the verbs.
#ifndef VERBS_API_LIBIBVERBS_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_INTERFACE_H_

#include <infiniband/verbs.h>

#include <memory>

#include "absl/status/statusor.h"
#include "rxe_user/broker/slot.h"

// The index of the network interface that `device` stands for
// (if_nametoindex(3)), of the last list that had the device; 0 if it is no
// device of ours. Thread: any.
extern "C" unsigned rxe_user_interface_of(ibv_device* device);

// rxe_user::Slot::Acquire() of libibverbs. Where there is no port broker, all
// slots of a process share sockets that it alone can bind: librdmacm, which has
// that code as well, would keep queue pairs from the port. The two libraries
// are of one build. Thread: any.
extern "C" void rxe_user_acquire_slot(
    absl::StatusOr<std::unique_ptr<rxe_user::Slot>>* slot);

#endif  // VERBS_API_LIBIBVERBS_INTERFACE_H_
