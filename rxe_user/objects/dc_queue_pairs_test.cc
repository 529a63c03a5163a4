// DC queue pairs as objects, with a real engine. Initiator and target are in
// one process.
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "rxe_user/engine/engine.h"
#include "rxe_user/objects/completion_queue.h"
#include "rxe_user/objects/context.h"
#include "rxe_user/objects/event_queue.h"
#include "rxe_user/objects/memory_region.h"
#include "rxe_user/objects/queue_pair.h"
#include "rxe_user/objects/shared_receive_queue.h"
#include "rxe_user/ports/socket_io.h"
#include "rxe_user/testing/node.h"
#include "rxe_user/testing/test_slots.h"
#include "transport/testing/bring_up.h"

namespace rxe_user {
namespace {

using transport::Completion;
using transport::QpState;
using transport::QpType;

constexpr uint64_t kKey = 0x123456789;

std::shared_ptr<Engine>* engine_of_test = nullptr;

std::shared_ptr<const Device> LoopbackDevice() {
  auto device = std::make_shared<Device>();
  device->name = "test";
  device->netdev = "lo";
  device->ifindex = 1;
  device->loopback = true;
  device->mtu = 65536;
  device->roce_mtu = 4096;
  device->gids = {{*wire::IpAddress::Parse("127.0.0.1"), 0}};
  return device;
}

CompletionQueue::Config CqConfig() {
  CompletionQueue::Config config;
  config.capacity = 64;
  return config;
}

class DcQueuePairsTest : public ::testing::Test {
 protected:
  DcQueuePairsTest() {
    engine_of_test = &engine_;
    engine_ = MakeLoopbackEngine(
        *wire::IpAddress::Parse("127.0.0.1"),
        {[this] { return slots_.Acquire(); }, CreateSocketPort});
    context_ = std::make_shared<Context>(LoopbackDevice());
    pd_ = std::make_unique<ProtectionDomain>(*context_);
    send_cq_ = std::make_unique<CompletionQueue>(*engine_, CqConfig());
    recv_cq_ = std::make_unique<CompletionQueue>(*engine_, CqConfig());
    SharedReceiveQueue::Config config;
    config.pd = pd_.get();
    config.max_wr = 8;
    config.max_sge = 1;
    config.async = &async_;
    srq_ = std::make_unique<SharedReceiveQueue>(config);
  }

  QueuePair::Config ConfigOf(QpType type) {
    QueuePair::Config config;
    config.type = type;
    config.pd = pd_.get();
    config.async = &async_;
    if (type == QpType::kDci) {
      config.send_cq = send_cq_.get();
      config.capacity.max_send_wr = 16;
      config.capacity.max_send_sge = 1;
    } else {
      config.recv_cq = recv_cq_.get();
      config.srq = srq_.get();
      config.dct_access_key = kKey;
    }
    return config;
  }
  static int BringUp(QueuePair& qp) {
    transport::QpAttributes to =
        transport::ConnectionTo(0, wire::IpAddress(), wire::IpAddress());
    to.path_mtu = 1024;
    for (const QpState state : {QpState::kInit, QpState::kRtr, QpState::kRts}) {
      if (state == QpState::kRts && qp.type() == QpType::kDct) break;
      to.state = state;
      if (const int error =
              qp.Modify(to, transport::RequiredAttributes(qp.type(), state))) {
        return error;
      }
    }
    return 0;
  }
  static std::optional<Completion> Poll(CompletionQueue& cq) {
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::optional<Completion> found;
    do {
      cq.Poll(1, [&](int, const Completion& one) { found = one; });
    } while (!found && std::chrono::steady_clock::now() < limit);
    return found;
  }

  TestSlots slots_;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Context> context_;
  EventQueue async_;
  std::unique_ptr<ProtectionDomain> pd_;
  std::unique_ptr<CompletionQueue> send_cq_;
  std::unique_ptr<CompletionQueue> recv_cq_;
  std::unique_ptr<SharedReceiveQueue> srq_;
};

TEST_F(DcQueuePairsTest, AnInitiatorHasNoReceivesAndATargetNoSends) {
  std::shared_ptr<QueuePair> qp;
  QueuePair::Config config = ConfigOf(QpType::kDci);
  config.capacity.max_recv_wr = 1;
  EXPECT_EQ(QueuePair::Create(config, &qp), EINVAL);
  config.capacity.max_recv_wr = 0;
  config.capacity.max_recv_sge = 1;
  EXPECT_EQ(QueuePair::Create(config, &qp), EINVAL);
  config = ConfigOf(QpType::kDct);
  config.srq = nullptr;
  EXPECT_EQ(QueuePair::Create(config, &qp), EINVAL);
  config = ConfigOf(QpType::kDct);
  config.recv_cq = nullptr;
  EXPECT_EQ(QueuePair::Create(config, &qp), EINVAL);

  ASSERT_EQ(QueuePair::Create(ConfigOf(QpType::kDct), &qp), 0);
  ASSERT_EQ(BringUp(*qp), 0);
  EXPECT_EQ(qp->Query().state, QpState::kRtr);
  EXPECT_EQ(srq_->users, 1);
  {
    QueuePair::Posting posting(*qp);
    EXPECT_EQ(posting.Send({}), EINVAL);
    EXPECT_EQ(posting.Receive({}), EINVAL);
  }
  qp.reset();
  EXPECT_EQ(srq_->users, 0);
  ASSERT_EQ(QueuePair::Create(ConfigOf(QpType::kDci), &qp), 0);
  ASSERT_EQ(BringUp(*qp), 0);
  QueuePair::Posting posting(*qp);
  EXPECT_EQ(posting.Send({}), EINVAL) << "no address";
  EXPECT_EQ(posting.Receive({}), EINVAL);
}

TEST_F(DcQueuePairsTest, AMessageWithinAProcess) {
  std::shared_ptr<QueuePair> dci;
  std::shared_ptr<QueuePair> dct;
  ASSERT_EQ(QueuePair::Create(ConfigOf(QpType::kDci), &dci), 0);
  ASSERT_EQ(QueuePair::Create(ConfigOf(QpType::kDct), &dct), 0);
  EXPECT_EQ(dci->lane_index(), dct->lane_index());
  ASSERT_EQ(BringUp(*dci), 0);
  ASSERT_EQ(BringUp(*dct), 0);
  std::vector<uint8_t> memory(20000);
  for (size_t i = 0; i < 10000; ++i) memory[i] = static_cast<uint8_t>(i * 3);
  std::unique_ptr<MemoryRegion> region;
  ASSERT_EQ(MemoryRegion::Register(*pd_, memory.data(), memory.size(),
                                   reinterpret_cast<uint64_t>(memory.data()),
                                   transport::kAccessLocalWrite, &region),
            0);
  const auto at = [&](size_t offset) {
    return transport::Sge{reinterpret_cast<uint64_t>(memory.data()) + offset,
                          10000, region->key()};
  };
  const transport::Sge to = at(10000);
  ASSERT_EQ(SharedReceiveQueue::Posting(*srq_).Receive(
                {.wr_id = 5, .sges = {&to, 1}}),
            0);
  const transport::Sge from = at(0);
  transport::AddressVector av;
  av.destination = *wire::IpAddress::Parse("127.0.0.1");
  ASSERT_EQ(context_->ResolveAddress(&av), 0);
  transport::SendRequest request;
  request.wr_id = 4;
  request.flags = transport::kSendSignaled;
  request.sges = {&from, 1};
  request.ah = &av;
  request.remote_qpn = dct->qpn();
  request.dc_access_key = kKey;
  ASSERT_EQ(QueuePair::Posting(*dci).Send(request), 0);
  const std::optional<Completion> sent = Poll(*send_cq_);
  ASSERT_TRUE(sent.has_value());
  EXPECT_EQ(sent->wr_id, 4u);
  EXPECT_EQ(sent->status, transport::WcStatus::kSuccess);
  const std::optional<Completion> received = Poll(*recv_cq_);
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->wr_id, 5u);
  EXPECT_EQ(received->qpn, dct->qpn());
  EXPECT_EQ(received->byte_len, 10000u);
  EXPECT_TRUE(std::equal(memory.begin(), memory.begin() + 10000,
                         memory.begin() + 10000));
  dct.reset();
  dci.reset();
}

}  // namespace

// Replaces the function of engine_for.cc.
std::shared_ptr<Engine> Engine::For(std::shared_ptr<const Device>) {
  return *engine_of_test;
}

}  // namespace rxe_user
