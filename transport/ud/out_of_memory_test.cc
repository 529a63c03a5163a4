// Posting to a new destination allocates, which may fail.
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "transport/queue_pairs.h"
#include "transport/testing/bring_up.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "transport/testing/scarce_memory.h"

namespace transport {
namespace {

constexpr PdId kPd = 7;
constexpr uint64_t kVa = 0x10000;

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    refuse_allocation = RefuseWhenNoneIsLeft;
    region_ = &memory_.Add(kVa, 4096, kPd, kAccessLocalWrite);
    QpConfig config;
    config.type = QpType::kUd;
    config.qpn = 0x1111;
    config.pd = kPd;
    config.capacity = {.max_send_wr = 1024,
                       .max_recv_wr = 4,
                       .max_send_sge = 1,
                       .max_recv_sge = 1,
                       .max_inline_data = 0};
    config.port_mtu = 1024;
    config.memory = &memory_;
    config.send_cq = config.recv_cq = &cq_;
    qp_ = MakeQueuePair(endpoint_, config);
    QpAttributes attributes;
    attributes.qkey = 1;
    EXPECT_EQ(BringUp(*qp_, attributes, kSecond), 0);
  }
  ~OutOfMemoryTest() override { allocations_left = kUnlimited; }

  // Posts to a host by number, with this many allocations.
  int Post(int host, int allocations) {
    AddressVector to;
    to.source = *wire::IpAddress::Parse("10.0.0.1");
    to.destination =
        *wire::IpAddress::Parse(("10.1." + std::to_string(host / 250) + "." +
                                 std::to_string(1 + host % 250))
                                    .c_str());
    to.source_port = 0xc001;
    const Sge sge = {kVa, 16, region_->lkey};
    SendRequest request;
    request.opcode = SendOpcode::kSend;
    request.remote_qpn = 5;
    request.ah = &to;
    request.sges = {&sge, 1};
    allocations_left = allocations;
    const int error = qp_->PostSend(request, kSecond);
    allocations_left = kUnlimited;
    return error;
  }

  FakeMemory memory_;
  FakeMemory::Region* region_ = nullptr;
  RecordingCq cq_;
  Endpoint endpoint_;
  std::unique_ptr<QueuePair> qp_;
};

// If any allocation fails, the request is not queued and nothing is left over;
// with memory it is queued.
TEST_F(OutOfMemoryTest, APostToANewDestination) {
  int failures = 0;
  for (int host = 0; host < 300; ++host) {
    const uint32_t room = qp_->SendRoom();
    int allocations = 0;
    while (const int error = Post(host, allocations)) {
      ASSERT_EQ(error, ENOMEM);
      ASSERT_EQ(qp_->SendRoom(), room);
      ++failures;
      ASSERT_LT(++allocations, 100);
    }
    ASSERT_EQ(qp_->SendRoom(), room - 1);
  }
  EXPECT_GE(failures, 600);  // a destination and a path for each
}

// A known destination needs no allocation.
TEST_F(OutOfMemoryTest, APostToAKnownDestination) {
  ASSERT_EQ(Post(1, kUnlimited), 0);
  ASSERT_EQ(Post(2, kUnlimited), 0);
  EXPECT_EQ(Post(1, 0), 0);
  EXPECT_EQ(Post(2, 0), 0);
}

// A longer SGE list may find no memory and then stays unchanged.
TEST_F(OutOfMemoryTest, ALongerSgeList) {
  ReceiveWqe wqe;
  const Sge sges[3] = {{1, 2, 3}, {4, 5, 6}, {7, 8, 9}};
  ASSERT_TRUE(wqe.SetSges({sges, 1}));
  allocations_left = 0;
  EXPECT_FALSE(wqe.SetSges(sges));
  EXPECT_EQ(wqe.sges.size(), 1u);
  EXPECT_TRUE(wqe.SetSges({sges + 1, 1}));
  EXPECT_EQ(wqe.sges[0].addr, 4u);
  allocations_left = kUnlimited;
  EXPECT_TRUE(wqe.SetSges(sges));
}

}  // namespace
}  // namespace transport
