// Dynamic connections between two engines, over loopback with real sockets.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "rxe_user/engine/engine_impl.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/recorders.h"

namespace rxe_user {
namespace {

using transport::Completion;
using transport::QpState;
using transport::QpType;
using transport::SendOpcode;
using transport::WcStatus;

constexpr uint64_t kKey = 0xffeeddcc;

// A DC queue pair of a node's engine.
class DcEnd {
 public:
  DcEnd(Node& node, QpType type, const wire::IpAddress& address)
      : node_(node), address_(address) {
    const absl::StatusOr<uint32_t> qpn = node.engine().AllocateOneLaneQpn();
    EXPECT_TRUE(qpn.ok()) << qpn.status();
    qpn_ = qpn.value_or(0);
    lane_ = node.engine().LaneOf(qpn_);
    transport::QpConfig config;
    config.type = type;
    config.qpn = qpn_;
    config.capacity = {.max_send_wr = 64, .max_send_sge = 1};
    config.memory = &memory_;
    config.send_cq = &cq_;
    config.recv_cq = &cq_;
    config.srq = &srq_;
    const Lane::Guard guard(lane());
    qp_ = transport::MakeQueuePair(
        lane().endpoint(), config, 0, {},
        {.connections = &node.engine().dc_connections(lane_),
         .access_key = kKey});
    transport::QpAttributes to =
        transport::ConnectionTo(0, address, wire::IpAddress());
    to.path_mtu = 4096;
    to.sq_psn = 0x123456;
    for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      if (state == QpState::kRts && type == QpType::kDct) break;
      to.state = state;
      EXPECT_EQ(qp_->Modify(to, transport::RequiredAttributes(type, state),
                            Lane::Now()),
                0);
    }
  }
  ~DcEnd() {
    {
      const Lane::Guard guard(lane());
      qp_.reset();
    }
    node_.engine().ReleaseQpn(qpn_);
  }

  int Post(const DcEnd& target, SendOpcode opcode, uint64_t id, void* data,
           uint32_t bytes, void* remote, uint64_t operand = 0,
           uint64_t key = kKey) {
    const transport::Sge sge = {reinterpret_cast<uint64_t>(data), bytes, 1};
    transport::AddressVector av;
    av.source = address_;
    av.destination = target.address_;
    transport::SendRequest request;
    request.wr_id = id;
    request.opcode = opcode;
    request.flags = transport::kSendSignaled;
    request.sges = {&sge, 1};
    request.remote_addr = reinterpret_cast<uint64_t>(remote);
    request.rkey = 1;
    request.compare_add = operand;
    request.swap = operand + 1;
    request.ah = &av;
    request.remote_qpn = target.qpn_;
    request.dc_access_key = key;
    const Lane::Guard guard(lane());
    const absl::StatusOr<uint16_t> port =
        node_.engine().SourcePort(address_, 0, qpn_, target.qpn_);
    EXPECT_TRUE(port.ok()) << port.status();
    av.source_port = port.value_or(0);
    OpenMemory::Order();
    const int error = qp_->PostSend(request, Lane::Now());
    if (error == 0) {
      lane().Posted(Lane::Now(),
                    {.requests = 1, .bytes = bytes, .signaled = 1});
    }
    return error;
  }
  void Receive(uint64_t id, void* data, uint32_t bytes) {
    const Lane::Guard guard(lane());
    srq_.queue.push_back(
        {id, 0, {{reinterpret_cast<uint64_t>(data), bytes, 1}}});
  }
  std::optional<Completion> Poll() {
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(10);
    do {
      if (auto completion = cq_.Poll()) return completion;
      node_.engine().Progress(OnlyLane(lane_));
    } while (std::chrono::steady_clock::now() < limit);
    return std::nullopt;
  }
  transport::EndpointCounters Counters() {
    const Lane::Guard guard(lane());
    return lane().endpoint().counters();
  }
  uint32_t qpn() const { return qpn_; }

 private:
  LaneImpl& lane() { return node_.engine().lane(lane_); }

  Node& node_;
  const wire::IpAddress address_;
  OpenMemory memory_;
  EventCq cq_;
  transport::FakeSrq srq_;
  uint32_t qpn_ = 0;
  int lane_ = 0;
  std::unique_ptr<transport::QueuePair> qp_;
};

// Each engine has an address of its own, so a CONNECT needs no steering.
class EngineDcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const wire::IpAddress here = *wire::IpAddress::Parse("127.0.0.1");
    const wire::IpAddress there = *wire::IpAddress::Parse("127.0.0.2");
    a_ = std::make_unique<Node>(slots_, here, CreateSocketPort);
    b_ = std::make_unique<Node>(slots_, there, CreateSocketPort);
    dci_ = std::make_unique<DcEnd>(*a_, QpType::kDci, here);
    dct_ = std::make_unique<DcEnd>(*b_, QpType::kDct, there);
    other_dct_ = std::make_unique<DcEnd>(*b_, QpType::kDct, there);
  }
  static void ExpectDone(const std::optional<Completion>& completion,
                         uint64_t id, WcStatus status = WcStatus::kSuccess) {
    ASSERT_TRUE(completion.has_value()) << "nothing happened";
    EXPECT_EQ(completion->wr_id, id);
    EXPECT_EQ(completion->status, status);
  }

  TestSlots slots_;
  std::unique_ptr<Node> a_;
  std::unique_ptr<Node> b_;
  std::unique_ptr<DcEnd> dci_;
  std::unique_ptr<DcEnd> dct_;
  std::unique_ptr<DcEnd> other_dct_;
};

TEST_F(EngineDcTest, EveryOperationToTwoTargetsInTurn) {
  uint64_t id = 0;
  uint64_t word = 5;
  for (const uint32_t bytes : {1u, 4096u, 5000u, 1u << 20}) {
    for (DcEnd* const target : {dct_.get(), other_dct_.get()}) {
      std::vector<uint8_t> from(bytes);
      std::iota(from.begin(), from.end(), static_cast<uint8_t>(id));
      std::vector<uint8_t> to(bytes);
      target->Receive(++id, to.data(), bytes);
      ASSERT_EQ(dci_->Post(*target, SendOpcode::kSend, id, from.data(), bytes,
                           nullptr),
                0);
      ExpectDone(dci_->Poll(), id);
      const std::optional<Completion> received = target->Poll();
      ExpectDone(received, id);
      EXPECT_EQ(received->byte_len, bytes);
      EXPECT_EQ(received->qpn, target->qpn());
      EXPECT_EQ(from, to);

      to.assign(bytes, 0);
      ASSERT_EQ(dci_->Post(*target, SendOpcode::kRdmaWrite, ++id, from.data(),
                           bytes, to.data()),
                0);
      ExpectDone(dci_->Poll(), id);
      EXPECT_EQ(from, to);

      from.assign(bytes, 0);
      ASSERT_EQ(dci_->Post(*target, SendOpcode::kRdmaRead, ++id, from.data(),
                           bytes, to.data()),
                0);
      ExpectDone(dci_->Poll(), id);
      EXPECT_EQ(from, to);

      uint64_t found = 0;
      ASSERT_EQ(dci_->Post(*target, SendOpcode::kFetchAdd, ++id, &found, 8,
                           &word, 10),
                0);
      ExpectDone(dci_->Poll(), id);
      const uint64_t before = found;
      ASSERT_EQ(dci_->Post(*target, SendOpcode::kCompareSwap, ++id, &found, 8,
                           &word, before + 10),
                0);
      ExpectDone(dci_->Poll(), id);
      EXPECT_EQ(found, before + 10);
      EXPECT_EQ(word, before + 11);
    }
  }
  EXPECT_EQ(word, 5u + 8 * 11);
  EXPECT_EQ(dct_->Counters().dc_connects, 8u);
}

TEST_F(EngineDcTest, AWrongKeyIsNotAnswered) {
  uint8_t byte = 0;
  ASSERT_EQ(dci_->Post(*dct_, SendOpcode::kRdmaWrite, 1, &byte, 1, &byte, 0,
                       kKey + 1),
            0);
  ExpectDone(dci_->Poll(), 1, WcStatus::kRetryExceeded);
  EXPECT_GT(dct_->Counters().dc_key_violations, 0u);
  EXPECT_EQ(dct_->Counters().dc_connects, 0u);
}

}  // namespace
}  // namespace rxe_user
