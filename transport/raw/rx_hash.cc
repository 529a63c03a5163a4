#include "transport/raw/rx_hash.h"

#include <cstring>

#include "wire/bytes.h"

namespace transport {

uint32_t ToeplitzHash(std::span<const uint8_t, kRxHashKey> key,
                      std::span<const uint8_t> input) {
  uint32_t result = 0;
  uint32_t window = wire::LoadBe32(key.data());
  for (size_t i = 0; i < input.size(); ++i) {
    for (int bit = 7; bit >= 0; --bit) {
      if ((input[i] >> bit & 1) != 0) result ^= window;
      window = window << 1 | (key[i + 4] >> bit & 1);
    }
  }
  return result;
}

uint32_t HashOf(const RxHash& hash, const wire::EthernetFrame& frame) {
  uint8_t input[kRxHashKey - 4];
  size_t size = 0;
  const auto add = [&](uint64_t field, const uint8_t* from, size_t bytes) {
    if ((hash.fields & field) == 0) return;
    std::memcpy(input + size, from, bytes);
    size += bytes;
  };
  if (frame.layer3 == wire::Layer3::kIpv4) {
    add(kRxHashSourceIpv4, frame.ip_header() + 12, 4);
    add(kRxHashDestinationIpv4, frame.ip_header() + 16, 4);
  } else if (frame.layer3 == wire::Layer3::kIpv6) {
    add(kRxHashSourceIpv6, frame.ip_header() + 8, 16);
    add(kRxHashDestinationIpv6, frame.ip_header() + 24, 16);
  }
  if (frame.layer4 == wire::Layer4::kTcp) {
    add(kRxHashSourcePortTcp, frame.transport_header(), 2);
    add(kRxHashDestinationPortTcp, frame.transport_header() + 2, 2);
  } else if (frame.layer4 == wire::Layer4::kUdp) {
    add(kRxHashSourcePortUdp, frame.transport_header(), 2);
    add(kRxHashDestinationPortUdp, frame.transport_header() + 2, 2);
  }
  return ToeplitzHash(hash.key, {input, size});
}

}  // namespace transport
