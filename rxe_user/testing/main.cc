// main() for tests that use the network.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "rxe_user/testing/net_namespace.h"

// Set for the programs that a test starts, itself included: they stay in its
// namespace.
constexpr char kEntered[] = "RXE_USER_TEST_NAMESPACE";

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv(kEntered) == nullptr) {
    if (!rxe_user::EnterFreshNetNamespace()) {
      std::puts("no network namespace of our own: using the machine's");
    }
    setenv(kEntered, "1", 1);
  }
  return RUN_ALL_TESTS();
}
