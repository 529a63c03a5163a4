// Memory regions: what is checked, their keys and addresses. ibv_reg_mr(3),
// ibv_rereg_mr(3).
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class RegistrationTest : public PairTest {
 protected:
  RegistrationTest() { make_pair_ = false; }
};

TEST_F(RegistrationTest, ChecksMemory) {
  const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // Far below the addresses that the system chooses, so that the hole stays
  // unmapped.
  const auto low = reinterpret_cast<void*>(uintptr_t{0x20000000});
  auto* pages =
      static_cast<uint8_t*>(mmap(low, 4 * kPage, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(munmap(pages + 2 * kPage, kPage), 0);
  ASSERT_EQ(mprotect(pages + 3 * kPage, kPage, PROT_READ), 0);
  const auto reg = [this](void* at, size_t length, int access) {
    errno = 0;
    ibv_mr* mr = ibv_reg_mr(pd_, at, length, static_cast<unsigned>(access));
    if (mr == nullptr) return errno;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    return 0;
  };
  EXPECT_EQ(reg(pages, 2 * kPage, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(reg(pages, 2 * kPage + 1, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(reg(pages, 4 * kPage, 0), EFAULT);
  EXPECT_EQ(reg(pages + 2 * kPage, 8, 0), EFAULT);
  EXPECT_EQ(reg(pages + 3 * kPage, kPage, 0), 0);
  EXPECT_EQ(reg(pages + 3 * kPage, kPage, IBV_ACCESS_REMOTE_READ), 0);
  EXPECT_EQ(reg(pages + 3 * kPage, kPage, IBV_ACCESS_LOCAL_WRITE), EFAULT);
  EXPECT_EQ(reg(nullptr, kPage, 0), EFAULT);
  EXPECT_EQ(reg(pages, 0, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_NE(reg(pages, SIZE_MAX, 0), 0);
  EXPECT_NE(reg(reinterpret_cast<void*>(UINTPTR_MAX - 100), 200, 0), 0);
  EXPECT_EQ(reg(pages, 8, IBV_ACCESS_REMOTE_WRITE), EINVAL);
  EXPECT_EQ(reg(pages, 8, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
  EXPECT_EQ(reg(pages, 8, IBV_ACCESS_ON_DEMAND), 0);
  EXPECT_EQ(reg(pages, 8, 1 << 15), EINVAL);
  EXPECT_EQ(reg(pages, 8, IBV_ACCESS_RELAXED_ORDERING), 0);
  // The content is unchanged.
  pages[0] = 77;
  EXPECT_EQ(reg(pages, 2 * kPage, IBV_ACCESS_LOCAL_WRITE), 0);
  EXPECT_EQ(pages[0], 77);
  munmap(pages, 2 * kPage);
  munmap(pages + 3 * kPage, kPage);
}

TEST_F(RegistrationTest, KeysAreNotGuessable) {
  std::vector<uint8_t> memory(4096);
  std::set<uint32_t> keys;
  uint32_t all_or = 0, all_and = ~0u;
  uint32_t last = 0;
  int small_steps = 0;
  for (int i = 0; i < 200; ++i) {
    ibv_mr* mr = ibv_reg_mr(pd_, memory.data(), memory.size(), 0u);
    ASSERT_NE(mr, nullptr);
    EXPECT_TRUE(keys.insert(mr->rkey).second);
    all_or |= mr->rkey;
    all_and &= mr->rkey;
    small_steps += (mr->rkey - last) < (1u << 20) ? 1 : 0;
    last = mr->rkey;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  EXPECT_EQ(all_or, ~0u);
  EXPECT_EQ(all_and, 0u);
  EXPECT_LT(small_steps, 5);
}

TEST_F(RegistrationTest, IovaAndZeroBasedRegions) {
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  FillPattern(a_.memory.data(), 1000, 1);
  ibv_mr* zero =
      ibv_reg_mr(pd_, b_.memory.data(), 4096,
                 static_cast<unsigned>(kAllAccess | IBV_ACCESS_ZERO_BASED));
  ASSERT_NE(zero, nullptr);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 1000, IBV_SEND_SIGNALED, 16,
                 zero->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 16, 1000, 1));
  ibv_mr* elsewhere =
      ibv_reg_mr_iova(pd_, b_.memory.data() + 8192, 4096, 0x7000'0000'0000,
                      static_cast<unsigned>(kAllAccess));
  ASSERT_NE(elsewhere, nullptr);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 1000, IBV_SEND_SIGNALED,
                 0x7000'0000'0001, elsewhere->rkey),
            0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 8193, 1000, 1));
  EXPECT_EQ(ibv_dereg_mr(zero), 0);
  EXPECT_EQ(ibv_dereg_mr(elsewhere), 0);
}

TEST_F(RegistrationTest, Reregistration) {
  MakeSide(&a_);
  MakeSide(&b_);
  Connect(&a_, &b_);
  ibv_mr* mr = ibv_reg_mr(pd_, b_.memory.data(), 4096,
                          static_cast<unsigned>(kAllAccess));
  ASSERT_NE(mr, nullptr);
  // Input errors leave the region unchanged.
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, 1 << 7, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, nullptr, nullptr, 0, 0),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_REMOTE_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, nullptr,
                         4096, 0),
            IBV_REREG_MR_ERR_INPUT);
  FillPattern(a_.memory.data(), 100, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  // To another address.
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr,
                         b_.memory.data() + 65536, 8192, 0),
            0);
  EXPECT_EQ(mr->addr, b_.memory.data() + 65536);
  EXPECT_EQ(mr->length, 8192u);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(65536 + 8000), mr->rkey),
            0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 65536 + 8000, 100, 1));
  // To another domain: this one cannot use it any more, and the other one is
  // busy.
  ibv_pd* other = ibv_alloc_pd(context_);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, other);
  EXPECT_EQ(ibv_dealloc_pd(other), EBUSY);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, pd_, nullptr, 0, 0), 0);
  EXPECT_EQ(ibv_dealloc_pd(other), 0);
  // With fewer access rights.
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         IBV_ACCESS_LOCAL_WRITE),
            0);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 3, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(65536), mr->rkey),
            0);
  ExpectStatus(a_.cq, 3, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

}  // namespace
}  // namespace conformance
