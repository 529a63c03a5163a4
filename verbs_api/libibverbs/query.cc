// Attributes of a device and its port: ibv_query_device(3), ibv_query_port(3),
// ibv_query_gid(3), ibv_query_pkey(3).
#include <arpa/inet.h>
#include <endian.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "rxe_user/devices/link_rate.h"
#include "rxe_user/objects/limits.h"
#include "verbs_api/libibverbs/abi.h"
#include "verbs_api/libibverbs/lookup.h"
#include "wire/headers.h"

namespace verbs_api {
namespace {

constexpr uint32_t kMellanox = 0x02c9;  // an OUI
constexpr uint32_t kConnectX6Dx = 4125;

void FillDevice(const Context& context, ibv_device_attr* attr) {
  const uint64_t guid = context.guid;
  std::memset(attr, 0, sizeof(*attr));
  std::strcpy(attr->fw_ver, "rxe_user");
  attr->node_guid = htobe64(guid);
  attr->sys_image_guid = htobe64(guid);
  attr->max_mr_size = rxe_user::kMaxRegion;
  attr->page_size_cap = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // Not the IDs of a real card, since some programs use vendor-specific fast
  // paths for parts that they know. The vendor ID is all ones, as in rdma_rxe:
  // no valid OUI, but not 0 either, which some programs take for attributes
  // that were not filled in. Programs of mlx5dv recognize a ConnectX by its
  // IDs.
  attr->vendor_id = context.mlx5 ? kMellanox : 0xffffff;
  attr->vendor_part_id = context.mlx5 ? kConnectX6Dx : 0;
  attr->max_qp = rxe_user::kMaxQp;
  attr->max_qp_wr = rxe_user::kMaxQpWr;
  attr->device_cap_flags =
      IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_UD_AV_PORT_ENFORCE |
      IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_PORT_ACTIVE_EVENT |
      IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_XRC |
      IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_SRQ_RESIZE |
      IBV_DEVICE_RAW_IP_CSUM | IBV_DEVICE_MANAGED_FLOW_STEERING;
  attr->max_sge = rxe_user::kMaxSge;
  attr->max_sge_rd = rxe_user::kMaxSge;
  attr->max_cq = rxe_user::kMaxObjects - 1;
  attr->max_cqe = rxe_user::kMaxCqe;
  attr->max_mr = rxe_user::kMaxObjects - 1;
  attr->max_mw = rxe_user::kMaxObjects - 1;
  attr->max_pd = rxe_user::kMaxObjects - 1;
  attr->max_qp_rd_atom = rxe_user::kMaxRdAtomic;
  attr->max_res_rd_atom = rxe_user::kMaxRdAtomic * rxe_user::kMaxQp;
  attr->max_qp_init_rd_atom = rxe_user::kMaxRdAtomic;
  // The processor executes atomics, so they are atomic with all its other
  // accesses (GLOB). Hardware reports HCA, and programs such as UCX test for
  // that value.
  attr->atomic_cap = IBV_ATOMIC_HCA;
  attr->max_ah = rxe_user::kMaxObjects - 1;
  attr->max_srq = rxe_user::kMaxObjects - 1;
  attr->max_raw_ethy_qp = rxe_user::kMaxQp;
  attr->max_mcast_grp = rxe_user::kMaxGroups;
  attr->max_mcast_qp_attach = rxe_user::kMaxQp;
  attr->max_total_mcast_qp_attach = rxe_user::kMaxGroups * rxe_user::kMaxQp;
  attr->max_srq_wr = rxe_user::kMaxSrqWr;
  attr->max_srq_sge = rxe_user::kMaxSge;
  attr->max_pkeys = 1;
  attr->local_ca_ack_delay = 15;
  attr->phys_port_cnt = 1;
}

// The processor resolves page faults, for every use of memory.
void FillOdp(ibv_odp_caps* caps) {
  constexpr uint32_t kUd =
      IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_SRQ_RECV;
  constexpr uint32_t kUc = kUd | IBV_ODP_SUPPORT_WRITE;
  caps->general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  caps->per_transport_caps.ud_odp_caps = kUd;
  caps->per_transport_caps.uc_odp_caps = kUc;
  caps->per_transport_caps.rc_odp_caps =
      kUc | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
}

void FillPort(const rxe_user::Device& device, ibv_port_attr* attr) {
  std::memset(attr, 0, sizeof(*attr));
  attr->state = device.up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
  attr->max_mtu = IBV_MTU_4096;
  attr->active_mtu = MtuCode(device.roce_mtu);
  attr->gid_tbl_len = static_cast<int>(device.gids.size());
  attr->port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attr->max_msg_sz = wire::kMaxMessage;
  attr->pkey_tbl_len = 1;
  attr->max_vl_num = 1;
  const rxe_user::LinkRate rate = rxe_user::LinkRateOf(device.NominalSpeed());
  attr->active_width = rate.width;
  attr->active_speed = rate.speed;
  attr->phys_state = device.up ? 5 : 3;  // LinkUp, Disabled
  attr->link_layer = IBV_LINK_LAYER_ETHERNET;
  attr->flags = IBV_QPF_GRH_REQUIRED;
}

void FillGid(const rxe_user::Device& device, uint32_t index,
             ibv_gid_entry* entry) {
  std::memset(entry, 0, sizeof(*entry));
  std::memcpy(entry->gid.raw, device.gids[index].address.bytes.data(), 16);
  entry->gid_index = index;
  entry->port_num = kPort;
  entry->gid_type = IBV_GID_TYPE_ROCE_V2;
  entry->ndev_ifindex = device.ifindex;
}

// Finds a context for a query. A child of fork() may also query its parent's
// context: the attributes are the same, and reading them takes no lock.
const Context* FindForQuery(ibv_context* ibv) {
  if (MayBePointer(ibv) && IsInherited(ibv)) {
    return static_cast<Context*>(verbs_get_ctx(ibv));
  }
  return Find(ibv);
}

}  // namespace

VERBS_EXPORT int ibv_query_device(ibv_context* ibv, ibv_device_attr* attr) {
  const Context* context = FindForQuery(ibv);
  if (context == nullptr || attr == nullptr) return Refuse(EINVAL);
  FillDevice(*context, attr);
  return 0;
}

int QueryDeviceEx(ibv_context* ibv, const ibv_query_device_ex_input* input,
                  ibv_device_attr_ex* attr, size_t size) {
  const NoCancellation no_cancellation;
  const Context* context = FindForQuery(ibv);
  if (context == nullptr || attr == nullptr || size < sizeof(ibv_device_attr) ||
      (input != nullptr && input->comp_mask != 0)) {
    return Refuse(EINVAL);
  }
  ibv_device_attr_ex full;
  std::memset(&full, 0, sizeof(full));
  FillDevice(*context, &full.orig_attr);
  full.completion_timestamp_mask = UINT64_MAX;
  full.hca_core_clock = 1'000'000;  // kHz: time stamps are nanoseconds
  full.device_cap_flags_ex = full.orig_attr.device_cap_flags |
                             kDeviceFlushGlobal | kDeviceFlushPersistent |
                             kDeviceAtomicWrite;
  full.phys_port_cnt_ex = 1;
  FillOdp(&full.odp_caps);
  full.xrc_odp_caps = full.odp_caps.per_transport_caps.rc_odp_caps;
  constexpr uint32_t kRaw = 1u << IBV_QPT_RAW_PACKET;
  full.raw_packet_caps = IBV_RAW_PACKET_CAP_IP_CSUM;
  full.tso_caps.max_tso = rxe_user::kMaxTso;
  full.tso_caps.supported_qpts = kRaw | 1u << IBV_QPT_UD;
  full.rss_caps.supported_qpts = kRaw;
  full.rss_caps.max_rwq_indirection_tables = rxe_user::kMaxObjects - 1;
  full.rss_caps.max_rwq_indirection_table_size = rxe_user::kMaxRwqTable;
  full.rss_caps.rx_hash_fields_mask = transport::kRxHashFields;
  full.rss_caps.rx_hash_function = IBV_RX_HASH_FUNC_TOEPLITZ;
  full.max_wq_type_rq = rxe_user::kMaxQp;
  full.cq_mod_caps.max_cq_count = rxe_user::kMaxCqCount;
  full.cq_mod_caps.max_cq_period = rxe_user::kMaxCqPeriod;
  full.max_dm_size = rxe_user::kMaxDeviceMemory;
  // Newer programs pass a larger structure.
  std::memset(attr, 0, size);
  std::memcpy(attr, &full, std::min(size, sizeof(full)));
  return 0;
}

int QueryRtValues(ibv_context* ibv, ibv_values_ex* values) {
  const NoCancellation no_cancellation;
  if (Find(ibv) == nullptr || values == nullptr) return Refuse(EINVAL);
  const uint32_t wanted = values->comp_mask;
  values->comp_mask = 0;
  if ((wanted & IBV_VALUES_MASK_RAW_CLOCK) != 0) {
    // The clock of completions, with all of it in tv_nsec, since hardware
    // reports cycles.
    values->raw_clock.tv_sec = 0;
    values->raw_clock.tv_nsec = rxe_user::Lane::Now();
    values->comp_mask |= IBV_VALUES_MASK_RAW_CLOCK;
  }
  return 0;
}

int QueryPort(ibv_context* ibv, uint8_t port, ibv_port_attr* attr,
              size_t size) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || port != kPort || attr == nullptr)
    return Refuse(EINVAL);
  ibv_port_attr full;
  FillPort(*context->snapshot(), &full);
  // Older programs pass a shorter structure, newer ones a longer one.
  std::memset(attr, 0, size);
  std::memcpy(attr, &full, std::min(size, sizeof(full)));
  return 0;
}

// For programs from before port_cap_flags2 and flags existed.
VERBS_EXPORT int ibv_query_port(ibv_context* ibv, uint8_t port,
                                _compat_ibv_port_attr* attr) {
  return QueryPort(ibv, port, reinterpret_cast<ibv_port_attr*>(attr),
                   offsetof(ibv_port_attr, flags));
}

VERBS_EXPORT int ibv_query_port_speed(ibv_context* ibv, uint32_t port,
                                      uint64_t* speed) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || port != kPort || speed == nullptr)
    return Refuse(EINVAL);
  *speed = context->snapshot()->NominalSpeed() / 100;
  return 0;
}

VERBS_EXPORT int ibv_query_gid(ibv_context* ibv, uint8_t port, int index,
                               ibv_gid* gid) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || port != kPort || gid == nullptr || index < 0) {
    return FailMinusOne(EINVAL);
  }
  const auto device = context->snapshot();
  if (static_cast<size_t>(index) >= device->gids.size()) {
    return FailMinusOne(EINVAL);
  }
  // An unused index reads as zero.
  std::memcpy(gid->raw, device->gids[index].address.bytes.data(),
              sizeof(gid->raw));
  return 0;
}

VERBS_EXPORT int _ibv_query_gid_ex(ibv_context* ibv, uint32_t port,
                                   uint32_t index, ibv_gid_entry* entry,
                                   uint32_t flags, size_t entry_size) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || entry == nullptr) return Refuse(EINVAL);
  if (flags != 0) return Refuse(EOPNOTSUPP);
  const auto device = context->snapshot();
  if (port != kPort || index >= device->gids.size()) return Refuse(EINVAL);
  if (device->gids[index].address.is_unspecified()) return Refuse(ENODATA);
  ibv_gid_entry full;
  FillGid(*device, index, &full);
  std::memset(static_cast<void*>(entry), 0, entry_size);
  std::memcpy(entry, &full, std::min(entry_size, sizeof(full)));
  return 0;
}

VERBS_EXPORT ssize_t _ibv_query_gid_table(ibv_context* ibv,
                                          ibv_gid_entry* entries,
                                          size_t max_entries, uint32_t flags,
                                          size_t entry_size) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || entries == nullptr) return -EINVAL;
  if (flags != 0) return -EOPNOTSUPP;
  const auto device = context->snapshot();
  char* out = reinterpret_cast<char*>(entries);
  size_t count = 0;
  for (size_t i = 0; i < device->gids.size(); ++i) {
    if (device->gids[i].address.is_unspecified()) continue;
    if (count == max_entries) return -EINVAL;
    ibv_gid_entry full;
    FillGid(*device, static_cast<uint32_t>(i), &full);
    std::memset(out, 0, entry_size);
    std::memcpy(out, &full, std::min(entry_size, sizeof(full)));
    out += entry_size;
    ++count;
  }
  return static_cast<ssize_t>(count);
}

// A private symbol that ibv_devinfo uses. The value 1 means RoCE v2.
VERBS_EXPORT int ibv_query_gid_type(ibv_context* ibv, uint8_t port,
                                    unsigned int index, int* type) {
  const NoCancellation no_cancellation;
  Context* context = Find(ibv);
  if (context == nullptr || port != kPort || type == nullptr ||
      index >= context->snapshot()->gids.size()) {
    return FailMinusOne(EINVAL);
  }
  *type = 1;
  return 0;
}

VERBS_EXPORT int ibv_query_pkey(ibv_context* ibv, uint8_t port, int index,
                                __be16* pkey) {
  const NoCancellation no_cancellation;
  if (Find(ibv) == nullptr || port != kPort || index != 0 || pkey == nullptr) {
    return FailMinusOne(EINVAL);
  }
  *pkey = htons(rxe_user::kDefaultPkey);
  return 0;
}

VERBS_EXPORT int ibv_get_pkey_index(ibv_context* ibv, uint8_t port,
                                    __be16 pkey) {
  if (Find(ibv) == nullptr || port != kPort ||
      pkey != htons(rxe_user::kDefaultPkey)) {
    return FailMinusOne(EINVAL);
  }
  return 0;
}

}  // namespace verbs_api
