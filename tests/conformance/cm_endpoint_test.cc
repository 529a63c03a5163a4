// Synchronous endpoints with XRC: rdma_create_ep(3) with IBV_QPT_XRC_SEND and
// IBV_QPT_XRC_RECV; and the end of synchronous ids.
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

class EndpointTest : public CmTest {
 protected:
  // An endpoint on the loopback address.
  static rdma_cm_id* NewEndpoint(int flags, ibv_qp_type type, uint16_t port) {
    rdma_addrinfo hints = {};
    hints.ai_flags = flags | RAI_NUMERICHOST;
    hints.ai_qp_type = type;
    hints.ai_port_space = type == IBV_QPT_RC ? RDMA_PS_TCP : RDMA_PS_IB;
    rdma_addrinfo* info = nullptr;
    const std::string service = std::to_string(port);
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", service.c_str(), &hints, &info), 0);
    ibv_qp_init_attr attr = {};
    attr.cap = {4, 4, 1, 1, 0};
    attr.sq_sig_all = 1;
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, info, nullptr, &attr), 0)
        << std::strerror(errno);
    rdma_freeaddrinfo(info);
    return id;
  }
  // Each end answers the other's disconnect.
  static void Disconnect(rdma_cm_id* client, rdma_cm_id* server) {
    std::thread answering([&] { EXPECT_EQ(rdma_disconnect(server), 0); });
    EXPECT_EQ(rdma_disconnect(client), 0);
    EXPECT_EQ(client->event->event, RDMA_CM_EVENT_DISCONNECTED);
    answering.join();
  }
};

// As rdma_create_id(3): its service IDs could not have a listener.
TEST_F(EndpointTest, APortSpaceThatIsNoneIsRefused) {
  CmAddress here = CmAddress::Loopback(AF_INET);
  rdma_addrinfo info = {};
  info.ai_flags = RAI_PASSIVE;
  info.ai_family = AF_INET;
  info.ai_qp_type = IBV_QPT_RC;
  info.ai_src_addr = here.get();
  info.ai_src_len = sizeof(sockaddr_in);
  for (const int port_space : {0, 0x7777}) {
    info.ai_port_space = port_space;
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_ep(&id, &info, nullptr, nullptr), -1);
    EXPECT_EQ(errno, EINVAL);
  }
}

// rdma_reg_msgs(3) of a listener registers with the domain of its requests.
TEST_F(EndpointTest, AListenerShowsTheDomainItWasGiven) {
  rdma_cm_id* const bound = NewId();
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(AF_INET).get()), 0);
  ibv_pd* const pd = ibv_alloc_pd(bound->verbs);
  ASSERT_NE(pd, nullptr);
  for (const char* const address : {"127.0.0.1", "0.0.0.0"}) {
    rdma_addrinfo hints = {};
    hints.ai_flags = RAI_PASSIVE | RAI_NUMERICHOST;
    hints.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* info = nullptr;
    ASSERT_EQ(rdma_getaddrinfo(address, "0", &hints, &info), 0);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_ep(&id, info, pd, nullptr), 0)
        << std::strerror(errno);
    EXPECT_EQ(id->pd, pd) << address;
    rdma_destroy_ep(id);
    rdma_freeaddrinfo(info);
  }
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
}

// The type of an SRQ must be given.
TEST_F(EndpointTest, AnSrqWithoutATypeIsRefused) {
  rdma_cm_id* const id = NewId();
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()), 0);
  ibv_srq_init_attr_ex attr = {};
  attr.attr.max_wr = attr.attr.max_sge = 1;
  EXPECT_EQ(rdma_create_srq_ex(id, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
  attr.srq_type = IBV_SRQT_BASIC;
  EXPECT_EQ(rdma_create_srq_ex(id, &attr), 0) << std::strerror(errno);
  rdma_destroy_srq(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(EndpointTest, XrcConnectionsCarryMessagesToAnSrq) {
  constexpr uint16_t kPort = 7571;
  rdma_cm_id* listener = NewEndpoint(RAI_PASSIVE, IBV_QPT_XRC_RECV, kPort);
  ASSERT_EQ(rdma_listen(listener, 0), 0) << std::strerror(errno);
  rdma_cm_id* server = nullptr;
  char received[16] = {};
  ibv_mr* mr = nullptr;
  std::thread serving([&] {
    ASSERT_EQ(rdma_get_request(listener, &server), 0) << std::strerror(errno);
    ASSERT_EQ(server->qp->qp_type, IBV_QPT_XRC_RECV);
    ibv_srq_init_attr srq = {};
    srq.attr.max_wr = 2;
    srq.attr.max_sge = 1;
    ASSERT_EQ(rdma_create_srq(server, nullptr, &srq), 0)
        << std::strerror(errno);
    ASSERT_NE(server->recv_cq, nullptr);
    uint32_t number = 0;
    ASSERT_EQ(ibv_get_srq_num(server->srq, &number), 0);
    mr = rdma_reg_msgs(server, received, sizeof(received));
    ASSERT_EQ(rdma_post_recv(server, nullptr, received, sizeof(received), mr),
              0);
    rdma_conn_param param = {};
    param.private_data = &number;
    param.private_data_len = sizeof(number);
    ASSERT_EQ(rdma_accept(server, &param), 0) << std::strerror(errno);
  });
  rdma_cm_id* client = NewEndpoint(0, IBV_QPT_XRC_SEND, kPort);
  ASSERT_EQ(rdma_connect(client, nullptr), 0) << std::strerror(errno);
  serving.join();
  ASSERT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(client->event->param.conn.qp_num, server->qp->qp_num);
  EXPECT_EQ(client->event->param.conn.srq, 1);

  char text[16] = "extended";
  ibv_mr* text_mr = rdma_reg_msgs(client, text, sizeof(text));
  ibv_sge sge = {reinterpret_cast<uintptr_t>(text), sizeof(text),
                 text_mr->lkey};
  ibv_send_wr wr = {}, *bad = nullptr;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_SEND;
  std::memcpy(&wr.qp_type.xrc.remote_srqn,
              client->event->param.conn.private_data, sizeof(uint32_t));
  ASSERT_EQ(ibv_post_send(client->qp, &wr, &bad), 0);
  ibv_wc wc;
  ASSERT_EQ(rdma_get_send_comp(client, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  ASSERT_EQ(rdma_get_recv_comp(server, &wc), 1);
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_STREQ(received, "extended");

  rdma_dereg_mr(mr);
  rdma_dereg_mr(text_mr);
  Disconnect(client, server);
  rdma_destroy_ep(client);
  rdma_destroy_ep(server);
  rdma_destroy_ep(listener);
}

// A request for another connection type than the listener's is refused.
TEST_F(EndpointTest, KindsOfConnectionDoNotMix) {
  constexpr uint16_t kPort = 7572;
  rdma_cm_id* listener = NewEndpoint(RAI_PASSIVE, IBV_QPT_XRC_RECV, kPort);
  ASSERT_EQ(rdma_listen(listener, 0), 0) << std::strerror(errno);
  rdma_cm_id* client = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &client, nullptr, RDMA_PS_IB), 0);
  ASSERT_EQ(rdma_resolve_addr(client, nullptr,
                              CmAddress::Loopback(AF_INET, kPort).get(), 2000),
            0);
  ASSERT_EQ(rdma_resolve_route(client, 2000), 0);
  MakeQp(client);
  EXPECT_EQ(rdma_connect(client, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  rdma_destroy_ep(client);
  rdma_destroy_ep(listener);
}

// A second disconnect does not wait for an event that was already taken.
TEST_F(EndpointTest, ASynchronousIdMayDisconnectTwice) {
  constexpr uint16_t kPort = 7573;
  rdma_cm_id* listener = NewEndpoint(RAI_PASSIVE, IBV_QPT_RC, kPort);
  ASSERT_EQ(rdma_listen(listener, 0), 0) << std::strerror(errno);
  rdma_cm_id* server = nullptr;
  std::thread serving([&] {
    ASSERT_EQ(rdma_get_request(listener, &server), 0) << std::strerror(errno);
    ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
  });
  rdma_cm_id* client = NewEndpoint(0, IBV_QPT_RC, kPort);
  ASSERT_EQ(rdma_connect(client, nullptr), 0) << std::strerror(errno);
  serving.join();
  Disconnect(client, server);
  EXPECT_EQ(rdma_disconnect(client), 0);
  rdma_destroy_ep(client);
  rdma_destroy_ep(server);
  rdma_destroy_ep(listener);
}

}  // namespace
}  // namespace conformance
