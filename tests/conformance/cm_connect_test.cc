// Connections between ids of one process: rdma_connect(3), rdma_accept(3),
// rdma_reject(3), rdma_disconnect(3), rdma_create_ep(3).
#include <arpa/inet.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// Bytes of private data (rdma_connect(3), rdma_accept(3)).
constexpr size_t kMostOfConnect = 56;
constexpr size_t kMostOfAccept = 196;
constexpr size_t kMostOfReject = 148;
constexpr size_t kMostOfDatagramConnect = 180;
constexpr size_t kMostOfDatagramAccept = 136;
// REJ reasons (IBA 12.6.7.2).
constexpr int kNoSuchService = 8;
constexpr int kStaleConnection = 10;
constexpr int kConsumerReject = 28;

std::string Text(size_t size, char first) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text.push_back(static_cast<char>(first + i % 26));
  }
  return text;
}

rdma_conn_param Saying(const std::string& text) {
  rdma_conn_param param = {};
  param.private_data = text.data();
  param.private_data_len = static_cast<uint8_t>(text.size());
  param.responder_resources = 1;
  param.initiator_depth = 1;
  param.retry_count = 7;
  param.rnr_retry_count = 7;
  return param;
}

class ConnectTest : public CmPairTest {
 protected:
  // Expects the next completion of either queue.
  void ExpectSent(rdma_cm_id* id, void* context) {
    ibv_wc wc = {};
    ASSERT_EQ(rdma_get_send_comp(id, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.wr_id, reinterpret_cast<uint64_t>(context));
  }
  void ExpectReceived(rdma_cm_id* id, uint32_t length) {
    ibv_wc wc = {};
    ASSERT_EQ(rdma_get_recv_comp(id, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    EXPECT_EQ(wc.byte_len, length);
  }
  ibv_qp_attr Query(ibv_qp* qp) {
    ibv_qp_attr attr = {};
    ibv_qp_init_attr init;
    EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
    return attr;
  }
  // Connects until the REQ has arrived; the server has no queue pair yet.
  CmEvent Request(const rdma_conn_param& param) {
    listener_ = NewListener(GetParam());
    client_ = NewClient(GetParam(), listener_);
    MakeQp(client_);
    rdma_conn_param copy = param;
    EXPECT_EQ(rdma_connect(client_, &copy), 0) << std::strerror(errno);
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    return request;
  }
};

TEST_P(ConnectTest, CarriesMessagesByTheHelpersOfTheHeader) {
  Connect();
  std::vector<char> sent(4096, 'x'), received(4096);
  ibv_mr* from = rdma_reg_msgs(client_, sent.data(), sent.size());
  ibv_mr* to = rdma_reg_write(server_, received.data(), received.size());
  ASSERT_NE(from, nullptr);
  ASSERT_NE(to, nullptr);
  ASSERT_EQ(rdma_post_recv(server_, this, received.data(), received.size(), to),
            0);
  ASSERT_EQ(rdma_post_send(client_, &sent, sent.data(), sent.size(), from, 0),
            0);
  ExpectSent(client_, &sent);
  ExpectReceived(server_, 4096);
  EXPECT_EQ(received, sent);

  std::fill(sent.begin(), sent.end(), 'w');
  ASSERT_EQ(
      rdma_post_write(client_, &received, sent.data(), sent.size(), from, 0,
                      reinterpret_cast<uint64_t>(received.data()), to->rkey),
      0);
  ExpectSent(client_, &received);
  EXPECT_EQ(received, sent);
  Disconnect();
  EXPECT_EQ(Query(client_->qp).qp_state, IBV_QPS_ERR);
  EXPECT_EQ(Query(server_->qp).qp_state, IBV_QPS_ERR);
  rdma_dereg_mr(from);
  rdma_dereg_mr(to);
}

TEST_P(ConnectTest, BothEndsKnowTheAddresses) {
  Connect();
  EXPECT_EQ(rdma_get_src_port(server_), rdma_get_src_port(listener_));
  EXPECT_EQ(rdma_get_dst_port(server_), rdma_get_src_port(client_));
  EXPECT_EQ(rdma_get_dst_port(client_), rdma_get_src_port(listener_));
  EXPECT_EQ(rdma_get_peer_addr(server_)->sa_family, GetParam());
  EXPECT_EQ(server_->context, this);
  EXPECT_EQ(server_->verbs, client_->verbs);
  EXPECT_EQ(server_->route.num_paths, 1);
}

// The initiator depth of one side is the responder resources of the other.
TEST_P(ConnectTest, ReadLimitsAreTheOtherWayRoundAtThePeer) {
  rdma_conn_param param = {};
  param.responder_resources = 3;
  param.initiator_depth = 5;
  param.retry_count = 6;
  param.rnr_retry_count = 4;
  param.flow_control = 1;
  {
    CmEvent request = Request(param);
    EXPECT_EQ(request->param.conn.responder_resources, 5);
    EXPECT_EQ(request->param.conn.initiator_depth, 3);
    EXPECT_EQ(request->param.conn.retry_count, 6);
    EXPECT_EQ(request->param.conn.rnr_retry_count, 4);
    EXPECT_EQ(request->param.conn.flow_control, 1);
    EXPECT_EQ(request->param.conn.qp_num, client_->qp->qp_num);
  }
  MakeQp(server_);
  rdma_conn_param answer = {};
  answer.responder_resources = 4;
  answer.initiator_depth = 2;
  answer.rnr_retry_count = 3;
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  {
    CmEvent established = Next(RDMA_CM_EVENT_ESTABLISHED);
    EXPECT_EQ(established->param.conn.responder_resources, 2);
    EXPECT_EQ(established->param.conn.initiator_depth, 4);
    EXPECT_EQ(established->param.conn.qp_num, server_->qp->qp_num);
  }
  Next(RDMA_CM_EVENT_ESTABLISHED);
  const ibv_qp_attr server = Query(server_->qp);
  EXPECT_EQ(server.max_dest_rd_atomic, 4);
  EXPECT_EQ(server.max_rd_atomic, 2);
  EXPECT_EQ(server.retry_cnt, 6);
  EXPECT_EQ(server.rnr_retry, 4);
  const ibv_qp_attr client = Query(client_->qp);
  EXPECT_EQ(client.max_dest_rd_atomic, 2);
  EXPECT_EQ(client.max_rd_atomic, 4);
  EXPECT_EQ(client.rnr_retry, 3);
  EXPECT_EQ(client.rq_psn, server.sq_psn);
  EXPECT_EQ(client.sq_psn, server.rq_psn);
}

TEST_P(ConnectTest, CarriesPrivateDataOfEveryLength) {
  const std::string said = Text(kMostOfConnect, 'a');
  const std::string answered = Text(kMostOfAccept, 'A');
  {
    CmEvent request = Request(Saying(said));
    EXPECT_EQ(PrivateData(request.get()), said);
  }
  MakeQp(server_);
  const std::string one_more = Text(kMostOfAccept + 1, 'A');
  rdma_conn_param too_long = Saying(one_more);
  EXPECT_EQ(rdma_accept(server_, &too_long), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param answer = Saying(answered);
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  EXPECT_EQ(PrivateData(Next(RDMA_CM_EVENT_ESTABLISHED).get()), answered);
  Next(RDMA_CM_EVENT_ESTABLISHED);
}

// The call can be repeated with valid arguments.
TEST_P(ConnectTest, WrongArgumentsOfAcceptChangeNothing) {
  const std::string nothing;
  Request(Saying(nothing)).Acknowledge();
  MakeQp(server_);
  ibv_device_attr device;
  ASSERT_EQ(ibv_query_device(server_->verbs, &device), 0);
  ASSERT_LT(device.max_qp_rd_atom, 254);
  rdma_conn_param answer = Saying(nothing);
  answer.responder_resources = static_cast<uint8_t>(device.max_qp_rd_atom + 1);
  EXPECT_EQ(rdma_accept(server_, &answer), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Query(server_->qp).qp_state, IBV_QPS_INIT);
  answer.responder_resources = 1;
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, client_);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server_);
}

// Otherwise the peer would time out.
TEST_P(ConnectTest, AFailedAcceptRejects) {
  const std::string nothing;
  Request(Saying(nothing)).Acknowledge();
  MakeQp(server_);
  ibv_qp_attr attr = {};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(server_->qp, &attr, IBV_QP_STATE), 0);
  EXPECT_EQ(rdma_accept(server_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(Next(RDMA_CM_EVENT_REJECTED, kConsumerReject)->id, client_);
  EXPECT_EQ(rdma_accept(server_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_FALSE(IsReadable(channel_));
}

// rdma_connect(3): without private data the pointer is null.
TEST_P(ConnectTest, NoPrivateDataHasNoLength) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  MakeQp(client_);
  rdma_conn_param param = {};
  param.private_data_len = 16;
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  server_ = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  ASSERT_NE(server_, nullptr);
  MakeQp(server_);
  ASSERT_EQ(rdma_accept(server_, &param), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  rdma_cm_id* second = NewClient(GetParam(), listener_);
  MakeQp(second);
  ASSERT_EQ(rdma_connect(second, &param), 0) << std::strerror(errno);
  rdma_cm_id* request = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  EXPECT_EQ(rdma_reject(request, nullptr, 16), 0) << std::strerror(errno);
  Next(RDMA_CM_EVENT_REJECTED, kConsumerReject);
  rdma_destroy_qp(second);
  EXPECT_EQ(rdma_destroy_id(second), 0);
  EXPECT_EQ(rdma_destroy_id(request), 0);
}

TEST_P(ConnectTest, PrivateDataThatIsTooLongIsRefused) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  MakeQp(client_);
  const std::string text = Text(kMostOfConnect + 1, 'a');
  rdma_conn_param param = Saying(text);
  EXPECT_EQ(rdma_connect(client_, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.private_data_len = 3;
  EXPECT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
  server_ = request->id;
  // Padded with zeros.
  EXPECT_EQ(PrivateData(request.get()),
            "abc" + std::string(kMostOfConnect - 3, '\0'));
}

TEST_P(ConnectTest, ARejectionHasAReason) {
  const std::string why = Text(kMostOfReject, 'r');
  const std::string nothing;
  Request(Saying(nothing)).Acknowledge();
  ASSERT_EQ(rdma_reject(server_, why.data(), static_cast<uint8_t>(why.size())),
            0)
      << std::strerror(errno);
  CmEvent rejected = Next(RDMA_CM_EVENT_REJECTED, kConsumerReject);
  EXPECT_EQ(rejected->id, client_);
  EXPECT_EQ(PrivateData(rejected.get()), why);
  EXPECT_EQ(Query(client_->qp).qp_state, IBV_QPS_ERR);
}

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

// An application that drives its own queue pairs.
TEST_P(ConnectTest, IdsWithoutQueuePairs) {
  listener_ = NewListener(GetParam());
  client_ = NewClient(GetParam(), listener_);
  // Different numbers for each test, because they stay in timewait.
  const uint32_t client_qpn = 0x112200u + static_cast<uint32_t>(GetParam());
  const uint32_t server_qpn = 0x445500u + static_cast<uint32_t>(GetParam());
  // Only the application knows the queue pair.
  EXPECT_EQ(rdma_connect(client_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param param = {};
  param.qp_num = client_qpn;
  ASSERT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  {
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    EXPECT_EQ(request->param.conn.qp_num, client_qpn);
  }
  EXPECT_EQ(rdma_accept(server_, nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  rdma_conn_param answer = {};
  answer.qp_num = server_qpn;
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  EXPECT_EQ(Next(RDMA_CM_EVENT_CONNECT_RESPONSE)->param.conn.qp_num,
            server_qpn);
  ibv_qp_attr attr = {};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(rdma_init_qp_attr(client_, &attr, &mask), 0);
  EXPECT_EQ(attr.dest_qp_num, server_qpn);
  EXPECT_NE(mask & IBV_QP_AV, 0);
  attr.qp_state = IBV_QPS_SQD;
  EXPECT_EQ(rdma_init_qp_attr(client_, &attr, &mask), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_establish(client_), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_establish(client_), -1);
  EXPECT_EQ(Next(RDMA_CM_EVENT_ESTABLISHED)->id, server_);
  EXPECT_EQ(rdma_notify(server_, IBV_EVENT_COMM_EST), -1);
  EXPECT_EQ(errno, EISCONN);
  Disconnect();
}

TEST_P(ConnectTest, AQueuePairIsFreeAfterItsTimewait) {
  uint8_t ack_timeout = 8;  // 1 ms, so that timewait is short
  listener_ = NewListener(GetParam());
  client_ = NewId();
  ASSERT_EQ(rdma_set_option(client_, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT,
                            &ack_timeout, 1),
            0);
  CmAddress to =
      CmAddress::Loopback(GetParam(), ntohs(rdma_get_src_port(listener_)));
  ASSERT_EQ(rdma_resolve_addr(client_, nullptr, to.get(), 2000), 0);
  Next(RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(client_, 2000), 0);
  Next(RDMA_CM_EVENT_ROUTE_RESOLVED);
  MakeQp(client_);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  server_ = Next(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
  MakeQp(server_);
  ASSERT_EQ(rdma_accept(server_, nullptr), 0);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  Next(RDMA_CM_EVENT_ESTABLISHED);
  ASSERT_EQ(rdma_disconnect(client_), 0) << std::strerror(errno);
  // At each end both are in order; one end may finish before the other begins.
  std::map<rdma_cm_id*, std::vector<rdma_cm_event_type>> came;
  for (int i = 0; i < 4; ++i) {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    if (came[event->id].empty() && event->id == server_) {
      EXPECT_EQ(rdma_disconnect(server_), 0) << std::strerror(errno);
    }
    came[event->id].push_back(event->event);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }
  const std::vector<rdma_cm_event_type> wanted = {RDMA_CM_EVENT_DISCONNECTED,
                                                  RDMA_CM_EVENT_TIMEWAIT_EXIT};
  EXPECT_EQ(came[client_], wanted);
  EXPECT_EQ(came[server_], wanted);
}

TEST_P(ConnectTest, ManyAtOnce) {
  constexpr size_t kMany = 100;
  listener_ = NewListener(GetParam());
  std::vector<rdma_cm_id*> ids;
  for (size_t i = 0; i < kMany; ++i) {
    ids.push_back(NewClient(GetParam(), listener_));
    MakeQp(ids.back());
  }
  rdma_conn_param param = {};
  for (rdma_cm_id* id : std::vector(ids)) {
    ASSERT_EQ(rdma_connect(id, &param), 0) << std::strerror(errno);
  }
  size_t established = 0;
  while (established < 2 * kMany) {
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel_, &event), 0);
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
      ids.push_back(event->id);
      MakeQp(event->id);
      ASSERT_EQ(rdma_accept(event->id, nullptr), 0) << std::strerror(errno);
    } else {
      ASSERT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
      ++established;
    }
    ASSERT_EQ(rdma_ack_cm_event(event), 0);
  }
  for (rdma_cm_id* id : ids) {
    rdma_destroy_qp(id);
    ASSERT_EQ(rdma_destroy_id(id), 0);
  }
}

// Both ends use waiting calls, like rdma_server and rdma_client.
TEST_P(ConnectTest, EndpointsThatWait) {
  CmAddress local = CmAddress::Loopback(GetParam());
  rdma_addrinfo here = {};
  here.ai_flags = RAI_PASSIVE;
  here.ai_family = GetParam();
  here.ai_port_space = RDMA_PS_TCP;
  here.ai_qp_type = IBV_QPT_RC;
  here.ai_src_addr = local.get();
  here.ai_src_len = sizeof(sockaddr_in6);
  ibv_qp_init_attr attr = {};
  attr.cap = {4, 4, 1, 1, 0};
  attr.sq_sig_all = 1;
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, &here, nullptr, &attr), 0)
      << std::strerror(errno);
  ASSERT_EQ(rdma_listen(listener, 1), 0) << std::strerror(errno);

  CmAddress to =
      CmAddress::Loopback(GetParam(), ntohs(rdma_get_src_port(listener)));
  std::thread client_thread([&] {
    rdma_addrinfo there = {};
    there.ai_family = GetParam();
    there.ai_port_space = RDMA_PS_TCP;
    there.ai_qp_type = IBV_QPT_RC;
    there.ai_dst_addr = to.get();
    there.ai_dst_len = sizeof(sockaddr_in6);
    ibv_qp_init_attr client_attr = attr;
    rdma_cm_id* client = nullptr;
    ASSERT_EQ(rdma_create_ep(&client, &there, nullptr, &client_attr), 0)
        << std::strerror(errno);
    char text[16] = "";
    ibv_mr* mr = rdma_reg_msgs(client, text, sizeof(text));
    ASSERT_EQ(rdma_post_recv(client, nullptr, text, sizeof(text), mr), 0);
    ASSERT_EQ(rdma_connect(client, nullptr), 0) << std::strerror(errno);
    EXPECT_EQ(client->event->event, RDMA_CM_EVENT_ESTABLISHED);
    ExpectReceived(client, 16);
    EXPECT_STREQ(text, "from the server");
    EXPECT_EQ(rdma_disconnect(client), 0) << std::strerror(errno);
    rdma_dereg_mr(mr);
    rdma_destroy_ep(client);
  });

  rdma_cm_id* server = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &server), 0) << std::strerror(errno);
  ASSERT_NE(server->qp, nullptr);
  ASSERT_NE(server->event, nullptr);
  EXPECT_EQ(server->event->event, RDMA_CM_EVENT_CONNECT_REQUEST);
  ASSERT_EQ(rdma_accept(server, nullptr), 0) << std::strerror(errno);
  char text[16] = "from the server";
  ibv_mr* mr = rdma_reg_msgs(server, text, sizeof(text));
  ASSERT_EQ(rdma_post_send(server, text, text, sizeof(text), mr, 0), 0);
  ExpectSent(server, text);
  EXPECT_EQ(rdma_disconnect(server), 0) << std::strerror(errno);
  client_thread.join();
  rdma_dereg_mr(mr);
  rdma_destroy_ep(server);
  rdma_destroy_ep(listener);
}

TEST_P(ConnectTest, ASynchronousConnectIsRefused) {
  rdma_cm_id* bound = NewId();
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(GetParam()).get()), 0);
  client_ = NewClient(GetParam(), bound);
  ASSERT_EQ(rdma_migrate_id(client_, nullptr), 0);
  MakeQp(client_);
  EXPECT_EQ(rdma_connect(client_, nullptr), -1);
  EXPECT_EQ(errno, ECONNREFUSED);
  EXPECT_EQ(client_->event->event, RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
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

// --- Datagrams.

class DatagramTest : public ConnectTest {
 protected:
  CmEvent Ask(const std::string& said) {
    listener_ = NewListener(GetParam(), RDMA_PS_UDP);
    client_ = NewClient(GetParam(), listener_);
    MakeQp(client_);
    rdma_conn_param param = Saying(said);
    EXPECT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
    CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
    server_ = request->id;
    return request;
  }
  static std::string Said(const rdma_cm_event* event) {
    return {static_cast<const char*>(event->param.ud.private_data),
            event->param.ud.private_data_len};
  }
};

TEST_P(DatagramTest, TheQueuePairOfAServiceIsFound) {
  const std::string said = Text(kMostOfDatagramConnect, 'a');
  const std::string answered = Text(kMostOfDatagramAccept, 'A');
  {
    CmEvent request = Ask(said);
    EXPECT_EQ(Said(request.get()), said);
  }
  MakeQp(server_);
  std::vector<char> received(40 + 64);
  ibv_mr* to = rdma_reg_msgs(server_, received.data(), received.size());
  ASSERT_EQ(rdma_post_recv(server_, this, received.data(), received.size(), to),
            0);
  rdma_conn_param answer = Saying(answered);
  ASSERT_EQ(rdma_accept(server_, &answer), 0) << std::strerror(errno);
  CmEvent found = Next(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(Said(found.get()), answered);
  EXPECT_EQ(found->param.ud.qp_num, server_->qp->qp_num);
  EXPECT_EQ(found->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
  ibv_ah* ah = ibv_create_ah(client_->pd, &found->param.ud.ah_attr);
  ASSERT_NE(ah, nullptr) << std::strerror(errno);
  char text[64] = "datagram";
  ibv_mr* from = rdma_reg_msgs(client_, text, sizeof(text));
  ASSERT_EQ(rdma_post_ud_send(client_, text, text, sizeof(text), from, 0, ah,
                              found->param.ud.qp_num),
            0);
  ExpectSent(client_, text);
  ExpectReceived(server_, 40 + 64);
  EXPECT_STREQ(received.data() + 40, text);
  ibv_destroy_ah(ah);
  rdma_dereg_mr(from);
  rdma_dereg_mr(to);
}

TEST_P(DatagramTest, AServiceMayRefuse) {
  constexpr int kSidrRejected = 2;  // IBA 12.11.2
  Ask("please").Acknowledge();
  const std::string why = Text(kMostOfDatagramAccept, 'r');
  EXPECT_EQ(rdma_reject(server_, why.data(), 137), -1);
  EXPECT_EQ(errno, EINVAL);
  ASSERT_EQ(rdma_reject(server_, why.data(), static_cast<uint8_t>(why.size())),
            0);
  CmEvent refused = Next(RDMA_CM_EVENT_UNREACHABLE, kSidrRejected);
  EXPECT_EQ(Said(refused.get()), why);
}

TEST_P(DatagramTest, NobodyListens) {
  constexpr int kSidrNoSuchService = 1;
  rdma_cm_id* bound = NewId(RDMA_PS_UDP);
  ASSERT_EQ(rdma_bind_addr(bound, CmAddress::Loopback(GetParam()).get()), 0);
  client_ = NewClient(GetParam(), bound);
  rdma_conn_param param = {};
  ASSERT_EQ(rdma_connect(client_, &param), 0);
  Next(RDMA_CM_EVENT_UNREACHABLE, kSidrNoSuchService);
  EXPECT_EQ(rdma_destroy_id(bound), 0);
}

INSTANTIATE_TEST_SUITE_P(Families, ConnectTest,
                         testing::Values(AF_INET, AF_INET6),
                         [](const auto& info) {
                           return info.param == AF_INET ? "IPv4" : "IPv6";
                         });
INSTANTIATE_TEST_SUITE_P(Families, DatagramTest,
                         testing::Values(AF_INET, AF_INET6),
                         [](const auto& info) {
                           return info.param == AF_INET ? "IPv4" : "IPv6";
                         });

}  // namespace
}  // namespace conformance

#ifdef __SANITIZE_ADDRESS__
// LeakSanitizer asks this when a process exits.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {
  return conformance::leaves_everything ? 1 : 0;
}
#endif
