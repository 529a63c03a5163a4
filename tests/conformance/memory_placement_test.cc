// ATOMIC WRITE and FLUSH (annex A19): ibv_wr_atomic_write(3), and
// ibv_wr_flush(3) of newer headers.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tests/conformance/fixture.h"
#include "verbs_api/supplement/rxe_user_verbs.h"

namespace conformance {
namespace {

constexpr int kFlushes =
    RXE_USER_ACCESS_FLUSH_GLOBAL | RXE_USER_ACCESS_FLUSH_PERSISTENT;

class PlacementTest : public PairTest {
 protected:
  PlacementTest() { make_pair_ = false; }
  void SetUp() override {
    PairTest::SetUp();
    if (HasFatalFailure()) return;
    QpOptions options;
    options.send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_ATOMIC_WRITE |
                       RXE_USER_QP_EX_WITH_FLUSH;
    options.cap.max_inline_data = 0;
    MakeSide(&a_, options);
    MakeSide(&b_, {}, 256, nullptr, kMemory,
             kAllAccess | RXE_USER_ACCESS_FLUSH_GLOBAL);
    ConnectOptions connect;
    connect.access |= kFlushes;
    Connect(&a_, &b_, connect);
    ex_ = ibv_qp_to_qp_ex(a_.qp);
    ASSERT_NE(ex_, nullptr);
  }

  int Flush(uint64_t remote_addr, uint32_t rkey, size_t length, uint8_t type,
            uint8_t level) {
    ibv_wr_start(ex_);
    ex_->wr_id = 5;
    ex_->wr_flags = IBV_SEND_SIGNALED;
    rxe_user_wr_flush(ex_, rkey, remote_addr, length, type, level);
    return ibv_wr_complete(ex_);
  }

  ibv_qp_ex* ex_ = nullptr;
};

TEST_F(PlacementTest, TheDeviceSaysSo) {
  ibv_device_attr_ex device;
  ASSERT_EQ(ibv_query_device_ex(context_, nullptr, &device), 0);
  constexpr uint64_t kAll = RXE_USER_DEVICE_FLUSH_GLOBAL |
                            RXE_USER_DEVICE_FLUSH_PERSISTENT |
                            RXE_USER_DEVICE_ATOMIC_WRITE;
  EXPECT_EQ(device.device_cap_flags_ex & kAll, kAll);
}

TEST_F(PlacementTest, AtomicWriteByEitherCall) {
  const uint64_t first = 0x0102030405060708;
  ibv_wr_start(ex_);
  ex_->wr_id = 1;
  ex_->wr_flags = IBV_SEND_SIGNALED;
  uint64_t given = first;
  ibv_wr_atomic_write(ex_, b_.mr->rkey, b_.address(64), &given);
  given = 0;  // the data was copied when it was posted
  ASSERT_EQ(ibv_wr_complete(ex_), 0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 1).opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_EQ(std::memcmp(b_.memory.data() + 64, &first, 8), 0);
  FillPattern(a_.memory.data(), 8, 3);
  ASSERT_EQ(Send(a_, IBV_WR_ATOMIC_WRITE, 2, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(128), b_.mr->rkey),
            0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 2).opcode, IBV_WC_ATOMIC_WRITE);
  EXPECT_TRUE(HasPattern(b_.memory.data() + 128, 8, 3));
  ASSERT_EQ(Send(a_, IBV_WR_ATOMIC_WRITE, 3, 0, 8, IBV_SEND_SIGNALED,
                 b_.address(129), b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 3, IBV_WC_REM_INV_REQ_ERR);
}

TEST_F(PlacementTest, AtomicWriteOfTooLittle) {
  ASSERT_EQ(Send(a_, IBV_WR_ATOMIC_WRITE, 1, 0, 7, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_LEN_ERR);
}

TEST_F(PlacementTest, FlushToGlobalVisibility) {
  FillPattern(a_.memory.data(), 5000, 1);
  ASSERT_EQ(
      Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 5000, 0, b_.address(), b_.mr->rkey), 0);
  ASSERT_EQ(Flush(b_.address(), b_.mr->rkey, 5000, RXE_USER_FLUSH_GLOBAL,
                  RXE_USER_FLUSH_RANGE),
            0);
  EXPECT_EQ(ExpectSuccess(a_.cq, 5).opcode,
            static_cast<ibv_wc_opcode>(RXE_USER_WC_FLUSH));
  EXPECT_TRUE(HasPattern(b_.memory.data(), 5000, 1));
  ASSERT_EQ(
      Flush(0, b_.mr->rkey, 0, RXE_USER_FLUSH_GLOBAL, RXE_USER_FLUSH_REGION),
      0);
  ExpectSuccess(a_.cq, 5);
  // The region does not allow persistent FLUSH.
  ASSERT_EQ(Flush(b_.address(), b_.mr->rkey, 8, RXE_USER_FLUSH_PERSISTENT,
                  RXE_USER_FLUSH_RANGE),
            0);
  ExpectStatus(a_.cq, 5, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(PlacementTest, NoOtherKinds) {
  EXPECT_EQ(Flush(b_.address(), b_.mr->rkey, 8, 0, 0), EINVAL);
  EXPECT_EQ(Flush(b_.address(), b_.mr->rkey, 8, 4, 0), EINVAL);
  EXPECT_EQ(Flush(b_.address(), b_.mr->rkey, 8, 1, 2), EINVAL);
  EXPECT_EQ(Flush(b_.address(), b_.mr->rkey, (size_t{1} << 31) + 1, 1, 0),
            EINVAL);
  // A FLUSH has no data.
  ibv_wr_start(ex_);
  rxe_user_wr_flush(ex_, b_.mr->rkey, b_.address(), 8, 1, 0);
  ibv_wr_set_sge(ex_, a_.mr->lkey, a_.address(), 8);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
  // ibv_send_wr has no fields for FLUSH.
  EXPECT_EQ(Send(a_, static_cast<ibv_wr_opcode>(14), 1, 0, 0, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            EINVAL);
  ibv_wr_start(ex_);
  ibv_wr_atomic_write(ex_, b_.mr->rkey, b_.address(), a_.memory.data());
  ibv_wr_set_sge(ex_, a_.mr->lkey, a_.address(), 8);
  EXPECT_EQ(ibv_wr_complete(ex_), EINVAL);
}

// A file gives the flushed memory a medium.
TEST_F(PlacementTest, FlushToAFile) {
  const std::string path = testing::TempDir() + "/placement_test_file";
  const int fd =
      open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  ASSERT_GE(fd, 0);
  constexpr size_t kBytes = 256 << 10;  // whole pages
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(at, MAP_FAILED);
  ibv_mr* mr = ibv_reg_mr(
      pd_, at, kBytes,
      static_cast<unsigned>(kAllAccess | RXE_USER_ACCESS_FLUSH_PERSISTENT));
  // If the test files are in memory, there is no medium.
  if (mr != nullptr) {
    FillPattern(a_.memory.data(), 100, 1);
    const auto address = reinterpret_cast<uint64_t>(at) + 4096;
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, 0, address, mr->rkey), 0);
    ASSERT_EQ(Flush(address, mr->rkey, 100, RXE_USER_FLUSH_PERSISTENT,
                    RXE_USER_FLUSH_RANGE),
              0);
    ExpectSuccess(a_.cq, 5);
    uint8_t read[100];
    EXPECT_EQ(pread(fd, read, sizeof(read), 4096), 100);
    EXPECT_TRUE(HasPattern(read, 100, 1));
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  munmap(at, kBytes);
  close(fd);
  unlink(path.c_str());
}

TEST_F(PlacementTest, MemoryWithoutAMediumCannotBePersistent) {
  errno = 0;
  EXPECT_EQ(ibv_reg_mr(pd_, b_.memory.data(), 4096,
                       static_cast<unsigned>(kAllAccess |
                                             RXE_USER_ACCESS_FLUSH_PERSISTENT)),
            nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_rereg_mr(b_.mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                         kAllAccess | RXE_USER_ACCESS_FLUSH_PERSISTENT),
            IBV_REREG_MR_ERR_INPUT);
}

}  // namespace
}  // namespace conformance
