// mlx5dv on devices and contexts. Two devices have the loopback interface:
// mlx5_0 looks like mlx5, `plain` does not.
#include <infiniband/mlx5dv.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class Mlx5DeviceTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    list_ = ibv_get_device_list(nullptr);
    ASSERT_NE(list_, nullptr);
    for (ibv_device** d = list_; *d != nullptr; ++d) {
      devices_[ibv_get_device_name(*d)] = *d;
    }
    ASSERT_EQ(devices_.size(), 2u);
    plain_ = ibv_open_device(devices_["plain"]);
    ASSERT_NE(plain_, nullptr);
  }
  void TearDown() override {
    if (plain_ != nullptr) ibv_close_device(plain_);
    ibv_free_device_list(list_);
    DeviceTest::TearDown();
  }

  ibv_device** list_ = nullptr;
  std::map<std::string, ibv_device*> devices_;
  ibv_context* plain_ = nullptr;
};

TEST_F(Mlx5DeviceTest, OnlyTheOneWithTheOptionLooksLikeMlx5) {
  EXPECT_STREQ(ibv_get_device_name(context_->device), "mlx5_0");
  EXPECT_TRUE(mlx5dv_is_supported(devices_["mlx5_0"]));
  EXPECT_FALSE(mlx5dv_is_supported(devices_["plain"]));
  EXPECT_FALSE(mlx5dv_is_supported(nullptr));
  ibv_device strange = {};
  EXPECT_FALSE(mlx5dv_is_supported(&strange));

  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(attr.vendor_id, 0x02c9u);
  EXPECT_EQ(attr.vendor_part_id, 4125u);
  EXPECT_STREQ(attr.fw_ver, "rxe_user");
  ibv_device_attr_ex attr_ex;
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &attr_ex), 0);
  EXPECT_EQ(attr_ex.orig_attr.vendor_id, 0x02c9u);
  ASSERT_EQ(ibv_query_device(plain_, &attr), 0);
  EXPECT_EQ(attr.vendor_id, 0xffffffu);
  EXPECT_EQ(attr.vendor_part_id, 0u);
  EXPECT_STREQ(attr.fw_ver, "rxe_user");
}

TEST_F(Mlx5DeviceTest, AnEmptySharedReceiveQueueHasOneEntry) {
  ibv_srq_init_attr attr = {};
  ibv_srq* const srq = ibv_create_srq(pd_, &attr);
  ASSERT_NE(srq, nullptr);
  EXPECT_EQ(attr.attr.max_wr, 1u);
  // perftest asks for its number over DC.
  uint32_t number;
  EXPECT_EQ(ibv_get_srq_num(srq, &number), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  ibv_pd* const pd = ibv_alloc_pd(plain_);
  ASSERT_NE(pd, nullptr);
  attr = {};
  EXPECT_EQ(ibv_create_srq(pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST_F(Mlx5DeviceTest, OpensADeviceWithoutDevX) {
  mlx5dv_context_attr attr = {};
  ibv_context* const context = mlx5dv_open_device(devices_["mlx5_0"], &attr);
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(ibv_close_device(context), 0);

  errno = 0;
  EXPECT_EQ(mlx5dv_open_device(devices_["plain"], &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  errno = 0;
  EXPECT_EQ(mlx5dv_open_device(nullptr, &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_open_device(devices_["mlx5_0"], nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attr.flags = MLX5DV_CONTEXT_FLAGS_DEVX;
  EXPECT_EQ(mlx5dv_open_device(devices_["mlx5_0"], &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  attr = {};
  attr.comp_mask = 1;  // descriptors of another process
  errno = 0;
  EXPECT_EQ(mlx5dv_open_device(devices_["mlx5_0"], &attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

// struct mlx5dv_context of rdma-core 56 is longer than that of 44.
struct LongContext {
  union {
    mlx5dv_context context;
    uint8_t bytes[512];
  };
  LongContext() { std::memset(bytes, 0xa5, sizeof(bytes)); }
};

TEST_F(Mlx5DeviceTest, QueryFillsInWhatIsAskedForAndTrue) {
  LongContext out;
  out.context.comp_mask = 0;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask, 0u);
  EXPECT_EQ(out.context.version, 0);
  EXPECT_EQ(out.context.flags, uint64_t{MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP |
                                        MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD});
  EXPECT_EQ(out.context.dc_odp_caps, 0xa5a5a5a5u);
  EXPECT_EQ(out.context.num_lag_ports, 0xa5);

  out.context.comp_mask = MLX5DV_CONTEXT_MASK_DC_ODP_CAPS |
                          MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS |
                          MLX5DV_CONTEXT_MASK_CRYPTO_OFFLOAD;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask, uint64_t{MLX5DV_CONTEXT_MASK_DC_ODP_CAPS |
                                            MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS});
  EXPECT_EQ(out.context.dc_odp_caps & IBV_ODP_SUPPORT_SRQ_RECV,
            uint32_t{IBV_ODP_SUPPORT_SRQ_RECV});
  EXPECT_EQ(out.context.num_lag_ports, 1);
  EXPECT_EQ(out.context.dci_streams_caps.max_log_num_concurent, 0xa5);
  for (size_t i = sizeof(mlx5dv_context); i < sizeof(out.bytes); ++i) {
    ASSERT_EQ(out.bytes[i], 0xa5) << i;
  }

  // Bit 14 and the members after those of rdma-core 44: rdma-core 56.
  out.context.comp_mask = 1 << 14;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask, uint64_t{1 << 14});
  uint64_t limits[2];
  constexpr size_t kOf44 = 152;
  static_assert(sizeof(mlx5dv_context) >= kOf44);
  std::memcpy(limits, out.bytes + kOf44, sizeof(limits));
  EXPECT_EQ(limits[0], limits[1]);
  ibv_device_attr attr;
  ASSERT_EQ(ibv_query_device(context_, &attr), 0);
  EXPECT_EQ(limits[0], static_cast<uint64_t>(attr.max_qp_rd_atom));

  // Bit 16: receives of queue pairs with data out of order.
  out.context.comp_mask = 1 << 16;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask, uint64_t{1 << 16});
  uint32_t most[5];
  std::memcpy(most, out.bytes + kOf44 + 24, sizeof(most));
  for (const uint32_t receives : most) {
    EXPECT_EQ(receives, static_cast<uint32_t>(attr.max_qp_wr));
  }
  EXPECT_EQ(out.bytes[kOf44 + 44], 0xa5);

  out.context.comp_mask = MLX5DV_CONTEXT_MASK_DCI_STREAMS |
                          MLX5DV_CONTEXT_MASK_WR_MEMCPY_LENGTH |
                          MLX5DV_CONTEXT_MASK_CQE_COMPRESION |
                          MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE;
  const uint64_t asked = out.context.comp_mask;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask, asked);
  EXPECT_EQ(out.context.dci_streams_caps.max_log_num_concurent, 6);
  EXPECT_EQ(out.context.dci_streams_caps.max_log_num_errored, 6);
  EXPECT_EQ(out.context.max_wr_memcpy_length, size_t{1} << 20);

  out.context.comp_mask = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD;
  ASSERT_EQ(mlx5dv_query_device(context_, &out.context), 0);
  EXPECT_EQ(out.context.comp_mask,
            uint64_t{MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD});
  const mlx5dv_sig_caps& signatures = out.context.sig_caps;
  EXPECT_EQ(signatures.block_size, 0x1fu);
  EXPECT_EQ(signatures.block_prot, 3u);
  EXPECT_EQ(signatures.t10dif_bg, 3u);
  EXPECT_EQ(signatures.crc_type, 7u);

  EXPECT_EQ(mlx5dv_query_device(context_, nullptr), EINVAL);
  EXPECT_EQ(mlx5dv_query_device(plain_, &out.context), EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_query_device(nullptr, &out.context), EOPNOTSUPP);
}

TEST_F(Mlx5DeviceTest, PortHasNothingOfAnEswitch) {
  mlx5dv_port port;
  std::memset(&port, 0xa5, sizeof(port));
  ASSERT_EQ(mlx5dv_query_port(context_, 1, &port), 0);
  EXPECT_EQ(port.flags, 0u);
  EXPECT_EQ(mlx5dv_query_port(context_, 0, &port), EINVAL);
  EXPECT_EQ(mlx5dv_query_port(context_, 2, &port), EINVAL);
  EXPECT_EQ(mlx5dv_query_port(context_, 1, nullptr), EINVAL);
  EXPECT_EQ(mlx5dv_query_port(plain_, 1, &port), EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_query_port(nullptr, 1, &port), EOPNOTSUPP);
}

TEST_F(Mlx5DeviceTest, QueuesAreNotInMemoryOfTheProgram) {
  mlx5dv_ctx_allocators allocators = {};
  EXPECT_EQ(mlx5dv_set_context_attr(context_, MLX5DV_CTX_ATTR_BUF_ALLOCATORS,
                                    &allocators),
            EOPNOTSUPP);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Mlx5DeviceTest, ReservesQueuePairNumbers) {
  uint32_t first, second;
  ASSERT_EQ(mlx5dv_reserved_qpn_alloc(context_, &first), 0);
  ASSERT_EQ(mlx5dv_reserved_qpn_alloc(context_, &second), 0);
  EXPECT_NE(first, second);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context_, first), 0);
  errno = 0;
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context_, first), EINVAL);
  EXPECT_EQ(errno, EINVAL);
  // The number is that of another context, or not reserved.
  mlx5dv_context_attr attr = {};
  ibv_context* const other = mlx5dv_open_device(devices_["mlx5_0"], &attr);
  ASSERT_NE(other, nullptr);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(other, second), EINVAL);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context_, second - 1), EINVAL);
  EXPECT_EQ(mlx5dv_reserved_qpn_dealloc(context_, second), 0);
  EXPECT_EQ(mlx5dv_reserved_qpn_alloc(context_, nullptr), EINVAL);
  EXPECT_EQ(mlx5dv_reserved_qpn_alloc(plain_, &first), EOPNOTSUPP);
  EXPECT_EQ(mlx5dv_reserved_qpn_alloc(nullptr, &first), EOPNOTSUPP);
  // Reserved numbers end with their context: a device has no more than 32,768.
  for (int i = 0; i < 40; ++i) {
    ibv_context* const short_lived =
        mlx5dv_open_device(devices_["mlx5_0"], &attr);
    ASSERT_NE(short_lived, nullptr);
    for (int j = 0; j < 1000; ++j) {
      ASSERT_EQ(mlx5dv_reserved_qpn_alloc(short_lived, &first), 0) << i;
    }
    ASSERT_EQ(ibv_close_device(short_lived), 0);
  }
  EXPECT_EQ(ibv_close_device(other), 0);
}

}  // namespace
}  // namespace conformance
