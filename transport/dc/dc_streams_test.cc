// Streams of an initiator: a failure ends its stream alone.
#include <cerrno>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "transport/testing/dc_hosts.h"

namespace transport {
namespace {

constexpr uint32_t kDci = 0x11;
constexpr uint32_t kDct = 0x22;
constexpr uint32_t kOtherDct = 0x23;

class DcStreamsTest : public ::testing::Test {
 protected:
  DcStreamsTest() {
    from.errored_streams = 3;
    dci = from.MakeDci(kDci, net.now, /*retry_cnt=*/1);
    dct = to.MakeDct(kDct, net.now);
    other = to.MakeDct(kOtherDct, net.now);
  }

  struct What {
    SendOpcode opcode = SendOpcode::kSend;
    uint32_t bytes = 16;
    uint32_t target = kDct;
    bool bad_lkey = false;
    bool bad_rkey = false;
  };
  void Post(uint64_t wr_id, uint16_t stream, const What& what) {
    const Sge sge = {from.region->va, what.bytes,
                     from.region->lkey + (what.bad_lkey ? 100 : 0)};
    const AddressVector av = from.AddressOf(to);
    SendRequest request;
    request.wr_id = wr_id;
    request.opcode = what.opcode;
    request.flags = kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = to.region->va;
    request.rkey = to.region->rkey + (what.bad_rkey ? 100 : 0);
    request.ah = &av;
    request.remote_qpn = what.target;
    request.dc_access_key = DcHost::kKey;
    request.dc_stream = stream;
    ASSERT_EQ(dci->PostSend(request, net.now), 0);
  }
  void Send(uint64_t wr_id, uint16_t stream, uint32_t target = kDct) {
    to.PostReceive(wr_id, 0x80000);
    Post(wr_id, stream, {.target = target});
  }
  // "wr_id status", joined by "; ".
  static std::string Take(RecordingCq& cq) {
    std::string text;
    for (const Completion& c : cq.Take()) {
      if (!text.empty()) text += "; ";
      text += std::to_string(c.wr_id) + " " +
              std::to_string(static_cast<int>(c.status));
    }
    return text;
  }

  DcHosts net{2};
  DcHost& from = net[0];
  DcHost& to = net[1];
  std::unique_ptr<QueuePair> dci;
  std::unique_ptr<QueuePair> dct;
  std::unique_ptr<QueuePair> other;
};

TEST_F(DcStreamsTest, StreamsShareAConnection) {
  Send(1, 7);
  Send(2, 8);
  Send(3, 7);
  EXPECT_EQ(net.Exchange(),
            "DC_CONNECT DC_CONNECT_ANSWER DC_SEND_ONLY DC_ACKNOWLEDGE "
            "DC_SEND_ONLY DC_ACKNOWLEDGE DC_SEND_ONLY DC_ACKNOWLEDGE");
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 0; 3 0");
}

TEST_F(DcStreamsTest, ALocalErrorFlushesItsStreamAlone) {
  Send(1, 1);
  Post(2, 1, {.bad_lkey = true});
  Send(3, 2);
  Post(4, 1, {});
  Send(5, 3);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 0; 2 4; 3 0; 4 5; 5 0");
  EXPECT_EQ(Take(to.recv_cq), "1 0; 3 0; 5 0");
  EXPECT_EQ(dci->state(), QpState::kRts);
  EXPECT_TRUE(from.events.Take().empty());
  // The stream stays failed until it is reset.
  Post(6, 1, {});
  Send(7, 2);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "6 5; 7 0");
  EXPECT_EQ(dci->ResetStream(2), EINVAL);
  EXPECT_EQ(dci->ResetStream(1), 0);
  EXPECT_EQ(dci->ResetStream(1), EINVAL);
  Send(8, 1);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "8 0");
}

// The stream's requests in flight are flushed, and the target's connection is
// replaced. Nothing of other streams is retransmitted, since nothing of them
// was in flight.
TEST_F(DcStreamsTest, AnErrorOfTheTargetFlushesItsStreamAlone) {
  Post(1, 1, {.opcode = SendOpcode::kRdmaWrite, .bad_rkey = true});
  Post(2, 1, {});
  Post(3, 1, {});
  Send(4, 2);
  Send(5, 2, kOtherDct);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 10; 2 5; 3 5; 4 0; 5 0");
  EXPECT_EQ(Take(to.recv_cq), "4 0; 5 0");
  EXPECT_EQ(dci->state(), QpState::kRts);
}

// A message that has been sent in part.
TEST_F(DcStreamsTest, AnErrorInTheMiddleOfAMessage) {
  Post(1, 1,
       {.opcode = SendOpcode::kRdmaWrite, .bytes = 100000, .bad_rkey = true});
  Send(2, 2);
  Post(3, 1, {});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 10; 2 0; 3 5");
}

TEST_F(DcStreamsTest, ATargetThatDoesNotAnswerCostsAStream) {
  Post(1, 1, {.target = 0x77});
  Post(2, 1, {.target = kDct});
  Send(3, 2);
  net.Run(30 * kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 12; 2 5; 3 0");
  EXPECT_EQ(dci->state(), QpState::kRts);
}

TEST_F(DcStreamsTest, TooManyErroredStreamsEndTheInitiator) {
  Post(1, 1, {.bad_lkey = true});
  Post(2, 2, {.bad_lkey = true});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 4; 2 4");
  EXPECT_EQ(dci->state(), QpState::kRts);
  // One that was reset does not count.
  ASSERT_EQ(dci->ResetStream(1), 0);
  Post(3, 1, {.bad_lkey = true});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "3 4");
  EXPECT_EQ(dci->state(), QpState::kRts);
  Post(4, 3, {.bad_lkey = true});
  Post(5, 4, {});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "4 4; 5 5");
  EXPECT_EQ(dci->state(), QpState::kErr);
  EXPECT_EQ(dci->ResetStream(1), EINVAL);
  // RESET forgets them.
  QpAttributes reset;
  ASSERT_EQ(dci->Modify(reset, kQpState, net.now), 0);
  DcHost::BringUp(*dci, net.now);
  EXPECT_EQ(dci->ResetStream(1), EINVAL);
  Send(6, 1);
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "6 0");
}

// A request without packets has no stream.
TEST_F(DcStreamsTest, AFailureWithoutAStreamEndsTheInitiator) {
  SendRequest copy;
  copy.wr_id = 1;
  copy.opcode = SendOpcode::kMemcpy;
  copy.flags = kSendSignaled;
  copy.swap = 8;  // of nothing
  ASSERT_EQ(dci->PostSend(copy, net.now), 0);
  Post(2, 1, {});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 4; 2 5");
  EXPECT_EQ(dci->state(), QpState::kErr);
}

TEST_F(DcStreamsTest, WithoutStreamsTheFirstErrorEndsTheInitiator) {
  from.errored_streams = 0;
  dci = from.MakeDci(kDci + 1, net.now);
  Post(1, 1, {.bad_lkey = true});
  Post(2, 2, {});
  net.Run(kSecond);
  EXPECT_EQ(Take(from.send_cq), "1 4; 2 5");
  EXPECT_EQ(dci->state(), QpState::kErr);
  EXPECT_EQ(dci->ResetStream(1), EINVAL);
}

}  // namespace
}  // namespace transport
