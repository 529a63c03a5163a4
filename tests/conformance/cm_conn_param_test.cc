// What the ends of a connection tell each other: addresses, limits, private
// data (rdma_conn_param) and reasons. rdma_connect(3), rdma_accept(3),
// rdma_reject(3).
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/conformance/cm_connect_fixture.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

// Bytes of private data (rdma_connect(3), rdma_accept(3)).
constexpr size_t kMaxConnectData = 56;
constexpr size_t kMaxAcceptData = 196;
constexpr size_t kMaxRejectData = 148;
// A REJ reason (IBA 12.6.7.2).
constexpr int kConsumerReject = 28;

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
  const std::string said = Text(kMaxConnectData, 'a');
  const std::string answered = Text(kMaxAcceptData, 'A');
  {
    CmEvent request = Request(Saying(said));
    EXPECT_EQ(PrivateData(request.get()), said);
  }
  MakeQp(server_);
  const std::string one_more = Text(kMaxAcceptData + 1, 'A');
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
  const std::string text = Text(kMaxConnectData + 1, 'a');
  rdma_conn_param param = Saying(text);
  EXPECT_EQ(rdma_connect(client_, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.private_data_len = 3;
  EXPECT_EQ(rdma_connect(client_, &param), 0) << std::strerror(errno);
  CmEvent request = Next(RDMA_CM_EVENT_CONNECT_REQUEST);
  server_ = request->id;
  // Padded with zeros.
  EXPECT_EQ(PrivateData(request.get()),
            "abc" + std::string(kMaxConnectData - 3, '\0'));
}

TEST_P(ConnectTest, ARejectionHasAReason) {
  const std::string why = Text(kMaxRejectData, 'r');
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

INSTANTIATE_TEST_SUITE_P(Families, ConnectTest,
                         testing::Values(AF_INET, AF_INET6), FamilyName);

}  // namespace
}  // namespace conformance
