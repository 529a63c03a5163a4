// The first engine, and what each process has one of, after a fork during which
// another thread was creating it.
#include <gtest/gtest.h>

#include "rxe_user/faults/process_faults.h"
#include "rxe_user/observe/process_files.h"
#include "rxe_user/testing/first_use.h"
#include "rxe_user/testing/node.h"

namespace rxe_user {
namespace {

// First: an engine uses the others.
TEST(FirstUse, ProcessFiles) {
  EXPECT_EQ(StatusOfFirstUseInChild(&GuardProcessFiles), 0);
}

TEST(FirstUse, ProcessFaults) {
  EXPECT_EQ(StatusOfFirstUseInChild([] { ProcessFaults::Find(); }), 0);
}

TEST(FirstUse, Engine) {
  EXPECT_EQ(StatusOfFirstUseInChild([] {
              MakeLoopbackEngine(*wire::IpAddress::Parse("127.0.0.1"), {});
            }),
            0);
}

}  // namespace
}  // namespace rxe_user
