// What our librdmacm asks of our libibverbs beside the functions of the verbs.
#ifndef VERBS_API_LIBIBVERBS_INTERFACE_H_
#define VERBS_API_LIBIBVERBS_INTERFACE_H_

#include <infiniband/verbs.h>

// The index of the network interface that `device` stands for
// (if_nametoindex(3)), of the last list that had the device; 0 if it is no
// device of ours. Thread: any.
extern "C" unsigned rxe_user_interface_of(ibv_device* device);

#endif  // VERBS_API_LIBIBVERBS_INTERFACE_H_
