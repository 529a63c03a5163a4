// Rules of RXE_USER_FAULTS for events, the port and memory.
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/conformance/fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

// A process reads its rules once: they name its queue pairs, two in each part.
class CommandedStateTest : public PairTest {
 protected:
  void SetUp() override {
    setenv("RXE_USER_FAULTS",
           "event SM_CHANGE\n"
           "event PATH_MIG rx qp=@2 op=data nth=1\n"
           "event CQ_ERR rx qp=@2 msg=2 nth=1\n"
           "event DEVICE_FATAL tx qp=@1 wr_id=3 nth=1\n"
           "event SRQ_LIMIT_REACHED rx qp=@2 maybe\n"
           "link down tx qp=@3 wr_id=6 nth=1\n"
           "unmap rx qp=@6 nth=2\n"
           "unmap tx qp=@7 nth=1\n"
           "unmap tx qp=@10 nth=1\n"
           "unmap rx qp=@11 nth=1\n"
           "drop tx qp=@13 wr_id=101 times=1\n"
           "duplicate tx qp=@13 msg=3 nth=1\n"
           "complete GENERAL_ERR tx qp=@13 wr_id=104\n"
           "fail ibv_post_send ENOMEM wr_id=103\n"
           "event LID_CHANGE call=ibv_create_ah nth=1\n"
           "drop tx qp=@15 wr_id=201 times=1\n",
           1);
    make_pair_ = false;
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_FAULTS");
  }
  void MakePair() {
    MakeSide(&a_);
    MakeSide(&b_);
    // Longer than it takes to start the tool that ends an outage of the link.
    ConnectOptions options;
    options.timeout = 18;  // 1.1 s
    Connect(&a_, &b_, options);
  }
  void DestroyPair() {
    DestroySide(&a_);
    DestroySide(&b_);
  }
  void PostWrite(uint64_t wr_id) {
    FillPattern(a_.memory.data(), 64, static_cast<uint32_t>(wr_id));
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, wr_id, 0, 64, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
  }
  void Write(uint64_t wr_id) {
    PostWrite(wr_id);
    ExpectSuccess(a_.cq, wr_id);
    EXPECT_TRUE(HasPattern(b_.memory.data(), 64, static_cast<uint32_t>(wr_id)));
  }
  // The next asynchronous event.
  ibv_async_event Event() {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, kTimeoutMs), 1);
    ibv_async_event event = {};
    EXPECT_EQ(ibv_get_async_event(context_, &event), 0);
    ibv_ack_async_event(&event);
    return event;
  }
  void ExpectNoEvent() {
    pollfd wait = {context_->async_fd, POLLIN, 0};
    EXPECT_EQ(poll(&wait, 1, 0), 0);
  }
  // Runs `rxe-user faults` for this process, and returns what it prints.
  static std::string Faults(const std::string& command) {
    int status = -1;
    const std::string text =
        RunTool("faults " + std::to_string(getpid()) + " " + command, &status);
    EXPECT_EQ(status, 0) << text;
    return text;
  }
  // `rules` does not contain removed rules.
  static void ExpectFired(const nlohmann::json& rules, int number,
                          uint64_t times) {
    for (const nlohmann::json& rule : rules) {
      if (rule["rule"] != number) continue;
      EXPECT_EQ(rule["fired"], times) << rule.dump();
      return;
    }
    ADD_FAILURE() << "there is no rule " << number << ": " << rules.dump();
  }
  ibv_port_state PortState() {
    ibv_port_attr port;
    EXPECT_EQ(ibv_query_port(context_, 1, &port), 0);
    return port.state;
  }
};

TEST_F(CommandedStateTest, EachComesAsNamed) {
  // --- Events. The objects stay as they are.
  ibv_async_event event = Event();
  EXPECT_EQ(event.event_type, IBV_EVENT_SM_CHANGE);
  EXPECT_EQ(event.element.port_num, 1);
  MakePair();
  Write(1);
  event = Event();
  EXPECT_EQ(event.event_type, IBV_EVENT_PATH_MIG);
  EXPECT_EQ(event.element.qp, b_.qp);
  Write(2);
  event = Event();
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, b_.cq);
  Write(3);
  EXPECT_EQ(Event().event_type, IBV_EVENT_DEVICE_FATAL);
  Write(4);
  ExpectNoEvent();  // it has no SRQ
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
  DestroyPair();

  // --- The port goes down and up again.
  MakePair();
  Write(5);
  EXPECT_EQ(PortState(), IBV_PORT_ACTIVE);
  PostWrite(6);
  event = Event();
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  EXPECT_EQ(PortState(), IBV_PORT_DOWN);
  ExpectNothing(a_.cq);
  Faults("remove 6");
  EXPECT_EQ(Event().event_type, IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(PortState(), IBV_PORT_ACTIVE);
  ExpectSuccess(a_.cq, 6);
  Write(7);
  ExpectNoEvent();
  DestroyPair();

  // --- Memory that the device writes: the second WRITE finds no page.
  MakePair();
  Write(8);
  PostWrite(9);
  ExpectStatus(a_.cq, 9, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(Event().event_type, IBV_EVENT_QP_ACCESS_ERR);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 64, 8));
  DestroyPair();

  // --- Memory that it reads.
  MakePair();
  PostWrite(10);
  ExpectStatus(a_.cq, 10, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
  DestroyPair();

  // --- Memory that it reads for a READ of the peer.
  MakePair();
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 11, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 11, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(Event().event_type, IBV_EVENT_QP_ACCESS_ERR);
  DestroyPair();

  // --- Memory into which a READ goes.
  MakePair();
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 12, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 12, IBV_WC_LOC_PROT_ERR);
  DestroyPair();

  // --- Requests by message and wr_id, and a call.
  MakePair();
  Write(100);
  Write(101);  // lost, and sent again
  Write(102);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 103, 0, 64, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            ENOMEM);
  PostWrite(104);
  ExpectStatus(a_.cq, 104, IBV_WC_GENERAL_ERR);
  DestroyPair();
  ibv_ah_attr to = {};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = gid_;
  to.grh.sgid_index = gid_index_;
  ibv_ah* const ah = ibv_create_ah(pd_, &to);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(Event().event_type, IBV_EVENT_LID_CHANGE);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);

  // --- A request that ibv_wr_complete posts.
  QpOptions options;
  options.send_ops = IBV_QP_EX_WITH_RDMA_WRITE;
  MakeSide(&a_, options);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ibv_qp_ex* const ex = ibv_qp_to_qp_ex(a_.qp);
  ASSERT_NE(ex, nullptr);
  for (const uint64_t wr_id : {200, 201, 202}) {
    ibv_wr_start(ex);
    ex->wr_id = wr_id;
    ex->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_rdma_write(ex, b_.mr->rkey, b_.address());
    ibv_wr_set_sge(ex, a_.mr->lkey,
                   reinterpret_cast<uintptr_t>(a_.memory.data()), 64);
    ASSERT_EQ(ibv_wr_complete(ex), 0);
    ExpectSuccess(a_.cq, wr_id);
  }
  DestroyPair();

  const auto rules =
      nlohmann::json::parse(Faults("list --json"), nullptr, false);
  ASSERT_FALSE(rules.is_discarded());
  ExpectFired(rules, 11, 1);  // drop wr_id=101
  ExpectFired(rules, 12, 1);  // duplicate msg=3
  ExpectFired(rules, 13, 1);
  ExpectFired(rules, 14, 1);
  ExpectFired(rules, 15, 1);
  ExpectFired(rules, 16, 1);  // drop wr_id=201
}

}  // namespace
}  // namespace conformance
