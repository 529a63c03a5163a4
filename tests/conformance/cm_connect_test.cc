// Ways to connect: with and without queue pairs of ids, many at once, calls
// that wait (rdma_create_ep(3)), and the end of a connection.
#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/conformance/cm_connect_fixture.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

TEST_P(ConnectTest, CarriesMessagesByTheHelpersOfTheHeader) {
  Connect();
  std::vector<char> sent(4096, 'x'), received(4096);
  ibv_mr* from = rdma_reg_msgs(client_, sent.data(), sent.size());
  ibv_mr* to = rdma_reg_write(server_, received.data(), received.size());
  ASSERT_NE(from, nullptr);
  ASSERT_NE(to, nullptr);
  ASSERT_EQ(rdma_post_recv(server_, this, received.data(), received.size(), to),
            0);
  ASSERT_EQ(rdma_post_send(client_, &sent, sent.data(), sent.size(), from, 0),
            0);
  ExpectSent(client_, &sent);
  ExpectReceived(server_, 4096);
  EXPECT_EQ(received, sent);

  std::fill(sent.begin(), sent.end(), 'w');
  ASSERT_EQ(
      rdma_post_write(client_, &received, sent.data(), sent.size(), from, 0,
                      reinterpret_cast<uint64_t>(received.data()), to->rkey),
      0);
  ExpectSent(client_, &received);
  EXPECT_EQ(received, sent);
  Disconnect();
  EXPECT_EQ(Query(client_->qp).qp_state, IBV_QPS_ERR);
  EXPECT_EQ(Query(server_->qp).qp_state, IBV_QPS_ERR);
  rdma_dereg_mr(from);
  rdma_dereg_mr(to);
}

// An application that drives its own queue pairs.
TEST_P(ConnectTest, IdsWithoutQueuePairs) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  // Different numbers for each test, because they stay in timewait.
  const uint32_t client_qpn = 0x112200u + static_cast<uint32_t>(GetParam());
  const uint32_t server_qpn = 0x445500u + static_cast<uint32_t>(GetParam());
  // Only the application knows the queue pair.
  EXPECT_EQ(rdma_connect(client_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param param = {};
  param.qp_num = client_qpn;
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  {
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    EXPECT_EQ(request->param.conn.qp_num, client_qpn);
  }
  EXPECT_EQ(rdma_accept(server_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param answer = {};
  answer.qp_num = server_qpn;
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_CONNECT_RESPONSE)->param.conn.qp_num,
            server_qpn);
  ibv_qp_attr attr = {};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(rdma_init_qp_attr(client_, &attr, &mask), 0);
  EXPECT_EQ(attr.dest_qp_num, server_qpn);
  EXPECT_NE(mask & IBV_QP_AV, 0);
  attr.qp_state = IBV_QPS_SQD;
  EXPECT_EQ(rdma_init_qp_attr(client_, &attr, &mask), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_establish(client_), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_establish(client_), -1);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server_);
  EXPECT_EQ(rdma_notify(server_, IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EISCONN);
  Disconnect();
}

TEST_P(ConnectTest, AQueuePairIsFreeAfterItsTimewait) {
  uint8_t ack_timeout = 8;  // 1 ms, so that timewait is short
  listener_ = NewListener(GetParam());
  client_ = NewId();
  ASSERT_EQ(rdma_set_option(client_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                            &ack_timeout, 1),
            0);
  CmAddress to =
      CmAddress::Loopback(GetParam(), ntohs(rdma_get_src_port(listener_)));
  ASSERT_EQ(rdma_resolve_addr(client_, nullptr, to.get(), 2000), 0);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(client_, 2000), 0);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  server_ = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  MakeQp(server_);
  ASSERT_EQ(rdma_accept(server_, nullptr), 0);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(rdma_disconnect(client_), 0) << std::strerror(errno);
  // At each end both are in order; one end may finish before the other begins.
  std::map<rdma_cm_id*, std::vector<rdma_cm_event_type>> came;
  for (int i = 0; i < 4; ++i) {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    if (came[event->id].empty() && event->id == server_) {
      EXPECT_EQ(rdma_disconnect(server_), 0) << std::strerror(errno);
    }
    came[event->id].push_back(event->event);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }
  const std::vector<rdma_cm_event_type> wanted = {RDMA_CM_EVENT_DISCONNECTED,
                                                  RDMA_CM_EVENT_TIMEWAIT_EXIT};
  EXPECT_EQ(came[client_], wanted);
  EXPECT_EQ(came[server_], wanted);
}

TEST_P(ConnectTest, ManyAtOnce) {
  constexpr size_t kMany = 100;
  listener_ = NewListener(GetParam());
  std::vector<rdma_cm_id*> ids;
  for (size_t i = 0; i < kMany; ++i) {
    ids.push_back(NewClient(GetParam(), listener_));
    MakeQp(ids.back());
  }
  rdma_conn_param param = {};
  for (rdma_cm_id* id : std::vector(ids)) {
    ASSERT_EQ(rdma_connect(id, &param), 0) << std::strerror(errno);
  }
  size_t established = 0;
  while (established < 2 * kMany) {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      ids.push_back(event->id);
      MakeQp(event->id);
      ASSERT_EQ(rdma_accept(event->id, nullptr), 0) << std::strerror(errno);
    } else {
      ASSERT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
      ++established;
    }
    ASSERT_EQ(rdma_ack_cm_event(event), 0);
  }
  for (rdma_cm_id* id : ids) {
    rdma_destroy_qp(id);
    ASSERT_EQ(rdma_destroy_id(id), 0);
  }
}

// Both ends use waiting calls, like rdma_server and rdma_client.
TEST_P(ConnectTest, EndpointsThatWait) {
  CmAddress local = CmAddress::Loopback(GetParam());
  rdma_addrinfo here = {};
  here.ai_flags = RAI_PASSIVE;
  here.ai_family = GetParam();
  here.ai_port_space = RDMA_PS_TCP;
  here.ai_qp_type = IBV_QPT_RC;
  here.ai_src_addr = local.get();
  here.ai_src_len = sizeof(sockaddr_in6);
  ibv_qp_init_attr attr = {};
  attr.cap = {4, 4, 1, 1, 0};
  attr.sq_sig_all = 1;
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, &here, nullptr, &attr), 0)
      << std::strerror(errno);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);

  CmAddress to =
      CmAddress::Loopback(GetParam(), ntohs(rdma_get_src_port(listener)));
  std::thread client_thread([&] {
    rdma_addrinfo there = {};
    there.ai_family = GetParam();
    there.ai_port_space = RDMA_PS_TCP;
    there.ai_qp_type = IBV_QPT_RC;
    there.ai_dst_addr = to.get();
    there.ai_dst_len = sizeof(sockaddr_in6);
    ibv_qp_init_attr client_attr = attr;
    rdma_cm_id* client = nullptr;
    ASSERT_EQ(rdma_create_ep(&client, &there, nullptr, &client_attr), 0)
        << std::strerror(errno);
    char text[16] = "";
    ibv_mr* mr = rdma_reg_msgs(client, text, sizeof(text));
    ASSERT_EQ(rdma_post_recv(client, nullptr, text, sizeof(text), mr), 0);
    ASSERT_EQ(rdma_connect(client, nullptr), 0) << std::strerror(errno);
    EXPECT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
    ExpectReceived(client, 16);
    EXPECT_STREQ(text, "from the server");
    EXPECT_EQ(rdma_disconnect(client), 0) << std::strerror(errno);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(client);
  });

  rdma_cm_id* server = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &server), 0) << std::strerror(errno);
  ASSERT_NE(server->qp, nullptr);
  ASSERT_NE(server->event, nullptr);
  EXPECT_EQ(server->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
  char text[16] = "from the server";
  ibv_mr* mr = rdma_reg_msgs(server, text, sizeof(text));
  ASSERT_EQ(rdma_post_send(server, text, text, sizeof(text), mr, 0), 0);
  ExpectSent(server, text);
  EXPECT_EQ(rdma_disconnect(server), 0) << std::strerror(errno);
  client_thread.join();
  rdma_dereg_mr(mr);
  rdma_destroy_ep(server);
  rdma_destroy_ep(listener);
}

TEST_P(ConnectTest, ASynchronousConnectIsRefused) {
  rdma_cm_id* bound = NewId();
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(GetParam()).get()), 0);
  client_ = NewClient(GetParam(), bound);
  ASSERT_EQ(rdma_migrate_id(client_, nullptr), 0);
  MakeQp(client_);
  EXPECT_EQ(rdma_connect(client_, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(client_->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, ConnectTest,
                         testing::Values(AF_INET, AF_INET6), FamilyName);

}  // namespace
}  // namespace conformance
