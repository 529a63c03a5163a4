#include "wire/aeth.h"

namespace wire {
namespace {

// In units of 10 us.
constexpr int32_t kRnrTimers[32] = {
    65536, 1,    2,    3,    4,    6,     8,     12,    16,    24,   32,
    48,    64,   96,   128,  192,  256,   384,   512,   768,   1024, 1536,
    2048,  3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152};

constexpr uint32_t kCredits[31] = {
    0,    1,    2,    3,    4,    6,     8,     12,    16,   24,   32,
    48,   64,   96,   128,  192,  256,   384,   512,   768,  1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768};

}  // namespace

int64_t RnrTimerNanos(uint8_t code) {
  return int64_t{kRnrTimers[code & 0x1f]} * 10'000;
}

uint32_t CreditCount(uint8_t code) {
  code &= 0x1f;
  return code == kCreditNone ? UINT32_MAX : kCredits[code];
}

}  // namespace wire
