// Event channels and ids without connections: rdma_create_id(3),
// rdma_resolve_addr(3), rdma_migrate_id(3), rdma_set_option(3).
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "rxe_user/testing/watched_thread.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

using rxe_user::WatchedThread;

class IdTest : public CmTest {
 protected:
  // An id with an event that is not taken.
  rdma_cm_id* NewResolved(rdma_event_channel* channel) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    EXPECT_EQ(rdma_resolve_addr(id, nullptr,
                                CmAddress::Loopback(AF_INET, 7174).get(), 2000),
              0)
        << std::strerror(errno);
    return id;
  }
};

TEST_F(IdTest, ChannelIsReadableWhileEventsWait) {
  EXPECT_FALSE(IsReadable(channel_));
  rdma_cm_id* a = NewResolved(channel_);
  rdma_cm_id* b = NewResolved(channel_);
  EXPECT_TRUE(IsReadable(channel_));
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, a);
  EXPECT_TRUE(IsReadable(channel_));
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, b);
  EXPECT_FALSE(IsReadable(channel_));
  EXPECT_EQ(rdma_destroy_id(a), 0);
  EXPECT_EQ(rdma_destroy_id(b), 0);
}

TEST_F(IdTest, AnEmptyNonBlockingChannelIsEagain) {
  ASSERT_EQ(fcntl(channel_->fd, F_SETFL, O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  rdma_cm_id* id = NewResolved(channel_);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_get_cm_event(channel_, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, GettingAnEventWaitsForOne) {
  rdma_cm_event* event = nullptr;
  WatchedThread getter(
      [&] { EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0); });
  EXPECT_TRUE(getter.AwaitSleep());
  rdma_cm_id* id = NewResolved(channel_);
  getter.join();
  ASSERT_NE(event, nullptr);
  EXPECT_EQ(event->id, id);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, DestroyWithdrawsUnseenEvents) {
  rdma_cm_id* a = NewResolved(channel_);
  rdma_cm_id* b = NewResolved(channel_);
  EXPECT_EQ(rdma_destroy_id(a), 0);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, b);
  EXPECT_FALSE(IsReadable(channel_));
  EXPECT_EQ(rdma_destroy_id(b), 0);
}

TEST_F(IdTest, DestroyWaitsForAcknowledgement) {
  rdma_cm_id* id = NewResolved(channel_);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
  std::atomic<bool> destroyed = false;
  WatchedThread destroyer([&] {
    EXPECT_EQ(rdma_destroy_id(id), 0);
    destroyed = true;
  });
  EXPECT_TRUE(destroyer.AwaitSleep());
  EXPECT_FALSE(destroyed);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  destroyer.join();
  EXPECT_EQ(rdma_ack_cm_event(event), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(IdTest, InvalidPointersAreRefused) {
  rdma_cm_id garbage = {};
  rdma_cm_id* gone = NewId();
  ASSERT_EQ(rdma_destroy_id(gone), 0);
  rdma_conn_param param = {};
  for (rdma_cm_id* id : {static_cast<rdma_cm_id*>(nullptr), &garbage, gone}) {
    EXPECT_EQ(rdma_destroy_id(id), -1);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(rdma_bind_addr(id, CmAddress::Any(AF_INET).get()), -1);
    EXPECT_EQ(rdma_connect(id, &param), -1);
    EXPECT_EQ(rdma_accept(id, &param), -1);
    EXPECT_EQ(rdma_listen(id, 1), -1);
    EXPECT_EQ(rdma_reject(id, nullptr, 0), -1);
    EXPECT_EQ(rdma_disconnect(id), -1);
    EXPECT_EQ(rdma_migrate_id(id, channel_), -1);
    rdma_destroy_qp(id);
    rdma_destroy_ep(id);
  }
  rdma_event_channel no_channel = {};
  rdma_cm_id* id = nullptr;
  EXPECT_EQ(rdma_create_id(&no_channel, &id, nullptr, RDMA_PS_TCP), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(&no_channel, &event), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_create_id(channel_, &id, nullptr,
                           static_cast<rdma_port_space>(0x7777)),
            -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(IdTest, CallsInTheWrongStateAreRefused) {
  rdma_cm_id* id = NewId();
  rdma_conn_param param = {};
  EXPECT_EQ(rdma_resolve_route(id, 2000), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_connect(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_accept(id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_disconnect(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_establish(id), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_notify(id, IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EINVAL);
  ibv_qp_init_attr attr = {};
  EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_listen(id, 1), 0) << std::strerror(errno);
  EXPECT_NE(rdma_get_src_port(id), 0);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_bind_addr(id, CmAddress::Any(AF_INET).get()), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, OptionsAreChecked) {
  rdma_cm_id* id = NewId();
  uint8_t tos = 0x20;
  int word = 1;
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1),
            0);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &word, 4),
            -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR,
                            nullptr, sizeof(int)),
            -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_set_option(id, RDMA_OPTION_ID, 77, &word, 4), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(rdma_set_option(id, 77, 0, &word, 4), -1);
  EXPECT_EQ(errno, ENOSYS);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, ResolvingFindsDeviceAndPath) {
  for (const int family : {AF_INET, AF_INET6}) {
    rdma_cm_id* id = NewId();
    uint8_t tos = 0x68;
    uint8_t ack_timeout = 12;
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1),
              0);
    ASSERT_EQ(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                              &ack_timeout, 1),
              0);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr,
                                CmAddress::Loopback(family, 7474).get(), 2000),
              0)
        << std::strerror(errno);
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_NE(id->verbs, nullptr);
    EXPECT_EQ(ntohs(rdma_get_dst_port(id)), 7474);
    EXPECT_NE(rdma_get_src_port(id), 0);
    EXPECT_EQ(std::memcmp(id->route.addr.addr.ibaddr.sgid.raw,
                          id->route.addr.addr.ibaddr.dgid.raw, 16),
              0);
    ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
    Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    ASSERT_EQ(id->route.num_paths, 1);
    const ibv_sa_path_rec& path = *id->route.path_rec;
    ibv_port_attr port;
    ASSERT_EQ(ibv_query_port(id->verbs, id->port_num, &port), 0);
    EXPECT_EQ(path.mtu, port.active_mtu);
    EXPECT_EQ(path.traffic_class, tos);
    EXPECT_EQ(path.packet_life_time, ack_timeout - 1);
    EXPECT_EQ(
        std::memcmp(path.dgid.raw, id->route.addr.addr.ibaddr.dgid.raw, 16), 0);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

// A program may pass an address that it has not filled in, as for rdma-core.
TEST_F(IdTest, AnUnspecifiedSourceMeansNone) {
  rdma_cm_id* id = NewId();
  CmAddress none;
  ASSERT_EQ(none.get()->sa_family, AF_UNSPEC);
  ASSERT_EQ(rdma_resolve_addr(id, none.get(),
                              CmAddress::Loopback(AF_INET, 7474).get(), 2000),
            0)
      << std::strerror(errno);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_NE(rdma_get_src_port(id), 0);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, ResolvingWithoutARouteFails) {
  rdma_cm_id* id = NewId();
  EXPECT_EQ(rdma_resolve_addr(id, nullptr,
                              CmAddress::Of("192.0.2.1", 7471).get(), 2000),
            -1);
  EXPECT_EQ(errno, ENETUNREACH);
  EXPECT_EQ(rdma_resolve_addr(id, CmAddress::Loopback(AF_INET6).get(),
                              CmAddress::Loopback(AF_INET, 7471).get(), 2000),
            -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// As in the kernel's rdma_cm: a loopback address without a device acts like the
// unspecified address, for connecting and for listening.
TEST_F(IdTest, ALoopbackAddressWithoutADeviceMeansAll) {
  rdma_cm_id* listener = NewId();
  ASSERT_EQ(rdma_bind_addr(listener, CmAddress::Of("127.0.0.2").get()), 0)
      << std::strerror(errno);
  EXPECT_EQ(listener->verbs, nullptr);
  const uint16_t port = ntohs(rdma_get_src_port(listener));
  EXPECT_NE(port, 0);
  const auto* local =
      reinterpret_cast<const sockaddr_in*>(rdma_get_local_addr(listener));
  EXPECT_EQ(ntohl(local->sin_addr.s_addr), 0x7f000002u);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);

  rdma_cm_id* client = NewId();
  ASSERT_EQ(rdma_bind_addr(client, CmAddress::Of("127.0.0.3").get()), 0);
  ASSERT_EQ(rdma_resolve_addr(client, nullptr,
                              CmAddress::Loopback(AF_INET, port).get(), 2000),
            0)
      << std::strerror(errno);
  rdma_cm_event* raw = nullptr;
  ASSERT_EQ(rdma_get_cm_event(channel_, &raw), 0);
  EXPECT_EQ(raw->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_ack_cm_event(raw), 0);
  ASSERT_EQ(rdma_resolve_route(client, 2000), 0);
  ASSERT_EQ(rdma_get_cm_event(channel_, &raw), 0);
  EXPECT_EQ(rdma_ack_cm_event(raw), 0);
  MakeQp(client);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
  ASSERT_EQ(rdma_get_cm_event(channel_, &raw), 0);
  EXPECT_EQ(raw->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  rdma_cm_id* const server = raw->id;
  EXPECT_EQ(rdma_ack_cm_event(raw), 0);
  if (server != listener) {
    EXPECT_EQ(rdma_destroy_id(server), 0);
  }
  rdma_destroy_qp(client);
  EXPECT_EQ(rdma_destroy_id(client), 0);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

// Debian's /etc/hosts maps the host's own name to 127.0.1.1.
TEST_F(IdTest, ALoopbackAddressWithoutADeviceIsReached) {
  constexpr uint16_t kPort = 7471;
  CmAddress there = CmAddress::Of("127.0.1.1", kPort);
  rdma_cm_id* listener = NewId();
  ASSERT_EQ(rdma_bind_addr(listener, CmAddress::Any(AF_INET, kPort).get()), 0)
      << std::strerror(errno);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);
  rdma_cm_id* client = NewId();
  ASSERT_EQ(rdma_resolve_addr(client, nullptr, there.get(), 2000), 0)
      << std::strerror(errno);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_NE(client->verbs, nullptr);
  ASSERT_EQ(rdma_resolve_route(client, 2000), 0);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  // The shown address is the requested one; the path is the device's.
  const auto* const peer =
      reinterpret_cast<const sockaddr_in*>(rdma_get_peer_addr(client));
  EXPECT_EQ(ntohl(peer->sin_addr.s_addr), 0x7f000101u);
  EXPECT_EQ(ntohs(peer->sin_port), kPort);
  const rdma_ib_addr& gids = client->route.addr.addr.ibaddr;
  EXPECT_EQ(std::memcmp(&gids.sgid, &gids.dgid, sizeof(gids.sgid)), 0);
  MakeQp(client);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
  rdma_cm_id* server = nullptr;
  {
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    ASSERT_EQ(request->listen_id, listener);
    server = request->id;
  }
  MakeQp(server);
  ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, client);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server);
  for (rdma_cm_id* const id : {client, server, listener}) {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

TEST_F(IdTest, CallsThatSucceedLeaveErrno) {
  constexpr int kBefore = ECONNREFUSED;
  errno = kBefore;
  rdma_cm_id* id = NewId();
  EXPECT_EQ(errno, kBefore);
  EXPECT_EQ(rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()), 0);
  EXPECT_EQ(errno, kBefore);
  EXPECT_EQ(rdma_listen(id, 1), 0);
  EXPECT_EQ(errno, kBefore);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(errno, kBefore);
  // An id that finds its device and path.
  id = NewId();
  EXPECT_EQ(rdma_resolve_addr(id, nullptr,
                              CmAddress::Loopback(AF_INET, 7471).get(), 2000),
            0);
  EXPECT_EQ(errno, kBefore);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  errno = kBefore;
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(errno, kBefore);
  ibv_context** const devices = rdma_get_devices(nullptr);
  EXPECT_NE(devices, nullptr);
  EXPECT_EQ(errno, kBefore);
  rdma_free_devices(devices);
  rdma_event_channel* const channel = rdma_create_event_channel();
  EXPECT_NE(channel, nullptr);
  EXPECT_EQ(errno, kBefore);
  rdma_destroy_event_channel(channel);
  EXPECT_EQ(errno, kBefore);
}

TEST_F(IdTest, ASynchronousIdWaitsInItsCalls) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_NE(id->channel, nullptr);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr,
                              CmAddress::Loopback(AF_INET, 7471).get(), 2000),
            0);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// A child of fork() has none of its parent's ids (docs/design/view.md, "fork
// and exec").
TEST_F(IdTest, AChildOfForkLeavesItsParentsIdsAlone) {
  rdma_event_channel* other = rdma_create_event_channel();
  rdma_cm_id* reported = NewResolved(other);
  CmEvent event = Next(other, RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_cm_id* waits = NewResolved(channel_);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);  // avoids a hang
    rdma_cm_event* none = nullptr;
    if (rdma_get_cm_event(channel_, &none) != -1) _exit(1);
    if (rdma_resolve_route(reported, 2000) != -1) _exit(2);
    rdma_cm_id* id = nullptr;
    if (rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != -1) _exit(3);
    if (rdma_destroy_id(waits) != 0) _exit(4);
    if (rdma_destroy_id(reported) != 0) _exit(5);
    if (rdma_ack_cm_event(event.get()) != 0) _exit(6);
    rdma_destroy_event_channel(channel_);
    rdma_destroy_event_channel(other);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  ASSERT_TRUE(IsReadable(channel_));
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, waits);
  EXPECT_FALSE(IsReadable(channel_));
  event.Acknowledge();
  EXPECT_EQ(rdma_destroy_id(waits), 0);
  EXPECT_EQ(rdma_destroy_id(reported), 0);
  rdma_destroy_event_channel(other);
}

TEST_F(IdTest, EventsMoveWithTheirId) {
  rdma_event_channel* other = rdma_create_event_channel();
  rdma_cm_id* stays = NewResolved(channel_);
  rdma_cm_id* moves = NewResolved(channel_);
  ASSERT_EQ(rdma_migrate_id(moves, other), 0) << std::strerror(errno);
  EXPECT_EQ(moves->channel, other);
  EXPECT_EQ(Next(other, RDMA_CM_EVENT_ADDR_RESOLVED)->id, moves);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_RESOLVED)->id, stays);
  EXPECT_FALSE(IsReadable(channel_));
  // To a channel of its own, which makes calls wait, and back.
  ASSERT_EQ(rdma_migrate_id(moves, nullptr), 0);
  EXPECT_EQ(rdma_migrate_id(moves, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_resolve_route(moves, 2000), 0);
  EXPECT_EQ(moves->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  ASSERT_EQ(rdma_migrate_id(moves, other), 0);
  EXPECT_EQ(moves->event, nullptr);
  EXPECT_FALSE(IsReadable(other));
  EXPECT_EQ(rdma_destroy_id(moves), 0);
  EXPECT_EQ(rdma_destroy_id(stays), 0);
  rdma_destroy_event_channel(other);
}

TEST_F(IdTest, QueuePairsGetDefaultObjects) {
  rdma_cm_id* id = NewResolved(channel_);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  MakeQp(id);
  ASSERT_NE(id->qp, nullptr);
  EXPECT_NE(id->pd, nullptr);
  EXPECT_NE(id->send_cq, nullptr);
  EXPECT_NE(id->recv_cq_channel, nullptr);
  EXPECT_EQ(id->send_cq->cq_context, id);
  EXPECT_EQ(id->qp->state, IBV_QPS_INIT);
  // Inline data up to the size of a request's SGE is allowed although none was
  // requested.
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_CAP, &init), 0);
  EXPECT_GE(init.cap.max_inline_data, sizeof(ibv_sge));
  ibv_qp_init_attr again = {};
  EXPECT_EQ(rdma_create_qp(id, nullptr, &again), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_destroy_qp(id);
  EXPECT_EQ(id->qp, nullptr);
  EXPECT_EQ(id->send_cq, nullptr);
  EXPECT_EQ(id->recv_cq_channel, nullptr);

  ibv_srq_init_attr srq = {};
  srq.attr.max_wr = 4;
  srq.attr.max_sge = 1;
  ASSERT_EQ(rdma_create_srq(id, nullptr, &srq), 0) << std::strerror(errno);
  MakeQp(id);
  EXPECT_EQ(id->qp->srq, id->srq);
  rdma_destroy_qp(id);
  rdma_destroy_srq(id);
  EXPECT_EQ(id->srq, nullptr);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// After a failure the same structure works with smaller values.
TEST_F(IdTest, AFailedQueuePairLeavesNothingInItsAttributes) {
  rdma_cm_id* id = NewResolved(channel_);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ibv_qp_init_attr_ex attr = {};
  attr.qp_type = IBV_QPT_RC;
  attr.cap = {4, 4, 100'000, 1, 0};
  EXPECT_EQ(rdma_create_qp_ex(id, &attr), -1);
  EXPECT_EQ(attr.send_cq, nullptr);
  EXPECT_EQ(attr.recv_cq, nullptr);
  EXPECT_EQ(id->send_cq, nullptr);
  attr.cap = {4, 4, 1, 1, 0};
  ASSERT_EQ(rdma_create_qp_ex(id, &attr), 0) << std::strerror(errno);
  EXPECT_EQ(id->qp->send_cq, id->send_cq);
  EXPECT_EQ(attr.send_cq, id->send_cq);
  rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, ADatagramQueuePairIsReadyAtOnce) {
  rdma_cm_id* id = NewId(RDMA_PS_UDP);
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()), 0);
  EXPECT_EQ(id->qp_type, IBV_QPT_UD);
  MakeQp(id);
  ibv_qp_attr attr;
  ibv_qp_init_attr init;
  ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_STATE | IBV_QP_QKEY, &init), 0);
  EXPECT_EQ(attr.qp_state, IBV_QPS_RTS);
  EXPECT_EQ(attr.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(IdTest, DevicesAreListed) {
  int count = 0;
  ibv_context** list = rdma_get_devices(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GT(count, 0);
  EXPECT_EQ(list[count], nullptr);
  rdma_cm_id* id = NewId();
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Loopback(AF_INET).get()), 0);
  bool found = false;
  for (int i = 0; i < count; ++i) found |= list[i] == id->verbs;
  EXPECT_TRUE(found);
  rdma_free_devices(list);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST(EventNameTest, NamesAreThoseOfTheHeader) {
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_ADDR_RESOLVED),
               "RDMA_CM_EVENT_ADDR_RESOLVED");
  EXPECT_STREQ(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT),
               "RDMA_CM_EVENT_TIMEWAIT_EXIT");
  EXPECT_STREQ(EventName(99), "UNKNOWN EVENT");
}

}  // namespace
}  // namespace conformance
