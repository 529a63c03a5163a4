// Unpredictable numbers: keys, queue pair numbers, slots.
#ifndef RXE_USER_BASE_RANDOM_H_
#define RXE_USER_BASE_RANDOM_H_

#include <cstdint>

namespace rxe_user {

// 32 bits from the kernel (getrandom), read in blocks. Thread: any.
uint32_t SecureRandom32();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_RANDOM_H_
