#include "rxe_user/base/service_thread.h"

#include <signal.h>

#include <initializer_list>

namespace rxe_user {

int StartServiceThread(pthread_t* thread, void* (*start)(void*),
                       void* argument) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) {
    ::sigdelset(&all, fault);
  }
  // The thread inherits the mask.
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = ::pthread_create(thread, nullptr, start, argument);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace rxe_user
