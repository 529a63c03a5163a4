// The first calls of a process without memory, at each allocation: they start
// the threads, sockets and devices of the connection manager.
#include "tests/conformance/cm_no_memory_fixture.h"

namespace conformance {
namespace {

class CmNoMemoryStartTest : public CmNoMemoryTest {
 protected:
  void SetUp() override {
    if (!MallocCanBeRefused()) GTEST_SKIP() << "malloc is the sanitizer's";
    CmTest::SetUp();
  }
};

TEST_F(CmNoMemoryStartTest, TheFirstConnection) {
  rdma_cm_id* const listener = NewId();
  EXPECT_GT(Do("rdma_bind_addr",
               [&] {
                 return rdma_bind_addr(listener, CmAddress::Any(AF_INET).get());
               }),
            0);
  EXPECT_GT(Do("rdma_listen", [&] { return rdma_listen(listener, 4); }), 0);
  rdma_cm_id* const client = NewClient(AF_INET, listener);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
  rdma_cm_id* const server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  ASSERT_EQ(rdma_reject(server, nullptr, 0), 0);
  EXPECT_EQ(Next(RDMA_CM_EVENT_REJECTED, kConsumerReject)->id, client);
  for (rdma_cm_id* id : {server, client, listener}) Destroy(id);
}

}  // namespace
}  // namespace conformance
