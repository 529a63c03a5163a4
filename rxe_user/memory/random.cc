#include "rxe_user/memory/random.h"

#include <pthread.h>
#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <mutex>
#include <random>

namespace rxe_user {
namespace {

constexpr size_t kBlockWords = 64;

std::mutex mutex;
uint32_t block[kBlockWords];
size_t left = 0;  // words of `block` that nobody has had

// A child that went on with the parent's block would draw the same keys.
void ForgetBlock() { left = 0; }

void Refill() {
  static const int registered =
      pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); },
                     [] {
                       ForgetBlock();
                       mutex.unlock();
                     });
  (void)registered;
  size_t have = 0;
  while (have < sizeof(block)) {
    ssize_t got = getrandom(reinterpret_cast<char*>(block) + have,
                            sizeof(block) - have, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      // Forbidden by a filter on system calls: the processor's generator, or
      // /dev/urandom.
      std::random_device device;
      for (uint32_t& word : block) word = device();
      break;
    }
    have += static_cast<size_t>(got);
  }
  left = kBlockWords;
}

}  // namespace

uint32_t SecureRandom32() {
  std::lock_guard<std::mutex> lock(mutex);
  if (left == 0) Refill();
  uint32_t value = block[--left];
  block[left] = 0;
  return value;
}

}  // namespace rxe_user
