// Objects that queue pairs of several lanes share: receive queues, completion
// queues, channels. RXE_USER_LANES sets the number of lanes.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr uint32_t kPairs = 8;
constexpr uint32_t kBytes = 300;
constexpr uint32_t kSlots = 32;  // receives posted at a time

// Connections whose receiving ends share a completion queue with a channel and
// a shared receive queue. Each has its own sending end.
class LanesTest : public PairTest {
 protected:
  LanesTest() { make_pair_ = false; }

  void SetUp() override {
    PairTest::SetUp();
    channel_ = ibv_create_comp_channel(context_);
    ASSERT_NE(channel_, nullptr);
    // The shared objects, and an unused queue pair.
    MakeSide(&shared_, {}, 1024, channel_);
    ibv_srq_init_attr init = {};
    init.attr = {kSlots, 1, 0};
    srq_ = ibv_create_srq(pd_, &init);
    ASSERT_NE(srq_, nullptr);
    senders_.resize(kPairs);
    for (Side& sender : senders_) {
      MakeSide(&sender, {}, 64, nullptr, 4096);
      ibv_qp_init_attr attr = {};
      attr.send_cq = attr.recv_cq = shared_.cq;
      attr.srq = srq_;
      attr.cap = {16, 0, 1, 0, 0};
      attr.qp_type = IBV_QPT_RC;
      receivers_.push_back(ibv_create_qp(pd_, &attr));
      ASSERT_NE(receivers_.back(), nullptr);
      ASSERT_EQ(ToRts(receivers_.back(), sender.qp->qp_num), 0);
      ASSERT_EQ(ToRts(sender.qp, receivers_.back()->qp_num), 0);
    }
    for (uint32_t i = 0; i < kSlots; ++i) ASSERT_EQ(PostReceive(i), 0);
  }
  void TearDown() override {
    for (ibv_qp* qp : receivers_) EXPECT_EQ(ibv_destroy_qp(qp), 0);
    for (Side& sender : senders_) DestroySide(&sender);
    if (srq_ != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(srq_), 0);
    }
    DestroySide(&shared_);
    if (channel_ != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel_), 0);
    }
    PairTest::TearDown();
  }

  int PostReceive(uint64_t slot) {
    ibv_sge sge = shared_.Sge(slot * kBytes, kBytes);
    ibv_recv_wr wr = {slot, nullptr, &sge, 1};
    ibv_recv_wr* bad;
    return ibv_post_srq_recv(srq_, &wr, &bad);
  }

  // Sends `count` messages on each connection from two threads. Message `m` of
  // connection `p` has pattern p * count + m.
  std::vector<std::thread> StartSenders(uint32_t count) {
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 2; ++t) {
      threads.emplace_back([this, t, count] {
        for (uint32_t m = 0; m < count; ++m) {
          for (uint32_t p = t; p < kPairs; p += 2) {
            Side& side = senders_[p];
            FillPattern(side.memory.data(), kBytes, p * count + m);
            ASSERT_EQ(Send(side, IBV_WR_SEND, m, 0, kBytes), 0);
            ExpectSuccess(side.cq, m);
          }
        }
      });
    }
    return threads;
  }

  // Checks that a message is the next of its connection, and complete.
  void Check(const ibv_wc& wc, uint32_t count) {
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
    ASSERT_EQ(wc.byte_len, kBytes);
    const auto of =
        std::find_if(receivers_.begin(), receivers_.end(),
                     [&](const ibv_qp* qp) { return qp->qp_num == wc.qp_num; });
    ASSERT_NE(of, receivers_.end());
    const auto p = static_cast<uint32_t>(of - receivers_.begin());
    ASSERT_TRUE(HasPattern(shared_.memory.data() + wc.wr_id * kBytes, kBytes,
                           p * count + next_[p]))
        << "message " << next_[p] << " of connection " << p;
    ++next_[p];
    ASSERT_EQ(PostReceive(wc.wr_id), 0);
  }

  Side shared_;
  ibv_comp_channel* channel_ = nullptr;
  ibv_srq* srq_ = nullptr;
  std::vector<Side> senders_;
  std::vector<ibv_qp*> receivers_;
  uint32_t next_[kPairs] = {};  // the next message of each connection
};

TEST_F(LanesTest, QueuePairsAreSpread) {
  std::set<uint32_t> slots;
  for (const ibv_qp* qp : receivers_) slots.insert(qp->qp_num >> 12);
  for (const Side& sender : senders_) slots.insert(sender.qp->qp_num >> 12);
  EXPECT_EQ(std::to_string(slots.size()), std::getenv("RXE_USER_LANES"));
}

TEST_F(LanesTest, ShareReceivesAndCompletionsByPolling) {
  constexpr uint32_t kCount = 200;
  std::vector<std::thread> threads = StartSenders(kCount);
  for (uint32_t i = 0; i < kPairs * kCount && !HasFatalFailure(); ++i) {
    Check(Next(shared_.cq), kCount);
  }
  for (std::thread& thread : threads) thread.join();
  ExpectNothing(shared_.cq);
}

// At least one event for completions since the last one, of any lane.
TEST_F(LanesTest, ShareReceivesAndCompletionsByEvents) {
  constexpr uint32_t kCount = 200;
  ASSERT_EQ(ibv_req_notify_cq(shared_.cq, 0), 0);
  std::vector<std::thread> threads = StartSenders(kCount);
  for (uint32_t got = 0; got < kPairs * kCount && !HasFatalFailure();) {
    pollfd readable = {channel_->fd, POLLIN, 0};
    // Half of the waits use poll(2), which makes no progress by itself.
    if (got % 2 == 0) {
      ASSERT_EQ(poll(&readable, 1, kTimeoutMs), 1);
    }
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ASSERT_EQ(ibv_get_cq_event(channel_, &cq, &cq_context), 0);
    ASSERT_EQ(cq, shared_.cq);
    ibv_ack_cq_events(cq, 1);
    ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
    ibv_wc wc;
    while (ibv_poll_cq(cq, 1, &wc) == 1 && !HasFatalFailure()) {
      Check(wc, kCount);
      ++got;
    }
  }
  for (std::thread& thread : threads) thread.join();
}

// The limit counts the receives of all lanes, and raises one event.
TEST_F(LanesTest, ShareALimit) {
  ibv_srq_attr attr = {};
  attr.srq_limit = kSlots / 2;
  ASSERT_EQ(ibv_modify_srq(srq_, &attr, IBV_SRQ_LIMIT), 0);
  for (uint32_t i = 0; i < kSlots / 2 + 1; ++i) {
    pollfd readable = {context_->async_fd, POLLIN, 0};
    EXPECT_EQ(poll(&readable, 1, 0), 0) << i;
    Side& side = senders_[i % kPairs];
    ASSERT_EQ(Send(side, IBV_WR_SEND, i, 0, kBytes), 0);
    ExpectSuccess(side.cq, i);
  }
  ibv_async_event event;
  ASSERT_EQ(ibv_get_async_event(context_, &event), 0);
  ibv_ack_async_event(&event);
  EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
  EXPECT_EQ(event.element.srq, srq_);
  for (uint32_t i = 0; i < kSlots / 2 + 1; ++i) {
    EXPECT_EQ(Next(shared_.cq).status, IBV_WC_SUCCESS);
  }
}

// Queue pairs are created and destroyed while their completion queue is polled
// and waited for.
TEST_F(LanesTest, ComeAndGoUnderTraffic) {
  std::atomic<bool> stop{false};
  std::atomic<int> churned{0};
  std::thread churn([&] {
    while (!stop) {
      ibv_qp_init_attr attr = {};
      attr.send_cq = attr.recv_cq = shared_.cq;
      attr.srq = srq_;
      attr.cap = {4, 0, 1, 0, 0};
      attr.qp_type = IBV_QPT_RC;
      ibv_qp* qp = ibv_create_qp(pd_, &attr);
      ASSERT_NE(qp, nullptr);
      ASSERT_EQ(ToRts(qp, qp->qp_num), 0);
      ASSERT_EQ(ibv_destroy_qp(qp), 0);
      ++churned;
    }
  });
  constexpr uint32_t kCount = 200;
  std::vector<std::thread> threads = StartSenders(kCount);
  for (uint32_t i = 0; i < kPairs * kCount && !HasFatalFailure(); ++i) {
    Check(Next(shared_.cq), kCount);
  }
  for (std::thread& thread : threads) thread.join();
  while (churned < 10 && !HasFailure()) std::this_thread::yield();
  stop = true;
  churn.join();
}

}  // namespace
}  // namespace conformance
