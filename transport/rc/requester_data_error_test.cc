// Memory whose bytes are checked on their way: responses in order, and queue
// pairs that stop after a request in which an error was found
// (mlx5dv_qp_cancel_posted_send_wrs(3)).
#include <numeric>

#include "gtest/gtest.h"
#include "transport/testing/requester_peer.h"

namespace transport {
namespace {

using wire::Operation;

constexpr uint32_t kSignaled = kSendSignaled;
constexpr uint32_t kFenced = kSendSignaled | kSendFence;
constexpr char kDrained[] = "5";

class DataErrorTest : public testing::Test {
 protected:
  DataErrorTest() : peer(Options()) { peer.Connect(); }
  static RequesterPeer::Options Options() {
    RequesterPeer::Options options;
    options.stops_at_data_errors = true;
    return options;
  }
  int Cancel(uint64_t wr_id) {
    int count = -1;
    EXPECT_EQ(peer.qp->CancelSends(wr_id, &count), 0);
    return count;
  }

  RequesterPeer peer;
};

TEST(RequesterOrderTest, ResponsesAheadAreRequestedAgain) {
  RequesterPeer peer;
  peer.Connect();
  peer.local->needs_order = true;
  peer.Read(1, 600, kSignaled, 1000);
  EXPECT_EQ(peer.Transmit(), "READ_REQUEST 100 A va 0 len 600");
  const std::vector<uint8_t> before = peer.Bytes(1256, 256);
  peer.ReadResponse(Operation::kReadResponseMiddle, 101, 256, 2);
  EXPECT_EQ(peer.Bytes(1256, 256), before);
  EXPECT_EQ(peer.qp->counters().dropped_response, 1u);
  peer.ReadResponse(Operation::kReadResponseFirst, 100, 256, 1);
  peer.ReadResponse(Operation::kReadResponseMiddle, 101, 256, 2);
  EXPECT_EQ(peer.Bytes(1256, 1)[0], 2);
  peer.ReadResponse(Operation::kReadResponseLast, 102, 88, 3);
  EXPECT_EQ(peer.Completions(), "1 ok 600");
  EXPECT_EQ(peer.qp->counters().dropped_response, 1u);
}

TEST_F(DataErrorTest, ContinuesWithoutErrors) {
  peer.Write(1, 300);
  peer.Send(2, 1, kFenced);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_FIRST 100 va 0 len 300 [256]; WRITE_LAST 101 A [44]; "
            "SEND_ONLY 102 A [1]");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
  EXPECT_EQ(peer.Events(), "");
}

TEST_F(DataErrorTest, StopsBeforeTheFence) {
  peer.Write(1, 300);
  peer.Send(2, 1, kFenced);
  peer.local->data_error = true;  // found while it is sent
  EXPECT_EQ(peer.Transmit(),
            "WRITE_FIRST 100 va 0 len 300 [256]; WRITE_LAST 101 A [44]");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.qp->state(), QpState::kSqd);
  EXPECT_EQ(peer.Events(), kDrained);
  EXPECT_EQ(peer.Transmit(), "");
  // The program has asked what was wrong.
  peer.local->data_error = false;
  EXPECT_EQ(Cancel(1), 0);  // complete
  EXPECT_EQ(Cancel(2), 1);
  EXPECT_EQ(Cancel(2), 1);  // a NOP with that number
  peer.Send(2, 5, kFenced);
  EXPECT_EQ(peer.Transmit(), "");
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.Completions(), "2 ok");
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 A [5]");
  peer.Ack(102);
  EXPECT_EQ(peer.Completions(), "2 ok");
  EXPECT_EQ(peer.Events(), "");
}

// The queue pair continues although nothing was posted or received while it was
// stopped.
TEST_F(DataErrorTest, StopsOnceForAnError) {
  peer.Write(1, 300);
  peer.local->data_error = true;
  EXPECT_EQ(peer.Transmit(),
            "WRITE_FIRST 100 va 0 len 300 [256]; WRITE_LAST 101 A [44]");
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.qp->state(), QpState::kSqd);
  EXPECT_EQ(peer.Events(), kDrained);
  peer.local->data_error = false;
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Events(), "");
  peer.Send(2, 1);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 102 A [1]");
}

TEST_F(DataErrorTest, AReadStopsWhenItIsComplete) {
  peer.Read(1, 100, kSignaled);
  peer.Send(2, 1);  // no fence: in flight with it
  EXPECT_EQ(peer.Transmit(),
            "READ_REQUEST 100 A va 0 len 100; SEND_ONLY 101 A [1]");
  peer.local->data_error = true;
  peer.ReadResponse(Operation::kReadResponseOnly, 100, 100);
  EXPECT_EQ(peer.Completions(), "1 ok 100");
  EXPECT_EQ(peer.qp->state(), QpState::kSqd);
  EXPECT_EQ(peer.Events(), "");  // not drained
  peer.Send(3, 1, 0);
  EXPECT_EQ(peer.Transmit(), "");
  EXPECT_EQ(Cancel(2), 0);  // it has begun
  EXPECT_EQ(Cancel(3), 1);
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "2 ok");
  EXPECT_EQ(peer.Events(), kDrained);
  // Request 3 was unsignaled, and completes unseen. The error is still there,
  // but only stops requests that use the memory anew.
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.Completions(), "");
  EXPECT_EQ(peer.qp->state(), QpState::kRts);
  EXPECT_EQ(peer.Events(), "");
}

TEST_F(DataErrorTest, CanceledRequestsCompleteAsWhatTheyWere) {
  ASSERT_EQ(peer.Drain(/*notify=*/false), 0);
  peer.Write(7, 1);
  peer.Read(8, 1);
  peer.FetchAdd(7, 1);
  peer.Send(9, 1);
  EXPECT_EQ(Cancel(7), 2);
  EXPECT_EQ(Cancel(8), 1);
  ASSERT_EQ(peer.Modify(QpState::kRts), 0);
  EXPECT_EQ(peer.send_cq.completions.size(), 3u);
  EXPECT_EQ(peer.send_cq.completions[0].opcode, WcOpcode::kRdmaWrite);
  EXPECT_EQ(peer.send_cq.completions[1].opcode, WcOpcode::kRdmaRead);
  EXPECT_EQ(peer.send_cq.completions[2].opcode, WcOpcode::kFetchAdd);
  EXPECT_EQ(peer.Transmit(), "SEND_ONLY 100 A [1]");
}

TEST_F(DataErrorTest, AMemcpyStopsWhatFollows) {
  peer.local->data_error = true;
  const auto post = [&](uint64_t wr_id) {
    return peer.qp->PostSend({.wr_id = wr_id,
                              .opcode = SendOpcode::kMemcpy,
                              .flags = kSignaled,
                              .invalidate_rkey = peer.local->lkey,
                              .remote_addr = peer.kVa,
                              .rkey = peer.local->lkey,
                              .compare_add = peer.kVa + 100,
                              .swap = 8},
                             peer.now);
  };
  ASSERT_EQ(post(1), 0);
  EXPECT_EQ(peer.Completions(), "1 ok");
  EXPECT_EQ(peer.qp->state(), QpState::kSqd);
  EXPECT_EQ(peer.Events(), kDrained);
  ASSERT_EQ(post(2), 0);
  EXPECT_EQ(peer.Completions(), "");
}

TEST_F(DataErrorTest, CancelsInSqdOnly) {
  int count = 0;
  EXPECT_EQ(peer.qp->CancelSends(1, &count), EINVAL);
  peer.Send(1, 1);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.qp->CancelSends(1, &count), EINVAL);
}

// A canceled request is flushed like others.
TEST_F(DataErrorTest, CanceledAndThenFlushed) {
  ASSERT_EQ(peer.Drain(/*notify=*/false), 0);
  peer.Send(1, 1);
  EXPECT_EQ(Cancel(1), 1);
  ASSERT_EQ(peer.Modify(QpState::kErr), 0);
  EXPECT_EQ(peer.Completions(), "1 status 5");
}

TEST(RequesterDataErrorTest, OtherQueuePairsDoNotStop) {
  RequesterPeer peer;
  peer.Connect();
  peer.local->data_error = true;
  peer.Write(1, 1);
  peer.Send(2, 1, kFenced);
  EXPECT_EQ(peer.Transmit(),
            "WRITE_ONLY 100 va 0 len 1 [1]; SEND_ONLY 101 A [1]");
  peer.Ack(101);
  EXPECT_EQ(peer.Completions(), "1 ok; 2 ok");
  EXPECT_EQ(peer.Events(), "");
}

// The last bytes of a memory key's configuration are for Memory alone.
TEST(RequesterDataErrorTest, TransformsGoToTheMemory) {
  using Configuration = MkeyConfiguration;
  RequesterPeer peer;
  peer.memory.Add(0x900000, 64, peer.kPd, 0).rkey = RequesterPeer::kRkey;
  peer.Connect();
  struct {
    Sge list[1] = {{1, 2, 3}};
    uint8_t transform[kMkeyTransformSize];
  } data;
  std::iota(std::begin(data.transform), std::end(data.transform), uint8_t{9});
  const auto post = [&](uint32_t bytes, Configuration::Layout layout,
                        Configuration::Transform change) {
    return peer.Post({.wr_id = 1,
                      .opcode = SendOpcode::kConfigureMkey,
                      .flags = kSendInline,
                      .swap = MkeyOperand(layout, {}, change)},
                     {{reinterpret_cast<uint64_t>(&data), bytes, 0}});
  };
  using Layout = Configuration::Layout;
  using Transform = Configuration::Transform;
  EXPECT_EQ(post(16, Layout::kList, Transform::kSet), EINVAL);
  EXPECT_EQ(post(16, Layout::kKeep, Transform::kNone), EINVAL);
  EXPECT_EQ(post(48, Layout::kKeep, Transform::kSet), EINVAL);
  EXPECT_EQ(post(0, Layout::kKeep, static_cast<Transform>(3)), EINVAL);
  ASSERT_EQ(post(48, Layout::kList, Transform::kSet), 0);
  ASSERT_EQ(post(16, Layout::kList, Transform::kNone), 0);
  const auto& configured = peer.memory.configured();
  ASSERT_EQ(configured.size(), 2u);
  EXPECT_EQ(configured[0].configuration.change, Transform::kSet);
  ASSERT_EQ(configured[0].list.size(), 1u);
  EXPECT_EQ(configured[0].list[0].lkey, 3u);
  EXPECT_EQ(configured[0].transform,
            std::vector<uint8_t>(std::begin(data.transform),
                                 std::end(data.transform)));
  EXPECT_EQ(configured[1].configuration.change, Transform::kNone);
  EXPECT_TRUE(configured[1].transform.empty());
}

}  // namespace
}  // namespace transport
