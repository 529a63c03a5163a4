#include "tests/conformance/cm_fixture.h"

#include <arpa/inet.h>
#include <poll.h>

#include <cerrno>
#include <cstring>

namespace conformance {
namespace {

constexpr int kTimeoutMs = 20'000;

}  // namespace

CmAddress CmAddress::Any(int family, uint16_t port) {
  CmAddress address;
  if (family == AF_INET) {
    auto* in = reinterpret_cast<sockaddr_in*>(&address.storage_);
    in->sin_family = AF_INET;
    in->sin_port = htons(port);
  } else {
    auto* in = reinterpret_cast<sockaddr_in6*>(&address.storage_);
    in->sin6_family = AF_INET6;
    in->sin6_port = htons(port);
  }
  return address;
}

CmAddress CmAddress::Loopback(int family, uint16_t port) {
  if (family == AF_INET) return Of("127.0.0.1", port);
  CmAddress address = Any(family, port);
  reinterpret_cast<sockaddr_in6*>(&address.storage_)->sin6_addr =
      in6addr_loopback;
  return address;
}

CmAddress CmAddress::Of(const char* ipv4, uint16_t port) {
  CmAddress address = Any(AF_INET, port);
  EXPECT_EQ(
      inet_pton(AF_INET, ipv4,
                &reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_addr),
      1);
  return address;
}

std::string PrivateData(const rdma_cm_event* event) {
  return {static_cast<const char*>(event->param.conn.private_data),
          event->param.conn.private_data_len};
}

const char* EventName(int type) {
  return reinterpret_cast<const char* (*)(int)>(&rdma_event_str)(type);
}

void CmTest::SetUp() {
  channel_ = rdma_create_event_channel();
  ASSERT_NE(channel_, nullptr);
}

void CmTest::TearDown() { rdma_destroy_event_channel(channel_); }

bool CmTest::IsReadable(rdma_event_channel* channel) {
  pollfd fd = {.fd = channel->fd, .events = POLLIN, .revents = 0};
  return poll(&fd, 1, 0) == 1;
}

CmEvent CmTest::Next(rdma_event_channel* channel, int type, int status) {
  static rdma_cm_event none = [] {
    rdma_cm_event event = {};
    event.event = static_cast<rdma_cm_event_type>(-1);
    return event;
  }();
  pollfd fd = {.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (poll(&fd, 1, kTimeoutMs) != 1) {
    ADD_FAILURE() << "no event where " << EventName(type) << " is due";
    return CmEvent(&none);
  }
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &event), 0) << std::strerror(errno);
  if (event == nullptr) return CmEvent(&none);
  int came;
  std::memcpy(&came, &event->event, sizeof(came));
  EXPECT_STREQ(EventName(came), EventName(type));
  EXPECT_EQ(event->status, status);
  return CmEvent(event);
}

rdma_cm_id* CmTest::NewId(rdma_port_space ps) {
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(channel_, &id, this, ps), 0) << std::strerror(errno);
  return id;
}

rdma_cm_id* CmTest::NewListener(int family, rdma_port_space ps) {
  rdma_cm_id* id = NewId(ps);
  EXPECT_EQ(rdma_bind_addr(id, CmAddress::Loopback(family).get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(rdma_listen(id, 0), 0) << std::strerror(errno);
  return id;
}

rdma_cm_id* CmTest::NewClient(int family, rdma_cm_id* listener) {
  rdma_cm_id* id = NewId(listener->ps);
  CmAddress to =
      CmAddress::Loopback(family, ntohs(rdma_get_src_port(listener)));
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, to.get(), 2000), 0)
      << std::strerror(errno);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_resolve_route(id, 2000), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  return id;
}

void CmTest::MakeQp(rdma_cm_id* id) {
  ibv_qp_init_attr attr = {};
  attr.cap = {16, 16, 1, 1, 0};
  attr.qp_type = id->qp_type;
  attr.sq_sig_all = 1;
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << std::strerror(errno);
}

void CmPairTest::Connect(rdma_conn_param param) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  MakeQp(client_);
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  {
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    ASSERT_NE(server_, nullptr);
    EXPECT_EQ(request->listen_id, listener_);
  }
  MakeQp(server_);
  ASSERT_EQ(rdma_accept(server_, nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, client_);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server_);
}

void CmPairTest::Disconnect() {
  ASSERT_EQ(rdma_disconnect(client_), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, server_);
  ASSERT_EQ(rdma_disconnect(server_), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_DISCONNECTED)->id, client_);
}

void CmPairTest::TearDown() {
  for (rdma_cm_id* id : {client_, server_, listener_}) {
    if (id == nullptr) continue;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  CmTest::TearDown();
}

}  // namespace conformance
