// Functions that our librdmacm calls in our libibverbs, besides the verbs.
#ifndef VERBS_API_LIBIBVERBS_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_INTERFACE_H_

#include <infiniband/verbs.h>

#include <memory>

#include "absl/status/statusor.h"
#include "rxe_user/broker/slot.h"
#include "rxe_user/cm/cm_faults.h"
#include "transport/endpoint/packet_observer.h"

// Returns the index of the network interface of `device` (if_nametoindex(3)),
// from the last list that had the device; 0 if it is not one of our devices.
// Thread: any.
extern "C" unsigned rxe_user_interface_of(ibv_device* device);

// Calls rxe_user::Slot::Acquire() of libibverbs. librdmacm is linked with the
// same code, but must not call its own copy: without a port broker, all slots
// of a process share sockets that only one copy can bind. Both libraries come
// from one build. Thread: any.
extern "C" void rxe_user_acquire_slot(
    absl::StatusOr<std::unique_ptr<rxe_user::Slot>>* slot);

// Returns rxe_user::ProcessObserver() of libibverbs, which has the process's
// capture and recording. librdmacm shows it the packets of queue pair 1. Null:
// none. Thread: any.
extern "C" transport::PacketObserver* rxe_user_packet_observer();

// The faults of this process's CM messages; null if faults are off. Exists as
// long as the process; a child of fork() asks again. Thread: any.
extern "C" rxe_user::CmFaults* rxe_user_cm_faults();

// Faults on command: the errno value with which the calling thread's call of
// librdmacm (`function`, for instance "rdma_connect") must fail instead of
// being executed; 0: none. The failure is noted and recorded. Other rules for
// calls (call=) take effect before the call. Names that do not begin with rdma_
// are not calls of the program. Thread: any.
extern "C" int rxe_user_fail_on_command(const char* function);

// Registers the handlers of fork() that guard these files. Before those of
// librdmacm, which calls the observer with locks held (ForkGuard).
extern "C" void rxe_user_guard_files();

#endif  // VERBS_API_LIBIBVERBS_INTERFACE_H_
