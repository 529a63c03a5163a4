#include "rxe_user/memory/probe.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "gtest/gtest.h"

namespace rxe_user {
namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

class ProbeTest : public testing::Test {
 protected:
  // Pages that are written, a hole, read-only, not readable.
  void SetUp() override {
    base_ =
        static_cast<uint8_t*>(mmap(nullptr, 5 * kPage, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(base_, MAP_FAILED);
    base_[0] = 55;
    ASSERT_EQ(munmap(base_ + kPage, kPage), 0);
    ASSERT_EQ(mprotect(base_ + 2 * kPage, kPage, PROT_READ), 0);
    ASSERT_EQ(mprotect(base_ + 3 * kPage, kPage, PROT_NONE), 0);
  }
  void TearDown() override {
    munmap(base_, kPage);
    munmap(base_ + 2 * kPage, 3 * kPage);
  }
  uint8_t* base_ = nullptr;
};

TEST_F(ProbeTest, FindsWhatIsMapped) {
  for (const bool by_list : {false, true}) {
    const auto probe = [&](size_t from, size_t bytes, bool write) {
      const auto begin = reinterpret_cast<uintptr_t>(base_) + from;
      return by_list ? internal::ProbeMappings(begin, begin + bytes, write)
                     : ProbeMemory(base_ + from, bytes, write);
    };
    EXPECT_EQ(probe(0, kPage, true), 0);
    EXPECT_EQ(probe(5, 10, true), 0);
    EXPECT_EQ(probe(0, kPage + 1, true), EFAULT);
    EXPECT_EQ(probe(kPage, 1, false), EFAULT);
    EXPECT_EQ(probe(2 * kPage, kPage, false), 0);
    EXPECT_EQ(probe(2 * kPage, kPage, true), EFAULT);
    EXPECT_EQ(probe(3 * kPage, 1, false), EFAULT);
    EXPECT_EQ(probe(4 * kPage, kPage, true), 0);
    EXPECT_EQ(probe(0, 5 * kPage, false), EFAULT);
  }
  EXPECT_EQ(base_[0], 55);
  EXPECT_EQ(ProbeMemory(nullptr, 0, true), 0);
  EXPECT_EQ(ProbeMemory(nullptr, 1, false), EFAULT);
  EXPECT_EQ(ProbeMemory(base_, SIZE_MAX, false), EFAULT);
  EXPECT_EQ(ProbeMemory(reinterpret_cast<void*>(UINTPTR_MAX - 10), 100, false),
            EFAULT);
}

// A large range is looked up and not touched.
TEST(LargeProbeTest, DoesNotPopulate) {
  constexpr size_t kSize = size_t{4} << 30;
  void* memory = mmap(nullptr, kSize, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(ProbeMemory(memory, kSize, true), 0);
  unsigned char resident = 1;
  ASSERT_EQ(mincore(static_cast<char*>(memory) + kSize / 2, kPage, &resident),
            0);
  EXPECT_EQ(resident & 1, 0);
  munmap(memory, kSize);
}

}  // namespace
}  // namespace rxe_user
