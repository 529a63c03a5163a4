// Our libmlx5 in a program that uses the system's libibverbs.
#include <dlfcn.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include "gtest/gtest.h"

namespace {

TEST(Mlx5ElsewhereTest, AnotherLibibverbsHasNoMlx5) {
  void* const verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
  if (verbs == nullptr) GTEST_SKIP() << "no other libibverbs: " << dlerror();
  ASSERT_EQ(dlsym(verbs, "rxe_user_mlx5_interface"), nullptr);
  void* const mlx5 = dlopen(std::getenv("MLX5"), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(mlx5, nullptr) << dlerror();
  const auto supported = reinterpret_cast<bool (*)(ibv_device*)>(
      dlsym(mlx5, "mlx5dv_is_supported"));
  ASSERT_NE(supported, nullptr);
  ibv_device device = {};
  EXPECT_FALSE(supported(&device));
  const auto create = reinterpret_cast<ibv_qp* (*)(ibv_context*, void*, void*)>(
      dlsym(mlx5, "mlx5dv_create_qp"));
  ASSERT_NE(create, nullptr);
  ibv_context context = {};
  errno = 0;
  EXPECT_EQ(create(&context, nullptr, nullptr), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
}

}  // namespace
