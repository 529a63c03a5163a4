// Limits the broker's time for each user.
#ifndef RXE_USER_BROKER_USER_TIME_H_
#define RXE_USER_BROKER_USER_TIME_H_

#include <sys/types.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace rxe_user::broker {

// An untrusted user gets at most half of the thread's time in the long run, and
// at most kBurst at once, whatever messages it sends over however many
// connections. Thread: one at a time.
class UserTime {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kBurst{10};

  // The start of the user's next turn; a time in the past if it may start at
  // once.
  Clock::time_point NextTurn(uid_t uid) const {
    const auto found = paid_.find(uid);
    return found == paid_.end() ? Clock::time_point::min()
                                : found->second - kBurst;
  }
  // Charges a turn of the user from `begin` to `end`.
  void Charge(uid_t uid, Clock::time_point begin, Clock::time_point end) {
    if (paid_.size() >= kMaxKept) {
      std::erase_if(paid_, [&](const auto& p) { return p.second <= begin; });
    }
    Clock::time_point& paid = paid_.try_emplace(uid, begin).first->second;
    paid = std::max(paid, begin) + 2 * (end - begin);
  }

 private:
  // With this many entries, expired ones are removed.
  static constexpr size_t kMaxKept = 64;

  // When each user's debt ends: a turn adds twice its duration.
  std::map<uid_t, Clock::time_point> paid_;
};

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_USER_TIME_H_
