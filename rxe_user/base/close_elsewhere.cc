#include "rxe_user/base/close_elsewhere.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "rxe_user/base/service_thread.h"

namespace rxe_user {
namespace {

// A child of fork() inherits its parent's count.
std::atomic<int> closing = 0;

void* Close(void* fd) {
  ::close(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
  --closing;
  return nullptr;
}

}  // namespace

bool CloseElsewhere(UniqueFd& fd) {
  if (!fd.valid()) return true;
  pthread_t thread;
  if (closing++ >= kMaxClosing ||
      StartServiceThread(&thread, Close,
                         reinterpret_cast<void*>(intptr_t{fd.get()})) != 0) {
    --closing;
    return false;
  }
  (void)fd.Release();
  ::pthread_detach(thread);
  return true;
}

}  // namespace rxe_user
