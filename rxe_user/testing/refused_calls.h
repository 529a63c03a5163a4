// Refuses or intercepts system calls with seccomp(2) filters, as container
// profiles, sandboxes and emulators do.
#ifndef RXE_USER_TESTING_REFUSED_CALLS_H_
#define RXE_USER_TESTING_REFUSED_CALLS_H_

namespace rxe_user {

// From here on the named calls fail with `error` (errno) in the calling thread
// and all that it starts. 0: the call succeeds without effect. Permanent: for
// children of a test only. False where the system has no seccomp filters.
bool RefuseCall(long number, int error);
// setsockopt(2) of one option.
bool RefuseSocketOption(int level, int name, int error);
// clone(2) of a process without an exit signal, as qemu-user does. Threads can
// still be started.
bool RefuseCloneWithoutSignal(int error);

// The plain calls of a UDP port: sendmmsg(2), recvmmsg(2), and recvmsg(2) with
// its flags. Netlink and messages with descriptors have other flags, and a
// check whether the call exists (needed_calls.h) has no descriptor: these are
// allowed.
bool RefuseDatagramCalls(int error);

// Both kinds of steering programs of a SO_REUSEPORT group.
bool RefuseSteering(int error);

// From now on, each system call `number` of the calling thread waits for an
// answer through the returned descriptor (seccomp_unotify(2)), which the caller
// owns. Permanent. -1 if that is not allowed.
int InterceptCall(long number);

}  // namespace rxe_user

#endif  // RXE_USER_TESTING_REFUSED_CALLS_H_
