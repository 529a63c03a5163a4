// Threads of the library's own within a program that knows nothing of them.
#ifndef RXE_USER_BASE_SERVICE_THREAD_H_
#define RXE_USER_BASE_SERVICE_THREAD_H_

#include <pthread.h>

namespace rxe_user {

// How the names of threads begin that last as long as a device is open.
inline constexpr char kServiceThreadPrefix[] = "rxe-user-";

// The name of an engine's control thread, by which others know a process that
// has an engine (at most 15 characters).
inline constexpr char kControlThreadName[] = "rxe-user-ctl";

// Starts a thread with all signals but faults blocked: none that is meant for
// the program ever finds it open, but a registered page may be gone
// (memory/guarded_copy.h). Returns 0 or what pthread_create returned.
int StartServiceThread(pthread_t* thread, void* (*start)(void*),
                       void* argument);

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SERVICE_THREAD_H_
