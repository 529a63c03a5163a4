// Numbers that nobody outside can guess: keys, queue pair numbers, slots.
#ifndef RXE_USER_BASE_RANDOM_H_
#define RXE_USER_BASE_RANDOM_H_

#include <cstdint>

namespace rxe_user {

// 32 bits of the kernel's generator (getrandom), fetched a block at a time.
// Thread: any.
uint32_t SecureRandom32();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_RANDOM_H_
