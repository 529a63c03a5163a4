// A DC initiator and targets exchange messages over the loopback interface
// while the same process forges packets: as an ordinary user from a third
// address, and as the superuser from the initiator's address and port. It knows
// the numbers of both ends, the access key and a remote key, but no session.
// Each message must arrive once, no other byte may change, and nobody may be
// flooded through the target.

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tests/attacks/forger.h"
#include "tests/conformance/fixture.h"
#include "wire/aeth.h"
#include "wire/dc.h"
#include "wire/icrc.h"

namespace attacks {
namespace {

using conformance::Side;
using wire::IpAddress;
using enum wire::Operation;

constexpr uint64_t kKey = 0x1122334455667788;
constexpr uint32_t kPackets = 2'000;  // of each attack
constexpr uint32_t kBetween = 250;    // packets between two messages
constexpr uint32_t kMessage = 64;     // bytes
constexpr uint64_t kIpUdp = 28;       // bytes of headers

class DcAttackTest : public conformance::PairTest {
 protected:
  struct Target : Side {
    ibv_srq* srq = nullptr;
  };
  // Messages arrive below this offset. Forged WRITEs aim beyond it.
  static constexpr size_t kGuard = kMemory / 2;

  DcAttackTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    ibv_ah_attr attr = {};
    attr.is_global = 1;
    attr.port_num = 1;
    attr.grh.dgid = gid_;
    attr.grh.sgid_index = gid_index_;
    attr.grh.hop_limit = 64;
    ah_ = ibv_create_ah(pd_, &attr);
    ASSERT_NE(ah_, nullptr);
    MakeInitiator(&a_);
    MakeTarget(&target_);
    MakeTarget(&other_);
  }
  void TearDown() override {
    DestroySide(&a_);
    DestroySide(&b_);
    for (Target* target : {&target_, &other_}) {
      DestroySide(target);
      if (target->srq != nullptr) ibv_destroy_srq(target->srq);
    }
    if (ah_ != nullptr) ibv_destroy_ah(ah_);
    PairTest::TearDown();
  }

  ibv_qp* Create(Side* side, mlx5dv_dc_type type, ibv_srq* srq) {
    side->cq = ibv_create_cq(context_, 256, nullptr, nullptr, 0);
    side->memory.assign(kMemory, 0);
    side->mr =
        ibv_reg_mr(pd_, side->memory.data(), kMemory, conformance::kAllAccess);
    ibv_qp_init_attr_ex attr = {};
    attr.qp_type = IBV_QPT_DRIVER;
    attr.send_cq = attr.recv_cq = side->cq;
    attr.srq = srq;
    attr.pd = pd_;
    attr.comp_mask = IBV_QP_INIT_ATTR_PD;
    if (srq == nullptr) {
      attr.cap.max_send_wr = attr.cap.max_send_sge = 8;
      attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
      attr.send_ops_flags = IBV_QP_EX_WITH_SEND;
    }
    mlx5dv_qp_init_attr mlx5 = {};
    mlx5.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
    mlx5.dc_init_attr.dc_type = type;
    if (srq != nullptr) mlx5.dc_init_attr.dct_access_key = kKey;
    return side->qp = mlx5dv_create_qp(context_, &attr, &mlx5);
  }
  void MakeInitiator(Side* side) {
    ASSERT_NE(Create(side, MLX5DV_DCTYPE_DCI, nullptr), nullptr)
        << std::strerror(errno);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(side->qp, &attr,
                            IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
              0);
    attr = RtrAttributes(0);
    ASSERT_EQ(ibv_modify_qp(side->qp, &attr,
                            IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_AV),
              0);
    attr = {};
    attr.qp_state = IBV_QPS_RTS;
    // Long enough for a connection that waits for space during a flood.
    attr.timeout = 18;  // 1 s
    attr.retry_cnt = attr.rnr_retry = 7;
    attr.max_rd_atomic = 1;
    ASSERT_EQ(ibv_modify_qp(side->qp, &attr,
                            IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
                                IBV_QP_SQ_PSN),
              0);
  }
  void MakeTarget(Target* target) {
    ibv_srq_init_attr srq = {};
    srq.attr = {64, 1, 0};
    target->srq = ibv_create_srq(pd_, &srq);
    ASSERT_NE(Create(target, MLX5DV_DCTYPE_DCT, target->srq), nullptr)
        << std::strerror(errno);
    ToInit(target->qp);
    ibv_qp_attr to = RtrAttributes(0);
    ASSERT_EQ(ibv_modify_qp(target->qp, &to,
                            IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER | IBV_QP_AV |
                                IBV_QP_PATH_MTU),
              0);
  }

  // A message from `from` to `to`, which must arrive as it is, and alone.
  void Exchange(Side& from, Target& to) {
    const uint64_t id = ++last_id_;
    conformance::FillPattern(from.memory.data(), kMessage,
                             static_cast<uint32_t>(id));
    ibv_sge sge = to.Sge(0, kMessage);
    ibv_recv_wr receive = {}, *bad = nullptr;
    receive.wr_id = id;
    receive.sg_list = &sge;
    receive.num_sge = 1;
    ASSERT_EQ(ibv_post_srq_recv(to.srq, &receive, &bad), 0);
    ibv_qp_ex* const qp = ibv_qp_to_qp_ex(from.qp);
    ibv_wr_start(qp);
    qp->wr_id = id;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(qp), ah_, to.qp->qp_num,
                          kKey);
    ibv_wr_set_sge(qp, from.mr->lkey, from.address(), kMessage);
    ASSERT_EQ(ibv_wr_complete(qp), 0);
    ExpectSuccess(from.cq, id);
    ExpectSuccess(to.cq, id);
    EXPECT_TRUE(conformance::HasPattern(to.memory.data(), kMessage,
                                        static_cast<uint32_t>(id)));
  }
  void ExpectGuardsWhole() {
    for (const Target* target : {&target_, &other_}) {
      EXPECT_EQ(
          std::count(target->memory.begin() + kGuard, target->memory.end(), 0),
          static_cast<ptrdiff_t>(kMemory - kGuard));
    }
  }

  // Packets of sessions between `a_` and both targets, as they were sent.
  void CaptureSessions(std::vector<Captured>* captured) {
    std::atomic<bool> done = false;
    std::thread capture([&] {
      *captured = Capture(false, 24);
      done = true;
    });
    for (int i = 0; !done && !HasFatalFailure(); ++i) {
      Exchange(a_, i % 2 == 0 ? target_ : other_);
    }
    capture.join();
    const auto is_connect = [](const Captured& packet) {
      return packet.bytes[0] == wire::kOpcodeDcConnect;
    };
    const auto connect =
        std::find_if(captured->begin(), captured->end(), is_connect);
    ASSERT_NE(connect, captured->end());
    port_ = connect->source_port;
  }

  // --- Forged packets.
  uint32_t Random24() { return random_() & 0xffffff; }
  wire::DcEth Dc(bool from_initiator) {
    return {.from_initiator = from_initiator,
            .src_qpn = from_initiator ? a_.qp->qp_num : Random24(),
            .initiator_session = Random24(),
            .responder_session = Random24(),
            .dct = target_.qp->qp_num};
  }
  Bytes Sealed(Bytes packet, const IpAddress& from, uint16_t port) {
    wire::IcrcFlow(from, here_, port, wire::kRoceUdpPort).Store(packet, 0);
    return packet;
  }
  Bytes Connect(uint64_t key, uint32_t initiator, const IpAddress& from,
                uint16_t port) {
    Bytes packet(wire::kDcConnectSize);
    wire::DcEth dc = Dc(true);
    dc.src_qpn = initiator;
    dc.responder_session = wire::kNoDcSession;
    wire::EmitDcConnect(
        {.dest_qpn = wire::kNoDcQpn, .ack_req = true, .psn = Random24()}, dc,
        {.access_key = key}, packet.data());
    return Sealed(std::move(packet), from, port);
  }
  Bytes Packet(wire::Headers headers, const wire::DcEth& dc, size_t payload) {
    Bytes packet(wire::kMaxHeaderSize);
    packet.resize(wire::EmitDcHeaders(headers, dc, packet.data()));
    packet.resize(packet.size() + payload, 0xee);
    packet.resize(packet.size() + wire::kIcrcSize);
    return Sealed(std::move(packet), here_, port_);
  }
  wire::Headers Headers(wire::Operation operation, uint32_t qpn) {
    wire::Headers headers;
    headers.bth.opcode = wire::MakeOpcode(wire::Transport::kDc, operation);
    headers.bth.dest_qpn = qpn;
    headers.bth.ack_req = true;
    headers.bth.psn = Random24();
    headers.reth = {target_.address(kGuard), target_.mr->rkey, 8};
    return headers;
  }
  // A WRITE to a connection, or before the answer to a connect.
  Bytes Write(uint32_t n) {
    wire::DcEth dc = Dc(true);
    uint32_t qpn = (target_.qp->qp_num & 0xfff000) | (random_() & 0xfff);
    if (n % 2 != 0) {
      qpn = n % 4 == 1 ? wire::kNoDcQpn : target_.qp->qp_num;
      dc.responder_session = wire::kNoDcSession;
    }
    return Packet(Headers(kWriteOnly, qpn), dc, 8);
  }
  // An answer to a connect, or a NAK, for the initiator.
  Bytes Response(uint32_t n) {
    if (n % 2 == 0) {
      Bytes answer(wire::kDcAnswerPacketSize);
      wire::EmitDcAnswer({.dest_qpn = a_.qp->qp_num, .psn = Random24()},
                         Dc(false), answer.data());
      return Sealed(std::move(answer), here_, port_);
    }
    wire::Headers headers = Headers(kAcknowledge, a_.qp->qp_num);
    headers.aeth.syndrome = wire::MakeNakSyndrome(wire::NakCode::kRemoteAccess);
    return Packet(headers, Dc(false), 0);
  }
  // Sends what `make` makes, with messages in between. Each of these arrives
  // after all packets that were forged before it.
  template <typename Send>
  void Attack(Send&& send) {
    for (uint32_t n = 0; n < kPackets && !HasFatalFailure(); ++n) {
      ASSERT_TRUE(send(n));
      if (n % kBetween == kBetween - 1) Exchange(a_, target_);
    }
  }

  const IpAddress here_ = *IpAddress::Parse("127.0.0.1");
  const IpAddress third_ = *IpAddress::Parse("127.0.0.66");
  std::mt19937 random_{1};
  ibv_ah* ah_ = nullptr;
  Target target_, other_;
  uint64_t last_id_ = 0;
  uint16_t port_ = 0;  // of the initiator
};

TEST_F(DcAttackTest, ConnectsWithAWrongKeyAreNotAnswered) {
  UserSocket socket(third_);
  PacketsTo answers(third_);
  ASSERT_TRUE(socket.ok() && answers.ok());
  Attack([&](uint32_t n) {
    return socket.Send(here_, Connect(kKey ^ (uint64_t{1} << n % 64), n + 2,
                                      third_, socket.port()));
  });
  EXPECT_EQ(answers.Take(), 0u);
}

TEST_F(DcAttackTest, AFloodOfConnectsKeepsNobodyElseOut) {
  UserSocket socket(third_);
  PacketsTo answers(third_);
  ASSERT_TRUE(socket.ok() && answers.ok());
  Attack([&](uint32_t n) {
    return socket.Send(here_, Connect(kKey, n + 2, third_, socket.port()));
  });
  const uint64_t bytes = answers.Take();
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, kPackets * (wire::kDcConnectSize + kIpUdp));
  MakeInitiator(&b_);
  ASSERT_FALSE(HasFatalFailure());
  Exchange(b_, target_);
  Exchange(a_, other_);
}

// Other initiators of the same address, and connects of the same initiator.
TEST_F(DcAttackTest, ForgedConnectsOfTheInitiatorEndNothing) {
  std::vector<Captured> captured;
  CaptureSessions(&captured);
  ASSERT_FALSE(HasFatalFailure());
  RawSocket raw(false);
  ASSERT_TRUE(raw.ok());
  Attack([&](uint32_t n) {
    const uint32_t initiator = n % 2 == 0 ? a_.qp->qp_num : n + 2;
    return raw.Send(here_, port_, here_,
                    Connect(kKey, initiator, here_, port_));
  });
}

TEST_F(DcAttackTest, DataAndResponsesOfOtherSessionsChangeNothing) {
  std::vector<Captured> captured;
  CaptureSessions(&captured);
  ASSERT_FALSE(HasFatalFailure());
  RawSocket raw(false);
  ASSERT_TRUE(raw.ok());
  Attack([&](uint32_t n) {
    return raw.Send(here_, port_, here_, Write(n)) &&
           raw.Send(here_, port_, here_, Response(n));
  });
  ExpectGuardsWhole();
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
}

// Whatever was on the wire, of both ends, once more.
TEST_F(DcAttackTest, AReplayedSessionIsExecutedOnce) {
  std::vector<Captured> captured;
  CaptureSessions(&captured);
  ASSERT_FALSE(HasFatalFailure());
  RawSocket raw(false);
  ASSERT_TRUE(raw.ok());
  for (int round = 0; round < 20 && !HasFatalFailure(); ++round) {
    for (const Captured& packet : captured) {
      ASSERT_TRUE(raw.Send(here_, packet.source_port, here_, packet.bytes,
                           packet.ip_id));
    }
    // A message that was executed twice would take the receive of these.
    Exchange(a_, target_);
    Exchange(a_, other_);
  }
  ExpectNothing(target_.cq);
  ExpectNothing(other_.cq);
  EXPECT_EQ(StateOf(a_.qp), IBV_QPS_RTS);
}

}  // namespace
}  // namespace attacks
