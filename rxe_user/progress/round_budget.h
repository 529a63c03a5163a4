// How much a round receives or sends before other threads get the lock.
#ifndef RXE_USER_PROGRESS_ROUND_BUDGET_H_
#define RXE_USER_PROGRESS_ROUND_BUDGET_H_

#include <algorithm>
#include <cstddef>

namespace rxe_user {

class RoundBudget {
 public:
  // Bytes: about 20 us of work, so that acknowledgements keep pace with data.
  static constexpr size_t kBytes = 192 << 10;
  // Bytes that a burst or GRO batch counts for at least: a system call takes as
  // long as this many bytes.
  static constexpr size_t kMin = 6 << 10;

  void Charge(size_t bytes) {
    bytes_ += bytes;
    charged_ += std::max(bytes, kMin);
  }
  bool spent() const { return charged_ >= kBytes; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
  size_t charged_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_ROUND_BUDGET_H_
