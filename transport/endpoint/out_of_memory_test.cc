// An endpoint without memory for another queue pair or group is unchanged.
#include <gtest/gtest.h>

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "transport/endpoint/endpoint.h"
#include "transport/queue_pairs.h"
#include "transport/testing/fake_memory.h"
#include "transport/testing/recorders.h"
#include "transport/testing/scarce_memory.h"

namespace transport {
namespace {

class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() { refuse_allocation = RefuseWhenNoneIsLeft; }
  ~OutOfMemoryTest() override { allocations_left = kUnlimited; }

  // Calls `call` with an increasing number of allocations until it succeeds.
  // True if it failed at least once. `same` is called after each failure.
  template <typename Call, typename Same>
  static bool UntilThereIsMemory(Call call, Same same) {
    for (int allocations = 0;; ++allocations) {
      allocations_left = allocations;
      try {
        call();
        allocations_left = kUnlimited;
        return allocations != 0;
      } catch (const std::bad_alloc&) {
        allocations_left = kUnlimited;
        same();
      }
    }
  }

  std::unique_ptr<QueuePair> Make(uint32_t qpn, QpType type) {
    QpConfig config;
    config.type = type;
    config.qpn = qpn;
    config.capacity = {4, 4, 1, 1, 0};
    config.memory = &memory_;
    config.send_cq = config.recv_cq = &cq_;
    return MakeQueuePair(endpoint_, config);
  }

  FakeMemory memory_;
  RecordingCq cq_;
  Endpoint endpoint_;
};

TEST_F(OutOfMemoryTest, QueuePairsSurviveAFailedCreation) {
  for (const QpType type : {QpType::kRc, QpType::kUc, QpType::kUd}) {
    std::vector<std::unique_ptr<QueuePair>> qps(100);
    for (uint32_t i = 0; i < qps.size(); ++i) {
      EXPECT_TRUE(UntilThereIsMemory(
          [&] { qps[i] = Make(0x1000 + 3 * i, type); },
          [&] {
            ASSERT_EQ(endpoint_.Find(0x1000 + 3 * i), nullptr);
            ASSERT_EQ(endpoint_.QueuePairNumbers().size(), i);
          }));
    }
    for (const auto& qp : qps) EXPECT_EQ(endpoint_.Find(qp->qpn()), qp.get());
    qps.clear();
    EXPECT_TRUE(endpoint_.QueuePairNumbers().empty());
  }
}

TEST_F(OutOfMemoryTest, GroupsSurviveAFailedAttach) {
  auto qp = Make(0x1000, QpType::kUd);
  const auto group = [](size_t i) {
    return *wire::IpAddress::Parse("239.1.1." + std::to_string(i));
  };
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(UntilThereIsMemory(
        [&] { endpoint_.Attach(qp.get(), group(i)); },
        [&] {
          ASSERT_FALSE(endpoint_.IsAttached(qp.get(), group(i)));
          ASSERT_EQ(endpoint_.GroupsOf(qp.get()).size(), i);
        }));
  }
  for (size_t i = 0; i < 100; ++i) {
    EXPECT_TRUE(endpoint_.IsAttached(qp.get(), group(i)));
  }
  // Leaving needs no memory.
  allocations_left = 0;
  qp.reset();
  allocations_left = kUnlimited;
  qp = Make(0x1000, QpType::kUd);
  EXPECT_TRUE(endpoint_.GroupsOf(qp.get()).empty());
}

}  // namespace
}  // namespace transport
