// Ends a program with the last thread of its own.
#ifndef RXE_USER_BASE_LAST_THREAD_H_
#define RXE_USER_BASE_LAST_THREAD_H_

namespace rxe_user {

// A program ends by exit(0) when its last thread ends (pthread_exit(3)), but
// the service threads of an open device would keep it running. After this call
// they do not. Call it before the first service thread starts. Thread: any; it
// may be called repeatedly.
void EndWithLastThread();

// For a child of fork(): its main thread is the one that forked.
void ForgetParentsMainThread();

}  // namespace rxe_user

#endif  // RXE_USER_BASE_LAST_THREAD_H_
