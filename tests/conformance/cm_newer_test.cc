// Functions that are newer than Debian's header, and values that applications
// supply themselves: rdma_resolve_addrinfo(3), rdma_write_cm_event(3), AF_IB
// addresses, RDMA_OPTION_IB_PATH, enhanced connection establishment.
#include <arpa/inet.h>
#include <infiniband/ib.h>
#include <netdb.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/conformance/cm_fixture.h"

extern "C" {
int rdma_resolve_addrinfo(rdma_cm_id* id, const char* node, const char* service,
                          const rdma_addrinfo* hints);
int rdma_query_addrinfo(rdma_cm_id* id, rdma_addrinfo** info);
int rdma_write_cm_event(rdma_cm_id* id, int event, int status, uint64_t arg);
}

namespace conformance {
namespace {

// Values of the newer header.
constexpr int kAddrinfoResolved = 16;
constexpr int kAddrinfoError = 17;
constexpr int kUser = 18;
constexpr int kRaiSa = 0x10;

class NewerTest : public CmTest {};

TEST_F(NewerTest, ApplicationsWriteEventsOfTheirOwn) {
  rdma_cm_id* id = NewId();
  constexpr uint64_t kArgument = 0x0123456789abcdef;
  ASSERT_EQ(rdma_write_cm_event(id, kUser, 77, kArgument), 0)
      << std::strerror(errno);
  CmEvent event = Next(kUser, 77);
  EXPECT_STREQ(EventName(kUser), "RDMA_CM_EVENT_USER");
  uint64_t argument;
  std::memcpy(&argument, &event->param, sizeof(argument));
  EXPECT_EQ(argument, kArgument);
  event.Acknowledge();
  EXPECT_EQ(rdma_write_cm_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, 0), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// A synchronous call waits for its own event.
TEST_F(NewerTest, SynchronousCallsLeaveOtherEvents) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_write_cm_event(id, kUser, 77, 1), 0);
  ASSERT_EQ(rdma_write_cm_event(id, kUser, 78, 2), 0);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr,
                              CmAddress::Loopback(AF_INET, 7471).get(), 2000),
            0)
      << std::strerror(errno);
  ASSERT_NE(id->event, nullptr);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_resolve_route(id, 2000), 0) << std::strerror(errno);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  Next(id->channel, kUser, 77);
  EXPECT_TRUE(IsReadable(id->channel));
  Next(id->channel, kUser, 78);
  EXPECT_FALSE(IsReadable(id->channel));
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(NewerTest, AddressesAreResolvedByAnEvent) {
  rdma_cm_id* id = NewId();
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(rdma_query_addrinfo(id, &info), -1);
  EXPECT_EQ(errno, ENOENT);
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_NUMERICHOST;
  hints.ai_port_space = RDMA_PS_TCP;
  ASSERT_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), 0)
      << std::strerror(errno);
  Next(kAddrinfoResolved);
  // The result of the first call must be taken first.
  EXPECT_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", &hints), -1);
  EXPECT_EQ(errno, EBUSY);
  ASSERT_EQ(rdma_query_addrinfo(id, &info), 0) << std::strerror(errno);
  rdma_addrinfo* again = nullptr;
  EXPECT_EQ(rdma_query_addrinfo(id, &again), -1);
  EXPECT_EQ(errno, ENOENT);
  ASSERT_EQ(info->ai_family, AF_INET);
  EXPECT_EQ(ntohs(reinterpret_cast<sockaddr_in*>(info->ai_dst_addr)->sin_port),
            7471);
  EXPECT_EQ(rdma_resolve_addr(id, nullptr, info->ai_dst_addr, 2000), 0);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  rdma_freeaddrinfo(info);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(NewerTest, ResolvingAddressesMayFail) {
  rdma_cm_id* id = NewId();
  rdma_addrinfo hints = {};
  hints.ai_flags = RAI_NUMERICHOST;
  ASSERT_EQ(rdma_resolve_addrinfo(id, "no number", "7471", &hints), 0);
  Next(kAddrinfoError, -ENOENT);
  rdma_addrinfo* info = nullptr;
  EXPECT_EQ(rdma_query_addrinfo(id, &info), -1);
  // Ethernet has no subnet administrator.
  hints.ai_flags = kRaiSa;
  for (const char* node : {static_cast<const char*>(nullptr), "127.0.0.1"}) {
    EXPECT_EQ(rdma_resolve_addrinfo(id, node, "0x1", &hints), -1);
    EXPECT_EQ(errno, EOPNOTSUPP);
  }
  EXPECT_EQ(rdma_getaddrinfo(nullptr, "0x1", &hints, &info), -1);
  EXPECT_EQ(errno, ENOENT);
  EXPECT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &info), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", "0x1", &hints, &info), -1);
  EXPECT_EQ(errno, EOPNOTSUPP);
  EXPECT_EQ(rdma_resolve_addrinfo(id, nullptr, nullptr, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

TEST_F(NewerTest, DestroyedWhileItResolves) {
  for (int i = 0; i < 20; ++i) {
    rdma_cm_id* id = NewId();
    ASSERT_EQ(rdma_resolve_addrinfo(id, "127.0.0.1", "7471", nullptr), 0);
    ASSERT_EQ(rdma_destroy_id(id), 0);
  }
  EXPECT_FALSE(IsReadable(channel_));
}

TEST_F(NewerTest, ASynchronousIdWaitsForAddresses) {
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addrinfo(id, "::1", "7471", nullptr), 0);
  rdma_addrinfo* info = nullptr;
  ASSERT_EQ(rdma_query_addrinfo(id, &info), 0);
  EXPECT_EQ(info->ai_family, AF_INET6);
  rdma_freeaddrinfo(info);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// rdma_getaddrinfo with hints of all kinds.
TEST_F(NewerTest, HintsSelectAddresses) {
  rdma_addrinfo hints = {};
  rdma_addrinfo* info = nullptr;
  hints.ai_flags = RAI_NUMERICHOST | RAI_FAMILY;
  hints.ai_family = AF_IB;
  hints.ai_port_space = RDMA_PS_UDP;
  ASSERT_EQ(rdma_getaddrinfo("::ffff:127.0.0.1", "7471", &hints, &info), 0);
  ASSERT_EQ(info->ai_family, AF_IB);
  ASSERT_EQ(info->ai_dst_len, sizeof(sockaddr_ib));
  const auto* gid = reinterpret_cast<const sockaddr_ib*>(info->ai_dst_addr);
  EXPECT_EQ(be64toh(gid->sib_sid), RDMA_IB_IP_PS_UDP + 7471);
  EXPECT_EQ(info->ai_qp_type, IBV_QPT_UD);
  rdma_freeaddrinfo(info);

  hints = {};
  hints.ai_qp_type = IBV_QPT_UD;
  hints.ai_port_space = RDMA_PS_TCP;
  EXPECT_EQ(rdma_getaddrinfo("127.0.0.1", nullptr, &hints, &info),
            EAI_SOCKTYPE);
  // A listener has no destination.
  hints = {};
  CmAddress address = CmAddress::Loopback(AF_INET, 7471);
  hints.ai_flags = RAI_PASSIVE;
  hints.ai_src_addr = hints.ai_dst_addr = address.get();
  hints.ai_src_len = hints.ai_dst_len = sizeof(sockaddr_in);
  ASSERT_EQ(rdma_getaddrinfo(nullptr, nullptr, &hints, &info), 0);
  EXPECT_EQ(info->ai_src_len, sizeof(sockaddr_in));
  EXPECT_EQ(info->ai_dst_len, 0u);
  EXPECT_EQ(info->ai_family, AF_INET);
  rdma_freeaddrinfo(info);
}

sockaddr_ib Gid(const char* text, uint64_t service_id) {
  sockaddr_ib gid = {};
  gid.sib_family = AF_IB;
  EXPECT_EQ(inet_pton(AF_INET6, text, gid.sib_addr.sib_raw), 1);
  gid.sib_sid = htobe64(service_id);
  gid.sib_sid_mask = ~0ull;
  return gid;
}
sockaddr* Any(sockaddr_ib& gid) { return reinterpret_cast<sockaddr*>(&gid); }

TEST_F(NewerTest, GidsAreAddresses) {
  for (const char* text : {"::ffff:127.0.0.1", "::1"}) {
    rdma_cm_id* listener = NewId();
    sockaddr_ib here = Gid(text, RDMA_IB_IP_PS_TCP);
    ASSERT_EQ(rdma_bind_addr(listener, Any(here)), 0) << std::strerror(errno);
    ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);
    const uint16_t port = ntohs(rdma_get_src_port(listener));
    EXPECT_NE(port, 0);
    rdma_cm_id* client = NewId();
    sockaddr_ib there = Gid(text, RDMA_IB_IP_PS_TCP + port);
    ASSERT_EQ(rdma_resolve_addr(client, nullptr, Any(there), 2000), 0)
        << std::strerror(errno);
    Next(RDMA_CM_EVENT_ADDR_RESOLVED);
    EXPECT_EQ(rdma_get_local_addr(client)->sa_family, AF_IB);
    ASSERT_EQ(rdma_resolve_route(client, 2000), 0);
    Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    MakeQp(client);
    rdma_conn_param param = {};
    ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
    rdma_cm_id* server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    EXPECT_EQ(rdma_get_peer_addr(server)->sa_family, AF_IB);
    EXPECT_EQ(rdma_get_dst_port(server), rdma_get_src_port(client));
    MakeQp(server);
    ASSERT_EQ(rdma_accept(server, nullptr), 0);
    Next(RDMA_CM_EVENT_ESTABLISHED);
    Next(RDMA_CM_EVENT_ESTABLISHED);
    for (rdma_cm_id* id : {client, server, listener}) {
      if (id->qp != nullptr) rdma_destroy_qp(id);
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
  }
  // Service IDs of another port space, or of none.
  rdma_cm_id* id = NewId();
  for (const uint64_t service :
       {uint64_t{RDMA_IB_IP_PS_UDP + 1}, uint64_t{1} << 60}) {
    sockaddr_ib gid = Gid("::1", service);
    EXPECT_EQ(rdma_bind_addr(id, Any(gid)), -1);
    EXPECT_EQ(errno, EINVAL);
  }
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

ibv_path_data PathOf(const rdma_cm_id* id) {
  ibv_path_data data = {};
  data.flags =
      IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL;
  data.path.dgid = id->route.addr.addr.ibaddr.dgid;
  data.path.sgid = id->route.addr.addr.ibaddr.sgid;
  data.path.flowlabel_hoplimit = htonl(0x12345u << 8 | 33);
  data.path.tclass = 0x48;
  data.path.mtu = 2 << 6 | IBV_MTU_512;
  data.path.packetlifetime = 2 << 6 | 14;
  return data;
}

TEST_F(NewerTest, ApplicationsGiveAPath) {
  rdma_cm_id* listener = NewListener(AF_INET);
  rdma_cm_id* client = NewId();
  CmAddress to =
      CmAddress::Loopback(AF_INET, ntohs(rdma_get_src_port(listener)));
  ASSERT_EQ(rdma_resolve_addr(client, nullptr, to.get(), 2000), 0);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ibv_path_data data = PathOf(client);
  const auto set = [&](size_t length) {
    return rdma_set_option(client, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &data,
                           length);
  };
  EXPECT_EQ(set(sizeof(data) - 1), -1);
  EXPECT_EQ(errno, EINVAL);
  data.path.dgid.raw[15] ^= 1;
  EXPECT_EQ(set(sizeof(data)), -1);
  EXPECT_EQ(errno, EINVAL);
  data.path.dgid.raw[15] ^= 1;
  ASSERT_EQ(set(sizeof(data)), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  EXPECT_EQ(client->route.path_rec->mtu, IBV_MTU_512);
  EXPECT_EQ(client->route.path_rec->traffic_class, 0x48);
  EXPECT_EQ(client->route.path_rec->packet_life_time, 14);
  MakeQp(client);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
  rdma_cm_id* server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  MakeQp(server);
  ASSERT_EQ(rdma_accept(server, nullptr), 0);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  for (rdma_cm_id* id : {client, server}) {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(id->qp, &attr,
                           IBV_QP_PATH_MTU | IBV_QP_AV | IBV_QP_TIMEOUT, &init),
              0);
    EXPECT_EQ(attr.path_mtu, IBV_MTU_512);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 0x48);
    EXPECT_EQ(attr.timeout, 15);
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

// Type of service and ACK time-out reach both queue pairs.
TEST_F(NewerTest, OptionsReachTheQueuePairs) {
  rdma_cm_id* listener = NewListener(AF_INET);
  rdma_cm_id* client = NewId();
  uint8_t tos = 0x68, ack_timeout = 11;
  ASSERT_EQ(
      rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
  ASSERT_EQ(rdma_set_option(client, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                            &ack_timeout, 1),
            0);
  CmAddress to =
      CmAddress::Loopback(AF_INET, ntohs(rdma_get_src_port(listener)));
  ASSERT_EQ(rdma_resolve_addr(client, nullptr, to.get(), 2000), 0);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(client, 2000), 0);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  MakeQp(client);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client, &param), 0);
  rdma_cm_id* server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  MakeQp(server);
  // More than the peer supports is reduced.
  rdma_conn_param most = {};
  most.responder_resources = RDMA_MAX_RESP_RES;
  most.initiator_depth = RDMA_MAX_INIT_DEPTH;
  ASSERT_EQ(rdma_accept(server, &most), 0) << std::strerror(errno);
  {
    CmEvent established = Next(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(established->id, client);
    EXPECT_EQ(established->param.conn.initiator_depth, 0);
    EXPECT_EQ(established->param.conn.responder_resources, 0);
  }
  Next(RDMA_CM_EVENT_ESTABLISHED);
  for (rdma_cm_id* id : {client, server}) {
    ibv_qp_attr attr;
    ibv_qp_init_attr init;
    ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_AV | IBV_QP_TIMEOUT, &init),
              0);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, tos);
    EXPECT_EQ(attr.timeout, ack_timeout);
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

bool Ip(const std::string& arguments) {
  return std::system(("ip " + arguments).c_str()) == 0;
}

// An interface with an address, in the namespace of the test.
class InterfaceTest : public NewerTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs a network namespace";
    NewerTest::SetUp();
    if (!Ip("link add cmnew0 type veth peer name cmnew1")) {
      GTEST_SKIP() << "no veth here";
    }
    ASSERT_TRUE(Ip("address add 192.0.2.91/24 dev cmnew0"));
    ASSERT_TRUE(Ip("link set cmnew1 up"));
    ASSERT_TRUE(Ip("link set cmnew0 up"));
  }
  void TearDown() override {
    Ip("link delete cmnew0 2>/dev/null");
    if (channel_ != nullptr) NewerTest::TearDown();
  }
  // An id whose calls wait.
  static rdma_cm_id* NewSynchronous() {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
    return id;
  }
  static bool Await(rdma_event_channel* channel) {
    pollfd fd = {.fd = channel->fd, .events = POLLIN, .revents = 0};
    return poll(&fd, 1, 20'000) == 1;
  }
};

// Events of the interface do not end a waiting call, except its removal.
TEST_F(InterfaceTest, SynchronousCallsWaitForTheirOwnEvent) {
  rdma_cm_id* listener = NewSynchronous();
  ASSERT_EQ(rdma_bind_addr(listener, CmAddress::Of("192.0.2.91").get()), 0)
      << std::strerror(errno);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);
  CmAddress to =
      CmAddress::Of("192.0.2.91", ntohs(rdma_get_src_port(listener)));
  rdma_cm_id* id = NewSynchronous();
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, to.get(), 2000), 0)
      << std::strerror(errno);
  ASSERT_TRUE(Ip("link set cmnew0 address 02:00:00:00:00:92"));
  ASSERT_TRUE(Await(id->channel));
  ASSERT_TRUE(Await(listener->channel));
  EXPECT_EQ(rdma_resolve_route(id, 2000), 0) << std::strerror(errno);
  EXPECT_EQ(id->event->event, RDMA_CM_EVENT_ROUTE_RESOLVED);
  Next(id->channel, RDMA_CM_EVENT_ADDR_CHANGE);
  EXPECT_FALSE(IsReadable(id->channel));
  ASSERT_EQ(rdma_migrate_id(id, channel_), 0);
  rdma_conn_param param = {};
  param.qp_num = 0x9101;
  ASSERT_EQ(rdma_connect(id, &param), 0) << std::strerror(errno);
  rdma_cm_id* request = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &request), 0) << std::strerror(errno);
  EXPECT_TRUE(IsReadable(listener->channel));

  ASSERT_EQ(rdma_migrate_id(id, nullptr), 0);
  ASSERT_TRUE(Ip("link delete cmnew0"));
  Next(listener->channel, RDMA_CM_EVENT_ADDR_CHANGE);
  ASSERT_TRUE(Await(listener->channel));
  rdma_cm_id* none = nullptr;
  EXPECT_EQ(rdma_get_request(listener, &none), -1);
  EXPECT_EQ(errno, ENODEV);
  param.qp_num = 0x9102;
  EXPECT_EQ(rdma_accept(request, &param), -1);
  EXPECT_EQ(errno, ENODEV);
  for (rdma_cm_id* each : {id, request, listener}) {
    EXPECT_EQ(rdma_destroy_id(each), 0);
  }
}

// ADDR_CHANGE and DEVICE_REMOVAL.
TEST_F(InterfaceTest, IdsGetEventsOfTheirInterface) {
  rdma_cm_id* other = NewId();
  ASSERT_EQ(rdma_bind_addr(other, CmAddress::Loopback(AF_INET).get()), 0);
  rdma_cm_id* id = NewId();
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Of("192.0.2.91").get()), 0)
      << std::strerror(errno);
  ASSERT_TRUE(Ip("link set cmnew0 address 02:00:00:00:00:91"));
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_CHANGE)->id, id);
  ASSERT_TRUE(Ip("link delete cmnew0"));
  EXPECT_EQ(Next(RDMA_CM_EVENT_DEVICE_REMOVAL)->id, id);
  EXPECT_FALSE(IsReadable(channel_));
  EXPECT_EQ(rdma_destroy_id(id), 0);
  EXPECT_EQ(rdma_destroy_id(other), 0);
}

// Interface events of a child of fork() stay in the child.
TEST_F(InterfaceTest, EventsOfAChildOfForkStayInTheChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer ends such a child that starts threads";
#endif
  rdma_cm_id* id = NewId();
  ASSERT_EQ(rdma_bind_addr(id, CmAddress::Of("192.0.2.91").get()), 0)
      << std::strerror(errno);
  int bound[2];
  ASSERT_EQ(pipe(bound), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    rdma_cm_id* own = nullptr;
    if (channel == nullptr ||
        rdma_create_id(channel, &own, nullptr, RDMA_PS_TCP) != 0 ||
        rdma_bind_addr(own, CmAddress::Of("192.0.2.91").get()) != 0 ||
        write(bound[1], "", 1) != 1) {
      _exit(1);
    }
    rdma_cm_event* event = nullptr;
    if (!Await(channel) || rdma_get_cm_event(channel, &event) != 0) _exit(2);
    _exit(event->event == RDMA_CM_EVENT_ADDR_CHANGE && event->id == own ? 0
                                                                        : 3);
  }
  close(bound[1]);
  char byte;
  EXPECT_EQ(read(bound[0], &byte, 1), 1);
  close(bound[0]);
  EXPECT_TRUE(Ip("link set cmnew0 address 02:00:00:00:00:93"));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ADDR_CHANGE)->id, id);
  EXPECT_FALSE(IsReadable(channel_));
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// With queue pairs that applications create themselves.
TEST_F(NewerTest, EnhancedConnectionEstablishmentIsCarried) {
  rdma_cm_id* listener = NewListener(AF_INET);
  rdma_cm_id* client = NewClient(AF_INET, listener);
  ibv_ece ece = {.vendor_id = 0x123456, .options = 0xabcdef01, .comp_mask = 0};
  ASSERT_EQ(rdma_set_local_ece(client, &ece), 0) << std::strerror(errno);
  rdma_conn_param param = {};
  param.qp_num = 0x77;
  ASSERT_EQ(rdma_connect(client, &param), 0) << std::strerror(errno);
  rdma_cm_id* server = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  // Overwrites old contents.
  ibv_ece seen = {.vendor_id = 1, .options = 2, .comp_mask = 3};
  ASSERT_EQ(rdma_get_remote_ece(server, &seen), 0);
  EXPECT_EQ(seen.comp_mask, 0u);
  EXPECT_EQ(seen.vendor_id, 0x123456u);
  EXPECT_EQ(seen.options, 0xabcdef01u);
  ece.options = 0x10;
  ASSERT_EQ(rdma_set_local_ece(server, &ece), 0);
  param.qp_num = 0x78;
  ASSERT_EQ(rdma_accept(server, &param), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_CONNECT_RESPONSE);
  ASSERT_EQ(rdma_get_remote_ece(client, &seen), 0);
  EXPECT_EQ(seen.vendor_id, 0x123456u);
  EXPECT_EQ(seen.options, 0x10u);
  ASSERT_EQ(rdma_establish(client), 0);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  ece.vendor_id = 0;
  EXPECT_EQ(rdma_set_local_ece(client, &ece), -1);
  EXPECT_EQ(errno, EINVAL);
  for (rdma_cm_id* id : {client, server, listener}) {
    EXPECT_EQ(rdma_destroy_id(id), 0);
  }
}

}  // namespace
}  // namespace conformance
