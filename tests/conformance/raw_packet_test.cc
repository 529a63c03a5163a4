// Raw packet queue pairs and flow steering on the loopback interface:
// ibv_create_flow(3), ibv_create_wq(3), ibv_create_counters(3).
#include <arpa/inet.h>
#include <linux/capability.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr uint8_t kServerMac[6] = {2, 0, 0, 0, 0, 0x51};
constexpr uint8_t kClientMac[6] = {2, 0, 0, 0, 0, 0xc1};
constexpr uint16_t kServerPort = 5432;

// A flow attribute and its specs in one piece, as ibv_create_flow requires.
template <typename... Specs>
struct [[gnu::packed, gnu::aligned(8)]] Rule {
  ibv_flow_attr attr;
};
template <typename Spec, typename... Rest>
struct [[gnu::packed, gnu::aligned(8)]] Rule<Spec, Rest...> {
  ibv_flow_attr attr;
  Spec first;
};
template <typename A, typename B>
struct [[gnu::packed, gnu::aligned(8)]] Rule<A, B> {
  ibv_flow_attr attr;
  A first;
  B second;
};

template <typename R>
void FillAttributes(R* rule, uint8_t specs) {
  rule->attr = {};
  rule->attr.size = sizeof(*rule);
  rule->attr.num_of_specs = specs;
  rule->attr.port = 1;
}
template <typename A>
Rule<A> RuleOf(const A& a) {
  Rule<A> rule;
  FillAttributes(&rule, 1);
  rule.first = a;
  return rule;
}
template <typename A, typename B>
Rule<A, B> RuleOf(const A& a, const B& b) {
  Rule<A, B> rule;
  FillAttributes(&rule, 2);
  rule.first = a;
  rule.second = b;
  return rule;
}

ibv_flow_spec_eth ToMac(const uint8_t mac[6]) {
  ibv_flow_spec_eth spec{};
  spec.type = IBV_FLOW_SPEC_ETH;
  spec.size = sizeof(spec);
  std::memcpy(spec.val.dst_mac, mac, 6);
  std::memset(spec.mask.dst_mac, 0xff, 6);
  return spec;
}
ibv_flow_spec_tcp_udp ToUdpPort(uint16_t port) {
  ibv_flow_spec_tcp_udp spec{};
  spec.type = IBV_FLOW_SPEC_UDP;
  spec.size = sizeof(spec);
  spec.val.dst_port = htons(port);
  spec.mask.dst_port = 0xffff;
  return spec;
}

// An Ethernet frame with IPv4, UDP without checksum, and `payload` bytes of a
// pattern.
Bytes UdpFrame(size_t payload, uint16_t port = kServerPort,
               uint32_t source = 0x0a000001) {
  Bytes frame(14 + 20 + 8 + payload);
  std::memcpy(&frame[0], kServerMac, 6);
  std::memcpy(&frame[6], kClientMac, 6);
  frame[12] = 8;
  iphdr ip{};
  ip.version = 4;
  ip.ihl = 5;
  ip.tot_len = htons(static_cast<uint16_t>(28 + payload));
  ip.ttl = 64;
  ip.protocol = IPPROTO_UDP;
  ip.saddr = htonl(source);
  ip.daddr = htonl(0x0a000002);
  std::memcpy(&frame[14], &ip, sizeof(ip));
  udphdr udp{};
  udp.source = htons(1);
  udp.dest = htons(port);
  udp.len = htons(static_cast<uint16_t>(8 + payload));
  std::memcpy(&frame[34], &udp, sizeof(udp));
  FillPattern(frame.data() + 42, payload, 3);
  return frame;
}

bool MayOpenPacketSockets() {
  const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  close(fd);
  return true;
}

class RawPacketTest : public PairTest {
 protected:
  static constexpr size_t kReceiveBytes = 2048;

  void SetUp() override {
    if (!MayOpenPacketSockets()) GTEST_SKIP() << "needs CAP_NET_RAW";
    make_pair_ = false;
    PairTest::SetUp();
    ASSERT_NE(context_, nullptr);
    MakeRaw(&a_);
    MakeRaw(&b_);
  }
  void TearDown() override {
    if (context_ == nullptr) return;
    DestroySide(&a_);
    DestroySide(&b_);
    PairTest::TearDown();
  }
  void MakeRaw(Side* side, ibv_comp_channel* channel = nullptr) {
    MakeSide(side, {.type = IBV_QPT_RAW_PACKET}, 256, channel);
    BringUp(side->qp);
  }
  static void BringUp(ibv_qp* qp) {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PORT), 0);
    attr.qp_state = IBV_QPS_RTR;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
    attr.qp_state = IBV_QPS_RTS;
    ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  }
  // Sends `frame` and waits for its completion.
  void SendFrame(Side& side, const Bytes& frame, unsigned flags = 0) {
    std::memcpy(side.memory.data(), frame.data(), frame.size());
    ASSERT_EQ(
        Send(side, IBV_WR_SEND, 77, 0, static_cast<uint32_t>(frame.size()),
             IBV_SEND_SIGNALED | flags),
        0);
    ExpectSuccess(side.cq, 77);
  }
  // The offset of receive `slot` of a side, from kMemory / 2 on.
  static size_t SlotAt(size_t slot) {
    return kMemory / 2 + slot * kReceiveBytes;
  }
  void PostReceives(Side& side, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(Receive(side, i, SlotAt(i), kReceiveBytes), 0);
    }
  }
  void ExpectFrame(Side& side, uint64_t slot, const Bytes& frame) {
    const ibv_wc wc = ExpectSuccess(side.cq, slot);
    ASSERT_EQ(wc.byte_len, frame.size());
    EXPECT_EQ(wc.opcode, IBV_WC_RECV);
    EXPECT_EQ(std::memcmp(side.memory.data() + SlotAt(slot), frame.data(),
                          frame.size()),
              0);
  }
  template <typename R>
  static ibv_flow* Create(ibv_qp* qp, R rule) {
    return ibv_create_flow(qp, &rule.attr);
  }
};

TEST_F(RawPacketTest, AFrameGoesToTheQueueOfItsFlow) {
  PostReceives(b_, 4);
  ibv_flow* flow = Create(b_.qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  for (uint64_t i = 0; i < 4; ++i) {
    const Bytes frame = UdpFrame(100 + i);
    SendFrame(a_, frame);
    ExpectFrame(b_, i, frame);
  }
  EXPECT_EQ(ibv_destroy_qp(b_.qp), EBUSY);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPacketTest, WithoutAFlowNothingComes) {
  PostReceives(a_, 2);
  PostReceives(b_, 2);
  ibv_flow* flow =
      Create(b_.qp, RuleOf(ToMac(kServerMac), ToUdpPort(kServerPort)));
  ASSERT_NE(flow, nullptr);
  SendFrame(a_, UdpFrame(10, kServerPort + 1));
  const Bytes wanted = UdpFrame(10);
  SendFrame(a_, wanted);
  ExpectFrame(b_, 0, wanted);  // the first one that arrives
  ExpectNothing(a_.cq);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  // A sniffer shows that a frame passed for which b_ has no flow any more.
  ibv_flow_attr sniffer{};
  sniffer.type = IBV_FLOW_ATTR_SNIFFER;
  sniffer.size = sizeof(sniffer);
  sniffer.port = 1;
  flow = ibv_create_flow(a_.qp, &sniffer);
  ASSERT_NE(flow, nullptr);
  SendFrame(b_, wanted);
  ExpectFrame(a_, 0, wanted);
  ExpectNothing(b_.cq);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPacketTest, PrioritiesAndDrops) {
  PostReceives(a_, 4);
  PostReceives(b_, 4);
  auto late = RuleOf(ToMac(kServerMac));
  late.attr.priority = 2;
  ibv_flow* rest = Create(a_.qp, late);
  auto first = RuleOf(ToUdpPort(kServerPort));
  first.attr.priority = 1;
  ibv_flow* own = Create(b_.qp, first);
  ibv_flow_spec_action_drop drop = {IBV_FLOW_SPEC_ACTION_DROP, sizeof(drop)};
  ibv_flow* none = Create(b_.qp, RuleOf(ToUdpPort(9), drop));
  ASSERT_TRUE(rest != nullptr && own != nullptr && none != nullptr);
  SendFrame(b_, UdpFrame(10, 9));
  const Bytes to_b = UdpFrame(11);
  SendFrame(a_, to_b);
  ExpectFrame(b_, 0, to_b);
  const Bytes to_a = UdpFrame(12, 10);
  SendFrame(b_, to_a);
  ExpectFrame(a_, 0, to_a);
  for (ibv_flow* flow : {rest, own, none}) EXPECT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPacketTest, ChecksumsAreFilledAndChecked) {
  PostReceives(b_, 2);
  ibv_flow* flow = Create(b_.qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  SendFrame(a_, UdpFrame(33));
  EXPECT_EQ(ExpectSuccess(b_.cq, 0).wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  SendFrame(a_, UdpFrame(33), IBV_SEND_IP_CSUM);
  EXPECT_NE(ExpectSuccess(b_.cq, 1).wc_flags & IBV_WC_IP_CSUM_OK, 0u);
  const uint8_t* const got = b_.memory.data() + SlotAt(1);
  EXPECT_FALSE(got[24] == 0 && got[25] == 0);
  EXPECT_FALSE(got[40] == 0 && got[41] == 0);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
}

TEST_F(RawPacketTest, CountersFollowFlows) {
  PostReceives(b_, 3);
  ibv_counters_init_attr none{};
  ibv_counters* counters = ibv_create_counters(context_, &none);
  ASSERT_NE(counters, nullptr);
  ibv_counter_attach_attr packets{IBV_COUNTER_PACKETS, 0, 0};
  ibv_counter_attach_attr bytes{IBV_COUNTER_BYTES, 1, 0};
  ASSERT_EQ(ibv_attach_counters_point_flow(counters, &packets, nullptr), 0);
  ASSERT_EQ(ibv_attach_counters_point_flow(counters, &bytes, nullptr), 0);
  // A second counter at the same index is added to the first.
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &packets, nullptr), 0);
  const ibv_flow_spec_counter_action count = {
      IBV_FLOW_SPEC_ACTION_COUNT, sizeof(ibv_flow_spec_counter_action),
      counters};
  ibv_flow* flow = Create(b_.qp, RuleOf(ToMac(kServerMac), count));
  ASSERT_NE(flow, nullptr);
  EXPECT_EQ(ibv_destroy_counters(counters), EBUSY);
  // Nothing can be attached to counters that a flow uses.
  EXPECT_EQ(ibv_attach_counters_point_flow(counters, &bytes, nullptr), EBUSY);
  SendFrame(a_, UdpFrame(58));
  ExpectSuccess(b_.cq, 0);
  // From here on at a third index.
  ibv_counter_attach_attr later{IBV_COUNTER_PACKETS, 2, 0};
  ASSERT_EQ(ibv_attach_counters_point_flow(counters, &later, flow), 0);
  SendFrame(a_, UdpFrame(58));
  ExpectSuccess(b_.cq, 1);
  uint64_t values[3] = {};
  ASSERT_EQ(ibv_read_counters(counters, values, 3, 0), 0);
  EXPECT_EQ(values[0], 4u);
  EXPECT_EQ(values[1], 200u);
  EXPECT_EQ(values[2], 1u);
  EXPECT_EQ(ibv_read_counters(counters, values, 4, 0), EINVAL);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_counters(counters), 0);
}

TEST_F(RawPacketTest, AFrameRaisesAnEvent) {
  ibv_comp_channel* channel = ibv_create_comp_channel(context_);
  ASSERT_NE(channel, nullptr);
  Side waiting;
  MakeRaw(&waiting, channel);
  PostReceives(waiting, 1);
  ibv_flow* flow = Create(waiting.qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  ASSERT_EQ(ibv_req_notify_cq(waiting.cq, 0), 0);
  SendFrame(a_, UdpFrame(64));
  // Without polling: the helper thread receives.
  pollfd readable = {channel->fd, POLLIN, 0};
  ASSERT_EQ(poll(&readable, 1, kTimeoutMs), 1);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(channel, &cq, &cq_context), 0);
  EXPECT_EQ(cq, waiting.cq);
  ibv_ack_cq_events(cq, 1);
  ExpectSuccess(waiting.cq, 0);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  DestroySide(&waiting);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
}

TEST_F(RawPacketTest, SegmentsOfOneSend) {
  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = a_.cq;
  init.cap = {8, 8, 2, 2, 0};
  init.qp_type = IBV_QPT_RAW_PACKET;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_MAX_TSO_HEADER |
                   IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = pd_;
  init.max_tso_header = 64;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_TSO;
  ibv_qp* qp = ibv_create_qp_ex(context_, &init);
  ASSERT_NE(qp, nullptr);
  BringUp(qp);
  PostReceives(b_, 6);
  ibv_flow* flow = Create(b_.qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  Bytes header = UdpFrame(12);  // as long as a TCP header
  header[23] = IPPROTO_TCP;
  header[46] = 0x50;
  FillPattern(a_.memory.data(), 2500, 9);

  ibv_qp_ex* qpx = ibv_qp_to_qp_ex(qp);
  ibv_wr_start(qpx);
  qpx->wr_id = 5;
  qpx->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_tso(qpx, header.data(), static_cast<uint16_t>(header.size()),
                  1000);
  ibv_wr_set_sge(qpx, a_.mr->lkey, a_.address(), 2500);
  ASSERT_EQ(ibv_wr_complete(qpx), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 5).opcode, IBV_WC_TSO);

  ibv_sge sge = a_.Sge(0, 2500);
  ibv_send_wr wr{}, *bad = nullptr;
  wr.wr_id = 6;
  wr.opcode = IBV_WR_TSO;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.tso.hdr = header.data();
  wr.tso.hdr_sz = static_cast<uint16_t>(header.size());
  wr.tso.mss = 1000;
  ASSERT_EQ(ibv_post_send(qp, &wr, &bad), 0);
  ExpectSuccess(a_.cq, 6);

  for (uint64_t i = 0; i < 6; ++i) {
    const ibv_wc wc = ExpectSuccess(b_.cq, i);
    EXPECT_EQ(wc.byte_len, i % 3 == 2 ? 554u : 1054u);
    EXPECT_NE(wc.wc_flags & IBV_WC_IP_CSUM_OK, 0u);
    EXPECT_EQ(std::memcmp(b_.memory.data() + SlotAt(i) + 54,
                          a_.memory.data() + i % 3 * 1000, wc.byte_len - 54),
              0);
  }
  wr.tso.hdr_sz = 65;
  EXPECT_EQ(ibv_post_send(qp, &wr, &bad), EINVAL);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(RawPacketTest, AWorkQueueTellsItsSize) {
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 64;
  init.max_sge = 0;
  init.pd = pd_;
  init.cq = b_.cq;
  ibv_wq* const wq = ibv_create_wq(context_, &init);
  ASSERT_NE(wq, nullptr);
  EXPECT_EQ(init.max_wr, 64u);
  EXPECT_EQ(init.max_sge, 1u);
  ASSERT_EQ(ibv_destroy_wq(wq), 0);
}

TEST_F(RawPacketTest, WorkQueuesShareTheFrames) {
  constexpr uint32_t kQueues = 4;
  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 64;
  init.max_sge = 1;
  init.pd = pd_;
  init.cq = b_.cq;
  ibv_wq* queues[kQueues];
  for (ibv_wq*& wq : queues) {
    wq = ibv_create_wq(context_, &init);
    ASSERT_NE(wq, nullptr);
    ibv_wq_attr ready{};
    ready.attr_mask = IBV_WQ_ATTR_STATE;
    ready.wq_state = IBV_WQS_RDY;
    ASSERT_EQ(ibv_modify_wq(wq, &ready), 0);
    ibv_sge sge = b_.Sge(SlotAt(0), kReceiveBytes);
    for (uint64_t i = 0; i < 16; ++i) {
      ibv_recv_wr wr{}, *bad = nullptr;
      wr.wr_id = i;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      ASSERT_EQ(ibv_post_wq_recv(wq, &wr, &bad), 0);
    }
  }
  ibv_rwq_ind_table_init_attr spread{2, queues, 0};
  ibv_rwq_ind_table* table = ibv_create_rwq_ind_table(context_, &spread);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(ibv_destroy_wq(queues[0]), EBUSY);

  uint8_t key[40];
  FillPattern(key, sizeof(key), 1);
  ibv_qp_init_attr_ex attr{};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE |
                   IBV_QP_INIT_ATTR_RX_HASH;
  attr.pd = pd_;
  attr.rwq_ind_tbl = table;
  attr.rx_hash_conf = {IBV_RX_HASH_FUNC_TOEPLITZ, sizeof(key), key,
                       IBV_RX_HASH_SRC_IPV4 | IBV_RX_HASH_DST_IPV4};
  ibv_qp* qp = ibv_create_qp_ex(context_, &attr);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_rwq_ind_table(table), EBUSY);
  ibv_flow* flow = Create(qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  uint32_t first = 0;
  int different = 0;
  for (uint32_t i = 0; i < 16; ++i) {
    SendFrame(a_, UdpFrame(20, kServerPort, 0x0a000001 + i));
    const ibv_wc wc = Next(b_.cq);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    if (i == 0) first = wc.qp_num;
    different += wc.qp_num != first;
  }
  EXPECT_GT(different, 0);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  attr.rx_hash_conf.rx_hash_key_len = 39;
  EXPECT_EQ(ibv_create_qp_ex(context_, &attr), nullptr);
  ASSERT_EQ(ibv_destroy_rwq_ind_table(table), 0);
  EXPECT_EQ(ibv_destroy_cq(b_.cq), EBUSY);
  for (ibv_wq* wq : queues) EXPECT_EQ(ibv_destroy_wq(wq), 0);
}

// Requests hold their slots until their completions are polled.
TEST_F(RawPacketTest, RequestsHoldTheirPlaces) {
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = a_.cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(qp, nullptr);
  BringUp(qp);
  const Bytes frame = UdpFrame(20);
  std::memcpy(a_.memory.data(), frame.data(), frame.size());
  ibv_sge sge = a_.Sge(0, static_cast<uint32_t>(frame.size()));
  const auto send = [&](uint64_t wr_id, unsigned flags) {
    ibv_send_wr wr{}, *bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = flags;
    return ibv_post_send(qp, &wr, &bad);
  };
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 3; ++i) ASSERT_EQ(send(1, 0), 0);
    ASSERT_EQ(send(2, IBV_SEND_SIGNALED), 0);
    for (int i = 0; i < 100; ++i) ASSERT_EQ(send(3, 0), ENOMEM);
    ExpectSuccess(a_.cq, 2);
  }
  ASSERT_EQ(ibv_destroy_qp(qp), 0);

  ibv_wq_init_attr init{};
  init.wq_type = IBV_WQT_RQ;
  init.max_wr = 4;
  init.max_sge = 1;
  init.pd = pd_;
  init.cq = a_.cq;
  ibv_wq* wq = ibv_create_wq(context_, &init);
  ASSERT_NE(wq, nullptr);
  const auto enter = [wq](ibv_wq_state state) {
    ibv_wq_attr to{};
    to.attr_mask = IBV_WQ_ATTR_STATE;
    to.wq_state = state;
    return ibv_modify_wq(wq, &to);
  };
  const auto receive = [&](uint64_t wr_id) {
    ibv_recv_wr wr{}, *bad = nullptr;
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    return ibv_post_wq_recv(wq, &wr, &bad);
  };
  for (int round = 0; round < 2; ++round) {
    ASSERT_EQ(enter(IBV_WQS_RDY), 0);
    for (int i = 0; i < 4; ++i) ASSERT_EQ(receive(i), 0);
    ASSERT_EQ(enter(IBV_WQS_ERR), 0);
    EXPECT_EQ(receive(99), ENOMEM);
    ExpectStatus(a_.cq, 0, IBV_WC_WR_FLUSH_ERR);
    EXPECT_EQ(receive(4), 0);
    EXPECT_EQ(receive(99), ENOMEM);
    ASSERT_EQ(enter(IBV_WQS_RESET), 0);
    ExpectNothing(a_.cq);
  }
  ASSERT_EQ(ibv_destroy_wq(wq), 0);
}

TEST_F(RawPacketTest, FlowTagsReachTheExtendedQueue) {
  ibv_cq_init_attr_ex init{};
  init.cqe = 16;
  init.wc_flags =
      uint64_t{IBV_WC_STANDARD_FLAGS} | uint64_t{IBV_WC_EX_WITH_FLOW_TAG};
  ibv_cq_ex* cq = ibv_create_cq_ex(context_, &init);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = ibv_cq_ex_to_cq(cq);
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  ibv_qp* qp = ibv_create_qp(pd_, &attr);
  ASSERT_NE(qp, nullptr);
  BringUp(qp);
  ibv_sge sge = b_.Sge(0, 2048);
  ibv_recv_wr wr{}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  ASSERT_EQ(ibv_post_recv(qp, &wr, &bad), 0);
  const ibv_flow_spec_action_tag tag = {IBV_FLOW_SPEC_ACTION_TAG,
                                        sizeof(ibv_flow_spec_action_tag), 4711};
  ibv_flow* flow = Create(qp, RuleOf(ToMac(kServerMac), tag));
  ASSERT_NE(flow, nullptr);
  SendFrame(a_, UdpFrame(20));
  ibv_poll_cq_attr poll_attr{};
  const int64_t end = NowMs() + kTimeoutMs;
  int error;
  while ((error = ibv_start_poll(cq, &poll_attr)) == ENOENT && NowMs() < end) {
  }
  ASSERT_EQ(error, 0);
  EXPECT_EQ(ibv_wc_read_flow_tag(cq), 4711u);
  ibv_end_poll(cq);
  ASSERT_EQ(ibv_destroy_flow(flow), 0);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  ASSERT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

TEST_F(RawPacketTest, WrongRulesAreRefused) {
  const auto refused = [this](ibv_flow_attr* attr, int error) {
    errno = 0;
    EXPECT_EQ(ibv_create_flow(b_.qp, attr), nullptr);
    EXPECT_EQ(errno, error);
  };
  auto rule = RuleOf(ToMac(kServerMac));
  rule.attr.port = 2;
  refused(&rule.attr, EINVAL);
  rule = RuleOf(ToMac(kServerMac));
  rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS;
  refused(&rule.attr, EOPNOTSUPP);
  rule.attr.flags = 1u << 20;
  refused(&rule.attr, EINVAL);
  rule = RuleOf(ToMac(kServerMac));
  rule.first.size = 3;
  refused(&rule.attr, EINVAL);
  rule = RuleOf(ToMac(kServerMac));
  rule.first.type =
      static_cast<ibv_flow_spec_type>(IBV_FLOW_SPEC_ETH | IBV_FLOW_SPEC_INNER);
  refused(&rule.attr, EOPNOTSUPP);
  auto twice = RuleOf(ToMac(kServerMac), ToMac(kClientMac));
  refused(&twice.attr, EINVAL);
  rule = RuleOf(ToMac(kServerMac));
  Side ud;
  MakeSide(&ud, {.type = IBV_QPT_UD});
  errno = 0;
  EXPECT_EQ(ibv_create_flow(ud.qp, &rule.attr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  DestroySide(&ud);
}

TEST_F(RawPacketTest, AClosedDeviceLeavesItsFlows) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_GT(count, 0);
  ibv_context* other = ibv_open_device(context_->device);
  ibv_free_device_list(list);
  ASSERT_NE(other, nullptr);
  ibv_pd* pd = ibv_alloc_pd(other);
  ibv_cq* cq = ibv_create_cq(other, 8, nullptr, nullptr, 0);
  ibv_qp_init_attr attr{};
  attr.send_cq = attr.recv_cq = cq;
  attr.cap = {4, 4, 1, 1, 0};
  attr.qp_type = IBV_QPT_RAW_PACKET;
  ibv_qp* qp = ibv_create_qp(pd, &attr);
  ASSERT_NE(qp, nullptr);
  ibv_flow* flow = Create(qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(flow, nullptr);
  ASSERT_EQ(ibv_close_device(other), 0);
  PostReceives(b_, 1);
  ibv_flow* mine = Create(b_.qp, RuleOf(ToMac(kServerMac)));
  ASSERT_NE(mine, nullptr);
  SendFrame(a_, UdpFrame(20));
  ExpectSuccess(b_.cq, 0);
  EXPECT_EQ(ibv_destroy_flow(mine), 0);
  EXPECT_EQ(ibv_destroy_flow(flow), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

// A process without the right gets EPERM; everything else works.
TEST(RawPacketRightTest, WithoutTheRightItIsRefused) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    if (syscall(SYS_capset, &header, data) != 0) _exit(10);
    int count = 0;
    ibv_device** list = ibv_get_device_list(&count);
    if (list == nullptr || count == 0) _exit(11);
    ibv_context* context = ibv_open_device(list[0]);
    ibv_pd* pd = ibv_alloc_pd(context);
    ibv_cq* cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
    ibv_qp_init_attr attr{};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {4, 4, 1, 1, 0};
    attr.qp_type = IBV_QPT_RAW_PACKET;
    errno = 0;
    if (ibv_create_qp(pd, &attr) != nullptr) _exit(12);
    if (errno != EPERM) _exit(13);
    attr.qp_type = IBV_QPT_RC;
    ibv_qp* qp = ibv_create_qp(pd, &attr);
    if (qp == nullptr) _exit(14);
    _exit(ibv_destroy_qp(qp) == 0 ? 0 : 15);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace conformance
