// Services for datagrams (RDMA_PS_UDP): their queue pairs are asked for by
// rdma_connect(3).
#include <cerrno>
#include <cstring>
#include <vector>

#include "tests/conformance/cm_connect_fixture.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// Bytes of private data (rdma_connect(3), rdma_accept(3)).
constexpr size_t kMaxDatagramConnectData = 180;
constexpr size_t kMaxDatagramAcceptData = 136;

class DatagramTest : public ConnectTest {
 protected:
  CmEvent Ask(const std::string& said) {
    listener_ = NewListener(GetParam(), RDMA_PS_UDP);
    client_ = NewClient(GetParam(), listener_);
    MakeQp(client_);
    rdma_conn_param param = Saying(said);
    EXPECT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    return request;
  }
  static std::string Said(const rdma_cm_event* event) {
    return {static_cast<const char*>(event->param.ud.private_data),
            event->param.ud.private_data_len};
  }
};

TEST_P(DatagramTest, TheQueuePairOfAServiceIsFound) {
  const std::string said = Text(kMaxDatagramConnectData, 'a');
  const std::string answered = Text(kMaxDatagramAcceptData, 'A');
  {
    CmEvent request = Ask(said);
    EXPECT_EQ(Said(request.get()), said);
  }
  MakeQp(server_);
  std::vector<char> received(40 + 64);
  ibv_mr* to = rdma_reg_msgs(server_, received.data(), received.size());
  ASSERT_EQ(rdma_post_recv(server_, this, received.data(), received.size(), to),
            0);
  rdma_conn_param answer = Saying(answered);
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  CmEvent found = Next(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(Said(found.get()), answered);
  EXPECT_EQ(found->param.ud.qp_num, server_->qp->qp_num);
  EXPECT_EQ(found->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  ibv_ah* ah = ibv_create_ah(client_->pd, &found->param.ud.ah_attr);
  ASSERT_NE(ah, nullptr) << std::strerror(errno);
  char text[64] = "datagram";
  ibv_mr* from = rdma_reg_msgs(client_, text, sizeof(text));
  ASSERT_EQ(rdma_post_ud_send(client_, text, text, sizeof(text), from, 0, ah,
                              found->param.ud.qp_num),
            0);
  ExpectSent(client_, text);
  ExpectReceived(server_, 40 + 64);
  EXPECT_STREQ(received.data() + 40, text);
  ibv_destroy_ah(ah);
  rdma_dereg_mr(from);
  rdma_dereg_mr(to);
}

TEST_P(DatagramTest, AServiceMayRefuse) {
  constexpr int kSidrRejected = 2;  // IBA 12.11.2
  Ask("please").Acknowledge();
  const std::string why = Text(kMaxDatagramAcceptData, 'r');
  EXPECT_EQ(rdma_reject(server_, why.data(), 137), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_reject(server_, why.data(), static_cast<uint8_t>(why.size())),
            0);
  CmEvent refused = Next(RDMA_CM_EVENT_UNREACHABLE, kSidrRejected);
  EXPECT_EQ(Said(refused.get()), why);
}

TEST_P(DatagramTest, NobodyListens) {
  constexpr int kSidrNoSuchService = 1;
  rdma_cm_id* bound = NewId(RDMA_PS_UDP);
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(GetParam()).get()), 0);
  client_ = NewClient(GetParam(), bound);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  Next(RDMA_CM_EVENT_UNREACHABLE, kSidrNoSuchService);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, DatagramTest,
                         testing::Values(AF_INET, AF_INET6), FamilyName);

}  // namespace
}  // namespace conformance
