#include "wire/address.h"

#include <arpa/inet.h>

#include "absl/hash/hash.h"

namespace wire {

IpAddress IpAddress::FromV4(uint32_t address_be) {
  IpAddress a;
  a.bytes[10] = 0xff;
  a.bytes[11] = 0xff;
  std::memcpy(a.bytes.data() + 12, &address_be, sizeof(address_be));
  return a;
}

IpAddress IpAddress::FromGid(const uint8_t gid[16]) {
  IpAddress a;
  std::memcpy(a.bytes.data(), gid, a.bytes.size());
  return a;
}

std::optional<IpAddress> IpAddress::Parse(const std::string& text) {
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return FromV4(v4.s_addr);
  IpAddress a;
  if (inet_pton(AF_INET6, text.c_str(), a.bytes.data()) == 1) return a;
  return std::nullopt;
}

std::string IpAddress::ToString() const {
  char text[INET6_ADDRSTRLEN];
  const char* result =
      is_v4() ? inet_ntop(AF_INET, bytes.data() + 12, text, sizeof(text))
              : inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  return result == nullptr ? std::string() : std::string(result);
}

}  // namespace wire

size_t std::hash<wire::IpAddress>::operator()(
    const wire::IpAddress& address) const {
  return absl::HashOf(address);
}
