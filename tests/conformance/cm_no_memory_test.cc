// Calls of the RDMA CM are refused memory at each place where they ask for
// some: they say ENOMEM, can be made again, and leave nothing behind. Not yet
// those of connecting: rdma_create_qp, rdma_connect, rdma_accept,
// rdma_disconnect.
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"
#include "tests/conformance/scarce_malloc.h"

namespace conformance {
namespace {

class CmNoMemoryTest : public CmTest {
 protected:
  void SetUp() override {
    if (!MallocCanBeRefused()) GTEST_SKIP() << "malloc is the sanitizer's";
    CmTest::SetUp();
    // The process has its devices, sockets and threads from here on.
    rdma_cm_id* const first = NewListener(AF_INET);
    EXPECT_EQ(rdma_destroy_id(first), 0);
  }
  void TearDown() override {
    if (MallocCanBeRefused()) CmTest::TearDown();
  }

  // Of a call that returns 0, or -1 with errno.
  template <typename Call>
  void Do(const char* what, Call call) {
    int done = 0;
    UntilThereIsMemory(
        what, [&]() -> int* { return call() == 0 ? &done : nullptr; },
        &refused_);
  }
  rdma_cm_id* Create() {
    rdma_cm_id* id = nullptr;
    Do("rdma_create_id",
       [&] { return rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP); });
    return id;
  }
  CmEvent Get(int type) {
    rdma_cm_event* event = nullptr;
    Do("rdma_get_cm_event",
       [&] { return rdma_get_cm_event(channel_, &event); });
    EXPECT_STREQ(EventName(event->event), EventName(type));
    return CmEvent(event);
  }
  void CreateQp(rdma_cm_id* id) {
    ibv_qp_init_attr attr = {};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {16, 16, 1, 1, 0};
    Do("rdma_create_qp", [&] { return rdma_create_qp(id, nullptr, &attr); });
  }

  int refused_ = 0;
};

TEST_F(CmNoMemoryTest, Connections) {
  rdma_cm_id* const listener = Create();
  Do("rdma_bind_addr", [&] {
    return rdma_bind_addr(listener, CmAddress::Loopback(AF_INET).get());
  });
  Do("rdma_listen", [&] { return rdma_listen(listener, 4); });

  rdma_cm_id* const client = Create();
  CmAddress to =
      CmAddress::Loopback(AF_INET, ntohs(rdma_get_src_port(listener)));
  Do("rdma_resolve_addr",
     [&] { return rdma_resolve_addr(client, nullptr, to.get(), 2000); });
  Get(RDMA_CM_EVENT_ADDR_RESOLVED);
  Do("rdma_resolve_route", [&] { return rdma_resolve_route(client, 2000); });
  Get(RDMA_CM_EVENT_ROUTE_RESOLVED);
  CreateQp(client);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);

  CmEvent request = Get(RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const server = request->id;
  request.Acknowledge();
  CreateQp(server);
  ASSERT_EQ(rdma_accept(server, &param), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(RDMA_CM_EVENT_ESTABLISHED);

  EXPECT_EQ(rdma_disconnect(client), 0) << std::strerror(errno);
  Get(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(server), 0) << std::strerror(errno);
  Get(RDMA_CM_EVENT_DISCONNECTED);
  for (rdma_cm_id* id : {client, server}) {
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  EXPECT_EQ(rdma_destroy_id(listener), 0);
  EXPECT_GT(refused_, 0);
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
  Do("rdma_getaddrinfo",
     [&] { return rdma_getaddrinfo("127.0.0.1", "7471", &hints, &found); });
  rdma_cm_id* id = nullptr;
  Do("rdma_create_ep",
     [&] { return rdma_create_ep(&id, found, nullptr, nullptr); });
  rdma_destroy_ep(id);
  rdma_freeaddrinfo(found);
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace conformance
