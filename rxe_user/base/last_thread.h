// A program ends with its last thread, as if ours were not there.
#ifndef RXE_USER_BASE_LAST_THREAD_H_
#define RXE_USER_BASE_LAST_THREAD_H_

namespace rxe_user {

// A program ends by exit(0) when its last thread ends (pthread_exit(3)), but
// the service threads of a device that it has left open would go on for ever.
// After this call they do not keep it from ending. To be called when the first
// of them is about to start; any thread, any number of times.
void EndWithLastThread();

// In a child of fork(), whose main thread is the one that forked.
void ForgetParentsMainThread();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_LAST_THREAD_H_
