// Address handles: ibv_create_ah(3), ibv_init_ah_from_wc(3).
#include <cstdint>
#include <cstring>
#include <optional>

#include "rxe_user/devices/netdev.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "wire/grh.h"

namespace verbs_api {
namespace {

std::optional<size_t> GidIndexOf(const rxe_user::Device& device,
                                 const wire::IpAddress& address) {
  for (size_t i = 0; i < device.gids.size(); ++i) {
    if (device.gids[i].address == address) return i;
  }
  return std::nullopt;
}

// A datagram to a group is answered from the first address of the same family.
std::optional<size_t> FirstLike(const rxe_user::Device& device,
                                const wire::IpAddress& group) {
  for (size_t i = 0; i < device.gids.size(); ++i) {
    const wire::IpAddress& address = device.gids[i].address;
    if (!address.is_unspecified() && address.is_v4() == group.is_v4()) {
      return i;
    }
  }
  return std::nullopt;
}

}  // namespace

int ToAddressVector(const Context& context, const ibv_ah_attr& attr,
                    transport::AddressVector* av, bool names_peer) {
  const auto device = context.snapshot();
  // RoCE has no LIDs, so without a GRH there is no destination.
  if (attr.is_global == 0 || attr.port_num != 1 ||
      attr.grh.sgid_index >= device->gids.size()) {
    return EINVAL;
  }
  av->destination = wire::IpAddress::FromGid(attr.grh.dgid.raw);
  av->source = device->gids[attr.grh.sgid_index].address;
  if ((names_peer && av->destination.is_unspecified()) ||
      av->source.is_unspecified()) {
    return EINVAL;
  }
  av->gid_index = attr.grh.sgid_index;
  av->traffic_class = attr.grh.traffic_class;
  av->hop_limit = attr.grh.hop_limit;
  av->flow_label = attr.grh.flow_label & 0xfffff;
  av->service_level = attr.sl;
  av->dlid = attr.dlid;
  return 0;
}

VERBS_EXPORT ibv_ah* ibv_create_ah(ibv_pd* ibv, ibv_ah_attr* attr) {
  return PointerCall([&]() -> ibv_ah* {
    Pd* pd = Find(ibv);
    if (pd == nullptr || attr == nullptr) return Fail(EINVAL);
    auto ah = std::make_unique<Ah>();
    if (const int error = ToAddressVector(*pd->owner, *attr, &ah->av)) {
      return Fail(error);
    }
    ah->source.emplace(pd->owner->device->engine(), ah->av.source);
    if (const int error = pd->owner->device->ResolveAddress(&ah->av)) {
      return Fail(error);
    }
    ah->context = &pd->owner->context;
    ah->pd = pd;
    ah->owner = pd->owner;
    ah->domain = pd->domain.get();
    ah->handle = Handles<Ah>().Add(ah.get());
    if (ah->handle == 0) return Fail(ENOMEM);
    ++ah->domain->users;
    Retain(ah->owner);
    return ah.release();
  });
}

VERBS_EXPORT int ibv_destroy_ah(ibv_ah* ibv) {
  return DestroyCall(ibv, [](Ah* ah) -> int {
    Handles<Ah>().Remove(ah->handle);
    --ah->domain->users;
    Delete(ah);
    return 0;
  });
}

VERBS_EXPORT int ibv_init_ah_from_wc(ibv_context* ibv, uint8_t port, ibv_wc* wc,
                                     ibv_grh* grh, ibv_ah_attr* attr) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || port != 1 || wc == nullptr || attr == nullptr) {
    return FailMinusOne(EINVAL);
  }
  std::memset(attr, 0, sizeof(*attr));
  attr->dlid = wc->slid;
  attr->sl = wc->sl;
  attr->src_path_bits = wc->dlid_path_bits;
  attr->port_num = port;
  if ((wc->wc_flags & IBV_WC_GRH) == 0) return 0;
  if (grh == nullptr) return FailMinusOne(EINVAL);
  wire::Grh header;
  if (!wire::ParseGrh(reinterpret_cast<const uint8_t*>(grh), &header)) {
    return FailMinusOne(EINVAL);
  }
  const auto index = header.destination.is_multicast()
                         ? FirstLike(*context->snapshot(), header.destination)
                         : GidIndexOf(*context->snapshot(), header.destination);
  if (!index.has_value() || *index > UINT8_MAX) {
    return FailMinusOne(EADDRNOTAVAIL);
  }
  attr->is_global = 1;
  attr->grh.flow_label = header.flow_label;
  attr->grh.traffic_class = header.traffic_class;
  attr->grh.hop_limit = header.hop_limit;
  std::memcpy(attr->grh.dgid.raw, header.source.bytes.data(), 16);
  attr->grh.sgid_index = static_cast<uint8_t>(*index);
  return 0;
}

VERBS_EXPORT ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh,
                                           uint8_t port) {
  Pd* const found = Find(pd);
  if (found == nullptr) return Fail(EINVAL);
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(&found->owner->context, port, wc, grh, &attr) != 0) {
    return nullptr;
  }
  return ibv_create_ah(pd, &attr);
}

// The engine does not need the MAC address, since the kernel routes. Answers
// with what is known without a lookup.
VERBS_EXPORT int ibv_resolve_eth_l2_from_gid(ibv_context* ibv,
                                             ibv_ah_attr* attr, uint8_t mac[6],
                                             uint16_t* vid) {
  return ErrnoCall([&]() -> int {
    Context* context = Find(ibv);
    if (context == nullptr || attr == nullptr || mac == nullptr) return EINVAL;
    transport::AddressVector av;
    if (const int error = ToAddressVector(*context, *attr, &av)) return error;
    if (vid != nullptr) *vid = 0xffff;  // untagged
    const auto device = context->snapshot();
    if (device->loopback || GidIndexOf(*device, av.destination).has_value()) {
      std::memcpy(mac, device->mac.data(), 6);
      return 0;
    }
    if (const auto neighbor =
            rxe_user::NeighborMac(device->ifindex, av.destination)) {
      std::memcpy(mac, neighbor->data(), neighbor->size());
      return 0;
    }
    const auto& gid = av.destination.bytes;
    // A link-local address made from the MAC address.
    if (rxe_user::IsLinkLocal(av.destination) && gid[11] == 0xff &&
        gid[12] == 0xfe) {
      const uint8_t made[6] = {static_cast<uint8_t>(gid[8] ^ 2),
                               gid[9],
                               gid[10],
                               gid[13],
                               gid[14],
                               gid[15]};
      std::memcpy(mac, made, 6);
      return 0;
    }
    return EHOSTUNREACH;
  });
}

}  // namespace verbs_api
