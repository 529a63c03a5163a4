// Listeners and the requests that reach them: rdma_listen(3).
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tests/conformance/cm_connect_fixture.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// A REJ reason (IBA 12.6.7.2).
constexpr int kNoSuchService = 8;

// Until it is accepted, a request has the listener's context. An application
// that takes this for a connection's context must not get events for it.
TEST_P(ConnectTest, ARequestThatIsTakenBackIsNoEvent) {
  const std::string nothing;
  Request(Saying(nothing)).Acknowledge();
  rdma_cm_id* const withdrawn = server_;
  rdma_destroy_qp(client_);
  EXPECT_EQ(rdma_destroy_id(client_), 0);
  client_ = NewClient(GetParam(), listener_);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
  server_ = request->id;
  EXPECT_NE(server_, withdrawn);
  EXPECT_EQ(rdma_accept(withdrawn, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(withdrawn), 0);
}

// As in the kernel's rdma_cm, a request counts against the backlog until the
// application has taken it. So an application that needs two connections of a
// client can ask for one after the other.
TEST_P(ConnectTest, ARequestThatIsSeenLeavesTheBacklog) {
  listener_ = NewId();
  ASSERT_EQ(rdma_bind_addr(listener_, CmAddress::Loopback(GetParam()).get()),
            0);
  ASSERT_EQ(rdma_listen(listener_, 1), 0) << std::strerror(errno);
  rdma_cm_id* clients[2];
  rdma_cm_id* servers[2];
  for (int i = 0; i < 2; ++i) {
    clients[i] = NewClient(GetParam(), listener_);
    MakeQp(clients[i]);
    rdma_conn_param param = {};
    ASSERT_EQ(rdma_connect(clients[i], &param), 0) << std::strerror(errno);
    // Before the REQ is retransmitted.
    pollfd events = {channel_->fd, POLLIN, 0};
    ASSERT_EQ(poll(&events, 1, 3000), 1) << i;
    servers[i] = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    ASSERT_NE(servers[i], nullptr);
  }
  for (rdma_cm_id* server : servers) {
    MakeQp(server);
    ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
    Next(RDMA_CM_EVENT_ESTABLISHED);
    Next(RDMA_CM_EVENT_ESTABLISHED);
  }
  for (rdma_cm_id* id : {clients[0], clients[1], servers[0], servers[1]}) {
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_P(ConnectTest, NobodyListens) {
  rdma_cm_id* bound = NewId();
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(GetParam()).get()), 0);
  client_ = NewClient(GetParam(), bound);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  Next(RDMA_CM_EVENT_REJECTED, kNoSuchService);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
}

// A client may connect slightly before the server listens. How much earlier
// depends on timing, which a busy machine changes, so one success in many
// attempts is enough.
TEST_P(ConnectTest, ALateListenerIsFound) {
  for (int i = 0; i < 20 && server_ == nullptr; ++i) {
    listener_ = NewId();
    ASSERT_EQ(rdma_bind_addr(listener_, CmAddress::Loopback(GetParam()).get()),
              0);
    client_ = NewClient(GetParam(), listener_);
    MakeQp(client_);
    rdma_conn_param param = {};
    ASSERT_EQ(rdma_connect(client_, &param), 0);
    ASSERT_EQ(rdma_listen(listener_, 1), 0) << std::strerror(errno);
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      server_ = event->id;
      EXPECT_EQ(rdma_ack_cm_event(event), 0);
    } else {
      EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
      EXPECT_EQ(rdma_ack_cm_event(event), 0);
      rdma_destroy_qp(client_);
      ASSERT_EQ(rdma_destroy_id(std::exchange(client_, nullptr)), 0);
      ASSERT_EQ(rdma_destroy_id(std::exchange(listener_, nullptr)), 0);
    }
  }
  EXPECT_NE(server_, nullptr);
}

TEST_P(ConnectTest, AListenerOnAllAddressesIsFound) {
  listener_ = NewId();
  ASSERT_EQ(rdma_bind_addr(listener_, CmAddress::Any(GetParam()).get()), 0);
  ASSERT_EQ(rdma_listen(listener_, 4), 0);
  client_ = NewClient(GetParam(), listener_);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
  server_ = request->id;
  EXPECT_EQ(server_->verbs, client_->verbs);
}

TEST_P(ConnectTest, UnseenRequestsEndWithTheirListener) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  rdma_event_channel* other = rdma_create_event_channel();
  ASSERT_EQ(rdma_migrate_id(client_, other), 0);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  pollfd fd = {.fd = channel_->fd, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&fd, 1, 20'000), 1);
  EXPECT_EQ(rdma_destroy_id(listener_), 0);
  listener_ = nullptr;
  EXPECT_FALSE(IsReadable(channel_));
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(other, &event), 0);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  rdma_destroy_qp(client_);
  EXPECT_EQ(rdma_destroy_id(client_), 0);
  client_ = nullptr;
  rdma_destroy_event_channel(other);
}

INSTANTIATE_TEST_SUITE_P(Families, ConnectTest,
                         testing::Values(AF_INET, AF_INET6), FamilyName);

}  // namespace
}  // namespace conformance
