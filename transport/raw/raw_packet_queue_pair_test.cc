#include "transport/raw/raw_packet_queue_pair.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "transport/queue_pairs.h"
#include "transport/raw/work_queue.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "wire/bytes.h"
#include "wire/frame.h"

namespace transport {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr PdId kPd = 7;
constexpr uint64_t kVa = 0x10000;
constexpr size_t kMemory = 1 << 16;

// Stores frames, up to `room` unsent ones.
class FakeSink final : public FrameSink {
 public:
  size_t max_frame() const override { return 1514; }
  uint8_t* Reserve(size_t bytes) override {
    if (pending.size() == room) return nullptr;
    reserved_.assign(bytes, 0);
    return reserved_.data();
  }
  void Commit() override { pending.push_back(reserved_); }
  bool Flush() override {
    if (blocked) return false;
    sent.insert(sent.end(), pending.begin(), pending.end());
    pending.clear();
    return true;
  }

  std::vector<Bytes> pending;
  std::vector<Bytes> sent;
  size_t room = 64;
  bool blocked = false;

 private:
  Bytes reserved_;
};

class RawPacketTest : public testing::Test {
 protected:
  void SetUp() override {
    region_ = &memory_.Add(kVa, kMemory, kPd, kAccessLocalWrite);
    config_.type = QpType::kRawPacket;
    config_.qpn = 42;
    config_.pd = kPd;
    config_.capacity = {.max_send_wr = 8,
                        .max_recv_wr = 8,
                        .max_send_sge = 2,
                        .max_recv_sge = 2,
                        .max_inline_data = 128};
    config_.memory = &memory_;
    config_.send_cq = &sends_;
    config_.recv_cq = &receives_;
    config_.events = &events_;
    raw_.frames = &sink_;
  }

  void Make() {
    qp_ = std::make_unique<RawPacketQueuePair>(endpoint_, config_, raw_, 128);
  }
  void MakeAndBringUp() {
    Make();
    ASSERT_EQ(BringUp(*qp_, {}, 1), 0);
  }

  // Writes a UDP frame with `payload` bytes into registered memory.
  Bytes Frame(size_t payload, uint16_t port = 2000) {
    wire::FrameHeaders headers;
    headers.src = *wire::IpAddress::Parse("10.0.0.1");
    headers.dst = *wire::IpAddress::Parse("10.0.0.2");
    headers.src_port = port;
    Bytes bytes = wire::BuildFrame(headers, Bytes(payload, 0x5a));
    std::ranges::copy(bytes, region_->bytes.begin());
    return bytes;
  }
  int Send(uint64_t id, uint32_t length, uint32_t flags = kSendSignaled) {
    const Sge sge = {kVa, length, region_->lkey};
    SendRequest request;
    request.wr_id = id;
    request.flags = flags;
    request.sges = {&sge, 1};
    const int error = qp_->PostSend(request, 1);
    qp_->Flush(1);
    return error;
  }
  int Receive(uint64_t id, uint64_t offset, uint32_t length) {
    const Sge sge = {kVa + offset, length, region_->lkey};
    return qp_->PostReceive({id, {&sge, 1}}, 1);
  }
  void Arrives(const Bytes& bytes, bool good = false, uint32_t tag = 0) {
    ReceivedFrame received;
    ASSERT_TRUE(wire::ParseEthernet(bytes, &received.frame));
    received.checksums_good = good;
    qp_->OnFrame(received, tag, 2);
  }
  bool IsAt(size_t offset, const Bytes& bytes) const {
    return std::equal(bytes.begin(), bytes.end(),
                      region_->bytes.begin() + static_cast<long>(offset));
  }

  FakeMemory memory_;
  FakeMemory::Region* region_ = nullptr;
  RecordingCq sends_;
  RecordingCq receives_;
  RecordingEvents events_;
  FakeSink sink_;
  Endpoint endpoint_;
  QpConfig config_;
  RawPacketConfig raw_;
  std::unique_ptr<RawPacketQueuePair> qp_;
};

TEST_F(RawPacketTest, FramesAreSentUnchanged) {
  MakeAndBringUp();
  const Bytes frame = Frame(100);
  ASSERT_EQ(Send(1, static_cast<uint32_t>(frame.size())), 0);
  ASSERT_EQ(sink_.sent.size(), 1u);
  EXPECT_EQ(sink_.sent[0], frame);
  ASSERT_EQ(sends_.completions.size(), 1u);
  EXPECT_EQ(sends_.completions[0].wr_id, 1u);
  EXPECT_EQ(sends_.completions[0].status, WcStatus::kSuccess);
  EXPECT_EQ(qp_->counters().tx_packets, 1u);
}

TEST_F(RawPacketTest, ChecksumsAreComputedOnRequest) {
  MakeAndBringUp();
  Bytes frame = Frame(100);
  region_->bytes[24] = region_->bytes[25] = 0;  // of the IPv4 header
  ASSERT_EQ(Send(1, static_cast<uint32_t>(frame.size()),
                 kSendSignaled | kSendIpChecksum),
            0);
  wire::EthernetFrame sent;
  ASSERT_TRUE(wire::ParseEthernet(sink_.sent.at(0), &sent));
  EXPECT_TRUE(wire::Ipv4ChecksumsAreGood(sent));
  EXPECT_NE(wire::LoadBe16(sent.transport_header() + 6), 0);
}

TEST_F(RawPacketTest, AFrameOfWrongLengthEndsTheSendQueue) {
  for (const uint32_t length : {13u, 1515u, 1519u}) {
    sends_.Take();
    MakeAndBringUp();
    Frame(1600);
    ASSERT_EQ(Send(1, length), 0);
    ASSERT_EQ(sends_.completions.size(), 1u) << length;
    EXPECT_EQ(sends_.completions[0].status, WcStatus::kLocalLengthError);
    EXPECT_EQ(qp_->state(), QpState::kSqe);
    EXPECT_TRUE(sink_.sent.empty());
  }
}

TEST_F(RawPacketTest, AVlanTagIsExtra) {
  MakeAndBringUp();
  Frame(1600);
  wire::StoreBe16(&region_->bytes[12], 0x8100);
  ASSERT_EQ(Send(1, 1518), 0);
  EXPECT_EQ(sends_.completions.at(0).status, WcStatus::kSuccess);
}

TEST_F(RawPacketTest, ABadKeyEndsTheSendQueue) {
  MakeAndBringUp();
  const Sge sge = {kVa, 100, region_->lkey + 100};
  SendRequest request;
  request.sges = {&sge, 1};
  ASSERT_EQ(qp_->PostSend(request, 1), 0);
  EXPECT_EQ(sends_.completions.at(0).status, WcStatus::kLocalProtectionError);
  EXPECT_EQ(qp_->state(), QpState::kSqe);
  qp_->Flush(1);
  EXPECT_TRUE(sink_.sent.empty());
}

TEST_F(RawPacketTest, FramesWaitInOrderWhileTheDeviceIsFull) {
  MakeAndBringUp();
  sink_.room = 2;
  sink_.blocked = true;
  const auto size = static_cast<uint32_t>(Frame(100).size());
  for (uint64_t id = 1; id <= 4; ++id) ASSERT_EQ(Send(id, size), 0);
  EXPECT_EQ(sends_.Take().size(), 2u);
  EXPECT_NE(endpoint_.NextTimeout(), kNever);
  sink_.blocked = false;
  for (int i = 0; i < 3 && endpoint_.NextTimeout() != kNever; ++i) {
    endpoint_.OnTimer(endpoint_.NextTimeout());
  }
  EXPECT_EQ(sink_.sent.size(), 4u);
  const std::vector<Completion> rest = sends_.Take();
  ASSERT_EQ(rest.size(), 2u);
  EXPECT_EQ(rest[0].wr_id, 3u);
  EXPECT_EQ(endpoint_.NextTimeout(), kNever);
}

TEST_F(RawPacketTest, OtherOperationsAreRefused) {
  MakeAndBringUp();
  for (const SendOpcode opcode :
       {SendOpcode::kSendWithImm, SendOpcode::kRdmaWrite, SendOpcode::kRdmaRead,
        SendOpcode::kFetchAdd, SendOpcode::kLocalInvalidate,
        SendOpcode::kSendWithInvalidate}) {
    SendRequest request;
    request.opcode = opcode;
    EXPECT_EQ(qp_->PostSend(request, 1), EINVAL);
  }
}

TEST_F(RawPacketTest, StatesNeedNoAddress) {
  Make();
  EXPECT_EQ(Receive(1, 0, 100), EINVAL);  // RESET
  QpAttributes to;
  to.state = QpState::kInit;
  EXPECT_EQ(qp_->Modify(to, kQpState, 1), EINVAL);  // needs a port
  EXPECT_EQ(qp_->Modify(to, kQpState | kQpPort | kQpQkey, 1), EINVAL);
  EXPECT_EQ(qp_->Modify(to, kQpState | kQpPort, 1), 0);
  EXPECT_EQ(Receive(1, 0, 100), 0);
  EXPECT_EQ(Send(1, 60), EINVAL);
  Arrives(Frame(10));  // INIT receives nothing
  EXPECT_TRUE(receives_.completions.empty());
  to.state = QpState::kRtr;
  EXPECT_EQ(qp_->Modify(to, kQpState, 1), 0);
  Arrives(Frame(10));
  EXPECT_EQ(receives_.Take().size(), 1u);
  to.state = QpState::kErr;
  ASSERT_EQ(Receive(2, 0, 100), 0);
  EXPECT_EQ(qp_->Modify(to, kQpState, 1), 0);
  EXPECT_EQ(receives_.completions.at(0).status, WcStatus::kFlushed);
}

TEST_F(RawPacketTest, AFrameTakesAReceive) {
  MakeAndBringUp();
  const Bytes frame = Frame(100);
  Arrives(frame);  // no receive: dropped
  EXPECT_EQ(qp_->counters().out_of_buffer, 1u);
  ASSERT_EQ(Receive(1, 4096, 2000), 0);
  Arrives(frame, true, 99);
  ASSERT_EQ(receives_.completions.size(), 1u);
  const Completion& c = receives_.completions[0];
  EXPECT_EQ(c.status, WcStatus::kSuccess);
  EXPECT_EQ(c.byte_len, frame.size());
  EXPECT_EQ(c.flags, kWcIpChecksumOk);
  EXPECT_EQ(c.imm_be_or_rkey, 99u);
  EXPECT_EQ(c.qpn, 42u);
  EXPECT_TRUE(IsAt(4096, frame));
}

TEST_F(RawPacketTest, ATooShortReceiveFailsAndTheQueuePairContinues) {
  MakeAndBringUp();
  const Bytes frame = Frame(100);
  ASSERT_EQ(Receive(1, 4096, 20), 0);
  ASSERT_EQ(Receive(2, 8192, 2000), 0);
  Arrives(frame);
  Arrives(frame);
  ASSERT_EQ(receives_.completions.size(), 2u);
  EXPECT_EQ(receives_.completions[0].status, WcStatus::kLocalLengthError);
  EXPECT_EQ(receives_.completions[1].status, WcStatus::kSuccess);
  EXPECT_TRUE(IsAt(8192, frame));
}

TEST_F(RawPacketTest, AReceiveWithoutMemoryEndsTheQueuePair) {
  MakeAndBringUp();
  ASSERT_EQ(Receive(1, kMemory, 2000), 0);
  Arrives(Frame(100));
  EXPECT_EQ(receives_.completions.at(0).status,
            WcStatus::kLocalProtectionError);
  EXPECT_EQ(qp_->state(), QpState::kErr);
}

// --- Segments.

TEST_F(RawPacketTest, DataIsCutIntoSegments) {
  MakeAndBringUp();
  Bytes header(54);
  header[12] = 8;
  header[14] = 0x45;
  header[23] = 6;
  header[46] = 0x50;
  for (size_t i = 0; i < 2500; ++i) {
    region_->bytes[i] = static_cast<uint8_t>(i / 7);
  }
  const Sge sge = {kVa, 2500, region_->lkey};
  SendRequest request;
  request.wr_id = 5;
  request.opcode = SendOpcode::kTso;
  request.flags = kSendSignaled;
  request.sges = {&sge, 1};
  request.tso_header = header;
  request.tso_mss = 1000;
  ASSERT_EQ(qp_->PostSend(request, 1), 0);
  qp_->Flush(1);
  ASSERT_EQ(sink_.sent.size(), 3u);
  size_t offset = 0;
  for (const Bytes& sent : sink_.sent) {
    wire::EthernetFrame frame;
    ASSERT_TRUE(wire::ParseEthernet(sent, &frame));
    EXPECT_TRUE(wire::Ipv4ChecksumsAreGood(frame));
    EXPECT_EQ(wire::LoadBe32(frame.transport_header() + 4), offset);
    EXPECT_TRUE(IsAt(offset, Bytes(sent.begin() + 54, sent.end())));
    offset += sent.size() - 54;
  }
  EXPECT_EQ(offset, 2500u);
  ASSERT_EQ(sends_.completions.size(), 1u);
  EXPECT_EQ(sends_.completions[0].opcode, WcOpcode::kTso);

  request.tso_mss = 0;
  EXPECT_EQ(qp_->PostSend(request, 1), EINVAL);
  request.tso_mss = 1000;
  request.tso_header = Bytes(129);
  EXPECT_EQ(qp_->PostSend(request, 1), EINVAL);
  header[23] = 17;  // not TCP
  request.tso_header = header;
  ASSERT_EQ(qp_->PostSend(request, 1), 0);
  EXPECT_EQ(sends_.completions.back().status, WcStatus::kLocalQpOperationError);
}

TEST_F(RawPacketTest, SegmentsContinueAfterTheDeviceWasFull) {
  MakeAndBringUp();
  sink_.room = 2;
  sink_.blocked = true;
  Bytes header(54);
  header[12] = 8;
  header[14] = 0x45;
  header[23] = 6;
  header[46] = 0x50;
  const Sge sge = {kVa, 500, region_->lkey};
  SendRequest request;
  request.opcode = SendOpcode::kTso;
  request.flags = kSendSignaled;
  request.sges = {&sge, 1};
  request.tso_header = header;
  request.tso_mss = 100;
  ASSERT_EQ(qp_->PostSend(request, 1), 0);
  qp_->Flush(1);
  EXPECT_TRUE(sends_.completions.empty());
  sink_.blocked = false;
  for (int i = 0; i < 9 && endpoint_.NextTimeout() != kNever; ++i) {
    endpoint_.OnTimer(endpoint_.NextTimeout());
  }
  EXPECT_EQ(sink_.sent.size(), 5u);
  EXPECT_EQ(sends_.completions.size(), 1u);
}

// --- Work queues.

class WorkQueueTest : public RawPacketTest {
 protected:
  void SetUp() override {
    RawPacketTest::SetUp();
    for (uint32_t i = 0; i < 4; ++i) {
      QpConfig config = config_;
      config.qpn = 100 + i;
      queues_.push_back(std::make_unique<WorkQueue>(config));
      hash_.table.push_back(queues_.back().get());
    }
    hash_.key[0] = 0x6d;
    hash_.key[5] = 0x5b;
    hash_.key[6] = 0x0e;
    hash_.fields = kRxHashSourcePortUdp;
    raw_.rx_hash = &hash_;
    config_.send_cq = config_.recv_cq = nullptr;
    config_.capacity = {};
    Make();
  }
  int PostTo(WorkQueue& queue, uint64_t id) {
    const Sge sge = {kVa + 4096, 2000, region_->lkey};
    return queue.Post({id, {&sge, 1}}, 1);
  }

  std::vector<std::unique_ptr<WorkQueue>> queues_;
  RxHash hash_;
};

TEST_F(WorkQueueTest, FramesAreSpreadByTheirHash) {
  for (const auto& queue : queues_) {
    EXPECT_EQ(PostTo(*queue, 0), EINVAL);  // RESET
    ASSERT_EQ(queue->Modify(WqState::kReady, 1), 0);
    for (uint64_t id = 0; id < 8; ++id) ASSERT_EQ(PostTo(*queue, id), 0);
  }
  std::vector<uint32_t> wanted;
  for (uint16_t port = 0; port < 8; ++port) {
    const Bytes bytes = Frame(10, static_cast<uint16_t>(port * 9001));
    wire::EthernetFrame frame;
    ASSERT_TRUE(wire::ParseEthernet(bytes, &frame));
    wanted.push_back(100 + HashOf(hash_, frame) % 4);
    Arrives(bytes);
  }
  const std::vector<Completion> got = receives_.Take();
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].qpn, wanted[i]);
  EXPECT_NE(std::ranges::min(wanted), std::ranges::max(wanted));
}

TEST_F(WorkQueueTest, NothingCanBePostedToTheQueuePair) {
  SendRequest request;
  EXPECT_EQ(qp_->PostSend(request, 1), EINVAL);
}

TEST_F(WorkQueueTest, StatesFollowTheManualPage) {
  WorkQueue& queue = *queues_[0];
  ASSERT_EQ(queue.Modify(WqState::kReady, 1), 0);
  ASSERT_EQ(PostTo(queue, 1), 0);
  ASSERT_EQ(queue.Modify(WqState::kError, 1), 0);
  EXPECT_EQ(receives_.Take().at(0).status, WcStatus::kFlushed);
  ASSERT_EQ(PostTo(queue, 2), 0);  // completes at once
  EXPECT_EQ(receives_.Take().at(0).wr_id, 2u);
  EXPECT_EQ(queue.Modify(WqState::kReady, 1), EINVAL);
  EXPECT_EQ(queue.Modify(WqState::kReset, 1), 0);
  EXPECT_EQ(queue.Modify(WqState::kReady, 1), 0);
}

TEST_F(WorkQueueTest, ALostCompletionQueueIsAnError) {
  int told = 0;
  for (const auto& queue : queues_) {
    queue->OnFailure([&told] { ++told; });
    ASSERT_EQ(queue->Modify(WqState::kReady, 1), 0);
    ASSERT_EQ(PostTo(*queue, 1), 0);
  }
  receives_.capacity = 0;
  Arrives(Frame(10));
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace transport
