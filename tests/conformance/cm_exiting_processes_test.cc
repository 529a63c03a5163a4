// Connections to processes that exit, and that use a queue pair number again.
#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tests/conformance/cm_connect_fixture.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// A REJ reason (IBA 12.6.7.2).
constexpr int kStaleConnection = 10;

// Set in a child that exits without destroying anything.
bool leaves_everything = false;

// A process that connects to `port` and exits, at once or when the peer
// disconnects. It destroys nothing.
[[noreturn]] void ConnectAndExit(int family, uint16_t port, bool hears) {
  leaves_everything = true;
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* id = nullptr;
  rdma_cm_event* event = nullptr;
  const auto await = [&](rdma_cm_event_type type) {
    if (rdma_get_cm_event(channel, &event) != 0 || event->event != type) {
      _exit(2);
    }
    rdma_ack_cm_event(event);
  };
  if (channel == nullptr ||
      rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_resolve_addr(id, nullptr, CmAddress::Loopback(family, port).get(),
                        2000) != 0) {
    _exit(3);
  }
  await(RDMA_CM_EVENT_ADDR_RESOLVED);
  if (rdma_resolve_route(id, 2000) != 0) _exit(4);
  await(RDMA_CM_EVENT_ROUTE_RESOLVED);
  ibv_qp_init_attr init = {};
  init.qp_type = IBV_QPT_RC;
  init.cap = {1, 1, 1, 1, 0};
  rdma_conn_param param = {};
  if (rdma_create_qp(id, nullptr, &init) != 0 ||
      rdma_connect(id, &param) != 0) {
    _exit(5);
  }
  await(RDMA_CM_EVENT_ESTABLISHED);
  if (hears) await(RDMA_CM_EVENT_DISCONNECTED);
  exit(0);
}

// The peer is told, as if the kernel closed the connections.
TEST_P(ConnectTest, AnExitingProcessDisconnects) {
  for (const bool hears : {false, true}) {
    listener_ = NewListener(GetParam());
    const uint16_t port = ntohs(rdma_get_src_port(listener_));
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) ConnectAndExit(GetParam(), port, hears);
    server_ = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    ASSERT_NE(server_, nullptr);
    MakeQp(server_);
    ASSERT_EQ(rdma_accept(server_, nullptr), 0) << std::strerror(errno);
    Next(RDMA_CM_EVENT_ESTABLISHED);
    if (hears) {
      ASSERT_EQ(rdma_disconnect(server_), 0) << std::strerror(errno);
    }
    // Before a retransmitted DREQ, which the port broker would answer.
    pollfd events = {channel_->fd, POLLIN, 0};
    EXPECT_EQ(poll(&events, 1, 3000), 1) << hears;
    EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, server_);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    rdma_destroy_qp(server_);
    EXPECT_EQ(rdma_destroy_id(std::exchange(server_, nullptr)), 0);
    EXPECT_EQ(rdma_destroy_id(std::exchange(listener_, nullptr)), 0);
  }
}

// A process that listens, writes its port to `out`, accepts one connection for
// a queue pair of this number, and exits when the connection ends.
[[noreturn]] void AcceptFor(int family, uint32_t qpn, int out) {
  leaves_everything = true;
  rdma_event_channel* const channel = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  if (channel == nullptr ||
      rdma_create_id(channel, &listener, nullptr, RDMA_PS_TCP) != 0 ||
      rdma_bind_addr(listener, CmAddress::Loopback(family).get()) != 0 ||
      rdma_listen(listener, 1) != 0) {
    _exit(2);
  }
  const uint16_t port = ntohs(rdma_get_src_port(listener));
  if (write(out, &port, sizeof(port)) != sizeof(port)) _exit(3);
  for (;;) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(channel, &event) != 0) _exit(4);
    rdma_conn_param param = {};
    param.qp_num = qpn;
    switch (event->event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        if (rdma_accept(event->id, &param) != 0) _exit(5);
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        break;
      case RDMA_CM_EVENT_REJECTED:
        _exit(event->status == kStaleConnection ? 0 : 6);
      case RDMA_CM_EVENT_DISCONNECTED:
        _exit(rdma_disconnect(event->id) == 0 ? 0 : 7);
      default:
        _exit(8);
    }
    rdma_ack_cm_event(event);
  }
}

// A peer that was restarted reuses its queue pair numbers. The older connection
// of such a number ends, and so does the new request (IBA 12.9.8.3.1).
TEST_P(ConnectTest, AReplyWithAQueuePairInUseIsRefused) {
  const uint32_t base = 0x660000u + static_cast<uint32_t>(GetParam()) * 16;
  pid_t children[2];
  rdma_cm_id* ids[2];
  for (int i = 0; i < 2; ++i) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    children[i] = fork();
    ASSERT_GE(children[i], 0);
    if (children[i] == 0) AcceptFor(GetParam(), base, ends[1]);
    close(ends[1]);
    uint16_t port = 0;
    ASSERT_EQ(read(ends[0], &port, sizeof(port)), sizeof(port));
    close(ends[0]);
    ids[i] = NewId();
    ASSERT_EQ(
        rdma_resolve_addr(ids[i], nullptr,
                          CmAddress::Loopback(GetParam(), port).get(), 2000),
        0);
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(ids[i], 2000), 0);
    Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  rdma_conn_param param = {};
  param.qp_num = base + 1;
  ASSERT_EQ(rdma_connect(ids[0], &param), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_establish(ids[0]), 0) << std::strerror(errno);
  ASSERT_EQ(rdma_migrate_id(ids[1], nullptr), 0);
  param.qp_num = base + 2;
  EXPECT_EQ(rdma_connect(ids[1], &param), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  ASSERT_NE(ids[1]->event, nullptr);
  EXPECT_EQ(ids[1]->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(ids[1]->event->status, kStaleConnection);
  EXPECT_EQ(ids[1]->event->param.conn.private_data, nullptr);
  EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, ids[0]);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(rdma_destroy_id(ids[i]), 0);
    int status = -1;
    EXPECT_EQ(waitpid(children[i], &status, 0), children[i]);
    EXPECT_EQ(status, 0) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConnectTest,
                         testing::Values(AF_INET, AF_INET6), FamilyName);

}  // namespace
}  // namespace conformance

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer asks this when a process exits.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return conformance::leaves_everything ? 1 : 0;
}
#endif
