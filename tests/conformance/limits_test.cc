// Exactly as many objects as ibv_query_device(3) reports. Queue pairs are in
// objects_test.cc, multicast groups in multicast_test.cc.
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

class LimitsTest : public PairTest {
 protected:
  LimitsTest() { make_pair_ = false; }

  void SetUp() override {
    // Millions of objects take gigabytes with sanitizers.
    if (kSanitized) GTEST_SKIP() << "takes too much memory with a sanitizer";
    PairTest::SetUp();
    ASSERT_EQ(ibv_query_device(context_, &device_), 0);
  }
  void TearDown() override {
    if (context_ != nullptr) PairTest::TearDown();
  }

  // Expects that exactly `promised` objects can exist, of which `others`
  // already do.
  template <typename T>
  void ExpectAsManyAs(int promised, int others,
                      const std::function<T*()>& create,
                      const std::function<int(T*)>& destroy) {
    std::vector<T*> made;
    made.reserve(static_cast<size_t>(promised));
    while (made.size() < static_cast<size_t>(promised - others)) {
      made.push_back(create());
      ASSERT_NE(made.back(), nullptr)
          << made.size() << " of " << promised << ": " << strerror(errno);
    }
    errno = 0;
    EXPECT_EQ(create(), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    // Destroying one makes room for another.
    ASSERT_EQ(destroy(made.back()), 0);
    made.back() = create();
    EXPECT_NE(made.back(), nullptr);
    int failed = 0;
    for (T* object : made) failed += destroy(object) != 0 ? 1 : 0;
    EXPECT_EQ(failed, 0);
  }

  ibv_device_attr device_ = {};
};

TEST_F(LimitsTest, ProtectionDomains) {
  ExpectAsManyAs<ibv_pd>(
      device_.max_pd, 1, [&] { return ibv_alloc_pd(context_); },
      [](ibv_pd* pd) { return ibv_dealloc_pd(pd); });
}

TEST_F(LimitsTest, MemoryRegions) {
  static uint8_t memory[64];
  ExpectAsManyAs<ibv_mr>(
      device_.max_mr, 0,
      [&] { return ibv_reg_mr(pd_, memory, sizeof(memory), kAllAccess); },
      [](ibv_mr* mr) { return ibv_dereg_mr(mr); });
}

TEST_F(LimitsTest, MemoryWindows) {
  ExpectAsManyAs<ibv_mw>(
      device_.max_mw, 0, [&] { return ibv_alloc_mw(pd_, IBV_MW_TYPE_1); },
      [](ibv_mw* mw) { return ibv_dealloc_mw(mw); });
}

TEST_F(LimitsTest, AddressHandles) {
  ibv_ah_attr to = {};
  to.is_global = 1;
  to.port_num = 1;
  to.grh.dgid = gid_;
  to.grh.sgid_index = gid_index_;
  ExpectAsManyAs<ibv_ah>(
      device_.max_ah, 0, [&] { return ibv_create_ah(pd_, &to); },
      [](ibv_ah* ah) { return ibv_destroy_ah(ah); });
}

TEST_F(LimitsTest, CompletionQueues) {
  ExpectAsManyAs<ibv_cq>(
      device_.max_cq, 0,
      [&] { return ibv_create_cq(context_, 1, nullptr, nullptr, 0); },
      [](ibv_cq* cq) { return ibv_destroy_cq(cq); });
}

TEST_F(LimitsTest, SharedReceiveQueues) {
  ibv_srq_init_attr attr = {nullptr, {1, 1, 0}};
  ExpectAsManyAs<ibv_srq>(
      device_.max_srq, 0, [&] { return ibv_create_srq(pd_, &attr); },
      [](ibv_srq* srq) { return ibv_destroy_srq(srq); });
}

TEST_F(LimitsTest, AQueueWorksToItsDepth) {
  const auto depth = static_cast<uint32_t>(device_.max_qp_wr);
  QpOptions options;
  options.cap = {depth, depth, 1, 1, 0};
  MakeSide(&a_, options, static_cast<int>(depth));
  MakeSide(&b_, options, static_cast<int>(depth));
  Connect(&a_, &b_);
  for (uint32_t i = 0; i < depth; ++i) ASSERT_EQ(Receive(b_, i, 0, 1), 0) << i;
  EXPECT_EQ(Receive(b_, depth, 0, 1), ENOMEM);
  for (uint32_t i = 0; i < depth; ++i) {
    ASSERT_EQ(Send(a_, IBV_WR_SEND, i, 0, 1), 0) << i;
    if (i % 64 != 63) continue;
    for (uint32_t j = i - 63; j <= i; ++j) ExpectSuccess(a_.cq, j);
  }
  for (uint32_t i = 0; i < depth; ++i) ExpectSuccess(b_.cq, i);
}

}  // namespace
}  // namespace conformance
