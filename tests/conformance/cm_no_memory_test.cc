// RDMA CM calls without memory, at each allocation: they return ENOMEM, can be
// repeated, and leave nothing behind. Ending and destroying do not allocate.
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_no_memory_fixture.h"

namespace conformance {
namespace {

TEST_F(CmNoMemoryTest, Connections) {
  rdma_cm_id* const listener = Listen(RDMA_PS_TCP, 4);
  rdma_cm_id* const client = Resolved(listener);
  CreateQp(client);
  rdma_conn_param param = {};
  param.responder_resources = param.initiator_depth = 1;
  EXPECT_GT(Do("rdma_connect", [&] { return rdma_connect(client, &param); }),
            0);

  rdma_cm_id* const server = GetRequest();
  CreateQp(server);
  Do("rdma_accept", [&] { return rdma_accept(server, &param); });
  EXPECT_EQ(Get(RDMA_CM_EVENT_ESTABLISHED)->id, client);
  EXPECT_EQ(Get(RDMA_CM_EVENT_ESTABLISHED)->id, server);
  for (rdma_cm_id* id : {client, server}) {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_STATE, &init), 0);
    EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  }

  DoWithNone("rdma_disconnect", [&] { return rdma_disconnect(client); });
  EXPECT_EQ(Get(RDMA_CM_EVENT_DISCONNECTED)->id, server);
  DoWithNone("rdma_disconnect", [&] { return rdma_disconnect(server); });
  EXPECT_EQ(Get(RDMA_CM_EVENT_DISCONNECTED)->id, client);
  for (rdma_cm_id* id : {client, server, listener}) Destroy(id);
  EXPECT_FALSE(IsReadable(channel_));
}

// The application manages its own queue pairs.
TEST_F(CmNoMemoryTest, ConnectionsWithoutQueuePairs) {
  rdma_cm_id* const listener = Listen(RDMA_PS_TCP, 1);
  rdma_cm_id* const client = Resolved(listener);
  rdma_conn_param param = {};
  param.qp_num = 0x123;
  Do("rdma_connect", [&] { return rdma_connect(client, &param); });
  rdma_cm_id* const server = GetRequest();
  param.qp_num = 0x124;
  Do("rdma_accept", [&] { return rdma_accept(server, &param); });
  EXPECT_EQ(Get(RDMA_CM_EVENT_CONNECT_RESPONSE)->id, client);
  DoWithNone("rdma_establish", [&] { return rdma_establish(client); });
  EXPECT_EQ(Get(RDMA_CM_EVENT_ESTABLISHED)->id, server);
  // Destroying also disconnects.
  Destroy(client);
  EXPECT_EQ(Get(RDMA_CM_EVENT_DISCONNECTED)->id, server);
  for (rdma_cm_id* id : {server, listener}) Destroy(id);
  EXPECT_FALSE(IsReadable(channel_));
}

TEST_F(CmNoMemoryTest, RefusedConnections) {
  rdma_cm_id* const listener = Listen(RDMA_PS_TCP, 1);
  // After a failed connect the queue pair can be used again.
  for (int i = 0; i < 3; ++i) {
    rdma_cm_id* const client = Resolved(listener);
    rdma_conn_param param = {};
    param.qp_num = 0x321;
    Do("rdma_connect", [&] { return rdma_connect(client, &param); });
    rdma_cm_id* const server = GetRequest();
    DoWithNone("rdma_reject", [&] { return rdma_reject(server, nullptr, 0); });
    EXPECT_EQ(Next(RDMA_CM_EVENT_REJECTED, kConsumerReject)->id, client);
    for (rdma_cm_id* id : {client, server}) Destroy(id);
  }
  Destroy(listener);
}

TEST_F(CmNoMemoryTest, Datagrams) {
  rdma_cm_id* const listener = Listen(RDMA_PS_UDP, 1);
  for (const bool accepts : {false, true}) {
    rdma_cm_id* const client = Resolved(listener);
    CreateQp(client);
    rdma_conn_param param = {};
    EXPECT_GT(Do("rdma_connect", [&] { return rdma_connect(client, &param); }),
              0);
    rdma_cm_id* const server = GetRequest();
    if (accepts) {
      CreateQp(server);
      DoWithNone("rdma_accept", [&] { return rdma_accept(server, &param); });
      EXPECT_EQ(Get(RDMA_CM_EVENT_ESTABLISHED)->id, client);
    } else {
      DoWithNone("rdma_reject",
                 [&] { return rdma_reject(server, nullptr, 0); });
      EXPECT_EQ(Next(RDMA_CM_EVENT_UNREACHABLE, kServiceRejected)->id, client);
    }
    Destroy(client);
    Destroy(server);
  }
  Destroy(listener);
  EXPECT_FALSE(IsReadable(channel_));
}

TEST_F(CmNoMemoryTest, Multicast) {
  rdma_cm_id* const id = Create(RDMA_PS_UDP);
  Do("rdma_bind_addr",
     [&] { return rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()); });
  CreateQp(id);
  CmAddress group = CmAddress::Of("239.7.7.7");
  for (int i = 0; i < 3; ++i) {
    EXPECT_GT(Do("rdma_join_multicast",
                 [&] { return rdma_join_multicast(id, group.get(), nullptr); }),
              0);
    Get(RDMA_CM_EVENT_MULTICAST_JOIN);
    EXPECT_FALSE(IsReadable(channel_));
    DoWithNone("rdma_leave_multicast",
               [&] { return rdma_leave_multicast(id, group.get()); });
    // The group was joined once.
    EXPECT_EQ(rdma_leave_multicast(id, group.get()), -1);
    EXPECT_EQ(errno, EADDRNOTAVAIL);
  }
  Destroy(id);
}

// Datagrams to an address are received although opening it failed at first.
TEST_F(CmNoMemoryTest, NewAddresses) {
  rdma_cm_id* const listener = Create();
  EXPECT_GT(Do("rdma_bind_addr",
               [&] {
                 return rdma_bind_addr(listener,
                                       CmAddress::Loopback(AF_INET6).get());
               }),
            0);
  ASSERT_EQ(rdma_listen(listener, 4), 0);
  rdma_cm_id* const client = NewClient(AF_INET6, listener);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0);
  rdma_cm_id* const server = GetRequest();
  ASSERT_EQ(rdma_reject(server, nullptr, 0), 0);
  EXPECT_EQ(Next(RDMA_CM_EVENT_REJECTED, kConsumerReject)->id, client);
  for (rdma_cm_id* id : {server, client, listener}) Destroy(id);
}

TEST_F(CmNoMemoryTest, ChannelsAddressesAndDevices) {
  rdma_event_channel* const channel = UntilThereIsMemory(
      "rdma_create_event_channel", rdma_create_event_channel, &refused_);
  rdma_destroy_event_channel(channel);

  int count = 0;
  ibv_context** const devices = UntilThereIsMemory(
      "rdma_get_devices", [&] { return rdma_get_devices(&count); }, &refused_);
  EXPECT_GT(count, 0);
  rdma_free_devices(devices);

  rdma_addrinfo hints = {};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_NUMERICHOST | RAI_PASSIVE;
  rdma_addrinfo* found = nullptr;
  Do("rdma_getaddrinfo", [&] {
    const int result = rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found);
    // ENOMEM is in errno, unlike errors of the resolver.
    EXPECT_TRUE(result == 0 || result == -1) << result;
    return result;
  });
  rdma_cm_id* id = nullptr;
  Do("rdma_create_ep",
     [&] { return rdma_create_ep(&id, found, nullptr, nullptr); });
  rdma_destroy_ep(id);
  rdma_freeaddrinfo(found);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace conformance
