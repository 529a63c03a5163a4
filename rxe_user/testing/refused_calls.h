// System calls that are refused, as container profiles, sandboxes and emulators
// refuse them: seccomp(2) filters.
#ifndef RXE_USER_TESTING_REFUSED_CALLS_H_
#define RXE_USER_TESTING_REFUSED_CALLS_H_

namespace rxe_user {

// From here on the calling thread, and all that it starts, gets `error` (errno)
// from what the function names. 0: the call succeeds and does nothing. It
// cannot be taken back: for children of a test only. False where the system has
// no seccomp filters.
bool RefuseCall(long number, int error);
// setsockopt(2) of one option.
bool RefuseSocketOption(int level, int name, int error);
// clone(2) of a process that sends no signal when it ends, as qemu-user does.
// Threads can still be started.
bool RefuseCloneWithoutSignal(int error);

// The programs that steer a group of SO_REUSEPORT, both kinds.
bool RefuseSteering(int error);

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_REFUSED_CALLS_H_
