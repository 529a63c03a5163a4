// RXE_USER_CHECK=strict,leak.
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "tests/conformance/fixture.h"

namespace conformance {
namespace {

using testing::HasSubstr;

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
    said_ += testing::internal::GetCapturedStderr();
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
