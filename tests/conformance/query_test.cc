// The attributes that a device reports, and how queries check their arguments.
#include <dlfcn.h>
#include <infiniband/sa.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

#include <cstring>
#include <string>

#include "tests/conformance/fixture.h"

extern "C" {
void ibv_copy_path_rec_from_kern(ibv_sa_path_rec* to, ib_user_path_rec* from);
void ibv_copy_path_rec_to_kern(ib_user_path_rec* to, ibv_sa_path_rec* from);
void ibv_copy_qp_attr_from_kern(ibv_qp_attr* to, ib_uverbs_qp_attr* from);
int ibv_read_sysfs_file(const char* dir, const char* file, char* buf,
                        size_t size);
const char* ibv_get_sysfs_path();
}

namespace conformance {
namespace {

class QueryTest : public DeviceTest {};

TEST_F(QueryTest, TheDeviceList) {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GE(count, 1);
  EXPECT_EQ(list[count], nullptr);
  for (int i = 0; i < count; ++i) {
    EXPECT_STRNE(ibv_get_device_name(list[i]), "");
    EXPECT_NE(ibv_get_device_guid(list[i]), 0u);
    // RDMA netlink does not know our devices; an unknown index makes UCX report
    // an error.
    EXPECT_EQ(ibv_get_device_index(list[i]), -1);
    EXPECT_EQ(list[i]->node_type, IBV_NODE_CA);
    EXPECT_EQ(list[i]->transport_type, IBV_TRANSPORT_IB);
    for (int j = 0; j < i; ++j) {
      EXPECT_NE(ibv_get_device_guid(list[i]), ibv_get_device_guid(list[j]));
      EXPECT_STRNE(ibv_get_device_name(list[i]), ibv_get_device_name(list[j]));
    }
  }
  ibv_free_device_list(list);
  list = ibv_get_device_list(nullptr);
  ASSERT_NE(list, nullptr);
  // Valid after the list is freed: the context keeps it.
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(context, nullptr);
  EXPECT_STRNE(ibv_get_device_name(context->device), "");
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(QueryTest, TheDevice) {
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(attr.phys_port_cnt, 1);
  EXPECT_EQ(attr.node_guid, ibv_get_device_guid(context_->device));
  EXPECT_GT(attr.max_qp, 0);
  EXPECT_GT(attr.max_sge, 0);
  EXPECT_NE(attr.atomic_cap, IBV_ATOMIC_NONE);
  EXPECT_NE(attr.vendor_id, 0u);
  EXPECT_EQ(attr.vendor_part_id, 0u);
  EXPECT_GT(attr.max_mw, 0);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B, 0u);
  EXPECT_EQ(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A, 0u);
  ibv_device_attr_ex extended;
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &extended), 0);
  EXPECT_EQ(std::memcmp(&extended.orig_attr, &attr, sizeof(attr)), 0);
  EXPECT_NE(extended.completion_timestamp_mask, 0u);
  EXPECT_GT(extended.hca_core_clock, 0u);
  EXPECT_EQ(extended.odp_caps.general_caps,
            uint64_t{IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT});
  EXPECT_EQ(extended.odp_caps.per_transport_caps.rc_odp_caps, 0x3fu);
  EXPECT_EQ(extended.odp_caps.per_transport_caps.uc_odp_caps, 0x27u);
  EXPECT_EQ(extended.odp_caps.per_transport_caps.ud_odp_caps, 0x23u);
  EXPECT_EQ(extended.xrc_odp_caps, 0x3fu);
  EXPECT_GT(extended.max_dm_size, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_RAW_IP_CSUM, 0u);
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_MANAGED_FLOW_STEERING, 0u);
  EXPECT_EQ(extended.raw_packet_caps, uint32_t{IBV_RAW_PACKET_CAP_IP_CSUM});
  EXPECT_GT(extended.tso_caps.max_tso, 0u);
  EXPECT_EQ(extended.tso_caps.supported_qpts,
            1u << IBV_QPT_RAW_PACKET | 1u << IBV_QPT_UD);
  EXPECT_EQ(extended.rss_caps.supported_qpts, 1u << IBV_QPT_RAW_PACKET);
  EXPECT_EQ(extended.rss_caps.rx_hash_function, IBV_RX_HASH_FUNC_TOEPLITZ);
  EXPECT_EQ(extended.rss_caps.rx_hash_fields_mask, 0xffu);
  // IBV_EVENT_PORT_ACTIVE is raised (DevicesTest).
  EXPECT_NE(attr.device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT, 0u);
  errno = 0;
  EXPECT_EQ(ibv_query_device(nullptr, &attr), EINVAL);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(QueryTest, AnswersFitTheCallersStructure) {
  verbs_context* verbs = verbs_get_ctx(context_);
  ASSERT_NE(verbs, nullptr);
  struct {
    ibv_port_attr attr;
    uint8_t behind[64];
  } room;
  std::memset(&room, 0x5a, sizeof(room));
  ASSERT_EQ(verbs->query_port(context_, 1, &room.attr, 46), 0);
  EXPECT_EQ(room.attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(room.attr.link_layer, 0x5a);  // its offset is 46
  std::memset(&room, 0x5a, sizeof(room));
  ASSERT_EQ(verbs->query_port(context_, 1, &room.attr, sizeof(room)), 0);
  EXPECT_EQ(room.behind[0], 0);  // a newer, longer structure
  struct {
    ibv_gid_entry entry;
    uint8_t behind[32];
  } gid;
  std::memset(&gid, 0x5a, sizeof(gid));
  ASSERT_EQ(_ibv_query_gid_ex(context_, 1, 0, &gid.entry, 0, 24), 0);
  EXPECT_EQ(gid.entry.gid_type, 0x5a5a5a5au);
  std::memset(&gid, 0x5a, sizeof(gid));
  ASSERT_EQ(_ibv_query_gid_ex(context_, 1, 0, &gid.entry, 0, sizeof(gid)), 0);
  EXPECT_EQ(gid.entry.gid_type, unsigned{IBV_GID_TYPE_ROCE_V2});
  EXPECT_EQ(gid.behind[0], 0);
  union {
    ibv_device_attr_ex attr;
    uint8_t bytes[1024];
  } device;
  std::memset(&device, 0x5a, sizeof(device));
  ASSERT_EQ(verbs->query_device_ex(context_, nullptr, &device.attr, 300), 0);
  EXPECT_EQ(device.bytes[299], 0);
  EXPECT_EQ(device.bytes[300], 0x5a);
  EXPECT_EQ(verbs->query_device_ex(context_, nullptr, &device.attr, 8), EINVAL);
}

TEST_F(QueryTest, ThePort) {
  ibv_port_attr attr;
  ASSERT_EQ(ibv_query_port(context_, 1, &attr), 0);
  EXPECT_EQ(attr.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(attr.phys_state, 5);
  EXPECT_EQ(attr.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(attr.max_msg_sz, 1u << 31);
  EXPECT_EQ(attr.max_mtu, IBV_MTU_4096);
  EXPECT_EQ(attr.active_mtu, IBV_MTU_4096);  // the loopback interface
  EXPECT_EQ(attr.port_cap_flags,
            uint32_t{IBV_PORT_IP_BASED_GIDS | IBV_PORT_CM_SUP});
  EXPECT_GE(attr.gid_tbl_len, 1);
  EXPECT_EQ(attr.pkey_tbl_len, 1);
  EXPECT_NE(attr.active_width, 0);
  EXPECT_NE(attr.active_speed, 0);
  errno = 0;
  EXPECT_EQ(ibv_query_port(context_, 0, &attr), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_port(context_, 2, &attr), EINVAL);
}

TEST_F(QueryTest, GidsAndPkeys) {
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  std::vector<ibv_gid_entry> table(static_cast<size_t>(port.gid_tbl_len));
  ASSERT_EQ(ibv_query_gid_table(context_, table.data(), table.size(), 0),
            port.gid_tbl_len);
  for (int i = 0; i < port.gid_tbl_len; ++i) {
    ibv_gid gid;
    ASSERT_EQ(ibv_query_gid(context_, 1, i, &gid), 0);
    ibv_gid_entry entry;
    ASSERT_EQ(
        ibv_query_gid_ex(context_, 1, static_cast<uint32_t>(i), &entry, 0), 0);
    EXPECT_EQ(std::memcmp(&entry.gid, &gid, sizeof(gid)), 0);
    EXPECT_EQ(
        std::memcmp(&entry, &table[static_cast<size_t>(i)], sizeof(entry)), 0);
    EXPECT_EQ(entry.gid_type, unsigned{IBV_GID_TYPE_ROCE_V2});
    EXPECT_NE(entry.ndev_ifindex, 0u);
  }
  ibv_gid gid;
  EXPECT_EQ(ibv_query_gid(context_, 1, port.gid_tbl_len, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context_, 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context_, 3, 0, &gid), -1);
  ibv_gid_entry entry;
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 1000, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context_, 1, 0, &entry, 1), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_gid_table(context_, table.data(), 0, 0), -EINVAL);
  __be16 pkey = 0;
  EXPECT_EQ(ibv_query_pkey(context_, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xffff);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, pkey), 0);
  EXPECT_EQ(ibv_query_pkey(context_, 1, 1, &pkey), -1);
  EXPECT_EQ(ibv_get_pkey_index(context_, 1, 0x1234), -1);
}

TEST_F(QueryTest, AddressHandles) {
  ibv_ah_attr attr = {};
  attr.port_num = 1;
  EXPECT_EQ(ibv_create_ah(pd_, &attr), nullptr);  // no GRH
  EXPECT_EQ(errno, EINVAL);
  attr.is_global = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = gid_index_;
  ibv_ah* ah = ibv_create_ah(pd_, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  uint8_t mac[6];
  uint16_t vid = 0;
  EXPECT_EQ(ibv_resolve_eth_l2_from_gid(context_, &attr, mac, &vid), 0);
  EXPECT_EQ(vid, 0xffff);

  // As in the memory of a UD receive: an IPv4 header in the last 20 of 40
  // bytes.
  union {
    ibv_grh grh;
    uint8_t bytes[40];
  } header = {};
  const uint8_t ip[20] = {0x45, 8, 0,  0, 0, 0, 0,   0, 64, 17,
                          0,    0, 10, 1, 2, 3, 127, 0, 0,  1};
  std::memcpy(header.bytes + 20, ip, sizeof(ip));
  ibv_wc wc = {};
  wc.wc_flags = IBV_WC_GRH;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, &header.grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, gid_index_);
  EXPECT_EQ(attr.grh.traffic_class, 8);
  const uint8_t source[4] = {10, 1, 2, 3};
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw + 12, source, 4), 0);
  ah = ibv_create_ah_from_wc(pd_, &wc, &header.grh, 1);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  header.bytes[20] = 0;
  EXPECT_EQ(ibv_create_ah_from_wc(pd_, &wc, &header.grh, 1), nullptr);
}

TEST(StringTest, EveryValueHasAName) {
  for (int i = 0; i <= IBV_WC_TM_RNDV_INCOMPLETE; ++i) {
    EXPECT_STRNE(ibv_wc_status_str(static_cast<ibv_wc_status>(i)), "unknown");
  }
  constexpr int kDeviceSpeedChange = 20;  // of newer headers
  for (int i = 0; i <= kDeviceSpeedChange; ++i) {
    EXPECT_STRNE(ibv_event_type_str(static_cast<ibv_event_type>(i)), "unknown");
  }
  for (int i = 0; i <= IBV_PORT_ACTIVE_DEFER; ++i) {
    EXPECT_STRNE(ibv_port_state_str(static_cast<ibv_port_state>(i)), "unknown");
  }
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(999)), "unknown");
  EXPECT_STREQ(ibv_event_type_str(static_cast<ibv_event_type>(-1)), "unknown");
  EXPECT_STREQ(ibv_node_type_str(static_cast<ibv_node_type>(99)), "unknown");
}

TEST(RateTest, ThereAndBack) {
  for (const ibv_rate rate :
       {IBV_RATE_2_5_GBPS, IBV_RATE_10_GBPS, IBV_RATE_120_GBPS,
        IBV_RATE_400_GBPS, IBV_RATE_800_GBPS, IBV_RATE_1200_GBPS}) {
    EXPECT_EQ(mult_to_ibv_rate(ibv_rate_to_mult(rate)), rate);
    EXPECT_EQ(mbps_to_ibv_rate(ibv_rate_to_mbps(rate)), rate);
  }
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_10_GBPS), 10000);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_800_GBPS), 320);
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_1200_GBPS), 480);
  EXPECT_EQ(ibv_rate_to_mult(static_cast<ibv_rate>(99)), -1);
  EXPECT_EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
}

TEST(MarshalTest, PathRecordsSurvive) {
  ibv_sa_path_rec from;
  for (size_t i = 0; i < sizeof(from); ++i) {
    reinterpret_cast<uint8_t*>(&from)[i] = static_cast<uint8_t>(i * 7 + 1);
  }
  ib_user_path_rec kernel = {};
  ibv_sa_path_rec to = {};
  ibv_copy_path_rec_to_kern(&kernel, &from);
  ibv_copy_path_rec_from_kern(&to, &kernel);
  EXPECT_EQ(std::memcmp(&to.dgid, &from.dgid, 16), 0);
  EXPECT_EQ(std::memcmp(&to.sgid, &from.sgid, 16), 0);
  EXPECT_EQ(to.pkey, from.pkey);
  EXPECT_EQ(to.mtu, from.mtu);
  EXPECT_EQ(to.preference, from.preference);
  EXPECT_EQ(to.flow_label, from.flow_label);
  ib_uverbs_qp_attr qp = {};
  qp.dest_qp_num = 17;
  qp.ah_attr.grh.sgid_index = 3;
  qp.timeout = 9;
  ibv_qp_attr attr = {};
  ibv_copy_qp_attr_from_kern(&attr, &qp);
  EXPECT_EQ(attr.dest_qp_num, 17u);
  EXPECT_EQ(attr.ah_attr.grh.sgid_index, 3);
  EXPECT_EQ(attr.timeout, 9);
}

TEST(SystemTest, ForkAndSysfs) {
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
  EXPECT_STREQ(ibv_get_sysfs_path(), "/sys");
  char text[64];
  EXPECT_EQ(ibv_read_sysfs_file("/proc/self", "no such file", text, 64), -1);
  EXPECT_GT(ibv_read_sysfs_file("/proc/self", "comm", text, 64), 0);
  EXPECT_EQ(std::strchr(text, '\n'), nullptr);
}

}  // namespace
}  // namespace conformance
