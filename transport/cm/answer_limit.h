// Rate limit of answers to addresses without a connection, so that requests
// with a forged source cannot direct many answers at a victim.
//
// A token bucket for each of a fixed number of address groups. A secret key
// determines which addresses share a group.
#ifndef TRANSPORT_CM_ANSWER_LIMIT_H_
#define TRANSPORT_CM_ANSWER_LIMIT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/base/types.h"
#include "wire/address.h"

namespace transport::cm {

class AnswerLimit {
 public:
  AnswerLimit(uint64_t key, uint32_t per_second, uint32_t burst)
      : key_(key),
        interval_(per_second == 0 ? 0 : kSecond / per_second),
        burst_(burst) {}

  // Whether an answer to `address` may be sent; if so, takes a token. `now`
  // does not go backwards.
  bool Allow(const wire::IpAddress& address, Time now) {
    Bucket& bucket = buckets_[Hash(address) % buckets_.size()];
    if (!bucket.used) {
      bucket = {.used = true, .tokens = burst_, .filled = now};
    } else if (interval_ != 0) {
      const uint64_t earned = (now - bucket.filled) / interval_;
      bucket.filled += static_cast<Time>(earned) * interval_;
      bucket.tokens = static_cast<uint32_t>(
          earned > burst_ - bucket.tokens ? burst_ : bucket.tokens + earned);
    }
    if (bucket.tokens == 0) return false;
    --bucket.tokens;
    return true;
  }

 private:
  struct Bucket {
    bool used = false;
    uint32_t tokens = 0;
    Time filled = 0;
  };

  uint64_t Hash(const wire::IpAddress& address) const {
    uint64_t words[2];
    std::memcpy(words, address.bytes.data(), sizeof(words));
    uint64_t h = key_;
    for (const uint64_t word : words) {
      h = (h ^ word) * 0x9e3779b97f4a7c15;
      h ^= h >> 29;
      h = (h ^ key_) * 0xbf58476d1ce4e5b9;
      h ^= h >> 32;
    }
    return h;
  }

  const uint64_t key_;
  const Time interval_;  // ns per token; 0: no refill
  const uint32_t burst_;
  std::array<Bucket, 1024> buckets_{};
};

}  // namespace transport::cm

#endif  // TRANSPORT_CM_ANSWER_LIMIT_H_
