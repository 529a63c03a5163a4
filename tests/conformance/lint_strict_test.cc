// RXE_USER_CHECK=strict,leak.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/conformance/check_lines.h"
#include "tests/conformance/fixture.h"

namespace {

const uint8_t* freed_begin = nullptr;
const uint8_t* freed_end = nullptr;

}  // namespace

#ifndef __SANITIZE_ADDRESS__
// Stands for what a program with AddressSanitizer exports.
extern "C" __attribute__((visibility("default"), used)) const void*
__asan_region_is_poisoned(const void* address, size_t length) {
  const auto* const begin = static_cast<const uint8_t*>(address);
  const uint8_t* const first = std::max(begin, freed_begin);
  return first < std::min(begin + length, freed_end) ? first : nullptr;
}
#endif

namespace conformance {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class StrictLintTest : public PairTest {
 protected:
  void SetUp() override {
    testing::internal::CaptureStderr();
    make_pair_ = false;
    PairTest::SetUp();
    ASSERT_FALSE(HasFatalFailure());
    MakeSide(&a_);
    MakeSide(&b_);
  }
  void TearDown() override {
    PairTest::TearDown();
    said_ += CheckLines(testing::internal::GetCapturedStderr());
    EXPECT_THAT(said_, expected_);
  }
  // A WRITE is posted, and reaches B after `between`.
  template <typename Between>
  void WriteAround(Between&& between) {
    ToInit(b_.qp);
    ToRts(a_.qp, b_.qp->qp_num);
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 5, 0, 100, IBV_SEND_SIGNALED,
                   b_.address(), b_.mr->rkey),
              0);
    between();
    ToRts(b_.qp, a_.qp->qp_num);
    ExpectSuccess(a_.cq, 5);
  }

  std::string said_;
  testing::Matcher<std::string> expected_ = testing::IsEmpty();
};

TEST_F(StrictLintTest, BufferChangesWhileTheRequestIsOutstanding) {
  WriteAround([&] { ++a_.memory[99]; });
  expected_ = HasSubstr("rxe_user: check: lint 16 (buffer-changed): ");
}

TEST_F(StrictLintTest, BufferChangesAfterTheCompletion) {
  WriteAround([&] { ++a_.memory[100]; });
  ++a_.memory[99];
}

TEST_F(StrictLintTest, UndefinedFieldsAreFilled) {
  Connect(&a_, &b_);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 77, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey ^ 0x5500),
            0);
  const ibv_wc wc = Next(a_.cq);
  EXPECT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(wc.wr_id, 77u);
  EXPECT_EQ(wc.qp_num, a_.qp->qp_num);
  EXPECT_NE(wc.vendor_err, 0xa5a5a5a5);
  EXPECT_EQ(wc.byte_len, 0xa5a5a5a5);
  EXPECT_EQ(wc.wc_flags, 0xa5a5a5a5);
}

TEST_F(StrictLintTest, FieldsOfASuccessStay) {
  Connect(&a_, &b_);
  ASSERT_EQ(Receive(b_, 1, 0, 100), 0);
  ASSERT_EQ(Send(a_, IBV_WR_SEND, 2, 0, 100), 0);
  const ibv_wc wc = ExpectSuccess(b_.cq, 1);
  EXPECT_EQ(wc.byte_len, 100u);
  EXPECT_EQ(wc.opcode, IBV_WC_RECV);
  ExpectSuccess(a_.cq, 2);
}

TEST_F(StrictLintTest, RkeysAreNumbersOfTheirOwn) {
  Connect(&a_, &b_);
  EXPECT_NE(b_.mr->rkey, b_.mr->lkey);
  FillPattern(a_.memory.data(), 100, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 1);
  EXPECT_TRUE(HasPattern(b_.memory.data(), 100, 1));
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_READ, 2, 200, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->rkey),
            0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_TRUE(HasPattern(a_.memory.data() + 200, 100, 1));
}

TEST_F(StrictLintTest, LkeyAsRkey) {
  Connect(&a_, &b_);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 1, 0, 100, IBV_SEND_SIGNALED,
                 b_.address(), b_.mr->lkey),
            0);
  ExpectStatus(a_.cq, 1, IBV_WC_REM_ACCESS_ERR);
  char expected[160];
  std::snprintf(expected, sizeof(expected),
                ": the peer uses 0x%x as R_Key, which is the lkey of a region",
                b_.mr->lkey);
  expected_ = AllOf(HasSubstr("lint 18 (mixed-keys): queue pair "),
                    HasSubstr(expected));
}

TEST_F(StrictLintTest, RkeyAsLkey) {
  Connect(&a_, &b_);
  ibv_sge sge = {a_.address(), 100, a_.mr->rkey};
  ibv_send_wr wr = {};
  wr.wr_id = 7;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.wr.rdma.remote_addr = b_.address();
  wr.wr.rdma.rkey = b_.mr->rkey;
  ibv_send_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_send(a_.qp, &wr, &bad), 0);
  ExpectStatus(a_.cq, 7, IBV_WC_LOC_PROT_ERR);
  expected_ = AllOf(HasSubstr("lint 18 (mixed-keys): queue pair "),
                    HasSubstr(": request 7 has as lkey 0x"),
                    Not(HasSubstr("local-key")));
}

TEST_F(StrictLintTest, KeysOfWindowsStay) {
  Side target;
  MakeSide(&target, {}, 256, nullptr, kMemory, kAllAccess | IBV_ACCESS_MW_BIND);
  Connect(&a_, &target);
  ibv_mw* const window = ibv_alloc_mw(pd_, IBV_MW_TYPE_1);
  ASSERT_NE(window, nullptr);
  ibv_mw_bind bind = {};
  bind.wr_id = 1;
  bind.send_flags = IBV_SEND_SIGNALED;
  bind.bind_info = {target.mr, target.address(), 4096, IBV_ACCESS_REMOTE_WRITE};
  ASSERT_EQ(ibv_bind_mw(target.qp, window, &bind), 0);
  ExpectSuccess(target.cq, 1);
  ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 2, 0, 100, IBV_SEND_SIGNALED,
                 target.address(), window->rkey),
            0);
  ExpectSuccess(a_.cq, 2);
  EXPECT_EQ(ibv_dealloc_mw(window), 0);
  DestroySide(&target);
}

// --- Memory that is freed.
#ifndef __SANITIZE_ADDRESS__

class FreedLintTest : public StrictLintTest {
 protected:
  void SetUp() override {
    StrictLintTest::SetUp();
    Connect(&a_, &b_);
  }
  void TearDown() override {
    freed_begin = freed_end = nullptr;
    StrictLintTest::TearDown();
  }
  static void Free(const Side& side, size_t begin, size_t end) {
    freed_begin = side.memory.data() + begin;
    freed_end = side.memory.data() + end;
  }
  void Write(unsigned flags = IBV_SEND_SIGNALED) {
    ASSERT_EQ(Send(a_, IBV_WR_RDMA_WRITE, 5, 0, 100, flags, b_.address(),
                   b_.mr->rkey),
              0);
  }
};

TEST_F(FreedLintTest, AtThePost) {
  Free(a_, 99, 200);
  Write();
  ExpectSuccess(a_.cq, 5);
  expected_ =
      AllOf(HasSubstr("lint 19 (freed-buffer): queue pair "),
            HasSubstr(": request 5 has memory that is freed, or outside "
                      "of an allocation, at its post "));
}

TEST_F(FreedLintTest, AtThePostOfInlineData) {
  Free(a_, 99, 200);
  Write(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  ExpectSuccess(a_.cq, 5);
  expected_ = HasSubstr(" at its post ");
}

TEST_F(FreedLintTest, AtThePostOfAReceive) {
  Free(b_, 0, 1);
  ASSERT_EQ(Receive(b_, 3, 0, 100), 0);
  expected_ = HasSubstr(": receive 3 has memory that is freed");
}

TEST_F(FreedLintTest, AtTheCompletion) {
  Write();
  Free(a_, 0, 1);
  ExpectSuccess(a_.cq, 5);
  expected_ = HasSubstr(
      ": request 5 has memory that is freed, or outside of an allocation, at "
      "its completion ");
}

TEST_F(FreedLintTest, InlineDataMayBeFreedAfterThePost) {
  Write(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
  Free(a_, 0, 100);
  ExpectSuccess(a_.cq, 5);
}

TEST_F(FreedLintTest, MemoryBesideARequest) {
  Free(a_, 100, 200);
  Write();
  ExpectSuccess(a_.cq, 5);
}

#endif  // !__SANITIZE_ADDRESS__

// --- Leaks: processes of their own, which end.

class LeakTest : public DeviceTest {
 protected:
  LeakTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(LeakTest, ObjectsAreLeft) {
  EXPECT_EXIT(
      {
        for (int i = 0; i < 3; ++i) {
          if (ibv_create_cq(context_, 1, nullptr, nullptr, 0) == nullptr)
            abort();
        }
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "lint 15 \\(leak\\): completion queue \\(made by "
      "lint_strict_test\\+0x[0-9a-f]+\\): 3 such objects");
}

TEST_F(LeakTest, NothingIsLeft) {
  EXPECT_EXIT(
      {
        DeviceTest::TearDown();
        std::exit(0);
      },
      testing::ExitedWithCode(0), "^$");
}

}  // namespace
}  // namespace conformance
