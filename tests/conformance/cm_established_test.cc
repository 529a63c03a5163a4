// The passive end when its connection is established while the active end sends
// at once. RDMA_CM_EVENT_ESTABLISHED and the first message take different
// paths.
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/conformance/cm_fixture.h"

namespace conformance {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kConnections = 40;
constexpr int kTimeoutMs = 20'000;

double Microseconds(Clock::duration d) {
  return std::chrono::duration<double, std::micro>(d).count();
}

void Print(const char* what, std::vector<double> us) {
  std::sort(us.begin(), us.end());
  std::printf("%s: min %.1f us, median %.1f us, 90 %% within %.1f us\n", what,
              us.front(), us[us.size() / 2], us[us.size() * 9 / 10]);
}

// Waits for the next completion of `cq`.
ibv_wc Complete(ibv_cq* cq) {
  ibv_wc wc = {};
  wc.status = IBV_WC_GENERAL_ERR;
  const Clock::time_point end =
      Clock::now() + std::chrono::milliseconds(kTimeoutMs);
  int n = 0;
  while ((n = ibv_poll_cq(cq, 1, &wc)) == 0 && Clock::now() < end) {
  }
  EXPECT_EQ(n, 1);
  return wc;
}

class EstablishedTest : public CmTest {
 protected:
  // The active end, with its own channel. It connects without RNR retries and
  // sends one message as soon as it is established.
  struct Active {
    Clock::time_point established;
    ibv_wc_status status = IBV_WC_GENERAL_ERR;
  };
  void ConnectAndSend(rdma_cm_id* listener, Active* out) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    ASSERT_NE(channel, nullptr);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, this, RDMA_PS_TCP), 0);
    CmAddress to =
        CmAddress::Loopback(AF_INET, ntohs(rdma_get_src_port(listener)));
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, to.get(), 2000), 0);
    Next(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 2000), 0);
    Next(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    MakeQp(id);
    std::array<char, 64> data = {};
    ibv_mr* const mr = rdma_reg_msgs(id, data.data(), data.size());
    ASSERT_NE(mr, nullptr);
    rdma_conn_param param = {};
    // The message may arrive before its receive is posted.
    param.rnr_retry_count = 7;
    ASSERT_EQ(rdma_connect(id, &param), 0);
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel, &event), 0);
    out->established = Clock::now();
    ASSERT_EQ(event->event, RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(rdma_post_send(id, this, data.data(), data.size(), mr, 0), 0);
    out->status = Complete(id->send_cq).status;
    rdma_ack_cm_event(event);
    rdma_disconnect(id);
    rdma_dereg_mr(mr);
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
  }

  // Takes events of the passive end's channel, the peer's disconnect included.
  // Not through Next, which calls poll(2) first.
  CmEvent Take(rdma_cm_event_type type) {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(channel_, &event), 0) << std::strerror(errno);
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    return CmEvent(event);
  }
  void End(rdma_cm_id* id) {
    Take(RDMA_CM_EVENT_DISCONNECTED).Acknowledge();
    rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
};

// The pattern of tutorials: receives are posted when the event has arrived.
TEST_F(EstablishedTest, ReceivesMayBePostedWhenItIsEstablished) {
  rdma_cm_id* const listener = NewListener(AF_INET);
  std::vector<double> delays;
  int failed = 0;
  for (int i = 0; i < kConnections; ++i) {
    Active active;
    std::thread peer([&] { ConnectAndSend(listener, &active); });
    rdma_cm_id* const id = Take(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    MakeQp(id);
    std::array<char, 64> data = {};
    ibv_mr* const mr = rdma_reg_msgs(id, data.data(), data.size());
    ASSERT_NE(mr, nullptr);
    ASSERT_EQ(rdma_accept(id, nullptr), 0);
    // A message that arrives before its receive is to be sent again soon.
    ibv_qp_attr soon = {};
    soon.min_rnr_timer = 12;  // 0.64 ms; librdmacm's 0 is 655
    ASSERT_EQ(ibv_modify_qp(id->qp, &soon, IBV_QP_MIN_RNR_TIMER), 0);
    Take(RDMA_CM_EVENT_ESTABLISHED).Acknowledge();
    const Clock::time_point established = Clock::now();
    ASSERT_EQ(rdma_post_recv(id, this, data.data(), data.size(), mr), 0);
    peer.join();
    delays.push_back(Microseconds(established - active.established));
    if (active.status == IBV_WC_SUCCESS) {
      EXPECT_EQ(Complete(id->recv_cq).byte_len, data.size());
    } else {
      ++failed;
    }
    End(id);
    rdma_dereg_mr(mr);
  }
  Print("ESTABLISHED of the passive end after the active end's", delays);
  EXPECT_EQ(failed, 0) << "of " << kConnections << " first messages";
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

// With receives posted before and a polling program, the message may be seen
// before the event, as with hardware. The test prints how often, and by how
// much.
TEST_F(EstablishedTest, TheEventFollowsAMessageThatOvertakesIt) {
  rdma_cm_id* const listener = NewListener(AF_INET);
  std::vector<double> behind;
  for (int i = 0; i < kConnections; ++i) {
    Active active;
    std::thread peer([&] { ConnectAndSend(listener, &active); });
    rdma_cm_id* const id = Take(RDMA_CM_EVENT_CONNECT_REQUEST)->id;
    MakeQp(id);
    std::array<char, 64> data = {};
    ibv_mr* const mr = rdma_reg_msgs(id, data.data(), data.size());
    ASSERT_EQ(rdma_post_recv(id, this, data.data(), data.size(), mr), 0);
    ASSERT_EQ(rdma_accept(id, nullptr), 0);
    EXPECT_EQ(Complete(id->recv_cq).status, IBV_WC_SUCCESS);
    const Clock::time_point received = Clock::now();
    const bool overtaken = !IsReadable(channel_);
    Take(RDMA_CM_EVENT_ESTABLISHED).Acknowledge();
    if (overtaken) behind.push_back(Microseconds(Clock::now() - received));
    peer.join();
    EXPECT_EQ(active.status, IBV_WC_SUCCESS);
    End(id);
    rdma_dereg_mr(mr);
  }
  std::printf("the message came first on %zu of %d connections\n",
              behind.size(), kConnections);
  if (!behind.empty()) Print("the event came after it by", behind);
  EXPECT_EQ(rdma_destroy_id(listener), 0);
}

}  // namespace
}  // namespace conformance
