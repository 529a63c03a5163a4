// Shares of the broker's thread.
#ifndef RXE_USER_BROKER_USER_TIME_H_
#define RXE_USER_BROKER_USER_TIME_H_

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace rxe_user::broker {

// A user who is not trusted gets half of the thread's time in the long run, in
// whatever messages and through however many connections, and kBurst at once.
class UserTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBurst{10};

  // When the user may have its next turn; not later than `now`: at once.
  Clock::time_point NextTurn(uid_t uid) const {
    const auto found = paid_.find(uid);
    return found == paid_.end() ? Clock::time_point::min()
                                : found->second - kBurst;
  }
  // A turn of the user has taken this long.
  void Charge(uid_t uid, Clock::time_point begin, Clock::time_point end) {
    if (paid_.size() >= kMostKept) {
      std::erase_if(paid_, [&](const auto& p) { return p.second <= begin; });
    }
    Clock::time_point& paid = paid_.try_emplace(uid, begin).first->second;
    paid = std::max(paid, begin) + 2 * (end - begin);
  }

 private:
  static constexpr size_t kMostKept = 64;  // before those are forgotten

  // When what each has taken is paid for, one ms by two.
  std::map<uid_t, Clock::time_point> paid_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_USER_TIME_H_
