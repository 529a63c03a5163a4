// RXE_USER_TRACE: what a program did and what became of it, as shown by
// rxe-user trace, beside the capture of the same run.
#include <malloc.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/tool.h"

namespace conformance {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kBytes = 5000;
constexpr int kMtu = 1024;

// The lines of this type, and of this name unless it is empty.
std::vector<Json> Of(const std::vector<Json>& lines, const std::string& type,
                     const std::string& name = "") {
  std::vector<Json> found;
  for (const Json& line : lines) {
    if (line["type"] == type && (name.empty() || line["name"] == name)) {
      found.push_back(line);
    }
  }
  return found;
}

class TraceTest : public PairTest {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rxe_user_trace_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RXE_USER_CAPTURE", (folder_ + "/a.pcap").c_str(), 1);
    setenv("RXE_USER_TRACE", recording().c_str(), 1);
    PairTest::SetUp();
  }
  void TearDown() override {
    PairTest::TearDown();
    unsetenv("RXE_USER_CAPTURE");
    unsetenv("RXE_USER_TRACE");
    std::filesystem::remove_all(folder_);
  }
  std::string recording() const { return folder_ + "/a.pcapng"; }

  // The lines of the recording, as soon as `is_whole` says so.
  template <typename IsWhole>
  std::vector<Json> Await(IsWhole&& is_whole) {
    std::vector<Json> lines;
    const int64_t until = NowMs() + kTimeoutMs;
    do {
      lines = RunToolForJson("trace --json " + recording());
    } while (!is_whole(lines) && NowMs() < until);
    return lines;
  }

  std::string folder_;
};

// Each packet was sent and received.
void ExpectArrival(const std::vector<Json>& lines) {
  for (const Json& packet : Of(lines, "packet")) {
    EXPECT_EQ(packet["fate"], "arrived") << packet;
    // The kernel got the packet after it was sent.
    ASSERT_TRUE(packet.contains("waited_ns")) << packet;
    EXPECT_GT(packet["waited_ns"], 0) << packet;
    EXPECT_LT(packet["waited_ns"], packet["took_ns"]) << packet;
  }
}

// Each work request has the PSNs of its packets.
void ExpectWorkRequests(const std::vector<Json>& lines, int expected) {
  int requests = 0;
  for (const Json& message : Of(lines, "message")) {
    ++requests;
    const int count = (static_cast<int>(kBytes) + kMtu - 1) / kMtu;
    EXPECT_EQ(message["last_psn"].get<int>() - message["first_psn"].get<int>(),
              count - 1)
        << message;
    EXPECT_EQ(message["bytes"], kBytes) << message;
    EXPECT_TRUE(message.contains("done")) << message;
    // Unsignaled ones have no completion.
    EXPECT_EQ(message.contains("polled"), message["name"] != "RDMA_WRITE")
        << message;
  }
  EXPECT_EQ(requests, expected);
}

// Each completion has its work request, and its cause is a packet.
void ExpectCompletions(const std::vector<Json>& lines, size_t expected) {
  std::map<uint64_t, Json> by_id;
  for (const Json& event : Of(lines, "event")) by_id[event["id"]] = event;
  const std::vector<Json> completed = Of(lines, "event", "completed");
  EXPECT_EQ(completed.size(), expected);
  for (const Json& event : completed) {
    EXPECT_EQ(event["status"], "SUCCESS") << event;
    ASSERT_TRUE(by_id.contains(event["posted"])) << event;
    EXPECT_EQ(by_id[event["posted"]]["wr_id"], event["wr_id"]) << event;
    EXPECT_TRUE(event.contains("cause")) << event;
  }
  for (const Json& event : Of(lines, "event", "polled")) {
    ASSERT_TRUE(event.contains("cause")) << event;
    EXPECT_EQ(by_id[event["cause"]]["wr_id"], event["wr_id"]) << event;
  }
}

// Both ends are in this process: each packet is sent and received.
TEST_F(TraceTest, HasThePacketsOfACaptureAndTheWorkRequestsWithTheirPsns) {
  constexpr int kRounds = 10;
  for (int i = 0; i < kRounds; ++i) {
    const auto id = static_cast<uint64_t>(i);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1000 + id, 0, kBytes, 0, b_.address(),
                   b_.mr->rkey),
              0);
    ASSERT_EQ(Receive(b_, 100 + id, 0, kBytes), 0);
    ASSERT_EQ(Send(a_, IBV_WR_SEND, 200 + id, 0, kBytes), 0);
    ExpectSuccess(b_.cq, 100 + id);
    ExpectSuccess(a_.cq, 200 + id);
  }
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 300, 0, kBytes, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 300);

  // Packets. The two files are not written at the same moments.
  using Key = std::tuple<std::string, uint32_t, uint32_t>;
  std::map<Key, int> captured;
  std::map<Key, int> recorded;
  const auto key = [](const Json& packet) {
    return Key(packet["opcode"], packet["qp"], packet["psn"]);
  };
  const std::vector<Json> lines = Await([&](const std::vector<Json>& all) {
    captured.clear();
    recorded.clear();
    for (const Json& packet :
         Of(RunToolForJson("decode --json " + folder_ + "/a.pcap"), "packet")) {
      ++captured[key(packet)];
    }
    for (const Json& packet : Of(all, "packet")) {
      recorded[key(packet)] +=
          packet.contains("sent") + packet.contains("received");
    }
    return captured == recorded &&
           Of(all, "event", "polled").size() == 2 * kRounds + 1;
  });
  EXPECT_GT(captured.size(), static_cast<size_t>(kRounds) * 10);
  EXPECT_EQ(captured, recorded);
  ExpectArrival(lines);
  ExpectWorkRequests(lines, 2 * kRounds + 1);
  ExpectCompletions(lines, 3 * kRounds + 1);
  // Each queue pair went from RESET to RTS.
  std::map<uint32_t, std::string> states;
  for (const Json& event : Of(lines, "event", "qp_state")) {
    states[event["qpn"]] += event["to"].get<std::string>() + " ";
  }
  EXPECT_EQ(states[a_.qp->qp_num], "INIT RTR RTS ");
  EXPECT_EQ(states[b_.qp->qp_num], "INIT RTR RTS ");
  EXPECT_TRUE(Of(lines, "event", "missed").empty());
  EXPECT_EQ(RunTool("explain " + recording()), "");
}

TEST_F(TraceTest, OnlyTheUserReadsTheFile) {
  struct stat s {};
  ASSERT_EQ(stat(recording().c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
}

// No receive is posted: RNR NAKs, retransmissions, failure, flushes.
TEST_F(TraceTest, AFailureHasItsCauses) {
  DestroySide(&a_);
  DestroySide(&b_);
  MakeSide(&a_);
  MakeSide(&b_);
  ConnectOptions options;
  options.rnr_retry = 1;
  options.min_rnr_timer = 1;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_RNR_RETRY_EXC_ERR);
  ExpectStatus(a_.cq, 2, IBV_WC_WR_FLUSH_ERR);
  const std::vector<Json> lines = Await([&](const std::vector<Json>& all) {
    return Of(all, "event", "polled").size() == 2;
  });
  std::map<uint64_t, Json> by_id;
  for (const Json& event : Of(lines, "event")) by_id[event["id"]] = event;
  const std::vector<Json> completed = Of(lines, "event", "completed");
  ASSERT_EQ(completed.size(), 2u);
  // Backwards from what the program saw.
  const Json flushed = completed[1];
  EXPECT_EQ(flushed["status"], "WR_FLUSH_ERR");
  const Json state = by_id[flushed["cause"]];
  EXPECT_EQ(state["name"], "qp_state") << flushed;
  EXPECT_EQ(state["to"], "ERR");
  const Json exceeded = by_id[state["cause"]];
  EXPECT_EQ(exceeded["kind"], "rnr_retries_exceeded") << state;
  EXPECT_EQ(completed[0]["status"], "RNR_RETRY_EXC_ERR");
  EXPECT_EQ(completed[0]["cause"], exceeded["id"]);
  const Json nak = by_id[exceeded["cause"]];
  EXPECT_EQ(nak["kind"], "rnr_nak_received") << exceeded;
  EXPECT_TRUE(nak.contains("cause")) << "the packet";

  const std::string text = RunTool("explain " + recording());
  for (const char* part :
       {"status 13", "first cause", "had no receive posted", "whose side",
        "rnr_nak_received", "RTS -> ERR", "what to do"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

// The same symptom, status 12, has three explanations, each from the
// recordings of both ends.
class TraceStatus12Test : public TraceTest {
 protected:
  void SetUp() override {
    make_pair_ = false;
    TraceTest::SetUp();
    MakeSide(&a_);
    MakeSide(&b_);
  }
  // The explanation of a WRITE that the peer does not answer.
  std::string ExplainWrite() {
    EXPECT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    ExpectStatus(a_.cq, 1, IBV_WC_RETRY_EXC_ERR);
    Await([&](const std::vector<Json>& all) {
      return !Of(all, "event", "polled").empty();
    });
    return RunTool("explain " + recording());
  }
  static ConnectOptions Impatient() {
    ConnectOptions options;
    options.timeout = 8;
    options.retry_cnt = 1;
    return options;
  }
};

TEST_F(TraceStatus12Test, ThePeerWasDestroyed) {
  Connect(&a_, &b_, Impatient());
  DestroyQp(&b_);
  const std::string text = ExplainWrite();
  EXPECT_NE(text.find("was destroyed by process"), std::string::npos) << text;
  EXPECT_NE(text.find("status 12"), std::string::npos) << text;
}

TEST_F(TraceStatus12Test, TheNumberIsWrong) {
  ASSERT_EQ(ToRts(a_.qp, b_.qp->qp_num + 5, Impatient()), 0);
  ASSERT_EQ(ToRts(b_.qp, a_.qp->qp_num, Impatient()), 0);
  const std::string text = ExplainWrite();
  EXPECT_NE(text.find("the number is wrong"), std::string::npos) << text;
}

TEST_F(TraceStatus12Test, ThePeerIsNotReady) {
  ASSERT_EQ(ToRts(a_.qp, b_.qp->qp_num, Impatient()), 0);
  ToInit(b_.qp, Impatient());
  const std::string text = ExplainWrite();
  EXPECT_NE(text.find("is in INIT, and takes no packets"), std::string::npos)
      << text;
}

// "Flush error, and no error before it": the peer's WRITE had a wrong key.
TEST_F(TraceTest, AFlushHasTheCauseThatOnlyTheResponderKnows) {
  ASSERT_EQ(Receive(b_, 7, 0, 100), 0);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(b_.memory.size() - 50), b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  ExpectStatus(b_.cq, 7, IBV_WC_WR_FLUSH_ERR);
  Await([&](const std::vector<Json>& all) {
    return Of(all, "event", "polled").size() == 2;
  });
  const std::string text = RunTool("explain " + recording());
  for (const char* part : {"status 10", "status 5", "range"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

// A latency of 655 ms: the peer's min_rnr_timer is 0.
TEST_F(TraceTest, AWaitForReceivesIsNamed) {
  DestroySide(&a_);
  DestroySide(&b_);
  MakeSide(&a_);
  MakeSide(&b_);
  ConnectOptions options;
  options.min_rnr_timer = 0;
  Connect(&a_, &b_, options);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  Await([&](const std::vector<Json>& all) {
    return !Of(all, "event", "incident").empty();
  });
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
  ExpectSuccess(b_.cq, 2);
  ExpectSuccess(a_.cq, 1);
  Await([&](const std::vector<Json>& all) {
    return Of(all, "event", "polled").size() == 2;
  });
  const std::string text = RunTool("explain " + recording());
  EXPECT_NE(text.find("655.36 ms"), std::string::npos) << text;
}

// A program without the faults of the programs above: the queue pair exists and
// is ready, receives are posted before messages arrive, keys and ranges are
// right, the queue is full and not more, and completions are polled.
TEST_F(TraceTest, ExplainSaysNothingOfAProgramWithoutFaults) {
  DestroySide(&a_);
  DestroySide(&b_);
  MakeSide(&a_);
  MakeSide(&b_);
  ConnectOptions options;
  options.min_rnr_timer = 0;
  options.timeout = 20;  // 4.3 s: also of a busy machine
  Connect(&a_, &b_, options);
  ASSERT_EQ(Receive(b_, 2, 0, 100), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, 100), 0);
  ExpectSuccess(b_.cq, 2);
  ExpectSuccess(a_.cq, 1);
  size_t polled = 2;
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ}) {
    ASSERT_EQ(Send(a_, opcode, 3, 0, 100, IBV_SEND_SIGNALED,
                   b_.address(b_.memory.size() - 100), b_.mr->rkey),
              0);
    ExpectSuccess(a_.cq, 3);
    ++polled;
  }
  const uint32_t most = QpOptions().cap.max_send_wr;
  for (uint32_t i = 0; i < most; ++i) {
    ASSERT_EQ(
        Send(a_, IBV_WR_RDMA_WRITE, 10 + i, 0, 100,
             i + 1 == most ? IBV_SEND_SIGNALED : 0, b_.address(), b_.mr->rkey),
        0);
  }
  ExpectSuccess(a_.cq, 10 + most - 1);
  ++polled;
  Await([&](const std::vector<Json>& all) {
    return Of(all, "event", "polled").size() == polled;
  });
  EXPECT_EQ(RunTool("explain " + recording()), "");
}

// The recorder forgets queues that are destroyed, and the receives in them.
TEST_F(TraceTest, DestroyedQueuesTakeNoMemory) {
  constexpr int kReceives = 4096;
  ibv_sge sge = {a_.address(), 8, a_.mr->lkey};
  std::vector<ibv_recv_wr> receives(kReceives);
  for (int i = 0; i < kReceives; ++i) {
    receives[i] = {static_cast<uint64_t>(i),
                   i + 1 < kReceives ? &receives[i + 1] : nullptr, &sge, 1};
  }
  const auto round = [&] {
    ibv_srq_init_attr init = {};
    init.attr.max_wr = kReceives;
    init.attr.max_sge = 1;
    ibv_srq* const srq = ibv_create_srq(pd_, &init);
    ASSERT_NE(srq, nullptr);
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq, receives.data(), &bad), 0);
    ASSERT_EQ(ibv_destroy_srq(srq), 0);
    ibv_cq* const cq = ibv_create_cq(context_, 1, nullptr, nullptr, 0);
    ASSERT_NE(cq, nullptr);
    ibv_wc wc;
    ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 0);
    ASSERT_EQ(ibv_destroy_cq(cq), 0);
  };
  for (int i = 0; i < 2; ++i) round();
  const size_t before = mallinfo2().uordblks;
  constexpr size_t kRounds = 20;
  for (size_t i = 0; i < kRounds; ++i) round();
  const size_t after = mallinfo2().uordblks;
  // A receive is at least its wr_id.
  EXPECT_LT(after, before + kRounds * kReceives * sizeof(uint64_t));
}

// A refused call names the attribute.
TEST_F(TraceTest, ARefusedCall) {
  ibv_qp_attr attr = RtrAttributes(1);
  EXPECT_NE(ibv_modify_qp(a_.qp, &attr, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER),
            0);
  const std::vector<Json> lines = Await([&](const std::vector<Json>& all) {
    const std::vector<Json> calls = Of(all, "event", "call");
    return !calls.empty() && calls.back()["error"] != 0;
  });
  const Json call = Of(lines, "event", "call").back();
  EXPECT_EQ(call["function"], "ibv_modify_qp") << call;
  EXPECT_EQ(call["error"], EINVAL) << call;
  const std::string arguments = call["arguments"];
  EXPECT_NE(arguments.find("refused: "), std::string::npos) << call;
  const std::string text = RunTool("explain " + recording());
  EXPECT_NE(text.find("ibv_modify_qp failed with EINVAL"), std::string::npos)
      << text;
}

// A batch that ends with a request whose inline data is too long.
TEST_F(TraceTest, InlineDataThatIsTooLong) {
  DestroySide(&a_);
  DestroySide(&b_);
  QpOptions options;
  options.send_ops = IBV_QP_EX_WITH_SEND;
  options.cap.max_inline_data = 16;
  MakeSide(&a_, options);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 64), 0);
  ibv_qp_ex* const qpx = ibv_qp_to_qp_ex(a_.qp);
  ASSERT_NE(qpx, nullptr);
  std::vector<uint8_t> data(10'000);
  ibv_wr_start(qpx);
  ibv_wr_send(qpx);
  ibv_wr_set_inline_data(qpx, data.data(), data.size());
  EXPECT_EQ(ibv_wr_complete(qpx), EINVAL);
  // Nothing was posted.
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 2);
  ExpectNothing(b_.cq);
}

// The file of a killed process shows what it did.
TEST_F(TraceTest, AKilledProcess) {
  const std::string file = folder_ + "/child.pcapng";
  const pid_t child = fork();
  if (child == 0) {
    setenv("RXE_USER_TRACE", file.c_str(), 1);
    int devices = 0;
    ibv_device** const list = ibv_get_device_list(&devices);
    ibv_context* const context = ibv_open_device(list[0]);
    ibv_pd* const pd = ibv_alloc_pd(context);
    ibv_cq* const cq = ibv_create_cq(context, 1, nullptr, nullptr, 0);
    ibv_qp_init_attr init = {};
    init.send_cq = init.recv_cq = cq;
    init.cap = {1, 1, 1, 1, 0};
    init.qp_type = IBV_QPT_UD;
    ibv_qp* const qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) _exit(1);
    ibv_qp_attr attr = {};
    attr.qp_state = IBV_QPS_INIT;
    attr.port_num = 1;
    attr.qkey = 1;
    ibv_modify_qp(qp, &attr,
                  IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX | IBV_QP_QKEY);
    for (;;) pause();
  }
  const auto states = [&] {
    if (!std::filesystem::exists(file)) return size_t{0};
    return Of(RunToolForJson("trace --json " + file), "event", "qp_state")
        .size();
  };
  const int64_t until = NowMs() + kTimeoutMs;
  while (states() == 0 && NowMs() < until) {
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(states(), 1u);
}

}  // namespace
}  // namespace conformance
