// The connection manager's thread without memory, at each allocation. Every
// message of a peer is delivered exactly once, when there is memory again or
// when the peer retransmits.
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/cm_no_memory_fixture.h"

namespace conformance {
namespace {

// The name that `ps -L` shows.
constexpr char kThread[] = "rxe-user-ctl";

class CmNoMemoryEventsTest : public CmNoMemoryTest {
 protected:
  void TearDown() override {
    StopRefusing();
    CmNoMemoryTest::TearDown();
  }
  // Waits until this many allocations of the thread have failed since
  // RefuseThreads.
  static void AwaitRefused(int times) {
    while (RefusedOfThreads() < times) std::this_thread::yield();
  }
  rdma_cm_id* Connecting(rdma_cm_id* listener, uint32_t qpn) {
    rdma_cm_id* const client = NewClient(AF_INET, listener);
    rdma_conn_param param = {};
    param.qp_num = qpn;
    EXPECT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
    return client;
  }
};

// Dropped requests are retransmitted after 5 s, all together.
TEST_F(CmNoMemoryEventsTest, EachRequestIsReportedOnce) {
  constexpr int kRequests = 60;
  rdma_cm_id* const listener = NewId();
  ASSERT_EQ(rdma_bind_addr(listener, CmAddress::Loopback(AF_INET).get()), 0);
  ASSERT_EQ(rdma_listen(listener, kRequests), 0);
  std::vector<rdma_cm_id*> ids = {listener};
  int refused = 0;
  int heard = 0;
  std::set<uint32_t> numbers;
  const auto hear = [&] {
    CmEvent event = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_TRUE(numbers.insert(event->param.conn.qp_num).second);
    ids.push_back(event->id);
    ++heard;
  };
  std::vector<rdma_cm_id*> clients;
  for (int i = 0; i < kRequests; ++i) {
    clients.push_back(NewClient(AF_INET, listener));
  }
  for (int i = 0; i < kRequests; ++i) {
    rdma_cm_id* const client = clients[i];
    ids.push_back(client);
    rdma_conn_param param = {};
    param.qp_num = 0x1000 + i;
    RefuseThreads(kThread, i);
    ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
    while (RefusedOfThreads() == 0 && !IsReadable(channel_)) {
      std::this_thread::yield();
    }
    refused += RefusedOfThreads();
    StopRefusing();
    while (IsReadable(channel_)) hear();
  }
  EXPECT_GT(refused, 10);
  while (heard < kRequests) hear();
  for (rdma_cm_id* id : ids) Destroy(id);
}

TEST_F(CmNoMemoryEventsTest, EventsOfAConnectionAreDeliveredOnce) {
  rdma_cm_id* const listener = NewListener(AF_INET);
  int refused = 0;
  for (int granted = 0, quiet = 0; quiet < 3; ++granted) {
    rdma_cm_id* const client = Connecting(listener, 0x4000 + 2 * granted);
    rdma_cm_id* const server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    RefuseThreads(kThread, granted);
    rdma_conn_param param = {};
    param.qp_num = 0x4001 + 2 * granted;
    EXPECT_EQ(rdma_accept(server, &param), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_CONNECT_RESPONSE)->id, client);
    EXPECT_EQ(rdma_establish(client), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server);
    EXPECT_EQ(rdma_disconnect(client), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, server);
    EXPECT_EQ(rdma_disconnect(server), 0) << std::strerror(errno);
    EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, client);
    quiet = RefusedOfThreads() == 0 ? quiet + 1 : 0;
    refused += RefusedOfThreads();
    StopRefusing();
    for (rdma_cm_id* id : {client, server}) Destroy(id);
    EXPECT_FALSE(IsReadable(channel_));
  }
  EXPECT_GT(refused, 3);
  Destroy(listener);
}

// Destroying an id does not wait for its event, which waits for memory.
TEST_F(CmNoMemoryEventsTest, DestroyingDoesNotWaitForAnEventWithoutMemory) {
  rdma_cm_id* const listener = NewListener(AF_INET);
  rdma_cm_id* const client = Connecting(listener, 0x8000);
  rdma_cm_id* const server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  RefuseThreads(kThread, 0, /*for_long=*/true);
  rdma_conn_param param = {};
  param.qp_num = 0x8001;
  ASSERT_EQ(rdma_accept(server, &param), 0) << std::strerror(errno);
  AwaitRefused(3);
  EXPECT_FALSE(IsReadable(channel_));
  Destroy(client);
  // The peer is told when there is memory.
  AwaitRefused(6);
  StopRefusing();
  EXPECT_EQ(Next(RDMA_CM_EVENT_REJECTED, kConsumerReject)->id, server);
  Destroy(server);

  // Destroying a listener does not wait for a dropped request.
  RefuseThreads(kThread, 0, /*for_long=*/true);
  rdma_cm_id* const other = NewClient(AF_INET, listener);
  param.qp_num = 0x8002;
  ASSERT_EQ(rdma_connect(other, &param), 0) << std::strerror(errno);
  AwaitRefused(1);
  Destroy(listener);
  StopRefusing();
  Next(RDMA_CM_EVENT_REJECTED, kInvalidServiceId);
  Destroy(other);
  EXPECT_FALSE(IsReadable(channel_));
}

// Interface and address changes from the kernel are not lost.
TEST_F(CmNoMemoryEventsTest, InterfaceChangesAreReportedOnce) {
  // One process for all of the commands.
  const auto ip = [](const std::string& commands) {
    const std::string shell = "printf '" + commands + "' | ip -batch - ";
    return std::system((shell + "2>/dev/null").c_str()) == 0;
  };
  const auto any = [](rdma_cm_id* id) {
    EXPECT_EQ(rdma_bind_addr(id, CmAddress::Any(AF_INET, 7471).get()), 0);
    EXPECT_EQ(rdma_listen(id, 8), 0) << std::strerror(errno);
  };
  rdma_cm_id* const listener = NewId();
  any(listener);
  int refused = 0;
  for (int granted = 0, quiet = 0; quiet < 3; ++granted) {
    if (!ip("link add rxeu_a type veth peer name rxeu_b\\n"
            "link set rxeu_a addrgenmode none\\n"
            "link set rxeu_b addrgenmode none\\n"
            "link set rxeu_b up\\n")) {
      Destroy(listener);
      GTEST_SKIP() << "not allowed to";
    }
    RefuseThreads(kThread, granted);
    ASSERT_TRUE(ip("link set rxeu_a up\\naddr add 192.0.2.1/24 dev rxeu_a\\n"));
    rdma_cm_id* const id = NewId();
    while (rdma_bind_addr(id, CmAddress::Of("192.0.2.1").get()) != 0) {
      std::this_thread::yield();
    }
    // The listener gets the request there.
    rdma_cm_id* const client = NewId();
    EXPECT_EQ(rdma_resolve_addr(client, nullptr,
                                CmAddress::Of("192.0.2.1", 7471).get(), 2000),
              0);
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_resolve_route(client, 2000), 0);
    Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    ASSERT_TRUE(ip("link del rxeu_a\\n"));
    std::set<rdma_cm_id*> removed;
    for (int i = 0; i < 2 && !HasFailure(); ++i) {
      removed.insert(Next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id);
    }
    EXPECT_EQ(removed, (std::set<rdma_cm_id*>{id, client}));
    quiet = RefusedOfThreads() == 0 ? quiet + 1 : 0;
    refused += RefusedOfThreads();
    StopRefusing();
    Destroy(client);
    Destroy(id);
    EXPECT_FALSE(IsReadable(channel_));
    if (HasFailure()) break;
  }
  EXPECT_GT(refused, 3);
  Destroy(listener);
}

}  // namespace
}  // namespace conformance
