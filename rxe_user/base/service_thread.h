// The library's own threads, which the program does not know.
#ifndef RXE_USER_BASE_SERVICE_THREAD_H_
#define RXE_USER_BASE_SERVICE_THREAD_H_

#include <pthread.h>

namespace rxe_user {

// The prefix of the names of threads that run while a device is open.
inline constexpr char kServiceThreadPrefix[] = "rxe-user-";

// The name of an engine's control thread, by which other processes recognize a
// process with an engine (at most 15 characters).
inline constexpr char kControlThreadName[] = "rxe-user-ctl";

// Starts a thread with all signals but faults blocked, so that no signal for
// the program is delivered to it. Faults occur when a registered page is gone
// (memory/guarded_copy.h). Returns 0 or the error of pthread_create.
int StartServiceThread(pthread_t* thread, void* (*start)(void*),
                       void* argument);
// The same; the thread runs `(object->*kMethod)()`.
template <auto kMethod, typename T>
int StartServiceThread(pthread_t* thread, T* object) {
  constexpr auto kRun = [](void* argument) -> void* {
    (static_cast<T*>(argument)->*kMethod)();
    return nullptr;
  };
  return StartServiceThread(thread, kRun, object);
}

}  // namespace rxe_user

#endif  // RXE_USER_BASE_SERVICE_THREAD_H_
