// Unreliable datagrams and address handles: manual pages ibv_post_send(3),
// ibv_create_ah(3), ibv_create_ah_from_wc(3), ibv_modify_qp(3); IBA vol. 1,
// 9.8.3 and 10.2.2. Both ends are in one thread and all packets fit a socket's
// buffer, so nothing is lost.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint32_t kQkey = 0x11111111;
constexpr uint32_t kGrh = 40;  // bytes before the payload

class UdTest : public PairTest {
 protected:
  UdTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    Make(&a_);
    Make(&b_);
    ah_ = ibv_create_ah(pd_, &loopback());
    ASSERT_NE(ah_, nullptr) << std::strerror(errno);
  }
  void TearDown() override {
    if (ah_ != nullptr) {
      EXPECT_EQ(ibv_destroy_ah(ah_), 0);
    }
    PairTest::TearDown();
  }
  void Make(Side* side, QpOptions options = {}) {
    options.type = IBV_QPT_UD;
    MakeSide(side, options);
    ASSERT_NE(side->qp, nullptr);
    ToState(side->qp, IBV_QPS_INIT,
            IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
    ToState(side->qp, IBV_QPS_RTR, 0);
    ToState(side->qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
  }
  static void ToState(ibv_qp* qp, ibv_qp_state state, int mask,
                      uint32_t qkey = kQkey) {
    ibv_qp_attr attr = {};
    attr.qp_state = state;
    attr.port_num = 1;
    attr.qkey = qkey;
    attr.sq_psn = 0xfffffe;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask), 0) << state;
  }
  ibv_ah_attr& loopback() {
    address_ = {};
    address_.is_global = 1;
    address_.port_num = 1;
    address_.grh.dgid = gid_;
    address_.grh.sgid_index = gid_index_;
    address_.grh.hop_limit = 7;
    address_.grh.traffic_class = 0x2c;
    return address_;
  }

  ibv_send_wr Datagram(uint64_t wr_id, ibv_sge* sge, const Side& to) const {
    ibv_send_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.ud.ah = ah_;
    wr.wr.ud.remote_qpn = to.qp->qp_num;
    wr.wr.ud.remote_qkey = kQkey;
    return wr;
  }
  static int Post(const Side& from, ibv_send_wr wr) {
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(from.qp, &wr, &bad);
  }
  int SendTo(const Side& from, const Side& to, uint64_t wr_id,
             uint32_t length) {
    ibv_sge sge = from.Sge(0, length);
    return Post(from, Datagram(wr_id, &sge, to));
  }

  static constexpr size_t kReceives = 1 << 19;  // offset of receives
  ibv_ah* ah_ = nullptr;
  ibv_ah_attr address_ = {};
};

TEST_F(UdTest, SendArrives) {
  for (const uint32_t size : {0, 1, 7, 1023, 1024, 1025, 4096}) {
    FillPattern(a_.memory.data(), size, size);
    ASSERT_EQ(Receive(b_, 5, kReceives, 8192), 0);
    ASSERT_EQ(SendTo(a_, b_, 1, size), 0);
    EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_SEND);
    const ibv_wc wc = ExpectSuccess(b_.cq, 5);
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(wc.byte_len, kGrh + size);
    EXPECT_EQ(wc.qp_num, b_.qp->qp_num);
    EXPECT_EQ(wc.src_qp, a_.qp->qp_num);
    EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_GRH});
    EXPECT_EQ(wc.pkey_index, 0);
    EXPECT_EQ(wc.slid, 0);
    EXPECT_EQ(wc.sl, 0xa);  // UDP over IPv4 (annex A17.4.5.1)
    EXPECT_EQ(wc.dlid_path_bits, 0);
    EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives + kGrh, size, size))
        << size;
    // The IPv4 header (annex A17).
    const uint8_t* const ip = b_.memory.data() + kReceives + 20;
    EXPECT_EQ(ip[0], 0x45);
    EXPECT_EQ(ip[1], 0x2c);
    EXPECT_EQ(ip[8], 7);
    EXPECT_EQ(std::memcmp(ip + 12, gid_.raw + 12, 4), 0);
    EXPECT_EQ(std::memcmp(ip + 16, gid_.raw + 12, 4), 0);
  }
}

TEST_F(UdTest, ImmediateAndInline) {
  FillPattern(a_.memory.data(), 100, 3);
  ASSERT_EQ(Receive(b_, 5, kReceives, 8192), 0);
  ibv_sge sge = {a_.address(), 100, 0};
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 0x01020304;
  wr.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(Post(a_, wr), 0);
  std::memset(a_.memory.data(), 0, 100);
  ExpectSuccess(a_.cq, 1);
  const ibv_wc wc = ExpectSuccess(b_.cq, 5);
  EXPECT_EQ(wc.wc_flags, unsigned{IBV_WC_GRH} | IBV_WC_WITH_IMM);
  EXPECT_EQ(wc.imm_data, 0x01020304u);
  EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives + kGrh, 100, 3));
}

TEST_F(UdTest, WorkBuilder) {
  Side x;
  Make(&x, {.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM});
  ibv_qp_ex* qpx = ibv_qp_to_qp_ex(x.qp);
  ASSERT_NE(qpx, nullptr);
  FillPattern(x.memory.data(), 3000, 5);
  for (uint64_t i = 1; i <= 2; ++i) {
    ASSERT_EQ(Receive(b_, i, kReceives + 4096 * i, 4096), 0);
  }
  ASSERT_EQ(Receive(a_, 3, kReceives, 4096), 0);
  ibv_ah* const short_lived = ibv_create_ah(pd_, &loopback());
  ibv_wr_start(qpx);
  qpx->wr_flags = IBV_SEND_SIGNALED;
  qpx->wr_id = 1;
  ibv_wr_send(qpx);
  ibv_wr_set_ud_addr(qpx, short_lived, b_.qp->qp_num, kQkey);
  ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), 1000);
  qpx->wr_id = 2;
  ibv_wr_send_imm(qpx, 43);
  ibv_wr_set_ud_addr(qpx, ah_, b_.qp->qp_num, kQkey);
  ibv_wr_set_inline_data(qpx, x.memory.data(), 64);
  qpx->wr_id = 3;
  ibv_wr_send(qpx);
  ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), 1024);
  ibv_wr_set_ud_addr(qpx, ah_, a_.qp->qp_num, kQkey);
  // The address was copied.
  EXPECT_EQ(ibv_destroy_ah(short_lived), 0);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  for (uint64_t i = 1; i <= 3; ++i) ExpectSuccess(x.cq, i);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, kGrh + 1000);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).imm_data, 43u);
  EXPECT_EQ(ExpectSuccess(a_.cq, 3).src_qp, x.qp->qp_num);
  EXPECT_TRUE(HasPattern(b_.memory.data() + kReceives + 4096 + kGrh, 1000, 5));
  // Without an address, or with a destroyed one, nothing is posted.
  for (const bool gone : {false, true}) {
    ibv_wr_start(qpx);
    ibv_wr_send(qpx);
    ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), 8);
    if (gone) ibv_wr_set_ud_addr(qpx, nullptr, b_.qp->qp_num, kQkey);
    EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
  }
  DestroySide(&x);
}

TEST_F(UdTest, OtherOperationsAreRefused) {
  ibv_sge sge = a_.Sge(0, 8);
  for (const ibv_wr_opcode opcode :
       {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_SEND_WITH_INV, IBV_WR_LOCAL_INV}) {
    ibv_send_wr wr = Datagram(1, &sge, b_);
    wr.opcode = opcode;
    EXPECT_EQ(Post(a_, wr), EINVAL) << opcode;
    // The union holds no pointer where a datagram has its address handle.
    wr.wr.rdma = {.remote_addr = 0x7000deadb000, .rkey = 1};
    EXPECT_EQ(Post(a_, wr), EINVAL) << opcode;
  }
  ibv_qp_init_attr_ex attr = {};
  attr.send_cq = attr.recv_cq = a_.cq;
  attr.cap = {1, 1, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  attr.pd = pd_;
  for (const uint64_t operation :
       {IBV_QP_EX_WITH_RDMA_WRITE, IBV_QP_EX_WITH_RDMA_READ,
        IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_QP_EX_WITH_SEND_WITH_INV}) {
    attr.send_ops_flags = IBV_QP_EX_WITH_SEND | operation;
    EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr) << operation;
  }
}

// UD checksums are for IP over InfiniBand, which does not exist on RoCE. The
// device does not report the capability, and neither accepts nor sets the
// flags.
TEST_F(UdTest, NoChecksums) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  EXPECT_EQ(device.orig_attr.device_cap_flags & IBV_DEVICE_UD_IP_CSUM, 0u);
  ibv_sge sge = a_.Sge(0, 64);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.send_flags |= IBV_SEND_IP_CSUM;
  EXPECT_EQ(Post(a_, wr), EINVAL);
  // A datagram that is an IP packet with a correct checksum is an ordinary
  // datagram.
  ASSERT_EQ(Receive(b_, 2, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(a_, b_, 3, 64), 0);
  ExpectSuccess(a_.cq, 3);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).wc_flags & IBV_WC_IP_CSUM_OK, 0u);
}

TEST_F(UdTest, SegmentsOfOneSend) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  EXPECT_TRUE(ibv_is_qpt_supported(device.tso_caps.supported_qpts, IBV_QPT_UD));
  uint8_t header[20];
  std::memset(header, 0x5a, sizeof(header));
  ibv_sge sge = a_.Sge(0, 2500);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.opcode = IBV_WR_TSO;
  wr.tso = {header, sizeof(header), 1000};
  EXPECT_EQ(Post(a_, wr), EINVAL);  // it was created without

  Side x;
  Make(&x, {.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
            .max_tso_header = sizeof(header)});
  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(x.qp);
  ASSERT_NE(qpx, nullptr);
  FillPattern(x.memory.data(), 2500, 8);
  sge = x.Sge(0, 2500);
  wr.sg_list = &sge;
  for (const bool builder : {false, true}) {
    for (uint64_t i = 0; i < 3; ++i) {
      ASSERT_EQ(Receive(b_, i, kReceives + 4096 * i, 4096), 0);
    }
    if (builder) {
      ibv_wr_start(qpx);
      qpx->wr_flags = IBV_SEND_SIGNALED;
      qpx->wr_id = 1;
      ibv_wr_send_tso(qpx, header, sizeof(header), 1000);
      ibv_wr_set_ud_addr(qpx, ah_, b_.qp->qp_num, kQkey);
      ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), 2500);
      ASSERT_EQ(ibv_wr_complete(qpx), 0);
    } else {
      ASSERT_EQ(Post(x, wr), 0);
    }
    EXPECT_EQ(ExpectSuccess(x.cq, 1).opcode, IBV_WC_TSO);
    std::vector<uint8_t> data;
    for (uint64_t i = 0; i < 3; ++i) {
      const ibv_wc wc = ExpectSuccess(b_.cq, i);
      EXPECT_EQ(wc.byte_len, kGrh + sizeof(header) + (i == 2 ? 500 : 1000));
      const uint8_t* const at = b_.memory.data() + kReceives + 4096 * i + kGrh;
      EXPECT_EQ(std::memcmp(at, header, sizeof(header)), 0);
      data.insert(data.end(), at + sizeof(header), at + wc.byte_len - kGrh);
    }
    EXPECT_TRUE(HasPattern(data.data(), 2500, 8));
  }
  DestroySide(&x);
}

TEST_F(UdTest, ABatchWithTooManySegmentsPostsNothing) {
  ibv_device_attr_ex device = {};
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  uint8_t header[20] = {};
  Side x;
  Make(&x, {.send_ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO,
            .max_tso_header = sizeof(header)});
  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(x.qp);
  ASSERT_NE(qpx, nullptr);
  ASSERT_EQ(Receive(b_, 1, kReceives, 4096), 0);
  ibv_wr_start(qpx);
  qpx->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send(qpx);
  ibv_wr_set_ud_addr(qpx, ah_, b_.qp->qp_num, kQkey);
  ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), 64);
  ibv_wr_send_tso(qpx, header, sizeof(header), 1000);
  ibv_wr_set_ud_addr(qpx, ah_, b_.qp->qp_num, kQkey);
  ibv_wr_set_sge(qpx, x.mr->lkey, x.address(), device.tso_caps.max_tso + 1);
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
  // The next datagram is the first.
  ASSERT_EQ(SendTo(x, b_, 2, 10), 0);
  ExpectSuccess(x.cq, 2);
  EXPECT_EQ(ExpectSuccess(b_.cq, 1).byte_len, kGrh + 10);
  DestroySide(&x);
}

// The address for a reply is built from the GRH and the completion.
TEST_F(UdTest, AnswerByTheCompletion) {
  ASSERT_EQ(Receive(b_, 5, kReceives, 4096), 0);
  ASSERT_EQ(Receive(a_, 6, kReceives, 4096), 0);
  ASSERT_EQ(SendTo(a_, b_, 1, 10), 0);
  ibv_wc wc = ExpectSuccess(b_.cq, 5);
  auto* const grh = reinterpret_cast<ibv_grh*>(b_.memory.data() + kReceives);
  ibv_ah_attr attr;
  ASSERT_EQ(ibv_init_ah_from_wc(context_, 1, &wc, grh, &attr), 0);
  EXPECT_EQ(attr.is_global, 1);
  EXPECT_EQ(attr.grh.sgid_index, gid_index_);
  EXPECT_EQ(attr.grh.traffic_class, 0x2c);
  EXPECT_EQ(std::memcmp(attr.grh.dgid.raw, gid_.raw, 16), 0);
  ibv_ah* const back = ibv_create_ah_from_wc(pd_, &wc, grh, 1);
  ASSERT_NE(back, nullptr);
  ibv_sge sge = b_.Sge(0, 20);
  ibv_send_wr wr = Datagram(2, &sge, a_);
  wr.wr.ud.ah = back;
  wr.wr.ud.remote_qpn = wc.src_qp;
  ASSERT_EQ(Post(b_, wr), 0);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).opcode, IBV_WC_SEND);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ExpectSuccess(a_.cq, 6).byte_len, kGrh + 20);
  EXPECT_EQ(ibv_destroy_ah(back), 0);
}

TEST_F(UdTest, AddressHandlesOfOthers) {
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.wr.ud.ah = nullptr;
  EXPECT_EQ(Post(a_, wr), EINVAL);
  ibv_pd* const other = ibv_alloc_pd(context_);
  ASSERT_NE(other, nullptr);
  wr.wr.ud.ah = ibv_create_ah(other, &loopback());
  ASSERT_NE(wr.wr.ud.ah, nullptr);
  EXPECT_EQ(Post(a_, wr), EINVAL);  // of another protection domain
  EXPECT_EQ(ibv_destroy_ah(wr.wr.ud.ah), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
}

// A queue pair number has 24 bits; higher bits are ignored.
TEST_F(UdTest, OnlyTheBitsOfAQueuePairNumber) {
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  ASSERT_EQ(Receive(b_, 2, kReceives, 4096), 0);
  wr.wr.ud.remote_qpn |= 0xa5000000;
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ExpectSuccess(b_.cq, 2).byte_len, kGrh + 8);
}

// The handle may be destroyed as soon as the request is posted.
TEST_F(UdTest, TheAddressIsCopied) {
  ASSERT_EQ(Receive(b_, 5, kReceives, 4096), 0);
  ToState(a_.qp, IBV_QPS_SQD, 0);
  ASSERT_EQ(SendTo(a_, b_, 1, 10), 0);
  EXPECT_EQ(ibv_destroy_ah(std::exchange(ah_, nullptr)), 0);
  ToState(a_.qp, IBV_QPS_RTS, 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 5);
}

TEST_F(UdTest, AddressesThatCannotBe) {
  const auto refused = [this](auto&& change) {
    ibv_ah_attr attr = loopback();
    change(attr);
    errno = 0;
    EXPECT_EQ(ibv_create_ah(pd_, &attr), nullptr);
    return errno;
  };
  EXPECT_EQ(refused([](ibv_ah_attr& a) { a.is_global = 0; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& a) { a.port_num = 2; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& a) { a.grh.sgid_index = 99; }), EINVAL);
  EXPECT_EQ(refused([](ibv_ah_attr& a) { a.grh.dgid = {}; }), EINVAL);
  // A group of the other address family.
  EXPECT_EQ(refused([](ibv_ah_attr& a) {
              a.grh.dgid = {};
              a.grh.dgid.raw[0] = 0xff;
            }),
            EINVAL);
  // An IPv6 destination of an IPv4 source.
  EXPECT_EQ(refused([](ibv_ah_attr& a) { a.grh.dgid.raw[0] = 0xfe; }), EINVAL);
}

TEST_F(UdTest, QKeys) {
  ASSERT_EQ(Receive(b_, 5, kReceives, 4096), 0);
  ASSERT_EQ(Receive(b_, 6, kReceives, 4096), 0);
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.wr.ud.remote_qkey = kQkey + 1;  // dropped
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 1);
  sge.length = 9;
  wr.wr.ud.remote_qkey = 0xffffffff;  // the queue pair's own
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ExpectSuccess(b_.cq, 5).byte_len, kGrh + 9);
  ToState(b_.qp, IBV_QPS_RTS, IBV_QP_QKEY, 0x22222222);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(b_.qp, &attr, IBV_QP_QKEY, &init), 0);
  EXPECT_EQ(attr.qkey, 0x22222222u);
  EXPECT_EQ(init.qp_type, IBV_QPT_UD);
  EXPECT_EQ(attr.sq_psn, 0xfffffeu);
  wr.wr.ud.remote_qkey = 0x22222222;
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(b_.cq, 6);
}

// Manual page ibv_modify_qp(3).
// ibv_create_qp(3), max_send_wr: without polling all requests are outstanding,
// whether or not they were sent.
TEST_F(UdTest, UnsignaledOnesHoldTheirPlaces) {
  Side small;
  QpOptions options;
  options.cap = {8, 8, 1, 1, 0};
  Make(&small, options);
  ibv_sge sge = small.Sge(0, 8);
  ibv_send_wr wr = Datagram(0, &sge, b_);
  wr.send_flags = 0;
  for (int i = 0; i < 8; ++i) ASSERT_EQ(Post(small, wr), 0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(Post(small, wr), ENOMEM);
  ExpectNothing(small.cq);
  // A signaled request frees the slots of those before it.
  ToState(small.qp, IBV_QPS_RESET, 0);
  ToState(small.qp, IBV_QPS_INIT,
          IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  ToState(small.qp, IBV_QPS_RTR, 0);
  ToState(small.qp, IBV_QPS_RTS, IBV_QP_SQ_PSN);
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 7; ++i) ASSERT_EQ(Post(small, wr), 0);
    ASSERT_EQ(SendTo(small, b_, round, 8), 0);
    EXPECT_EQ(Post(small, wr), ENOMEM);
    ExpectSuccess(small.cq, round);
  }
  DestroySide(&small);
}

TEST_F(UdTest, AttributesOfConnectionsAreRefused) {
  Side side;
  MakeSide(&side, {.type = IBV_QPT_UD});
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  const int init = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, init | IBV_QP_ACCESS_FLAGS), EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, init), EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, init | IBV_QP_QKEY), 0);
  attr = RtrAttributes(b_.qp->qp_num);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                              IBV_QP_DEST_QPN | IBV_QP_RQ_PSN),
            EINVAL);
  EXPECT_EQ(ibv_modify_qp(side.qp, &attr, IBV_QP_STATE), 0);
  ASSERT_EQ(SendTo(side, b_, 1, 8), EINVAL);  // in RTR
  DestroySide(&side);
}

TEST_F(UdTest, MessagesBeyondTheMtu) {
  ibv_port_attr port;
  ASSERT_EQ(ibv_query_port(context_, 1, &port), 0);
  const uint32_t mtu = 128u << port.active_mtu;
  ASSERT_EQ(Receive(b_, 5, kReceives, 8192), 0);
  ASSERT_EQ(SendTo(a_, b_, 1, mtu + 1), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_LEN_ERR);
  // Only the send queue has stopped.
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_SQE);
  ASSERT_EQ(SendTo(a_, b_, 2, 8), 0);
  ExpectStatus(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  ToState(a_.qp, IBV_QPS_RTS, 0);
  ASSERT_EQ(SendTo(a_, b_, 3, mtu), 0);
  ExpectSuccess(a_.cq, 3);
  EXPECT_EQ(ExpectSuccess(b_.cq, 5).byte_len, kGrh + mtu);
}

TEST_F(UdTest, ReceivesThatAreMissingOrTooShort) {
  // The first message is followed by another one to the same queue pair, and by
  // one to another queue pair, which arrives last.
  ASSERT_EQ(Receive(a_, 9, kReceives, 4096), 0);
  ASSERT_EQ(SendTo(a_, b_, 1, 100), 0);
  ASSERT_EQ(SendTo(a_, a_, 2, 100), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(a_.cq, 2);
  ExpectSuccess(a_.cq, 9);
  // A message that does not fit is dropped, and the next message uses its
  // receive.
  ASSERT_EQ(Receive(b_, 5, kReceives, kGrh + 99), 0);
  ASSERT_EQ(Receive(b_, 6, kReceives, kGrh + 100), 0);
  ASSERT_EQ(SendTo(a_, b_, 3, 100), 0);
  ASSERT_EQ(SendTo(a_, b_, 4, 99), 0);
  ASSERT_EQ(SendTo(a_, b_, 7, 100), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectSuccess(a_.cq, 4);
  ExpectSuccess(a_.cq, 7);
  EXPECT_EQ(ExpectSuccess(b_.cq, 5).byte_len, kGrh + 99);
  EXPECT_EQ(ExpectSuccess(b_.cq, 6).byte_len, kGrh + 100);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
}

// A receive of an SRQ cannot be given back: it completes with an error.
TEST_F(UdTest, ReceiveOfASharedQueueThatIsTooShort) {
  ibv_srq_init_attr init = {};
  init.attr = {8, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  Side c;
  Make(&c, {.srq = srq});
  for (const uint32_t bytes : {99u, 100u}) {
    ibv_sge sge = c.Sge(kReceives, kGrh + bytes);
    ibv_recv_wr wr = {};
    wr.wr_id = bytes;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  ASSERT_EQ(SendTo(a_, c, 1, 100), 0);
  ASSERT_EQ(SendTo(a_, c, 2, 100), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectSuccess(a_.cq, 2);
  ExpectStatus(c.cq, 99, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(ExpectSuccess(c.cq, 100).byte_len, kGrh + 100);
  EXPECT_EQ(StateOf(c.qp), IBV_QPS_RTS);
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST_F(UdTest, ReceivesOfASharedQueue) {
  ibv_srq_init_attr init = {};
  init.attr = {8, 1, 0};
  ibv_srq* const srq = ibv_create_srq(pd_, &init);
  ASSERT_NE(srq, nullptr);
  Side c;
  Side d;
  Make(&c, {.srq = srq});
  Make(&d, {.srq = srq});
  for (uint64_t i = 1; i <= 2; ++i) {
    ibv_sge sge = c.Sge(kReceives + 4096 * i, 4096);
    ibv_recv_wr wr = {};
    wr.wr_id = i;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, &wr, &bad), 0);
  }
  FillPattern(a_.memory.data(), 100, 1);
  ASSERT_EQ(SendTo(a_, c, 1, 100), 0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_EQ(ExpectSuccess(c.cq, 1).byte_len, kGrh + 100);
  ASSERT_EQ(SendTo(a_, d, 2, 50), 0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ExpectSuccess(d.cq, 2).byte_len, kGrh + 50);
  EXPECT_TRUE(HasPattern(c.memory.data() + kReceives + 4096 + kGrh, 100, 1));
  DestroyQp(&c);
  DestroyQp(&d);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  DestroySide(&c);
  DestroySide(&d);
}

// One receiver, several senders, itself among them.
TEST_F(UdTest, SeveralSenders) {
  std::deque<Side> more(6);
  for (Side& side : more) Make(&side);
  for (uint64_t i = 0; i < 8; ++i) {
    ASSERT_EQ(Receive(b_, i, kReceives + 4096 * i, 4096), 0);
  }
  std::vector<const Side*> senders = {&a_, &b_};
  for (const Side& side : more) senders.push_back(&side);
  for (const Side* side : senders) ASSERT_EQ(SendTo(*side, b_, 100, 8), 0);
  std::vector<uint32_t> heard;
  int sent = 0;
  while (heard.size() < senders.size() || sent == 0) {
    const ibv_wc wc = Next(b_.cq);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
    if (wc.opcode == IBV_WC_SEND) {
      ++sent;
    } else {
      heard.push_back(wc.src_qp);
    }
  }
  for (const Side* side : senders) {
    EXPECT_EQ(std::count(heard.begin(), heard.end(), side->qp->qp_num), 1);
  }
  for (Side& side : more) DestroySide(&side);
}

// Datagrams to destinations that do not exist vanish silently.
TEST_F(UdTest, MissingDestinations) {
  ibv_ah_attr attr = loopback();
  attr.grh.dgid.raw[15] = 77;  // 127.0.0.77
  ibv_ah* const nowhere = ibv_create_ah(pd_, &attr);
  ASSERT_NE(nowhere, nullptr);
  ibv_sge sge = a_.Sge(0, 8);
  ibv_send_wr wr = Datagram(1, &sge, b_);
  wr.wr.ud.ah = nowhere;
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 1);
  wr = Datagram(2, &sge, b_);
  wr.wr.ud.remote_qpn ^= 1;
  ASSERT_EQ(Post(a_, wr), 0);
  ExpectSuccess(a_.cq, 2);
  ASSERT_EQ(Receive(b_, 5, kReceives, 4096), 0);
  ASSERT_EQ(SendTo(a_, b_, 3, 8), 0);
  ExpectSuccess(a_.cq, 3);
  ExpectSuccess(b_.cq, 5);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
  EXPECT_EQ(ibv_destroy_ah(nowhere), 0);
}

TEST_F(UdTest, ExtendedCompletions) {
  ibv_cq_init_attr_ex init = {};
  init.cqe = 16;
  init.wc_flags = IBV_WC_STANDARD_FLAGS;
  ibv_cq_ex* const cq = ibv_create_cq_ex(context_, &init);
  ASSERT_NE(cq, nullptr);
  Side c;
  Make(&c);
  EXPECT_EQ(ibv_destroy_qp(std::exchange(c.qp, nullptr)), 0);
  ibv_qp_init_attr attr = {};
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_UD;
  c.qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(c.qp, nullptr);
  ToState(c.qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
  ToState(c.qp, IBV_QPS_RTR, 0);
  ASSERT_EQ(Receive(c, 5, kReceives, 4096), 0);
  ASSERT_EQ(SendTo(a_, c, 1, 30), 0);
  ExpectSuccess(a_.cq, 1);
  const int64_t until = NowMs() + kTimeoutMs;
  ibv_poll_cq_attr poll = {};
  int error = ENOENT;
  while (error == ENOENT && NowMs() < until) {
    error = ibv_start_poll(cq, &poll);
  }
  ASSERT_EQ(error, 0);
  EXPECT_EQ(cq->wr_id, 5u);
  EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_wc_read_src_qp(cq), a_.qp->qp_num);
  EXPECT_EQ(ibv_wc_read_byte_len(cq), kGrh + 30);
  EXPECT_EQ(ibv_wc_read_wc_flags(cq), unsigned{IBV_WC_GRH});
  ibv_end_poll(cq);
  DestroyQp(&c);
  DestroySide(&c);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

// More than a burst, a path's window and a socket's buffer hold, with a reply
// to each.
TEST_F(UdTest, ManyMessages) {
  for (uint64_t i = 0; i < 64; ++i) {
    ASSERT_EQ(Receive(b_, i, kReceives + 4096 * i, 4096), 0);
    ASSERT_EQ(Receive(a_, i, kReceives + 4096 * i, 4096), 0);
  }
  for (uint32_t round = 0; round < 200; ++round) {
    for (uint32_t i = 0; i < 16; ++i) {
      FillPattern(a_.memory.data() + 2048 * i, 500 + i, round * 16 + i);
      ibv_sge sge = a_.Sge(2048 * i, 500 + i);
      ASSERT_EQ(Post(a_, Datagram(1000, &sge, b_)), 0);
    }
    for (uint32_t i = 0; i < 16; ++i) {
      const ibv_wc wc = Next(b_.cq);
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS);
      ASSERT_EQ(wc.wr_id, (round * 16 + i) % 64);
      ASSERT_EQ(wc.byte_len, kGrh + 500 + i);
      ASSERT_TRUE(
          HasPattern(b_.memory.data() + kReceives + 4096 * wc.wr_id + kGrh,
                     500 + i, round * 16 + i));
      ASSERT_EQ(Receive(b_, wc.wr_id, kReceives + 4096 * wc.wr_id, 4096), 0);
    }
    for (uint32_t i = 0; i < 16; ++i) ExpectSuccess(a_.cq, 1000);
  }
}

}  // namespace
}  // namespace conformance
