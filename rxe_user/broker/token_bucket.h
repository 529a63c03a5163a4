// A rate limit.
#ifndef RXE_USER_BROKER_TOKEN_BUCKET_H_
#define RXE_USER_BROKER_TOKEN_BUCKET_H_

#include <algorithm>
#include <cstdint>

namespace rxe_user::broker {

// Allows `rate` per second on average and `burst` at once.
class TokenBucket {
 public:
  TokenBucket(int64_t rate, int64_t burst)
      : rate_(rate), burst_(1000 * burst), thousandths_(burst_) {}
  // Whether one more is allowed at `now_ms`, which must not decrease.
  bool Take(int64_t now_ms) {
    thousandths_ = std::min(burst_, thousandths_ + (now_ms - last_ms_) * rate_);
    last_ms_ = now_ms;
    if (thousandths_ < 1000) return false;
    thousandths_ -= 1000;
    return true;
  }

 private:
  int64_t rate_;
  // In thousandths of a token: a millisecond adds `rate_` of them.
  int64_t burst_;
  int64_t thousandths_;
  int64_t last_ms_ = 0;
};

// Few strays are due to GRO. A flood has another cause and is limited.
inline constexpr int64_t kStraysPerSecond = 20000;
inline constexpr int64_t kStrayBurst = 512;

}  // namespace rxe_user::broker

#endif  // RXE_USER_BROKER_TOKEN_BUCKET_H_
