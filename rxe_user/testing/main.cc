// main() for tests that use the network.
#include <gtest/gtest.h>

#include <cstdio>

#include "rxe_user/testing/net_namespace.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!rxe_user::EnterFreshNetNamespace()) {
    std::puts("no network namespace of our own: using the machine's");
  }
  return RUN_ALL_TESTS();
}
