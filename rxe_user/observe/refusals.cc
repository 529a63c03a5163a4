#include "rxe_user/observe/refusals.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>

#include "rxe_user/base/clock.h"
#include "rxe_user/base/environment.h"
#include "rxe_user/base/fork_guard.h"
#include "rxe_user/base/only_one.h"
#include "rxe_user/base/warn_once.h"

namespace rxe_user {
namespace {

struct RefusalLog {
  ForkSafeMutex mutex;
  std::deque<Refusal> refusals;
};

}  // namespace

bool ExplainMode() {
  static constinit std::atomic<int> known{-1};
  int mode = known.load(std::memory_order_relaxed);
  if (mode < 0) {
    const char* const value = Environment("RXE_USER_EXPLAIN");
    mode = value != nullptr && std::strcmp(value, "1") == 0 ? 1 : 0;
    known.store(mode, std::memory_order_relaxed);
  }
  return mode == 1;
}

std::string ErrnoName(int error) {
  switch (error) {
    case EINVAL:
      return "EINVAL";
    case ENOMEM:
      return "ENOMEM";
    case EOPNOTSUPP:
      return "EOPNOTSUPP";
    case EBUSY:
      return "EBUSY";
    case ENOENT:
      return "ENOENT";
    case EFAULT:
      return "EFAULT";
    case EAGAIN:
      return "EAGAIN";
    default:
      return "errno " + std::to_string(error);
  }
}

void NoteRefusal(const char* call, int error, const std::string& check) {
  try {
    {
      RefusalLog& kept = OnlyOne<RefusalLog>();
      const std::lock_guard lock(kept.mutex);
      if (!kept.refusals.empty()) {
        Refusal& last = kept.refusals.back();
        if (last.call == call && last.error == error && last.check == check) {
          last.time = MonotonicNs();
          ++last.count;
          return;
        }
      }
      if (kept.refusals.size() == kMaxRefusals) kept.refusals.pop_front();
      kept.refusals.push_back({call, error, check, MonotonicNs(), 1});
    }
    // Programs ask for features that a device may not offer.
    if (!ExplainMode() || error == EOPNOTSUPP) return;
    WarnOnce(std::string(call) + " failed with " + ErrnoName(error) +
             (check.empty() ? "" : ": " + check));
  } catch (const std::bad_alloc&) {
    // Without memory the refusal is not recorded.
  }
}

std::vector<Refusal> Refusals() {
  RefusalLog& kept = OnlyOne<RefusalLog>();
  const std::lock_guard lock(kept.mutex);
  return {kept.refusals.begin(), kept.refusals.end()};
}

}  // namespace rxe_user
