// Connects two ids of this process step by step, also with private data.
#ifndef TESTS_CONFORMANCE_CM_CONNECT_FIXTURE_H_
#define TESTS_CONFORMANCE_CM_CONNECT_FIXTURE_H_

#include <cerrno>
#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/cm_fixture.h"

namespace conformance {

inline std::string Text(size_t size, char first) {
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text.push_back(static_cast<char>(first + i % 26));
  }
  return text;
}

inline rdma_conn_param Saying(const std::string& text) {
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

}  // namespace conformance

#endif  // TESTS_CONFORMANCE_CM_CONNECT_FIXTURE_H_
