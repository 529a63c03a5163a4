// Settings of the engine from environment variables.
#ifndef RXE_USER_BASE_SETTINGS_H_
#define RXE_USER_BASE_SETTINGS_H_

#include "transport/base/types.h"

namespace rxe_user {

// A wrong value is ignored, with one line on stderr.
// Thread: any, while no thread changes the environment.

// RXE_USER_SPIN_US, in nanoseconds: how long the helper thread busy-polls after
// each packet. Default 0. If it is not 0, receives also poll the queue of the
// interface (SO_BUSY_POLL).
transport::Time HelperSpin();
// RXE_USER_LANES: the number of lanes of an engine, up to kMaxLanes. Default 1.
int LaneCount();
// RXE_USER_MLX5: programs take every device for an mlx5 device
// (docs/mlx5dv.md). Default off.
bool AllMlx5();

// Whether the value of `variable` is 1. Unset, empty and 0: false.
bool IsOn(const char* variable);
// RXE_USER_SAME_HOST: whether packets to processes of the same user on this
// host go through shared memory ("memory", the default) or as all others
// ("udp").
bool SameHostMemory();
// RXE_USER_IO: whether lanes use their UDP sockets by io_uring ("uring"), also
// with a kernel thread ("uring-sqpoll"), by plain system calls ("sockets"), or
// by io_uring for bulk and otherwise plain calls ("auto", the default).
enum class Io { kAuto, kSockets, kUring, kUringSqpoll };
Io IoSetting();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SETTINGS_H_
