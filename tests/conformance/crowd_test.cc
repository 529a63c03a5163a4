// 64 threads on any number of cores create, connect, use and destroy queue
// pairs and shared receive queues at once, while their peers still send. No
// thread may hang, and all must make progress. Runs for a moment, or for
// RXE_USER_TEST_CROWD_SECONDS:
//
//   bazel test //tests/conformance:crowd_test --test_timeout=600
//       --test_env=RXE_USER_TEST_CROWD_SECONDS=300
#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

constexpr int kPairs = 32;         // of threads: a sender and a receiver
constexpr size_t kQps = 2;         // of a pair, on one shared receive queue
constexpr uint64_t kAtLeast = 16;  // messages for each queue pair in a round
constexpr uint64_t kOutstanding = 8;
constexpr size_t kReceives = 16;
constexpr size_t kSlot = 4096;  // bytes
constexpr int kRounds = 3;      // that each pair must complete; it may continue
// 268 ms. On a busy machine the thread that holds a lane's lock may get no
// processor for a second, so a peer that lives is silent for that long.
constexpr uint8_t kTimeout = 16;

// How a round ends; the pairs take turns.
enum class End { kReceiverDestroys, kReceiverToError, kSenderDestroys, kCount };

// Two threads and their shared data. After both have arrived at `meet`, each
// may read what the other wrote before.
struct Pair {
  int number = 0;
  std::barrier<> meet{2};
  std::array<uint32_t, kQps> sending{}, receiving{};  // queue pair numbers
  std::atomic<bool> ending{false};  // the receiver has stopped
  bool stop = false;
  uint32_t rounds = 0;
  int64_t longest_ms = 0;  // of all rounds

  // Some pairs only have rounds that wait for no time-out.
  End end() const {
    if (number % 4 == 3) return End::kSenderDestroys;
    return static_cast<End>(rounds % static_cast<uint32_t>(End::kCount));
  }
  uint32_t Seed(size_t qp, uint64_t message) const {
    return static_cast<uint32_t>(number * 1000 + static_cast<int>(qp)) +
           static_cast<uint32_t>(message) * 7 + rounds * 31;
  }
  static uint32_t Length(uint64_t message) {
    return message % 4 == 3 ? 3000 : 200;
  }
};

// The objects of a thread in a round: queue pairs with one completion queue.
// Half of the threads wait for events, the others poll.
struct Ends {
  ibv_comp_channel* channel = nullptr;
  ibv_srq* srq = nullptr;  // the receiver's
  Side side;               // its queue pair is the first
  std::array<ibv_qp*, kQps> qps{};
};

class CrowdTest : public PairTest {
 protected:
  CrowdTest() { make_pair_ = false; }

  void Make(Ends* end, bool waits, bool receives) {
    if (waits) {
      end->channel = ibv_create_comp_channel(context_);
      ASSERT_NE(end->channel, nullptr);
    }
    QpOptions options;
    options.cap = {kOutstanding, 0, 1, 1, 0};
    if (receives) {
      ibv_srq_init_attr init = {};
      init.attr = {kReceives, 1, 0};
      end->srq = options.srq = ibv_create_srq(pd_, &init);
      ASSERT_NE(end->srq, nullptr);
    }
    MakeSide(&end->side, options, 64, end->channel, kReceives * kSlot);
    ASSERT_NE(end->side.mr, nullptr);
    end->qps[0] = end->side.qp;
    for (size_t q = 1; q < kQps; ++q) {
      ibv_qp_init_attr attr = {};
      attr.send_cq = attr.recv_cq = end->side.cq;
      attr.srq = end->srq;
      attr.cap = options.cap;
      attr.qp_type = IBV_QPT_RC;
      end->qps[q] = ibv_create_qp(pd_, &attr);
      ASSERT_NE(end->qps[q], nullptr);
    }
    for (size_t i = 0; receives && i < kReceives; ++i) {
      ASSERT_EQ(PostReceive(*end, i), 0);
    }
  }

  void Destroy(Ends* end) {
    for (size_t q = 1; q < kQps; ++q) {
      if (end->qps[q] != nullptr) {
        EXPECT_EQ(ibv_destroy_qp(end->qps[q]), 0);
      }
    }
    DestroySide(&end->side);
    if (end->srq != nullptr) {
      EXPECT_EQ(ibv_destroy_srq(end->srq), 0);
    }
    if (end->channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(end->channel), 0);
    }
    *end = Ends();
  }

  static int PostReceive(Ends& end, uint64_t slot) {
    ibv_sge sge = end.side.Sge(slot * kSlot, kSlot);
    ibv_recv_wr wr = {};
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    return ibv_post_srq_recv(end.srq, &wr, &bad);
  }

  // Gets the next completion by waiting or polling, as this thread does.
  ibv_wc Await(Ends& end) {
    if (end.channel == nullptr) return Next(end.side.cq);
    while (true) {
      ibv_wc wc = {};
      if (ibv_poll_cq(end.side.cq, 1, &wc) == 1) return wc;
      EXPECT_EQ(ibv_req_notify_cq(end.side.cq, 0), 0);
      if (ibv_poll_cq(end.side.cq, 1, &wc) == 1) return wc;
      pollfd p = {end.channel->fd, POLLIN, 0};
      if (poll(&p, 1, kTimeoutMs) != 1) {
        ADD_FAILURE() << "no event";
        wc.status = IBV_WC_GENERAL_ERR;
        return wc;
      }
      ibv_cq* cq;
      void* cookie;
      EXPECT_EQ(ibv_get_cq_event(end.channel, &cq, &cookie), 0);
      ibv_ack_cq_events(cq, 1);
    }
  }

  void PostSend(Pair& pair, Ends& end, size_t q, uint64_t message) {
    const uint32_t length = Pair::Length(message);
    const size_t offset = (q * kOutstanding + message % kOutstanding) * kSlot;
    FillPattern(&end.side.memory[offset], length, pair.Seed(q, message));
    ibv_sge sge = end.side.Sge(offset, length);
    ibv_send_wr wr = {};
    wr.wr_id = q << 32 | message;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    wr.send_flags = IBV_SEND_SIGNALED;
    ibv_send_wr* bad;
    ASSERT_EQ(ibv_post_send(end.qps[q], &wr, &bad), 0);
  }

  // Sends on all queue pairs: until enough was sent if this thread ends the
  // round, otherwise until each queue pair has failed.
  void Send(Pair& pair, Ends& end) {
    struct {
      uint64_t posted = 0, done = 0;
      bool failed = false;
    } qps[kQps];
    const bool ends = pair.end() == End::kSenderDestroys;
    const auto finished = [&](const auto& qp) {
      return ends ? qp.done >= kAtLeast : qp.failed && qp.done == qp.posted;
    };
    while (!std::all_of(std::begin(qps), std::end(qps), finished)) {
      for (size_t q = 0; q < kQps; ++q) {
        while (!qps[q].failed && qps[q].posted < qps[q].done + kOutstanding) {
          PostSend(pair, end, q, qps[q].posted++);
          if (HasFatalFailure()) return;
        }
      }
      const ibv_wc wc = Await(end);
      if (HasFailure()) return;
      auto& qp = qps[wc.wr_id >> 32];
      ASSERT_EQ(wc.wr_id & 0xffffffff, qp.done++);
      if (qp.failed) {
        ASSERT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
      } else if (wc.status != IBV_WC_SUCCESS) {
        ASSERT_EQ(wc.status, IBV_WC_RETRY_EXC_ERR);
        ASSERT_TRUE(pair.ending) << "an error while the peer receives";
        qp.failed = true;
      }
    }
  }

  void Receive(Pair& pair, Ends& end) {
    std::array<uint64_t, kQps> received{};
    while (*std::min_element(received.begin(), received.end()) < kAtLeast) {
      const ibv_wc wc = Await(end);
      if (HasFailure()) return;
      ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << ibv_wc_status_str(wc.status);
      size_t q = 0;
      while (q < kQps && end.qps[q]->qp_num != wc.qp_num) ++q;
      ASSERT_LT(q, kQps);
      const uint64_t message = received[q]++;
      ASSERT_EQ(wc.byte_len, Pair::Length(message));
      ASSERT_TRUE(HasPattern(&end.side.memory[wc.wr_id * kSlot], wc.byte_len,
                             pair.Seed(q, message)));
      ASSERT_EQ(PostReceive(end, wc.wr_id), 0);
    }
  }

  void ConnectAll(Ends& end, const std::array<uint32_t, kQps>& peers) {
    for (size_t q = 0; q < kQps; ++q) {
      ASSERT_EQ(ToRts(end.qps[q], peers[q], {.timeout = kTimeout}), 0);
    }
  }

  void ReceiveRound(Pair& pair, Ends* end) {
    Make(end, pair.number % 2 == 0, true);
    if (HasFailure()) return;
    for (size_t q = 0; q < kQps; ++q) pair.receiving[q] = end->qps[q]->qp_num;
    pair.ending = false;
    pair.meet.arrive_and_wait();
    if (HasFailure()) return;
    ConnectAll(*end, pair.sending);
    pair.meet.arrive_and_wait();
    if (HasFailure()) return;
    Receive(pair, *end);
    pair.ending = true;
    if (pair.end() == End::kReceiverToError) {
      ibv_qp_attr attr = {};
      attr.qp_state = IBV_QPS_ERR;
      for (ibv_qp* qp : end->qps) {
        EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
      }
    }
  }

  void SendRound(Pair& pair, Ends* end) {
    Make(end, pair.number / 2 % 2 == 0, false);
    if (HasFailure()) return;
    for (size_t q = 0; q < kQps; ++q) pair.sending[q] = end->qps[q]->qp_num;
    pair.meet.arrive_and_wait();
    if (HasFailure()) return;
    ConnectAll(*end, pair.receiving);
    pair.meet.arrive_and_wait();
    if (HasFailure()) return;
    Send(pair, *end);
  }
};

TEST_F(CrowdTest, MakeConnectUseAndDestroy) {
  const char* const seconds = std::getenv("RXE_USER_TEST_CROWD_SECONDS");
  const int64_t until =
      NowMs() + (seconds == nullptr ? 0 : std::atoll(seconds) * 1000);
  std::latch all_got_on(kPairs);
  std::vector<std::unique_ptr<Pair>> pairs;
  std::vector<std::thread> threads;
  for (int p = 0; p < kPairs; ++p) {
    pairs.push_back(std::make_unique<Pair>());
    Pair& pair = *pairs.back();
    pair.number = p;
    threads.emplace_back([&] {
      while (!pair.stop && !HasFailure()) {
        Ends end;
        ReceiveRound(pair, &end);
        Destroy(&end);
        pair.meet.arrive_and_wait();  // the round is over
        pair.meet.arrive_and_wait();  // and counted
      }
      pair.meet.arrive_and_drop();
    });
    threads.emplace_back([&] {
      while (!pair.stop && !HasFailure()) {
        const int64_t begin = NowMs();
        Ends end;
        SendRound(pair, &end);
        Destroy(&end);
        pair.meet.arrive_and_wait();
        pair.longest_ms = std::max(pair.longest_ms, NowMs() - begin);
        if (++pair.rounds == kRounds) all_got_on.count_down();
        pair.stop = all_got_on.try_wait() && NowMs() >= until;
        pair.meet.arrive_and_wait();
      }
      pair.meet.arrive_and_drop();
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint32_t least = UINT32_MAX, most = 0;
  int64_t longest_ms = 0;
  for (const std::unique_ptr<Pair>& pair : pairs) {
    least = std::min(least, pair->rounds);
    most = std::max(most, pair->rounds);
    longest_ms = std::max(longest_ms, pair->longest_ms);
  }
  std::printf("rounds of a pair: %u to %u; the longest took %lld ms\n", least,
              most, static_cast<long long>(longest_ms));
  EXPECT_LT(longest_ms, kTimeoutMs);
}

}  // namespace
}  // namespace conformance
