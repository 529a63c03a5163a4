// Waiting calls on synchronous ids without memory, at each allocation: they
// return ENOMEM, and the repeated call resumes.
#include <string>
#include <thread>

#include "tests/conformance/cm_no_memory_fixture.h"

namespace conformance {
namespace {

class CmNoMemoryEndpointTest : public CmNoMemoryTest {
 protected:
  static constexpr char kPort[] = "7571";

  rdma_cm_id* NewEndpoint(int flags) {
    rdma_addrinfo hints = {};
    hints.ai_port_space = RDMA_PS_TCP;
    hints.ai_flags = flags | RAI_NUMERICHOST;
    rdma_addrinfo* found = nullptr;
    EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", kPort, &hints, &found), 0);
    ibv_qp_init_attr attr = {};
    attr.cap = {4, 4, 1, 1, 0};
    rdma_cm_id* id = nullptr;
    Do("rdma_create_ep",
       [&] { return rdma_create_ep(&id, found, nullptr, &attr); });
    rdma_freeaddrinfo(found);
    return id;
  }
};

TEST_F(CmNoMemoryEndpointTest, BothEndsOfAConnection) {
  rdma_cm_id* const listener = NewEndpoint(RAI_PASSIVE);
  Do("rdma_listen", [&] { return rdma_listen(listener, 1); });
  std::thread serving([&] {
    int refused = 0;
    const auto call = [&](const char* what, auto make) {
      int done = 0;
      UntilThereIsMemory(
          what, [&]() -> int* { return make() == 0 ? &done : nullptr; },
          &refused);
    };
    rdma_cm_id* server = nullptr;
    call("rdma_get_request",
         [&] { return rdma_get_request(listener, &server); });
    ASSERT_NE(server, nullptr);
    call("rdma_accept", [&] { return rdma_accept(server, nullptr); });
    ASSERT_NE(server->event, nullptr);
    EXPECT_EQ(server->event->event, RDMA_CM_EVENT_ESTABLISHED);
    call("rdma_disconnect", [&] { return rdma_disconnect(server); });
    EXPECT_EQ(server->event->event, RDMA_CM_EVENT_DISCONNECTED);
    rdma_destroy_ep(server);
    EXPECT_GT(refused, 0);
  });
  rdma_cm_id* const client = NewEndpoint(0);
  EXPECT_GT(Do("rdma_connect", [&] { return rdma_connect(client, nullptr); }),
            0);
  ASSERT_NE(client->event, nullptr);
  EXPECT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
  Do("rdma_disconnect", [&] { return rdma_disconnect(client); });
  EXPECT_EQ(client->event->event, RDMA_CM_EVENT_DISCONNECTED);
  serving.join();
  rdma_destroy_ep(client);
  rdma_destroy_ep(listener);
}

TEST_F(CmNoMemoryEndpointTest, StepByStep) {
  rdma_cm_id* const listener = NewEndpoint(RAI_PASSIVE);
  rdma_cm_id* id = nullptr;
  Do("rdma_create_id",
     [&] { return rdma_create_id(nullptr, &id, nullptr, RDMA_PS_UDP); });
  CmAddress to = CmAddress::Loopback(AF_INET, std::stoi(kPort));
  Do("rdma_resolve_addr",
     [&] { return rdma_resolve_addr(id, nullptr, to.get(), 2000); });
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  Do("rdma_resolve_route", [&] { return rdma_resolve_route(id, 2000); });
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  CreateQp(id);
  CmAddress group = CmAddress::Of("239.7.7.7");
  Do("rdma_join_multicast",
     [&] { return rdma_join_multicast(id, group.get(), nullptr); });
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_MULTICAST_JOIN);
  EXPECT_EQ(rdma_leave_multicast(id, group.get()), 0);
  EXPECT_EQ(rdma_leave_multicast(id, group.get()), -1);
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

}  // namespace
}  // namespace conformance
