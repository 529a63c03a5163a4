#include "rxe_user/base/users.h"

#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "gtest/gtest.h"
#include "rxe_user/testing/user_namespace.h"

namespace rxe_user {
namespace {

constexpr uid_t kOverflow = 65534;
constexpr int kNotAllowed = 77;

// The exit status of a child that runs `test` in a user namespace that maps
// only `inside`.
int InNamespace(uid_t inside, const std::function<bool()>& test) {
  const pid_t child = fork();
  if (child == 0) {
    if (!EnterUserNamespace(inside)) _exit(kNotAllowed);
    _exit(test() ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(UsersTest, EachIdIsOneUserWhereAllAreMapped) {
  std::string map;
  std::getline(std::ifstream("/proc/self/uid_map"), map);
  if (map.find("4294967295") == std::string::npos) {
    GTEST_SKIP() << "this user namespace does not map every user";
  }
  EXPECT_TRUE(NamesOneUser(kOverflow));
  EXPECT_TRUE(NamesOneUser(0));
  EXPECT_TRUE(IsOwnUser(geteuid()));
  EXPECT_FALSE(IsOwnUser(geteuid() + 1));
  EXPECT_EQ(IsRootOfTheMachine(), geteuid() == 0);
}

TEST(UsersTest, OverflowIdIsAmbiguousWhereSomeAreUnmapped) {
  const int root = InNamespace(0, [] {
    return !NamesOneUser(kOverflow) && NamesOneUser(0) && NamesOneUser(1000) &&
           IsOwnUser(0) && !IsOwnUser(kOverflow) && !IsRootOfTheMachine();
  });
  if (root == kNotAllowed) GTEST_SKIP() << "no user namespaces";
  EXPECT_EQ(root, 0);
  EXPECT_EQ(InNamespace(kOverflow,
                        [] {
                          return geteuid() == kOverflow &&
                                 !NamesOneUser(kOverflow) &&
                                 !IsOwnUser(kOverflow);
                        }),
            0);
}

}  // namespace
}  // namespace rxe_user
