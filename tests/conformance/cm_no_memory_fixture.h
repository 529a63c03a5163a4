// librdmacm calls whose allocations fail.
#ifndef TESTS_CONFORMANCE_CM_NO_MEMORY_FIXTURE_H_
#define TESTS_CONFORMANCE_CM_NO_MEMORY_FIXTURE_H_

#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>

#include "tests/conformance/cm_fixture.h"
#include "tests/conformance/scarce_malloc.h"

namespace conformance {

// Statuses of rejection events.
inline constexpr int kConsumerReject = 28;
inline constexpr int kInvalidServiceId = 8;
inline constexpr int kServiceRejected = 2;  // SIDR

class CmNoMemoryTest : public CmTest {
 protected:
  void SetUp() override {
    if (!MallocCanBeRefused()) GTEST_SKIP() << "malloc is the sanitizer's";
    CmTest::SetUp();
    // Opens the devices, sockets and threads of the process.
    rdma_cm_id* const first = NewListener(AF_INET);
    EXPECT_EQ(rdma_destroy_id(first), 0);
  }
  void TearDown() override {
    if (MallocCanBeRefused()) CmTest::TearDown();
  }

  // For a call that returns 0, or -1 with errno. Returns how many allocations
  // failed.
  template <typename Call>
  int Do(const char* what, Call call) {
    int done = 0;
    const int before = refused_;
    UntilThereIsMemory(
        what, [&]() -> int* { return call() == 0 ? &done : nullptr; },
        &refused_);
    return refused_ - before;
  }
  // For a call that must not allocate.
  template <typename Call>
  void DoWithNone(const char* what, Call call) {
    mallocs_left = 0;
    const int result = call();
    const int error = errno;
    mallocs_left = kUnlimited;
    EXPECT_EQ(result, 0) << what << ": " << std::strerror(error);
  }
  rdma_cm_id* Create(rdma_port_space ps = RDMA_PS_TCP) {
    rdma_cm_id* id = nullptr;
    Do("rdma_create_id",
       [&] { return rdma_create_id(channel_, &id, nullptr, ps); });
    return id;
  }
  CmEvent Get(int type) {
    rdma_cm_event* event = nullptr;
    Do("rdma_get_cm_event",
       [&] { return rdma_get_cm_event(channel_, &event); });
    EXPECT_STREQ(EventName(event->event), EventName(type));
    EXPECT_EQ(event->status, 0);
    return CmEvent(event);
  }
  // Returns the id of a request.
  rdma_cm_id* GetRequest() { return Get(RDMA_CM_EVENT_CONNECT_REQUEST)->id; }
  void CreateQp(rdma_cm_id* id) {
    ibv_qp_init_attr attr = {};
    attr.qp_type = id->qp_type;
    attr.cap = {16, 16, 1, 1, 0};
    Do("rdma_create_qp", [&] { return rdma_create_qp(id, nullptr, &attr); });
  }
  rdma_cm_id* Listen(rdma_port_space ps, int backlog) {
    rdma_cm_id* const listener = Create(ps);
    Do("rdma_bind_addr", [&] {
      return rdma_bind_addr(listener, CmAddress::Loopback(AF_INET).get());
    });
    Do("rdma_listen", [&] { return rdma_listen(listener, backlog); });
    return listener;
  }
  rdma_cm_id* Resolved(rdma_cm_id* listener) {
    rdma_cm_id* const client = Create(listener->ps);
    CmAddress to =
        CmAddress::Loopback(AF_INET, ntohs(rdma_get_src_port(listener)));
    Do("rdma_resolve_addr",
       [&] { return rdma_resolve_addr(client, nullptr, to.get(), 2000); });
    Get(RDMA_CM_EVENT_ADDR_RESOLVED);
    Do("rdma_resolve_route", [&] { return rdma_resolve_route(client, 2000); });
    Get(RDMA_CM_EVENT_ROUTE_RESOLVED);
    return client;
  }
  void Destroy(rdma_cm_id* id) {
    if (id->qp != nullptr) {
      DoWithNone("rdma_destroy_qp", [&] { return rdma_destroy_qp(id), 0; });
    }
    DoWithNone("rdma_destroy_id", [&] { return rdma_destroy_id(id); });
  }

  int refused_ = 0;
};

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_CM_NO_MEMORY_FIXTURE_H_
