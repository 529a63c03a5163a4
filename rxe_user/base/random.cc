#include "rxe_user/base/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstddef>
#include <mutex>
#include <random>

#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"

namespace rxe_user {
namespace {

constexpr size_t kBlockWords = 64;

class Block final : private ForkGuard {
 public:
  Block() : ForkGuard(ForkLevel::kLeafLocks) { EnterForkGuard(); }
  ~Block() { LeaveForkGuard(); }

  uint32_t Next() {
    const std::lock_guard lock(mutex_);
    if (left_ == 0) Refill();
    const uint32_t value = words_[--left_];
    words_[left_] = 0;
    return value;
  }

 private:
  void BeforeFork() override { mutex_.lock(); }
  void AfterForkInParent() override { mutex_.unlock(); }
  // Without this, parent and child would draw the same keys.
  void AfterForkInChild() override {
    left_ = 0;
    mutex_.unlock();
  }
  void Refill();

  std::mutex mutex_;
  uint32_t words_[kBlockWords];
  size_t left_ = 0;  // unused words
};

void Block::Refill() {
  size_t have = 0;
  while (have < sizeof(words_)) {
    const ssize_t got = getrandom(reinterpret_cast<char*>(words_) + have,
                                  sizeof(words_) - have, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      // A system call filter forbids getrandom: use the processor's generator,
      // or /dev/urandom.
      std::random_device device;
      for (uint32_t& word : words_) word = device();
      break;
    }
    have += static_cast<size_t>(got);
  }
  left_ = kBlockWords;
}

}  // namespace

uint32_t SecureRandom32() { return OnlyOne<Block>().Next(); }

}  // namespace rxe_user
