#include "wire/rdma_cm.h"

#include <cstring>

#include "wire/bytes.h"

namespace wire {
namespace {

IpAddress LoadAddress(uint8_t ip_version, const uint8_t* p) {
  if (ip_version == 6) return IpAddress::FromGid(p);
  uint32_t v4_be;
  std::memcpy(&v4_be, p + 12, sizeof(v4_be));
  return IpAddress::FromV4(v4_be);
}

void StoreAddress(uint8_t ip_version, const IpAddress& address, uint8_t* p) {
  std::memcpy(p, address.bytes.data(), address.bytes.size());
  if (ip_version == 4) std::memset(p, 0, 12);
}

}  // namespace

std::optional<RdmaCmHeader> ParseRdmaCmHeader(
    std::span<const uint8_t> private_data) {
  if (private_data.size() < kRdmaCmHeaderSize) return std::nullopt;
  const uint8_t* const p = private_data.data();
  RdmaCmHeader h;
  h.major_version = p[0] >> 4;
  h.minor_version = p[0] & 0xf;
  h.ip_version = p[1] >> 4;
  if (h.major_version != 0) return std::nullopt;
  if (h.ip_version != 4 && h.ip_version != 6) return std::nullopt;
  h.source_port = LoadBe16(p + 2);
  h.source = LoadAddress(h.ip_version, p + 4);
  h.destination = LoadAddress(h.ip_version, p + 20);
  return h;
}

void EmitRdmaCmHeader(const RdmaCmHeader& h, uint8_t* p) {
  p[0] = static_cast<uint8_t>(h.major_version << 4 | (h.minor_version & 0xf));
  p[1] = static_cast<uint8_t>(h.ip_version << 4);
  StoreBe16(p + 2, h.source_port);
  StoreAddress(h.ip_version, h.source, p + 4);
  StoreAddress(h.ip_version, h.destination, p + 20);
}

}  // namespace wire
