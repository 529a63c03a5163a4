// Devices that are opened and closed many times leave nothing behind.
#include <dirent.h>

#include <cstdio>
#include <cstring>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

class OpenCloseTest : public DeviceTest {
 protected:
  // Opens a device, creates all kinds of objects, and closes it.
  void OpenAndClose(bool queue_pairs) {
    ibv_context* context = ibv_open_device(context_->device);
    ASSERT_NE(context, nullptr) << std::strerror(errno);
    ibv_pd* pd = ibv_alloc_pd(context);
    ASSERT_NE(pd, nullptr);
    ibv_comp_channel* channel = ibv_create_comp_channel(context);
    ASSERT_NE(channel, nullptr);
    ibv_cq* cq = ibv_create_cq(context, 64, nullptr, channel, 0);
    ASSERT_NE(cq, nullptr);
    static uint8_t memory[4096];
    ibv_mr* mr = ibv_reg_mr(pd, memory, sizeof(memory), kAllAccess);
    ASSERT_NE(mr, nullptr);
    ibv_srq_init_attr srq_attr = {};
    srq_attr.attr = {16, 1, 0};
    ibv_srq* srq = ibv_create_srq(pd, &srq_attr);
    ASSERT_NE(srq, nullptr);
    if (queue_pairs) {
      for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
        ibv_qp_init_attr init = {};
        init.send_cq = init.recv_cq = cq;
        init.cap = {16, 16, 1, 1, 64};
        init.qp_type = type;
        ibv_qp* qp = ibv_create_qp(pd, &init);
        ASSERT_NE(qp, nullptr) << std::strerror(errno);
        EXPECT_EQ(ibv_destroy_qp(qp), 0);
      }
    }
    EXPECT_EQ(ibv_destroy_srq(srq), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }

  static int EntriesOf(const char* directory) {
    DIR* dir = opendir(directory);
    if (dir == nullptr) return -1;
    int count = 0;
    while (readdir(dir) != nullptr) ++count;
    closedir(dir);
    return count;
  }
  // Resident memory in KiB.
  static long ResidentKib() {
    std::FILE* file = std::fopen("/proc/self/statm", "r");
    if (file == nullptr) return -1;
    long size = 0;
    long resident = 0;
    if (std::fscanf(file, "%ld %ld", &size, &resident) != 2) resident = -1;
    std::fclose(file);
    return resident * 4;
  }
};

TEST_F(OpenCloseTest, AThousandTimesWithoutALeak) {
  // These rounds allocate what is allocated once.
  for (int i = 0; i < 100; ++i) OpenAndClose(i % 10 == 0);
  const int descriptors = EntriesOf("/proc/self/fd");
  const int threads = EntriesOf("/proc/self/task");
  [[maybe_unused]] const long before = ResidentKib();
  for (int i = 0; i < 1000 && !HasFailure(); ++i) OpenAndClose(i % 10 == 0);
  EXPECT_EQ(EntriesOf("/proc/self/fd"), descriptors);
  EXPECT_EQ(EntriesOf("/proc/self/task"), threads);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A leak of 8 KiB in each round would be twice as much. Sanitizers delay
  // freeing and find leaks themselves.
  EXPECT_LT(ResidentKib() - before, 4096);
#endif
}

}  // namespace
}  // namespace conformance
