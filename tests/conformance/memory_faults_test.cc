// Missing memory: none left to allocate, none that may be locked, and regions
// whose memory the program has unmapped.
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

// --- A limit on the address space.

class MemoryLimitTest : public PairTest {
 protected:
  MemoryLimitTest() {
    make_pair_ = false;
    getrlimit(RLIMIT_AS, &before_);  // TearDown follows a skip, too
  }

  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "sanitizers want an address space without limit";
#endif
    PairTest::SetUp();
  }
  void TearDown() override {
    setrlimit(RLIMIT_AS, &before_);
    PairTest::TearDown();
  }

  // Limits the address space to its current size plus `room` bytes.
  void Limit(size_t room) {
    size_t pages = 0;
    std::FILE* file = std::fopen("/proc/self/statm", "re");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(std::fscanf(file, "%zu", &pages), 1);
    std::fclose(file);
    const rlimit tight = {
        pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) + room,
        before_.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &tight), 0);
  }
  void Unlimit() { ASSERT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }

  // Runs `step`, which returns an errno value, with increasing memory until it
  // succeeds. Before that it must fail with ENOMEM, or with EAGAIN for lack of
  // a thread; at least once if `must_fail`.
  void Starve(const char* name, bool must_fail,
              const std::function<int()>& step) {
    int error = ENOMEM;
    int failures = 0;
    for (size_t room = 0; room < size_t{1} << 30;
         room = room == 0 ? 64 << 10 : room * 2) {
      Limit(room);
      error = step();
      Unlimit();
      if (error == 0) break;
      ++failures;
      EXPECT_TRUE(error == ENOMEM || error == EAGAIN)
          << name << " with room for " << room << ": " << std::strerror(error);
    }
    EXPECT_EQ(error, 0) << name;
    if (must_fail) {
      EXPECT_GT(failures, 0) << name;
    }
  }

  rlimit before_ = {};
};

TEST_F(MemoryLimitTest, EveryStepReportsNoMemory) {
  testing::internal::CaptureStderr();
  ibv_cq* cq = nullptr;
  Starve("ibv_create_cq", true, [&] {
    cq = ibv_create_cq(context_, 1 << 20, nullptr, nullptr, 0);
    return cq == nullptr ? errno : 0;
  });
  ASSERT_NE(cq, nullptr);
  Starve("ibv_resize_cq", true, [&] { return ibv_resize_cq(cq, 1 << 21); });
  ibv_srq* srq = nullptr;
  Starve("ibv_create_srq", true, [&] {
    ibv_srq_init_attr attr = {};
    attr.attr.max_wr = 32768;
    attr.attr.max_sge = 16;
    srq = ibv_create_srq(pd_, &attr);
    return srq == nullptr ? errno : 0;
  });
  ASSERT_NE(srq, nullptr);
  // The first one also opens the sockets and starts threads.
  ibv_qp* qp = nullptr;
  Starve("ibv_create_qp", true, [&] {
    ibv_qp_init_attr attr = {};
    attr.send_cq = attr.recv_cq = cq;
    attr.cap = {32768, 32768, 16, 16, 0};
    attr.qp_type = IBV_QPT_RC;
    qp = ibv_create_qp(pd_, &attr);
    return qp == nullptr ? errno : 0;
  });
  ASSERT_NE(qp, nullptr);
  ibv_mr* mr = nullptr;
  Starve("ibv_reg_mr", false, [&] {
    mr = ibv_reg_mr(pd_, &before_, sizeof(before_), 0);
    return mr == nullptr ? errno : 0;
  });
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  testing::internal::GetCapturedStderr();
}

// Registration locks nothing.
TEST_F(MemoryLimitTest, NoMemoryMayBeLocked) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
  MakeSide(&a_);
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &before), 0);
}

// --- Unmapped memory.

class UnmappedTest : public PairTest {
 protected:
  static constexpr uint32_t kBytes = 256 << 10;  // whole pages

  void TearDown() override {
    Forget();
    PairTest::TearDown();
  }
  // Maps separate pages and registers them.
  void Make() {
    memory_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory_, MAP_FAILED);
    mr_ = ibv_reg_mr(pd_, memory_, kBytes, kAllAccess);
    ASSERT_NE(mr_, nullptr);
  }
  // Makes the pages inaccessible, so that nothing else is mapped there.
  void Unmap() {
    ASSERT_EQ(mmap(memory_, kBytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
              memory_);
  }
  void Forget() {
    if (mr_ == nullptr) return;
    EXPECT_EQ(ibv_dereg_mr(mr_), 0);
    munmap(memory_, kBytes);
    mr_ = nullptr;
  }
  ibv_sge Sge() const {
    return {reinterpret_cast<uint64_t>(memory_), kBytes, mr_->lkey};
  }
  void PostReceive(Side& side, uint64_t wr_id) {
    ibv_sge sge = Sge();
    ibv_recv_wr wr = {};
    wr.wr_id = wr_id;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad;
    ASSERT_EQ(ibv_post_recv(side.qp, &wr, &bad), 0);
  }
  void Reconnect(const QpOptions& options = {}) {
    DestroySide(&a_);
    DestroySide(&b_);
    MakeSide(&a_, options);
    MakeSide(&b_, options);
    ASSERT_FALSE(HasFatalFailure());
    Connect(&a_, &b_);
  }

  void* memory_ = nullptr;
  ibv_mr* mr_ = nullptr;
};

TEST_F(UnmappedTest, ReceiveBuffer) {
  Make();
  PostReceive(b_, 7);
  Unmap();
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, kBytes), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_OP_ERR);
  ExpectStatus(b_.cq, 7, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
}

TEST_F(UnmappedTest, ReceiveBufferOfAnUnreliableConnection) {
  QpOptions uc;
  uc.type = IBV_QPT_UC;
  Reconnect(uc);
  Make();
  PostReceive(b_, 7);
  Unmap();
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 1, 0, kBytes), 0);
  ExpectSuccess(a_.cq, 1);
  ExpectStatus(b_.cq, 7, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_ERR);
}

TEST_F(UnmappedTest, WhereAReadGoes) {
  Make();
  Unmap();
  ibv_sge sge = Sge();
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_READ;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma = {b_.address(), b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  // The other end is not affected.
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
}

TEST_F(UnmappedTest, WhereAnAtomicAnswers) {
  Make();
  Unmap();
  ibv_sge sge = Sge();
  sge.length = 8;
  ibv_send_wr wr = {};
  wr.wr_id = 1;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.atomic = {b_.address(), 1, 0, b_.mr->rkey};
  ibv_send_wr* bad;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 1, IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(StateOf(b_.qp), IBV_QPS_RTS);
}

// At any time during a transfer, at either end.
TEST_F(UnmappedTest, InTheMiddleOfTraffic) {
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    Reconnect();
    Make();
    const bool local = round % 2 == 0;
    const ibv_wr_opcode opcode =
        round % 4 < 2 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
    std::atomic<int> done = 0;
    std::thread unmapper([&] {
      while (done < 3 + round) std::this_thread::yield();
      Unmap();
    });
    ibv_wc wc = {};
    const int64_t limit = NowMs() + kTimeoutMs;
    for (uint64_t i = 0; wc.status == IBV_WC_SUCCESS; ++i) {
      ASSERT_LT(NowMs(), limit);
      ibv_sge sge = local ? Sge() : a_.Sge(0, kBytes);
      ibv_send_wr wr = {};
      wr.wr_id = i;
      wr.sg_list = &sge;
      wr.num_sge = 1;
      wr.opcode = opcode;
      wr.send_flags = IBV_SEND_SIGNALED;
      wr.wr.rdma.remote_addr =
          local ? b_.address() : reinterpret_cast<uint64_t>(memory_);
      wr.wr.rdma.rkey = local ? b_.mr->rkey : mr_->rkey;
      ibv_send_wr* bad;
      ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
      wc = Next(a_.cq);
      ++done;
    }
    unmapper.join();
    if (local) {
      EXPECT_EQ(wc.status, IBV_WC_LOC_PROT_ERR) << ibv_wc_status_str(wc.status);
    } else {
      EXPECT_TRUE(wc.status == IBV_WC_REM_ACCESS_ERR ||
                  wc.status == IBV_WC_REM_OP_ERR)
          << ibv_wc_status_str(wc.status);
    }
    Forget();
  }
}

}  // namespace
}  // namespace conformance
