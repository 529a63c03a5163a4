// Receive side scaling: selects a frame's work queue (manual page
// ibv_create_qp_ex(3), rx_hash_conf).
#ifndef TRANSPORT_RAW_RX_HASH_H_
#define TRANSPORT_RAW_RX_HASH_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "wire/ethernet.h"

namespace transport {

class WorkQueue;

// IBV_RX_HASH_*
enum RxHashField : uint64_t {
  kRxHashSourceIpv4 = 1u << 0,
  kRxHashDestinationIpv4 = 1u << 1,
  kRxHashSourceIpv6 = 1u << 2,
  kRxHashDestinationIpv6 = 1u << 3,
  kRxHashSourcePortTcp = 1u << 4,
  kRxHashDestinationPortTcp = 1u << 5,
  kRxHashSourcePortUdp = 1u << 6,
  kRxHashDestinationPortUdp = 1u << 7,
};
inline constexpr uint64_t kRxHashFields = 0xff;
inline constexpr size_t kRxHashKey = 40;  // bytes

struct RxHash {
  std::array<uint8_t, kRxHashKey> key{};
  uint64_t fields = 0;            // RxHashField
  std::vector<WorkQueue*> table;  // size is a power of two; borrowed
};

// The Toeplitz hash of `input`, at most 36 bytes.
uint32_t ToeplitzHash(std::span<const uint8_t, kRxHashKey> key,
                      std::span<const uint8_t> input);
// The hash over the selected fields that the frame has: source address,
// destination address, source port, destination port. 0 if it has none.
uint32_t HashOf(const RxHash& hash, const wire::EthernetFrame& frame);

}  // namespace transport

#endif  // TRANSPORT_RAW_RX_HASH_H_
