#include "rxe_user/base/environment.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <algorithm>

namespace rxe_user {
namespace {

constexpr std::string_view kPrefix = "RXE_USER_";
constexpr std::string_view kTestPrefix = "RXE_USER_TEST_";
constexpr std::string_view kSettings[] = {
    "RXE_USER_BROKER",       "RXE_USER_BROKER_LINGER_MS",
    "RXE_USER_CAPTURE",      "RXE_USER_CHECK",
    "RXE_USER_DEVICES",      "RXE_USER_EXPLAIN",
    "RXE_USER_FAULTS",       "RXE_USER_FAULTS_SEED",
    "RXE_USER_IO",           "RXE_USER_LANES",
    "RXE_USER_MLX5",         "RXE_USER_NAT",
    "RXE_USER_SAME_HOST",    "RXE_USER_SPIN_US",
    "RXE_USER_TALLY",        "RXE_USER_TRACE",
    "RXE_USER_TRACE_PAYLOAD"};

}  // namespace

bool IsSecureProgram() { return ::getauxval(AT_SECURE) != 0; }

const char* Environment(const char* variable) {
  return ::secure_getenv(variable);
}

std::span<const std::string_view> SettingNames() { return kSettings; }

std::vector<std::string> UnknownSettings() {
  std::vector<std::string> unknown;
  if (IsSecureProgram() || ::environ == nullptr) return unknown;
  for (char** variable = ::environ; *variable != nullptr; ++variable) {
    std::string_view name = *variable;
    name = name.substr(0, name.find('='));
    if (name.starts_with(kPrefix) && !name.starts_with(kTestPrefix) &&
        std::ranges::find(kSettings, name) == std::end(kSettings)) {
      unknown.emplace_back(name);
    }
  }
  return unknown;
}

}  // namespace rxe_user
