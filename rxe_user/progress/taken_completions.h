// Says when to renew the lease, and when to make a round, while the application
// takes completions that are already there: nothing makes progress meanwhile.
#ifndef RXE_USER_PROGRESS_TAKEN_COMPLETIONS_H_
#define RXE_USER_PROGRESS_TAKEN_COMPLETIONS_H_

#include <cstdint>

namespace rxe_user {

// One for each completion queue, guarded by its lock.
class TakenCompletions {
 public:
  // Completions until the lease is renewed, which reads the clock. Without it,
  // every third run of ib_send_bw 64 B has half its speed where the helper
  // wakes late.
  static constexpr uint32_t kRenewLease = 16;
  // Completions until a round is made although no poll found none, so that
  // timers and acknowledgements do not wait longer.
  static constexpr uint32_t kProgress = 256;

  enum class Next { kNothing, kRenewLease, kProgress };

  // A poll took `taken` completions. `found_none`: it found none until it had
  // made a round.
  Next OnPoll(uint32_t taken, bool found_none) {
    const uint32_t before = found_none ? 0 : taken_;
    taken_ = before + taken;
    if (taken_ >= kProgress) {
      taken_ = 0;
      return Next::kProgress;
    }
    return before / kRenewLease != taken_ / kRenewLease ? Next::kRenewLease
                                                        : Next::kNothing;
  }

 private:
  uint32_t taken_ = 0;
};

}  // namespace rxe_user

#endif  // RXE_USER_PROGRESS_TAKEN_COMPLETIONS_H_
