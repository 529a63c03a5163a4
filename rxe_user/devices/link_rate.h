// The InfiniBand width and speed for an Ethernet speed.
#ifndef RXE_USER_DEVICES_LINK_RATE_H_
#define RXE_USER_DEVICES_LINK_RATE_H_

#include <cstdint>
#include <string>

namespace rxe_user {

// Encoded as in ibv_query_port(3).
struct LinkRate {
  uint8_t width;  // 1: 1X, 2: 4X
  uint8_t speed;  // 1: 2.5, 2: 5, 4: 10, 8: 10 (FDR10), 16: 14, 32: 25, 64: 50,
                  // 128: 100 Gbit/s a lane
};

// The highest rate of at most `mbps`, else 2.5 Gbit/s.
LinkRate LinkRateOf(uint64_t mbps);

// As in the sysfs file ports/N/rate: "100 Gb/sec (4X EDR)".
std::string LinkRateText(LinkRate rate);

}  // namespace rxe_user

#endif  // RXE_USER_DEVICES_LINK_RATE_H_
