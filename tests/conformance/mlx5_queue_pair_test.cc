// Queue pairs of mlx5dv_create_qp(3) that are not DC, on a device that looks
// like mlx5.
#include <arpa/inet.h>
#include <infiniband/mlx5dv.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// MLX5DV_QP_CREATE_OOO_DP of rdma-core 56 and newer.
constexpr uint32_t kOutOfOrder = 1 << 7;

class Mlx5QueuePairTest : public PairTest {
 protected:
  Mlx5QueuePairTest() { make_pair_ = false; }

  ibv_qp_init_attr_ex Attributes(Side* side, ibv_qp_type type = IBV_QPT_RC) {
    if (side->cq == nullptr) {
      side->cq = ibv_create_cq(context_, 64, nullptr, nullptr, 0);
      side->memory.assign(kMemory, 0);
      side->mr = ibv_reg_mr(pd_, side->memory.data(), kMemory, kAllAccess);
    }
    ibv_qp_init_attr_ex attr = {};
    attr.send_cq = attr.recv_cq = side->cq;
    attr.cap = {16, 16, 1, 1, 64};
    attr.qp_type = type;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.pd = pd_;
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    return attr;
  }
  // Expects that creation fails with `error`.
  void Refused(int error, ibv_qp_init_attr_ex attr, mlx5dv_qp_init_attr mlx5) {
    errno = 0;
    EXPECT_EQ(mlx5dv_create_qp(context_, &attr, &mlx5), nullptr);
    EXPECT_EQ(errno, error);
  }
  void MakePair(uint64_t operations) {
    for (Side* side : {&a_, &b_}) {
      ibv_qp_init_attr_ex attr = Attributes(side);
      mlx5dv_qp_init_attr mlx5 = {};
      if (operations != 0) {
        mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
        mlx5.send_ops_flags = operations;
      }
      side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
      ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
    }
    Connect(&a_, &b_);
  }
};

TEST_F(Mlx5QueuePairTest, CarriesMessages) {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    for (const uint32_t flags :
         {0u, kOutOfOrder, uint32_t{MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE},
          uint32_t{MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE}}) {
      for (Side* side : {&a_, &b_}) {
        ibv_qp_init_attr_ex attr = Attributes(side, type);
        mlx5dv_qp_init_attr mlx5 = {};
        mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
        mlx5.create_flags = flags;
        side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
        ASSERT_NE(side->qp, nullptr) << std::strerror(errno);
      }
      Connect(&a_, &b_);
      FillPattern(a_.memory.data(), 100, flags + 1);
      ASSERT_EQ(Receive(b_, 1, 0, 100), 0);
      ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
      ASSERT_NE(qp, nullptr);
      ibv_wr_start(qp);
      qp->wr_id = 2;
      qp->wr_flags = IBV_SEND_SIGNALED;
      ibv_wr_send(qp);
      ibv_wr_set_sge(qp, a_.mr->lkey, a_.address(), 100);
      ASSERT_EQ(ibv_wr_complete(qp), 0);
      ExpectSuccess(a_.cq, 2);
      ExpectSuccess(b_.cq, 1);
      EXPECT_TRUE(HasPattern(b_.memory.data(), 100, flags + 1));
      DestroyQp(&a_);
      DestroyQp(&b_);
    }
  }
}

TEST_F(Mlx5QueuePairTest, AttributesOfMlx5MayBeMissing) {
  ibv_qp_init_attr_ex attr = Attributes(&a_);
  ibv_qp* const qp = mlx5dv_create_qp(context_, &attr, nullptr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(mlx5dv_create_qp(context_, nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(mlx5dv_create_qp(nullptr, &attr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

TEST_F(Mlx5QueuePairTest, RefusesWhatItDoesNotHave) {
  const ibv_qp_init_attr_ex rc = Attributes(&a_);
  mlx5dv_qp_init_attr mlx5 = {};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  for (const uint32_t flag : {MLX5DV_QP_CREATE_TUNNEL_OFFLOADS,
                              MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_UC,
                              MLX5DV_QP_CREATE_TIR_ALLOW_SELF_LOOPBACK_MC,
                              MLX5DV_QP_CREATE_PACKET_BASED_CREDIT_MODE}) {
    mlx5.create_flags = flag;
    Refused(EOPNOTSUPP, rc, mlx5);
  }
  mlx5.create_flags = 1u << 8;  // of no release so far
  Refused(EOPNOTSUPP, rc, mlx5);
  mlx5.create_flags = kOutOfOrder;
  Refused(EOPNOTSUPP, Attributes(&a_, IBV_QPT_RAW_PACKET), mlx5);
  mlx5.create_flags = MLX5DV_QP_CREATE_SIG_PIPELINING;
  Refused(EOPNOTSUPP, Attributes(&a_, IBV_QPT_UC), mlx5);
  mlx5.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE |
                      MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;
  Refused(EINVAL, rc, mlx5);
  mlx5 = {};
  mlx5.comp_mask = 1 << 20;
  Refused(EINVAL, rc, mlx5);
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
  Refused(EINVAL, rc, mlx5);
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
  mlx5.send_ops_flags = uint64_t{MLX5DV_QP_EX_WITH_MEMCPY} << 1;
  Refused(EOPNOTSUPP, rc, mlx5);
  for (const uint64_t operation :
       {MLX5DV_QP_EX_WITH_MR_LIST, MLX5DV_QP_EX_WITH_RAW_WQE,
        MLX5DV_QP_EX_WITH_MEMCPY}) {
    mlx5.send_ops_flags = operation;
    Refused(EOPNOTSUPP, Attributes(&a_, IBV_QPT_UC), mlx5);
    Refused(EOPNOTSUPP, Attributes(&a_, IBV_QPT_UD), mlx5);
  }
  // Not DC, and DC under another type.
  Refused(EINVAL, Attributes(&a_, IBV_QPT_DRIVER), {});
  mlx5 = {};
  mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
  mlx5.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
  Refused(EINVAL, rc, mlx5);
  mlx5.dc_init_attr.dc_type = static_cast<mlx5dv_dc_type>(3);
  Refused(EINVAL, Attributes(&a_, IBV_QPT_DRIVER), mlx5);
}

// Operations that are not supported have entries, too, which fail the batch.
TEST_F(Mlx5QueuePairTest, NoEntryOfTheTableIsNull) {
  MakePair(0);
  ibv_qp_ex* const qp = ibv_qp_to_qp_ex(a_.qp);
  mlx5dv_qp_ex* const mlx5 = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
  ASSERT_NE(mlx5, nullptr);
  EXPECT_EQ(mlx5dv_qp_ex_from_ibv_qp_ex(qp), mlx5);
  const auto fails = [&](int error, auto&& call) {
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
    ibv_wr_send(qp);
    call();
    EXPECT_EQ(ibv_wr_complete(qp), error);
    EXPECT_EQ(errno, error);
  };
  fails(EOPNOTSUPP, [&] { mlx5dv_wr_set_mkey_crypto(mlx5, nullptr); });
  // Built, but not for this queue pair.
  fails(EINVAL, [&] { mlx5dv_wr_raw_wqe(mlx5, nullptr); });
  fails(EINVAL, [&] { mlx5dv_wr_memcpy(mlx5, 0, 0, 0, 0, 8); });
  fails(EINVAL, [&] { mlx5dv_wr_set_dc_addr(mlx5, nullptr, 1, 1); });
  fails(EINVAL, [&] { mlx5dv_wr_set_dc_addr_stream(mlx5, nullptr, 1, 1, 1); });
  fails(EINVAL,
        [&] { mlx5dv_wr_mr_interleaved(mlx5, nullptr, 0, 1, 0, nullptr); });
  fails(EINVAL, [&] { mlx5dv_wr_mr_list(mlx5, nullptr, 0, 0, nullptr); });
  fails(EINVAL, [&] { mlx5dv_wr_mkey_configure(mlx5, nullptr, 0, nullptr); });
  fails(EINVAL, [&] { mlx5dv_wr_set_mkey_access_flags(mlx5, 0); });
  fails(EINVAL, [&] { mlx5dv_wr_set_mkey_layout_list(mlx5, 0, nullptr); });
  fails(EINVAL, [&] { mlx5dv_wr_set_mkey_sig_block(mlx5, nullptr); });
  fails(EINVAL,
        [&] { mlx5dv_wr_set_mkey_layout_interleaved(mlx5, 1, 0, nullptr); });
  // Nothing was posted.
  ExpectNothing(a_.cq);
  ASSERT_EQ(Receive(b_, 1, 0, 0), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 0), 0);
  ExpectSuccess(a_.cq, 2);
}

TEST_F(Mlx5QueuePairTest, OnlyQueuePairsWithBuildersHaveATable) {
  EXPECT_EQ(mlx5dv_qp_ex_from_ibv_qp_ex(nullptr), nullptr);
  MakeSide(&a_);
  EXPECT_EQ(mlx5dv_qp_ex_from_ibv_qp_ex(reinterpret_cast<ibv_qp_ex*>(a_.qp)),
            nullptr);
  // A queue pair of ibv_create_qp_ex has builders, too.
  QpOptions options;
  options.send_ops = IBV_QP_EX_WITH_SEND;
  MakeSide(&b_, options);
  EXPECT_NE(mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(b_.qp)), nullptr);
}

TEST_F(Mlx5QueuePairTest, AddressHandlesMayBeMapped) {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  attr.port_num = 1;
  attr.grh.dgid = gid_;
  attr.grh.sgid_index = gid_index_;
  ibv_ah* const ah = ibv_create_ah(pd_, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(mlx5dv_map_ah_to_qp(ah, 17), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(mlx5dv_map_ah_to_qp(nullptr, 17), EINVAL);
}

// A free UDP port of the loopback interface.
uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

// The number of this process's UDP sockets of the loopback address that are
// bound to `port`: /proc/net/udp.
int SocketsOn(uint16_t port) {
  std::FILE* const file = std::fopen("/proc/self/net/udp", "r");
  EXPECT_NE(file, nullptr);
  char line[512];
  int found = 0;
  while (std::fgets(line, sizeof(line), file) != nullptr) {
    unsigned address, bound;
    if (std::sscanf(line, "%*d: %x:%x", &address, &bound) == 2 &&
        address == htonl(INADDR_LOOPBACK) && bound == port) {
      ++found;
    }
  }
  std::fclose(file);
  return found;
}

TEST_F(Mlx5QueuePairTest, TheUdpSourcePortCanBeChosen) {
  MakePair(0);
  const auto exchange = [this](uint64_t id) {
    ASSERT_EQ(Receive(b_, id, 0, 8), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, id, 0, 8), 0);
    ExpectSuccess(a_.cq, id);
    ExpectSuccess(b_.cq, id);
  };
  const uint16_t port = FreePort();
  EXPECT_EQ(SocketsOn(port), 0);
  ASSERT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, port), 0);
  EXPECT_EQ(SocketsOn(port), 1);
  exchange(1);
  // The same port again, and other ports after messages have been sent.
  ASSERT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, port), 0);
  EXPECT_EQ(SocketsOn(port), 1);
  ASSERT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, FreePort()), 0);
  exchange(2);
  ASSERT_EQ(mlx5dv_modify_qp_udp_sport(b_.qp, FreePort()), 0);
  exchange(3);

  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, 0), EINVAL);
  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(nullptr, port), EINVAL);
  // A port that another socket has.
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const uint16_t taken = FreePort();
  address.sin_port = htons(taken);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, taken), EADDRINUSE);
  close(fd);
  exchange(4);
}

TEST_F(Mlx5QueuePairTest, OnlyConnectionsThatSendHaveASourcePort) {
  MakeSide(&a_);
  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(a_.qp, 55555), EOPNOTSUPP);
  QpOptions options;
  options.type = IBV_QPT_UD;
  MakeSide(&b_, options);
  EXPECT_EQ(mlx5dv_modify_qp_udp_sport(b_.qp, 55555), EOPNOTSUPP);
}

}  // namespace
}  // namespace conformance
