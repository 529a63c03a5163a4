// How much a round takes in or gives out before others get the lock.
#ifndef RXE_USER_PROGRESS_ROUND_BUDGET_H_
#define RXE_USER_PROGRESS_ROUND_BUDGET_H_

#include <algorithm>
#include <cstddef>

namespace rxe_user {

class RoundBudget {
 public:
  // Bytes, some 20 us: acknowledgements keep pace with data.
  static constexpr size_t kBytes = 192 << 10;
  // What any burst or GRO batch counts for at least: a system call takes as
  // long as so many bytes.
  static constexpr size_t kLeast = 6 << 10;

  void Charge(size_t bytes) {
    bytes_ += bytes;
    charged_ += std::max(bytes, kLeast);
  }
  bool spent() const { return charged_ >= kBytes; }
  size_t bytes() const { return bytes_; }

 private:
  size_t bytes_ = 0;
  size_t charged_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_ROUND_BUDGET_H_
