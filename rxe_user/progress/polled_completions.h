// Polls that find completions return at once, without a round of progress. This
// says when one of them renews the lease, or makes a round all the same.
#ifndef RXE_USER_PROGRESS_POLLED_COMPLETIONS_H_
#define RXE_USER_PROGRESS_POLLED_COMPLETIONS_H_

#include <cstdint>

namespace rxe_user {

// One for each completion queue, guarded by its lock.
class PolledCompletions {
 public:
  // Completions until the lease is renewed, which reads the clock. Without it,
  // every third run of ib_send_bw 64 B has half its speed where the helper
  // wakes late.
  static constexpr uint32_t kRenewLease = 16;
  // Completions until a poll makes a round, so that timers and acknowledgements
  // do not wait longer.
  static constexpr uint32_t kProgress = 256;

  enum class Next { kNothing, kRenewLease, kProgress };

  // A poll returned `taken` completions. `found_none`: the queue was empty
  // until the poll had made a round.
  Next OnPoll(uint32_t taken, bool found_none) {
    const uint32_t before = found_none ? 0 : polled_;
    polled_ = before + taken;
    if (polled_ >= kProgress) {
      polled_ = 0;
      return Next::kProgress;
    }
    return before / kRenewLease != polled_ / kRenewLease ? Next::kRenewLease
                                                         : Next::kNothing;
  }

 private:
  uint32_t polled_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_POLLED_COMPLETIONS_H_
