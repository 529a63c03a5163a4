// Multicast through librdmacm: rdma_join_multicast(3),
// rdma_join_multicast_ex(3), rdma_leave_multicast(3).
#include <arpa/inet.h>
#include <infiniband/ib.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

constexpr char kGroup[] = "239.7.7.7";
constexpr size_t kBytes = 64;
constexpr size_t kGrh = 40;

// A datagram id on the loopback address, with a queue pair and memory.
class Member {
 public:
  explicit Member(rdma_cm_id* id) : id_(id) {
    EXPECT_EQ(rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()), 0)
        << std::strerror(errno);
    ibv_qp_init_attr attr = {};
    attr.cap = {16, 16, 1, 1, 0};
    attr.qp_type = IBV_QPT_UD;
    attr.sq_sig_all = 1;
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << std::strerror(errno);
    mr_ = rdma_reg_msgs(id, buffer_, sizeof(buffer_));
    EXPECT_NE(mr_, nullptr);
  }
  ~Member() {
    rdma_dereg_mr(mr_);
    rdma_destroy_qp(id_);
    EXPECT_EQ(rdma_destroy_id(id_), 0);
  }

  rdma_cm_id* id() { return id_; }
  const char* received() const { return buffer_ + kGrh; }

  void PostRecv() {
    ASSERT_EQ(rdma_post_recv(id_, nullptr, buffer_, sizeof(buffer_), mr_), 0);
  }
  // For messages that would have arrived by now.
  bool HasReceived() {
    ibv_wc wc;
    return ibv_poll_cq(id_->recv_cq, 1, &wc) == 1;
  }
  void AwaitRecv() {
    ibv_wc wc;
    ASSERT_EQ(rdma_get_recv_comp(id_, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  }
  void Send(const rdma_ud_param& to, const char* text) {
    ibv_ah_attr attr = to.ah_attr;
    ibv_ah* ah = ibv_create_ah(id_->pd, &attr);
    ASSERT_NE(ah, nullptr) << std::strerror(errno);
    std::strcpy(buffer_, text);
    ASSERT_EQ(rdma_post_ud_send(id_, nullptr, buffer_, kBytes, mr_, 0, ah,
                                static_cast<int>(to.qp_num)),
              0);
    ibv_wc wc;
    ASSERT_EQ(rdma_get_send_comp(id_, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    ibv_destroy_ah(ah);
  }

 private:
  rdma_cm_id* const id_;
  char buffer_[kGrh + kBytes] = {};
  ibv_mr* mr_ = nullptr;
};

class CmMulticastTest : public CmTest {
 protected:
  rdma_ud_param Join(Member& member, void* context = nullptr) {
    CmAddress group = CmAddress::Of(kGroup);
    EXPECT_EQ(rdma_join_multicast(member.id(), group.get(), context), 0)
        << std::strerror(errno);
    CmEvent event = Next(RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_EQ(event->id, member.id());
    EXPECT_EQ(event->param.ud.private_data, context);
    return event->param.ud;
  }
};

TEST_F(CmMulticastTest, MembersReceiveUntilTheyLeave) {
  Member sender(NewId(RDMA_PS_UDP));
  Member receiver(NewId(RDMA_PS_UDP));
  const rdma_ud_param group = Join(receiver, &sender);
  // The mapping of the kernel for RoCEv2.
  const uint8_t gid[16] = {0, 0, 0,   0,   0,   0, 0, 0,
                           0, 0, 255, 255, 239, 7, 7, 7};
  EXPECT_EQ(std::memcmp(group.ah_attr.grh.dgid.raw, gid, sizeof(gid)), 0);
  EXPECT_EQ(group.ah_attr.is_global, 1);
  EXPECT_EQ(group.qp_num, 0xffffffu);
  EXPECT_EQ(group.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));

  receiver.PostRecv();
  sender.Send(group, "first");
  receiver.AwaitRecv();
  EXPECT_STREQ(receiver.received(), "first");

  CmAddress address = CmAddress::Of(kGroup);
  ASSERT_EQ(rdma_leave_multicast(receiver.id(), address.get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(rdma_leave_multicast(receiver.id(), address.get()), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
  // A third member shows that the message was delivered.
  Member witness(NewId(RDMA_PS_UDP));
  Join(witness);
  receiver.PostRecv();
  witness.PostRecv();
  sender.Send(group, "second");
  witness.AwaitRecv();
  EXPECT_FALSE(receiver.HasReceived());
}

TEST_F(CmMulticastTest, AGroupThatWasJoinedTwiceIsLeftTwice) {
  Member sender(NewId(RDMA_PS_UDP));
  Member receiver(NewId(RDMA_PS_UDP));
  Join(receiver);
  const rdma_ud_param group = Join(receiver);
  CmAddress address = CmAddress::Of(kGroup);
  ASSERT_EQ(rdma_leave_multicast(receiver.id(), address.get()), 0);
  receiver.PostRecv();
  sender.Send(group, "still");
  receiver.AwaitRecv();
  EXPECT_EQ(rdma_leave_multicast(receiver.id(), address.get()), 0);
  EXPECT_EQ(rdma_leave_multicast(receiver.id(), address.get()), -1);
}

TEST_F(CmMulticastTest, LeavingAtOnceDropsTheEvent) {
  Member member(NewId(RDMA_PS_UDP));
  CmAddress address = CmAddress::Of(kGroup);
  ASSERT_EQ(rdma_join_multicast(member.id(), address.get(), nullptr), 0);
  EXPECT_TRUE(IsReadable(channel_));
  ASSERT_EQ(rdma_leave_multicast(member.id(), address.get()), 0);
  EXPECT_FALSE(IsReadable(channel_));
}

TEST_F(CmMulticastTest, SendOnlyMembersDoNotReceive) {
  Member sender(NewId(RDMA_PS_UDP));
  Member only_sends(NewId(RDMA_PS_UDP));
  Member witness(NewId(RDMA_PS_UDP));
  CmAddress address = CmAddress::Of(kGroup);
  rdma_cm_join_mc_attr_ex attr = {};
  attr.comp_mask =
      RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  attr.join_flags = RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER;
  attr.addr = address.get();
  ASSERT_EQ(rdma_join_multicast_ex(only_sends.id(), &attr, nullptr), 0);
  const rdma_ud_param group = Next(RDMA_CM_EVENT_MULTICAST_JOIN)->param.ud;
  Join(witness);
  only_sends.PostRecv();
  witness.PostRecv();
  sender.Send(group, "hello");
  witness.AwaitRecv();
  EXPECT_FALSE(only_sends.HasReceived());
}

TEST_F(CmMulticastTest, AGroupMayBeGivenByItsGid) {
  Member member(NewId(RDMA_PS_UDP));
  sockaddr_ib gid = {};
  gid.sib_family = AF_IB;
  ASSERT_EQ(inet_pton(AF_INET6, "::ffff:239.7.7.7", gid.sib_addr.sib_raw), 1);
  auto* address = reinterpret_cast<sockaddr*>(&gid);
  ASSERT_EQ(rdma_join_multicast(member.id(), address, nullptr), 0)
      << std::strerror(errno);
  CmEvent event = Next(RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(std::memcmp(event->param.ud.ah_attr.grh.dgid.raw,
                        gid.sib_addr.sib_raw, 16),
            0);
  event.Acknowledge();
  EXPECT_EQ(rdma_leave_multicast(member.id(), address), 0);
}

TEST_F(CmMulticastTest, ResolvingAGroupBindsToTheSource) {
  rdma_cm_id* id = NewId(RDMA_PS_UDP);
  CmAddress source = CmAddress::Loopback(AF_INET);
  CmAddress group = CmAddress::Of(kGroup);
  ASSERT_EQ(rdma_resolve_addr(id, source.get(), group.get(), 2000), 0)
      << std::strerror(errno);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(id->verbs, nullptr);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(CmMulticastTest, OtherAddressesAndIdsAreRefused) {
  Member member(NewId(RDMA_PS_UDP));
  CmAddress group = CmAddress::Of(kGroup);
  CmAddress host = CmAddress::Loopback(AF_INET);
  CmAddress none = CmAddress::Any(AF_INET);
  const auto refused = [](rdma_cm_id* id, sockaddr* address) {
    EXPECT_EQ(rdma_join_multicast(id, address, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
  };
  refused(member.id(), host.get());
  refused(member.id(), none.get());
  refused(member.id(), nullptr);
  rdma_cm_id* unbound = NewId(RDMA_PS_UDP);
  refused(unbound, group.get());
  EXPECT_EQ(rdma_destroy_id(unbound), 0);
  rdma_cm_id* connected = NewId(RDMA_PS_TCP);
  ASSERT_EQ(rdma_bind_addr(connected, host.get()), 0);
  refused(connected, group.get());
  EXPECT_EQ(rdma_destroy_id(connected), 0);
  rdma_cm_join_mc_attr_ex attr = {};
  attr.addr = group.get();
  EXPECT_EQ(rdma_join_multicast_ex(member.id(), &attr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  attr.comp_mask = RDMA_CM_JOIN_MC_ATTR_RESERVED;
  EXPECT_EQ(rdma_join_multicast_ex(member.id(), &attr, nullptr), -1);
  EXPECT_EQ(errno, ENOTSUP);
}

}  // namespace
}  // namespace conformance
