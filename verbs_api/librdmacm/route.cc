// rdma_resolve_route(3): on Ethernet a path follows from the local port and the
// id's options, or the application supplies it. There is no subnet
// administrator.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "verbs_api/librdmacm/address.h"
#include "wire/headers.h"

namespace librdmacm {
namespace {

// The packet lifetime of a path, one way, as a 5-bit exponent: 268 ms. The
// timeouts of CM messages and of the queue pair follow from it; Ethernet offers
// no better value.
constexpr uint8_t kPacketLifeTime = 16;

// The selector "exactly" of path records.
constexpr uint8_t kExactly = 2;

ibv_mtu ActiveMtu(ibv_context* verbs) {
  ibv_port_attr port;
  const int error = ibv_query_port(verbs, kPort, &port);
  if (error == ENOMEM) throw std::bad_alloc();
  return error == 0 ? port.active_mtu : IBV_MTU_1024;
}

// Masks the selector off the packed fields of a path record.
constexpr uint8_t kValueBits = 0x3f;

bool IsWhole(const ibv_path_data& data) {
  constexpr uint32_t kWhole =
      IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  return (data.flags & kWhole) == kWhole;
}

// `id.mutex` is held.
int UsePath(Id& id, const ibv_path_record& path) {
  if (id.state != IdState::kAddrResolved) return EINVAL;
  const rdma_ib_addr& gids = id.part.route.addr.addr.ibaddr;
  if (std::memcmp(path.dgid.raw, gids.dgid.raw, sizeof(path.dgid.raw)) != 0) {
    return EINVAL;
  }
  const auto mtu = static_cast<ibv_mtu>(path.mtu & kValueBits);
  if (mtu < IBV_MTU_256 || mtu > ActiveMtu(id.part.verbs)) return EINVAL;
  const uint32_t flow = ntohl(path.flowlabel_hoplimit);
  ConnectionAttributes& a = id.attributes;
  a.path_mtu = mtu;
  a.flow_label = flow >> 8 & 0xfffff;
  a.hop_limit = std::max<uint8_t>(flow & 0xff, 1);
  a.traffic_class = path.tclass;
  a.sl = ntohs(path.qosclass_sl) & 0xf;
  const int lifetime = path.packetlifetime & kValueBits;
  a.ack_timeout = id.options.ack_timeout.value_or(
      static_cast<uint8_t>(std::min(lifetime + 1, 31)));
  return 0;
}

}  // namespace

// Takes the first path that is bidirectional and valid for CM messages too.
int TakePath(Id& id, const void* value, size_t length) {
  if (value == nullptr || length == 0 || length % sizeof(ibv_path_data) != 0) {
    return EINVAL;
  }
  for (size_t at = 0; at < length; at += sizeof(ibv_path_data)) {
    ibv_path_data data;
    std::memcpy(&data, static_cast<const uint8_t*>(value) + at, sizeof(data));
    if (!IsWhole(data)) continue;
    std::lock_guard<std::mutex> lock(id.mutex);
    if (const int error = UsePath(id, data.path)) return error;
    ShowRoute(id);
    id.Push(RDMA_CM_EVENT_ROUTE_RESOLVED);
    id.state = IdState::kRouteResolved;
    return 0;
  }
  return EINVAL;
}

void ShowRoute(Id& id) {
  ibv_sa_path_rec& path = id.path;
  path = {};
  path.dgid = id.part.route.addr.addr.ibaddr.dgid;
  path.sgid = id.part.route.addr.addr.ibaddr.sgid;
  path.flow_label = htonl(id.attributes.flow_label);
  path.hop_limit = id.attributes.hop_limit;
  path.traffic_class = id.attributes.traffic_class;
  path.reversible = 1;
  path.numb_path = 1;
  path.pkey = htons(wire::kDefaultPkey);
  path.sl = id.attributes.sl;
  path.mtu_selector = kExactly;
  path.mtu = static_cast<uint8_t>(id.attributes.path_mtu);
  path.rate_selector = kExactly;
  path.rate = IBV_RATE_10_GBPS;
  path.packet_life_time_selector = kExactly;
  // An ACK timeout is one lifetime each way.
  path.packet_life_time =
      static_cast<uint8_t>(id.attributes.ack_timeout -
                           std::min<uint8_t>(1, id.attributes.ack_timeout));
  id.part.route.path_rec = &path;
  id.part.route.num_paths = 1;
}

CM_EXPORT int rdma_resolve_route(rdma_cm_id* pointer, int /*timeout_ms*/) {
  return CompleteCall(pointer, WaitingCall::kResolveRoute, [](Id& id) -> int {
    std::lock_guard<std::mutex> lock(id.mutex);
    if (id.state != IdState::kAddrResolved) return EINVAL;
    id.attributes.traffic_class = id.options.tos;
    id.attributes.ack_timeout =
        id.options.ack_timeout.value_or(kPacketLifeTime + 1);
    id.attributes.path_mtu = ActiveMtu(id.part.verbs);
    ShowRoute(id);
    id.Push(RDMA_CM_EVENT_ROUTE_RESOLVED);
    id.state = IdState::kRouteResolved;
    return 0;
  });
}

}  // namespace librdmacm
